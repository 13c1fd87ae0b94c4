package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The limits of the demo. The inflow per millisecond is a whole number of thousandths of a token, so a limiter has
// nothing to round.
const (
	resource = "chat-large"
	requests = "rpm"
	tokens   = "tpm"
)

func limits() []zlimit.Limit {
	return []zlimit.Limit{zlimit.PerMinute(requests, 120), zlimit.PerMinute(tokens, 60_000)}
}

// A persona is how the owner of an API key behaves.
type persona struct {
	key    string
	story  string
	limits []zlimit.Limit // of the key itself; nil if the resource's apply

	rate       int           // requests per second, in thousandths
	burst      int           // concurrent requests
	burstEvery time.Duration // 0 for no bursts

	promptMin, promptMax int64 // tokens of a prompt
	answerMax            int64 // tokens that an answer may have
}

func personas() []persona {
	return []persona{
		{
			key: "web-chat", story: "people, typing",
			rate: 1100, promptMin: 150, promptMax: 900, answerMax: 300,
		},
		{
			key: "nightly-eval", story: "bursts of 16; 60 rpm of its own, and bursts of 90,000 tokens",
			limits: []zlimit.Limit{zlimit.PerMinute(requests, 60), zlimit.PerMinute(tokens, 60_000, zlimit.Burst(90_000))},
			burst:  16, burstEvery: 20 * time.Second, promptMin: 1500, promptMax: 4000, answerMax: 800,
		},
		{
			key: "agents", story: "few requests, long prompts",
			rate: 350, promptMin: 800, promptMax: 9000, answerMax: 1200,
		},
		{
			key: "scraper", story: "never waits, never stops",
			rate: 14_000, burst: 40, burstEvery: 30 * time.Second, promptMin: 60, promptMax: 240, answerMax: 120,
		},
	}
}

// tick is the step of the demo's clock.
const tick = 100 * time.Millisecond

// A call is a request that was admitted and waits for the answer of the model.
type call struct {
	ends   time.Time
	lease  *zlimit.Lease
	actual int64 // tokens that the answer will turn out to cost
	fails  bool
}

// A tally is what became of the requests of a key.
type tally struct {
	Requests  int
	Admitted  int
	Rejected  int
	Failed    int // admitted, and given back when the model failed
	Estimated int64
	Used      int64
	Longest   time.Duration // wait that a rejection named
}

// A lane makes the requests of one key, and records the results. Its requests at one instant are alike, so the order in
// which they reach the store does not change the number of admissions. All else in a lane happens in order.
type lane struct {
	persona
	random   *rand.Rand
	replicas []*zlimit.RateLimiter
	limits   []zlimit.Limit // that hold for the key
	inFlight []call
	tally    tally
	record   map[string][]event // by limit
}

func newLane(p persona, seed, stream uint64, replicas []*zlimit.RateLimiter) *lane {
	l := &lane{persona: p, random: rand.New(rand.NewPCG(seed, stream)), replicas: replicas, record: map[string][]event{}}
	l.limits = p.limits
	if l.limits == nil {
		l.limits = limits()
	}
	return l
}

// step settles the calls that end now, and makes the requests due after a time since the start.
func (l *lane) step(ctx context.Context, now time.Time, since time.Duration, quiet bool) error {
	if err := l.settle(ctx, now); err != nil {
		return err
	}
	if n := l.due(since); n > 0 && !quiet {
		return l.send(ctx, now, n)
	}
	return nil
}

// due draws how many requests are made in this tick.
func (l *lane) due(since time.Duration) int {
	perTick := l.rate * int(tick) / int(time.Second)
	n := perTick / 1000
	if l.random.IntN(1000) < perTick%1000 {
		n++
	}
	if l.burstEvery > 0 && since%l.burstEvery == l.burstEvery/4 {
		n += l.burst
	}
	return n
}

// send makes n concurrent requests, each through the next replica.
func (l *lane) send(ctx context.Context, now time.Time, n int) error {
	prompt := l.promptMin + l.random.Int64N(l.promptMax-l.promptMin+1)
	estimate := prompt + l.answerMax
	leases := make([]*zlimit.Lease, n)
	rejections := make([]*zlimit.ExceededError, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error {
			lease, err := l.replicas[(l.tally.Requests+i)%len(l.replicas)].Acquire(ctx, zlimit.Request{
				Entity:   l.key,
				Resource: resource,
				Consume:  zlimit.Amounts{requests: 1, tokens: estimate},
			})
			leases[i] = lease
			if errors.As(err, &rejections[i]) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	l.tally.Requests += n
	for i, lease := range leases {
		if lease == nil {
			l.tally.Rejected++
			if wait := rejections[i].RetryAfter(); wait < zlimit.Never {
				l.tally.Longest = max(l.tally.Longest, wait)
			}
			continue
		}
		l.tally.Admitted++
		l.tally.Estimated += estimate
		l.note(requests, event{now.UnixMilli(), 1, true})
		l.note(tokens, event{now.UnixMilli(), estimate, true})
		l.inFlight = append(l.inFlight, l.answer(now, lease, prompt))
	}
	return nil
}

// answer draws how a call goes. The prompt was guessed, and may turn out a little longer.
func (l *lane) answer(now time.Time, lease *zlimit.Lease, prompt int64) call {
	answer := 1 + l.random.Int64N(l.answerMax)
	if l.random.IntN(4) == 0 {
		answer = l.answerMax
	}
	return call{
		ends:   now.Add((500*time.Millisecond + time.Duration(answer)*10*time.Millisecond).Round(tick)),
		lease:  lease,
		actual: prompt + l.random.Int64N(prompt/20+1) + answer,
		fails:  l.random.IntN(25) == 0,
	}
}

func (l *lane) settle(ctx context.Context, now time.Time) error {
	waiting := l.inFlight[:0]
	for _, c := range l.inFlight {
		if c.ends.After(now) {
			waiting = append(waiting, c)
			continue
		}
		estimate := c.lease.Consumed()[tokens]
		if c.fails {
			if err := c.lease.Rollback(ctx); err != nil {
				return err
			}
			l.tally.Failed++
			l.note(requests, event{now.UnixMilli(), -1, false})
			l.note(tokens, event{now.UnixMilli(), -estimate, false})
			continue
		}
		if err := c.lease.Adjust(zlimit.Amounts{tokens: c.actual - estimate}); err != nil {
			return err
		}
		if err := c.lease.Commit(ctx); err != nil {
			return err
		}
		l.tally.Used += c.actual
		l.note(tokens, event{now.UnixMilli(), c.actual - estimate, false})
	}
	l.inFlight = waiting
	return nil
}

func (l *lane) note(limit string, e event) { l.record[limit] = append(l.record[limit], e) }
