// Package recent counts what the limiters of a process did in the last five minutes: who was refused by which limit and until when, who waits,
// and how slow the store was. The store knows balances, and none of this. It is for a page of status:
//
//	seen := recent.New(nil)
//	limiter, err := zlimit.Open(ctx, "dynamodb:limits", zlimit.WithObserver(seen.Observe))
//	// …
//	pulse := seen.Of("gpt")
//	fmt.Println(pulse.RefusedMinute, pulse.Waits.N, pulse.Slowest)
//
// Refusals of other processes are known where they report them, see [Refusals].
package recent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An Observer counts the events of limiters, for [zlimit.WithObserver]. It keeps five minutes of up to 256 resources, and refusals by up to 4096
// pairs of an entity and a limit. What is beyond that is left out. It is safe for concurrent use.
type Observer struct {
	now func() time.Time

	mu        sync.Mutex
	store     [recentSeconds]storeSecond
	resources map[string]*course
	refused   map[Refusal]*refusals
	waiting   int // callers of all resources, as far as their ends were noticed
	tidied    time.Time
}

// A course is what happened to one resource.
type course struct {
	seconds [recentSeconds]second
	waiting []waiter
	calls   int64 // decisions, since the process began
}

const (
	recentSeconds = 300
	mostRefusals  = 4096 // entities and limits; a flood of names is not counted by name
	mostWaiters   = 4096
	mostResources = 256
)

// A second is what happened to a resource in one second.
type second struct {
	unix              int64
	admitted, refused int64
	waiting           int64
}

// A storeSecond is the slowest call of the store in one second.
type storeSecond struct {
	unix    int64
	slowest time.Duration
}

// A Refusal is whose request was refused, by whose limit.
type Refusal struct{ Entity, Resource, LimitEntity, Limit string }

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
	entity string
	until  time.Time
}

// New returns counts that begin at zero. The clock is that of the limiters; nil is [time.Now].
func New(now func() time.Time) *Observer {
	if now == nil {
		now = time.Now //nolint:forbidigo // as limiters have it
	}
	return &Observer{now: now, refused: map[Refusal]*refusals{}, resources: map[string]*course{}}
}

// Observe counts an event. It is a [zlimit.Observer].
func (r *Observer) Observe(_ context.Context, e zlimit.Event) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case zlimit.EventDecision:
		of := r.resources[e.Resource]
		if of == nil {
			if len(r.resources) >= mostResources {
				return
			}
			of = &course{}
			r.resources[e.Resource] = of
		}
		of.calls++
		r.decision(of, now, &e)
	case zlimit.EventStore:
		s := &r.store[now.Unix()%recentSeconds]
		if s.unix != now.Unix() {
			*s = storeSecond{unix: now.Unix()}
		}
		s.slowest = max(s.slowest, e.Duration)
	default:
	}
}

func (r *Observer) second(of *course, now time.Time) *second {
	s := &of.seconds[now.Unix()%recentSeconds]
	if s.unix != now.Unix() {
		r.sleepers(of, now)
		*s = second{unix: now.Unix(), waiting: int64(len(of.waiting))}
	}
	return s
}

func (r *Observer) decision(c *course, now time.Time, e *zlimit.Event) {
	s := r.second(c, now)
	switch e.Result {
	case zlimit.ResultOK, zlimit.ResultDegraded:
		s.admitted++
		if e.Wait > 0 {
			if r.waiting >= mostWaiters {
				r.tidy(now)
			}
			if r.waiting < mostWaiters {
				c.waiting = append(c.waiting, waiter{e.Entity, now.Add(e.Wait)})
				r.waiting++
			}
		}
	case zlimit.ResultRejected:
		s.refused++
		key := Refusal{e.Entity, e.Resource, e.LimitEntity, e.Limit}
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
func (r *Observer) tidy(now time.Time) {
	if now.Sub(r.tidied) < 10*time.Second {
		return
	}
	r.tidied = now
	maps.DeleteFunc(r.refused, func(_ Refusal, of *refusals) bool { return of.since(now) == 0 })
	for _, c := range r.resources {
		r.sleepers(c, now)
	}
}

// Calls returns how many decisions there were for each resource since the process began.
func (r *Observer) Calls() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make(map[string]int64, len(r.resources))
	for name, of := range r.resources {
		calls[name] = of.calls
	}
	return calls
}

// A Pulse is the last five minutes of one resource in this process, and of the whole store.
type Pulse struct {
	// Admitted and Refused are requests, Waiters the most that waited at the same time, and Store the slowest call of the store in
	// nanoseconds: five seconds each, the latest last. The five seconds under way are left out.
	Admitted, Refused, Waiters, Store []float64

	PerSecond              float64 // admitted requests in the last minute
	RefusedMinute, Decided int64   // requests in the last minute
	Slowest                time.Duration
	Calls                  bool             // the store was called in the last minute
	Refusals               []Refused        // of the last minute, the most frequent first
	Waiting                map[string]Waits // by entity
	Waits                  Waits            // of all
}

// RefusedPart returns which part of the requests of the last minute was refused.
func (p *Pulse) RefusedPart() float64 { return float64(p.RefusedMinute) / float64(max(p.Decided, 1)) }

// A Refused is how often a limit refused an entity in the last minute.
type Refused struct {
	Refusal
	N int64
	// Last, RetryAfter and Requested are of the last one that this process saw: its time, when its tokens were there, and how many it asked for. They are
	// zero for a report.
	Last       time.Time
	RetryAfter time.Duration
	Requested  int64
}

// Waits are callers that sleep until they have their tokens.
type Waits struct {
	N       int
	Longest time.Duration
}

const pulseStep = 5 // seconds of a point

// Of returns the last five minutes of a resource.
func (r *Observer) Of(resource string) Pulse {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	points := recentSeconds/pulseStep - 1
	p := Pulse{Waiting: map[string]Waits{}}
	p.Admitted, p.Refused = make([]float64, points), make([]float64, points)
	p.Store, p.Waiters = make([]float64, points), make([]float64, points)
	of := r.resources[resource]
	if of == nil {
		of = &course{}
	}
	r.second(of, now)
	r.sleepers(of, now)
	for i := range recentSeconds {
		s, store := &of.seconds[i], &r.store[i]
		if age := now.Unix() - s.unix; s.unix != 0 && age >= 0 {
			if age < 60 {
				p.Decided += s.admitted + s.refused
				p.RefusedMinute += s.refused
				p.PerSecond += float64(s.admitted) / 60
			}
			if at := points - 1 - int(age/pulseStep); at >= 0 {
				p.Admitted[at] += float64(s.admitted)
				p.Refused[at] += float64(s.refused)
				p.Waiters[at] = max(p.Waiters[at], float64(s.waiting))
			}
		}
		if age := now.Unix() - store.unix; store.unix != 0 && age >= 0 {
			if age < 60 {
				p.Slowest, p.Calls = max(p.Slowest, store.slowest), true
			}
			if at := points - 1 - int(age/pulseStep); at >= 0 {
				p.Store[at] = max(p.Store[at], float64(store.slowest))
			}
		}
	}
	for key, by := range r.refused {
		n := by.since(now)
		if n == 0 {
			delete(r.refused, key)
		} else if key.Resource == resource {
			p.Refusals = append(p.Refusals, Refused{key, n, by.last, by.retryAfter, by.requested})
		}
	}
	slices.SortFunc(p.Refusals, func(a, b Refused) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Entity, b.Entity)) })
	for _, w := range of.waiting {
		all := p.Waiting[w.entity]
		all.N++
		all.Longest = max(all.Longest, w.until.Sub(now))
		p.Waiting[w.entity] = all
		p.Waits.N++
		p.Waits.Longest = max(p.Waits.Longest, all.Longest)
	}
	return p
}

// sleepers forgets who has waited long enough.
func (r *Observer) sleepers(of *course, now time.Time) {
	before := len(of.waiting)
	of.waiting = slices.DeleteFunc(of.waiting, func(w waiter) bool { return !w.until.After(now) })
	r.waiting -= before - len(of.waiting)
}
