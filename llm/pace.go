package llm

import (
	"context"
	"errors"
	"math/bits"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zlimit/zlimit-go/zlimit"
)

// WithLearnedRate learns the rate of a provider that refuses calls without saying what is left, for all processes together. It takes two
// kinds of limits, which the account alone should have:
//   - The limits scaled are the provider's, at its full rate as far as it is known. They are limits of the transport, see
//     [WithLimit].
//   - The limit pace holds the present share of that rate. All of its tokens stand for the full rate, and half of them for half: then a
//     call takes twice as much of the scaled limits.
//
// A response of status 429 that says nothing of what is left takes half of the pace, once for all the calls that were admitted at the
// same pace. The refill of the limit pace raises it again, evenly, up to the full rate: additive increase and multiplicative
// decrease. With pace=1000:50/min a full rate comes back within 20 minutes, and half of it within ten. The share is 1/64 at least.
//
// A call costs what it costs without. A response that halves the pace costs one write more, and another one of the same pace a rejection.
func WithLearnedRate(pace string, scaled ...string) Option {
	return func(c *config) { c.pace, c.scaled, c.paced = pace, scaled, true }
}

// slowest is the least share of a rate, as a divisor.
const slowest = 64

// A pace is the share of the full rate that calls have: left tokens of all.
type pace struct{ left, all int64 }

// of returns how much an amount is at the pace. A call at three quarters of the rate takes a third more, which is one and a third for
// one. So a phase, which calls have evenly, says how the amount of a call is rounded, and calls take the right amount together.
func (p pace) of(amount int64, phase uint16) int64 {
	if p.all <= 0 || p.left >= p.all {
		return amount
	}
	left := uint64(max(p.left, p.all/slowest, 1))
	high, low := bits.Mul64(uint64(amount), uint64(p.all))
	low, carry := bits.Add64(low, left*uint64(phase)>>16, 0)
	if high += carry; high >= left {
		return maxAmount
	}
	n, _ := bits.Div64(high, low, left)
	return int64(min(n, maxAmount))
}

// evenly is how far the phases of two calls that follow one another are apart: the golden section, so that any number of them lies
// evenly.
const evenly = 40503

// paces has the pace of each resource, as the last call saw it. Its zero value has none.
type paces struct {
	calls atomic.Uint32

	mu sync.Mutex
	of map[string]pace
}

// phase returns the phase of the next call.
func (p *paces) phase() uint16 { return uint16(p.calls.Add(1) * evenly) }

// pacesKept bounds the resources of paces.
const pacesKept = 1000

func (p *paces) get(resource string) pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[resource]
}

func (p *paces) set(resource string, seen pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= pacesKept {
		p.of = map[string]pace{}
	}
	p.of[resource] = seen
}

// scale adjusts amounts to a pace.
func (x *exchange) scale(amounts zlimit.Amounts, p pace) {
	for _, limit := range x.transport.config.scaled {
		if n, ok := amounts[limit]; ok {
			amounts[limit] = p.of(n, x.phase)
		}
	}
}

// sawPace notes the pace at which a share was admitted.
func (x *exchange) sawPace() {
	t := x.transport
	if !t.config.paced {
		return
	}
	for _, s := range x.shares {
		for _, status := range s.lease.Statuses() {
			if status.Limit.Name == t.config.pace {
				s.pace = pace{status.Available, status.Now().Capacity}
				t.paces.set(s.resource, s.pace)
			}
		}
	}
}

// slowDown halves the pace for a refusal that says nothing of what is left. All calls that were admitted at one pace ask for a little
// more than half of it, so only one of them gets it.
func (x *exchange) slowDown(ctx context.Context, refused *http.Response) {
	t := x.transport
	if !t.config.paced || refused == nil || refused.StatusCode != http.StatusTooManyRequests {
		return
	}
	figures := figuresOf(refused.Header, t.config.clock())
	for _, c := range t.config.charges {
		if slices.Contains(t.config.scaled, c.limit) && len(figures[c.weights.kind()]) > 0 {
			return // which WithLearning uses
		}
	}
	s := x.own()
	half := s.pace.left/2 + 1
	if now := t.paces.get(s.resource); s.pace.left <= s.pace.all/slowest || now.left < half {
		return // it is slowed down already
	}
	s.mu.Lock()
	err := s.lease.Consume(ctx, zlimit.Amounts{t.config.pace: half})
	s.mu.Unlock()
	switch {
	case err == nil:
		t.paces.set(s.resource, pace{s.pace.left - half, s.pace.all})
	case errors.As(err, new(*zlimit.ExceededError)): // another call came first
	default:
		t.unlearned.Warn(ctx, t.config.logger, "llm: the rate of a provider was not learned", err, "resource", s.resource)
	}
}
