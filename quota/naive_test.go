package quota_test

import (
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/quota"
)

// naive is the model the package is held against: slices that are pruned and
// summed on every call, in the plainest terms. Its cost grows with the window.
type naive struct {
	now       func() time.Time
	quotas    map[quota.Scope]map[string]quota.ModelQuota
	fallbacks map[quota.Scope]quota.ModelQuota
	state     map[quota.Scope]map[string]*naiveStats
	lastID    int
}

type naiveStats struct {
	requests            []naiveRequest
	tokens              []naiveTokens
	dayStart            time.Time
	dayCount, dayTokens int64
	days                int // days begun, to distinguish one from the next
}

type naiveRequest struct {
	at time.Time
	id int
}

type naiveTokens struct {
	at      time.Time
	id      int
	in, out int64
}

func newNaive(now func() time.Time) *naive {
	return &naive{
		now:       now,
		quotas:    map[quota.Scope]map[string]quota.ModelQuota{quota.ScopeModel: {}, quota.ScopeKey: {}},
		fallbacks: map[quota.Scope]quota.ModelQuota{},
		state:     map[quota.Scope]map[string]*naiveStats{quota.ScopeModel: {}, quota.ScopeKey: {}},
	}
}

func (n *naive) clone(now func() time.Time) *naive {
	c := newNaive(now)
	c.fallbacks = n.fallbacks
	for _, sc := range []quota.Scope{quota.ScopeModel, quota.ScopeKey} {
		c.quotas[sc] = maps.Clone(n.quotas[sc])
		for name, s := range n.state[sc] {
			d := *s
			d.requests, d.tokens = slices.Clone(s.requests), slices.Clone(s.tokens)
			c.state[sc][name] = &d
		}
	}
	return c
}

func (n *naive) quota(sc quota.Scope, name string) quota.ModelQuota {
	if q, ok := n.quotas[sc][name]; ok {
		return q
	}
	return n.fallbacks[sc]
}

func (n *naive) prune(sc quota.Scope, name string) *naiveStats {
	s := n.state[sc][name]
	if s == nil {
		s = &naiveStats{}
		n.state[sc][name] = s
	}
	now := n.now()
	// A clock that was set back finds entries of the future: they count from now.
	for i := range s.requests {
		s.requests[i].at = earlier(s.requests[i].at, now)
	}
	for i := range s.tokens {
		s.tokens[i].at = earlier(s.tokens[i].at, now)
	}
	s.dayStart = earlier(s.dayStart, now)
	window := now.Add(-time.Minute)
	requests := s.requests[:0]
	for _, r := range s.requests {
		if r.at.After(window) {
			requests = append(requests, r)
		}
	}
	s.requests = requests
	tokens := s.tokens[:0]
	for _, t := range s.tokens {
		if t.at.After(window) {
			tokens = append(tokens, t)
		}
	}
	s.tokens = tokens
	if s.dayCount > 0 && now.Sub(s.dayStart) >= 24*time.Hour {
		s.dayCount, s.dayTokens, s.dayStart = 0, 0, time.Time{}
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s *naiveStats) sums() (in, out int64) {
	for _, t := range s.tokens {
		in, out = in+t.in, out+t.out
	}
	return in, out
}

func (n *naive) admits(sc quota.Scope, name string, input, output int64) bool {
	q, s := n.quota(sc, name), n.prune(sc, name)
	in, out := s.sums()
	switch {
	case q.MaxRPD > 0 && s.dayCount >= q.MaxRPD,
		q.MaxRPM > 0 && int64(len(s.requests)) >= q.MaxRPM,
		q.MaxTPM > 0 && in+out+input+output > q.MaxTPM,
		q.MaxTPD > 0 && s.dayTokens+input+output > q.MaxTPD,
		q.MaxInputTPM > 0 && in+input > q.MaxInputTPM,
		q.MaxOutputTPM > 0 && out+output > q.MaxOutputTPM:
		return false
	}
	return true
}

// scopesOf lists the windows a request counts in.
func scopesOf(r quota.Request) map[quota.Scope]string {
	if r.Key == "" {
		return map[quota.Scope]string{quota.ScopeModel: r.Model}
	}
	return map[quota.Scope]string{quota.ScopeModel: r.Model, quota.ScopeKey: r.Key}
}

func (n *naive) check(r quota.Request) bool {
	ok := true
	for sc, name := range scopesOf(r) {
		ok = n.admits(sc, name, int64(r.Input), int64(r.Output)) && ok
	}
	return ok
}

// naiveReservation is what settle and cancel need.
type naiveReservation struct {
	r    quota.Request
	id   int
	days map[quota.Scope]int
}

func (n *naive) record(r quota.Request) naiveReservation {
	n.lastID++
	res := naiveReservation{r: r, id: n.lastID, days: map[quota.Scope]int{}}
	for sc, name := range scopesOf(r) {
		s := n.prune(sc, name)
		now := n.now()
		s.requests = append(s.requests, naiveRequest{now, n.lastID})
		s.tokens = append(s.tokens, naiveTokens{now, n.lastID, int64(r.Input), int64(r.Output)})
		if s.dayCount == 0 {
			s.dayStart = now
			s.days++
		}
		s.dayCount++
		s.dayTokens += int64(r.Input) + int64(r.Output)
		res.days[sc] = s.days
	}
	return res
}

func (n *naive) settle(res naiveReservation, input, output int64) {
	for sc, name := range scopesOf(res.r) {
		s := n.prune(sc, name)
		for i := range s.tokens {
			if s.tokens[i].id == res.id {
				s.tokens[i].in, s.tokens[i].out = input, output
			}
		}
		if s.dayCount > 0 && s.days == res.days[sc] {
			s.dayTokens += input + output - int64(res.r.Input) - int64(res.r.Output)
		}
	}
}

func (n *naive) cancel(res naiveReservation) {
	for sc, name := range scopesOf(res.r) {
		s := n.prune(sc, name)
		s.requests = slices.DeleteFunc(s.requests, func(r naiveRequest) bool { return r.id == res.id })
		s.tokens = slices.DeleteFunc(s.tokens, func(t naiveTokens) bool { return t.id == res.id })
		if s.dayCount > 0 && s.days == res.days[sc] {
			s.dayCount--
			s.dayTokens -= int64(res.r.Input) + int64(res.r.Output)
			if s.dayCount == 0 {
				s.dayStart = time.Time{}
			}
		}
	}
}

func (n *naive) stats(sc quota.Scope, name string) quota.Stats {
	q, s := n.quota(sc, name), n.prune(sc, name)
	in, out := s.sums()
	st := quota.Stats{
		RPM: int64(len(s.requests)), MaxRPM: q.MaxRPM,
		TPM: in + out, MaxTPM: q.MaxTPM,
		RPD: s.dayCount, MaxRPD: q.MaxRPD,
		InputTPM: in, MaxInputTPM: q.MaxInputTPM,
		OutputTPM: out, MaxOutputTPM: q.MaxOutputTPM,
		TPD: s.dayTokens, MaxTPD: q.MaxTPD,
	}
	if s.dayCount > 0 {
		st.DayStart = s.dayStart
	}
	return st
}

func (n *naive) reset(sc quota.Scope, name string) {
	days := n.prune(sc, name).days
	n.state[sc][name] = &naiveStats{days: days}
}
