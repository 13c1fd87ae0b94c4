package page

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Recent counts what the limiters of this process did in the last five minutes: an observer for [zlimit.WithObserver]. The store knows
// balances, but not what was refused, who waits, or which amounts are held by calls under way. It is safe for concurrent use.
type Recent struct {
	now func() time.Time

	mu      sync.Mutex
	seconds [recentSeconds]second
	refused map[refusal]*refusals
	waiting []waiter
	open    map[uint64]held
	tidied  time.Time
	calls   map[string]int64 // decisions by resource, since the process began
}

const (
	recentSeconds = 300
	mostRefusals  = 4096 // entities and limits; a flood of names is not counted by name
	mostWaiters   = 4096
	mostResources = 256
	mostOpen      = 65536
	heldFor       = 10 * time.Minute // after which a lease that no one settles counts as dropped
)

// A second is what happened in one second.
type second struct {
	unix              int64
	admitted, refused int64
	waiting           int64
	store             time.Duration // the slowest call
	calls             int64
}

// A refusal is whose request was refused, by whose limit.
type refusal struct{ entity, resource, limitEntity, limit string }

// refusals are the refusals of one minute: by second, for the last sixty.
type refusals struct {
	at         [60]int64 // unix seconds
	n          [60]int64
	last       time.Time
	retryAfter time.Duration
	requested  int64
}

func (r *refusals) since(now time.Time) (n int64) {
	for i, at := range r.at {
		if at > now.Unix()-60 {
			n += r.n[i]
		}
	}
	return n
}

type waiter struct {
	entity, resource string
	until            time.Time
}

type held struct {
	entity, resource string
	at               time.Time
	amounts          []zlimit.Amount
}

// NewRecent returns counts that begin at zero. A nil clock is [time.Now].
func NewRecent(now func() time.Time) *Recent {
	if now == nil {
		now = time.Now
	}
	return &Recent{now: now, refused: map[refusal]*refusals{}, open: map[uint64]held{}, calls: map[string]int64{}}
}

// Observe counts an event. It is a [zlimit.Observer].
func (r *Recent) Observe(_ context.Context, e zlimit.Event) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.second(now)
	switch e.Kind {
	case zlimit.EventDecision:
		if _, known := r.calls[e.Resource]; known || len(r.calls) < mostResources {
			r.calls[e.Resource]++
		}
		r.decision(s, now, &e)
	case zlimit.EventSettle:
		delete(r.open, e.Lease)
	case zlimit.EventStore:
		s.store = max(s.store, e.Duration)
		s.calls++
	default:
	}
}

func (r *Recent) second(now time.Time) *second {
	s := &r.seconds[now.Unix()%recentSeconds]
	if s.unix != now.Unix() {
		r.sleepers(now)
		*s = second{unix: now.Unix(), waiting: int64(len(r.waiting))}
	}
	return s
}

func (r *Recent) decision(s *second, now time.Time, e *zlimit.Event) {
	switch e.Result {
	case zlimit.ResultOK, zlimit.ResultDegraded:
		s.admitted++
		if e.Wait > 0 && len(r.waiting) < mostWaiters {
			r.waiting = append(r.waiting, waiter{e.Entity, e.Resource, now.Add(e.Wait)})
		}
		if e.Lease != 0 {
			r.hold(e, now)
		}
	case zlimit.ResultRejected:
		s.refused++
		key := refusal{e.Entity, e.Resource, e.LimitEntity, e.Limit}
		of := r.refused[key]
		if of == nil {
			if len(r.refused) >= mostRefusals {
				r.tidy(now)
			}
			if len(r.refused) >= mostRefusals {
				return
			}
			of = &refusals{}
			r.refused[key] = of
		}
		i := now.Unix() % 60
		if of.at[i] != now.Unix() {
			of.at[i], of.n[i] = now.Unix(), 0
		}
		of.n[i]++
		of.last = now
		for i := range e.Statuses {
			if st := &e.Statuses[i]; st.Exceeded && st.Limit.Name == e.Limit && st.Entity == e.LimitEntity {
				of.retryAfter, of.requested = st.RetryAfter, st.Requested
			}
		}
	default:
	}
}

// tidy forgets what is over, once in ten seconds: in a flood of names every event would go through all of them.
func (r *Recent) tidy(now time.Time) {
	if now.Sub(r.tidied) < 10*time.Second {
		return
	}
	r.tidied = now
	maps.DeleteFunc(r.refused, func(_ refusal, of *refusals) bool { return of.since(now) == 0 })
	maps.DeleteFunc(r.open, func(_ uint64, h held) bool { return now.Sub(h.at) > heldFor })
}

// hold remembers the amounts of a lease until it is settled.
func (r *Recent) hold(e *zlimit.Event, now time.Time) {
	if h, ok := r.open[e.Lease]; ok { // Lease.Consume
		h.amounts = append(h.amounts, e.Amounts...)
		r.open[e.Lease] = h
		return
	}
	if len(r.open) >= mostOpen {
		r.tidy(now)
	}
	if len(r.open) < mostOpen {
		r.open[e.Lease] = held{e.Entity, e.Resource, now, slices.Clone(e.Amounts)}
	}
}

// resources returns how many calls there were for each resource.
func (r *Recent) resources() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

// A pulse is the last five minutes, for one resource where entities are named.
type pulse struct {
	Admitted, Refused, Store []float64 // five seconds each, the latest last
	Waiters                  []float64
	PerSecond                float64
	RefusedMinute, Decided   int64
	Slowest                  time.Duration
	Refusals                 []refusedBy
	Waiting                  map[string]waits
	Waits                    waits
	Open                     []held
	Calls                    bool // whether the store was called at all in the last minute
}

type refusedBy struct {
	refusal
	N          int64
	Last       time.Time
	RetryAfter time.Duration
	Requested  int64
}

// waits are callers that sleep until they have their tokens.
type waits struct {
	N       int
	Longest time.Duration
}

const pulseStep = 5 // seconds of a point

func (r *Recent) pulse(resource string) pulse {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	points := recentSeconds/pulseStep - 1
	p := pulse{Waiting: map[string]waits{}}
	p.Admitted, p.Refused = make([]float64, points), make([]float64, points)
	p.Store, p.Waiters = make([]float64, points), make([]float64, points)
	r.second(now)
	r.sleepers(now)
	for i := range r.seconds {
		s := &r.seconds[i]
		age := now.Unix() - s.unix
		if s.unix == 0 || age < 0 {
			continue
		}
		if age < 60 {
			p.Decided += s.admitted + s.refused
			p.RefusedMinute += s.refused
			p.PerSecond += float64(s.admitted) / 60
			p.Slowest = max(p.Slowest, s.store)
			p.Calls = p.Calls || s.calls > 0
		}
		if at := points - 1 - int(age/pulseStep); at >= 0 {
			p.Admitted[at] += float64(s.admitted)
			p.Refused[at] += float64(s.refused)
			p.Store[at] = max(p.Store[at], float64(s.store))
			p.Waiters[at] = max(p.Waiters[at], float64(s.waiting))
		}
	}
	for key, of := range r.refused {
		n := of.since(now)
		if n == 0 {
			delete(r.refused, key)
		} else if key.resource == resource {
			p.Refusals = append(p.Refusals, refusedBy{key, n, of.last, of.retryAfter, of.requested})
		}
	}
	slices.SortFunc(p.Refusals, func(a, b refusedBy) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.entity, b.entity)) })
	for _, w := range r.waiting {
		if w.resource == resource {
			of := p.Waiting[w.entity]
			of.N++
			of.Longest = max(of.Longest, w.until.Sub(now))
			p.Waiting[w.entity] = of
			p.Waits.N++
			p.Waits.Longest = max(p.Waits.Longest, of.Longest)
		}
	}
	for id, h := range r.open {
		if now.Sub(h.at) > heldFor {
			delete(r.open, id)
		} else if h.resource == resource {
			p.Open = append(p.Open, h)
		}
	}
	return p
}

// sleepers forgets who has waited long enough.
func (r *Recent) sleepers(now time.Time) {
	r.waiting = slices.DeleteFunc(r.waiting, func(w waiter) bool { return !w.until.After(now) })
}
