package quota

import (
	"time"
)

// A memory decides on windows in this process.
type memory struct {
	clock  func() time.Time // nil: the process's monotonic clock
	start  time.Time
	base   int64
	models *table
	keys   *table
}

func newMemory(c *Config, quotas map[string]ModelQuota) *memory {
	m := &memory{
		clock:  c.Clock,
		start:  time.Now(), //nolint:forbidigo // the monotonic clock that backs a nil Config.Clock
		models: newTable(ScopeModel, quotas, c.DefaultQuota),
		keys:   newTable(ScopeKey, c.KeyQuotas, c.DefaultKeyQuota),
	}
	m.base = m.start.UnixNano()
	return m
}

// now is Unix time in nanoseconds. Without an injected clock it does not jump
// when the machine's clock is set.
func (m *memory) now() int64 {
	if m.clock != nil {
		return m.clock().UnixNano()
	}
	return m.base + int64(time.Since(m.start))
}

func (m *memory) table(sc Scope) *table {
	if sc == ScopeKey {
		return m.keys
	}
	return m.models
}

// chargeMode says what is done with a request.
type chargeMode uint8

const (
	modeCheck   chargeMode = iota // decide only
	modeReserve                   // decide, and record what is admitted
	modeRecord                    // record whatever the limits say
)

// A place is a recorded entry: where a reservation finds it again. s is nil for
// a key where the request has none.
type place struct {
	s *subject
	mark
}

// locked is what a call needs of one table while its shard is locked. sh is nil
// for the key of a request that has none.
type locked struct {
	sh   *shard
	hash uint64
	s    *subject // nil where the name has no window
}

// lock locks the shards of a request, the model's first, and looks up both
// names. A name with a window was checked when it got it; others are checked
// here.
func (m *memory) lock(r *Request) (model, key locked, err error) {
	model.sh, model.hash = m.models.shard(r.Model)
	if r.Key != "" {
		key.sh, key.hash = m.keys.shard(r.Key)
	}
	model.sh.lock()
	model.s = model.sh.index.find(model.hash, r.Model)
	missing := model.s == nil
	if key.sh != nil {
		key.sh.lock()
		key.s = key.sh.index.find(key.hash, r.Key)
		missing = missing || key.s == nil
	}
	if missing {
		if err := r.validateNames(); err != nil {
			unlock(model.sh, key.sh)
			return locked{}, locked{}, err
		}
	}
	return model, key, nil
}

func unlock(model, key *shard) {
	if key != nil {
		key.mu.Unlock()
	}
	model.mu.Unlock()
}

// charge decides on a request and records it as the mode says, as one step
// under the locks of the model's and the key's shard.
func (m *memory) charge(r *Request, mode chargeMode) (model, key place, denied *ExceededError, err error) {
	a, b, err := m.lock(r)
	if err != nil {
		return place{}, place{}, nil, err
	}
	input, output := int64(r.Input), int64(r.Output)
	now := m.now()
	if mode != modeRecord {
		denied = m.models.decide(a.s, r.Model, now, input, output)
		if denied == nil && b.sh != nil {
			denied = m.keys.decide(b.s, r.Key, now, input, output)
		}
	}
	if denied != nil || mode == modeCheck {
		unlock(a.sh, b.sh)
		return place{}, place{}, denied, nil
	}
	model = m.models.record(&a, r.Model, now, input, output)
	if b.sh != nil {
		key = m.keys.record(&b, r.Key, now, input, output)
	}
	sweep := a.sh.due()
	unlock(a.sh, b.sh)
	if sweep {
		m.models.sweep(now)
		m.keys.sweep(now)
	}
	return model, key, nil, nil
}

// decide returns nil where the request is admitted. s is nil for a name without
// a window; the shard is locked.
func (t *table) decide(s *subject, name string, now, input, output int64) *ExceededError {
	if s == nil {
		q := t.quota(name)
		if l := q.Impossible(input, output); l != NoLimit {
			return Refusal(t.scope, name, q, l, input, output)
		}
		return nil
	}
	s.prune(now)
	if l := s.quota.Exceeded(&s.usage, input, output); l != NoLimit {
		return s.denied(t.scope, l, input, output)
	}
	return nil
}

func (t *table) record(at *locked, name string, now, input, output int64) place {
	s := at.s
	if s == nil {
		s = t.ensure(at.sh, at.hash, name)
	}
	s.prune(now)
	return place{s, s.add(now, input, output)}
}

// settle puts real token counts in place of those of the request.
func (m *memory) settle(model, key *place, r *Request, input, output int64) {
	lockPlaces(model, key)
	defer unlockPlaces(model, key)
	now, before := m.now(), int64(r.Input)+int64(r.Output)
	for _, p := range []*place{model, key} {
		if p.s != nil {
			p.s.prune(now)
			p.s.settle(p.mark, before, input, output)
		}
	}
}

// cancel takes the entries of the request out.
func (m *memory) cancel(model, key *place, r *Request) {
	lockPlaces(model, key)
	defer unlockPlaces(model, key)
	now, before := m.now(), int64(r.Input)+int64(r.Output)
	for _, p := range []*place{model, key} {
		if p.s != nil {
			p.s.prune(now)
			p.s.cancel(p.mark, before)
		}
	}
}

func lockPlaces(model, key *place) {
	model.s.sh.lock()
	if key.s != nil {
		key.s.sh.lock()
	}
}

func unlockPlaces(model, key *place) {
	if key.s != nil {
		key.s.sh.mu.Unlock()
	}
	model.s.sh.mu.Unlock()
}

// timeUntil returns how long until the request would be admitted if nothing
// else were recorded, or an *ExceededError where it never would.
func (m *memory) timeUntil(r *Request) (time.Duration, error) {
	a, b, err := m.lock(r)
	if err != nil {
		return 0, err
	}
	defer unlock(a.sh, b.sh)
	input, output := int64(r.Input), int64(r.Output)
	now := m.now()
	t, denied := m.models.whenAdmitted(a.s, r.Model, now, input, output)
	if denied == nil && b.sh != nil {
		var tk int64
		tk, denied = m.keys.whenAdmitted(b.s, r.Key, now, input, output)
		t = max(t, tk)
	}
	if denied != nil {
		return 0, denied
	}
	return time.Duration(t - now), nil
}

func (t *table) whenAdmitted(s *subject, name string, now, input, output int64) (int64, *ExceededError) {
	if s == nil {
		return now, t.decide(nil, name, now, input, output)
	}
	s.prune(now)
	if l := s.quota.Impossible(input, output); l != NoLimit {
		return 0, s.denied(t.scope, l, input, output)
	}
	return s.whenAdmitted(now, input, output), nil
}

// stats returns what a name's windows hold now.
func (m *memory) stats(sc Scope, name string) Stats {
	t := m.table(sc)
	sh, h := t.shard(name)
	sh.lock()
	defer sh.mu.Unlock()
	s := sh.index.find(h, name)
	if s == nil {
		return (&window{quota: t.quota(name)}).stats()
	}
	s.prune(m.now())
	return s.stats()
}

// allStats returns every name that has a quota or usage.
func (m *memory) allStats(sc Scope) map[string]Stats {
	t := m.table(sc)
	out := map[string]Stats{}
	for name, q := range t.allQuotas() {
		out[name] = (&window{quota: q}).stats()
	}
	for i := range t.shards {
		sh := &t.shards[i]
		sh.lock()
		now := m.now()
		for _, s := range sh.order {
			s.prune(now)
			if !s.idle() {
				out[s.name] = s.stats()
			}
		}
		sh.mu.Unlock()
	}
	return out
}

// state returns everything at one instant.
func (m *memory) state() State {
	st := State{Quotas: m.models.allQuotas(), KeyQuotas: m.keys.allQuotas()}
	m.models.lockAll()
	defer m.models.unlockAll()
	m.keys.lockAll()
	defer m.keys.unlockAll()
	now := m.now()
	st.State, st.KeyState = m.models.histories(now), m.keys.histories(now)
	return st
}

func (t *table) histories(now int64) map[string]UsageStats {
	out := map[string]UsageStats{}
	for i := range t.shards {
		for _, s := range t.shards[i].order {
			s.prune(now)
			if !s.idle() {
				out[s.name] = s.history()
			}
		}
	}
	return out
}

// load replaces the quotas and the usage of the names in a state; others stay.
func (m *memory) load(st *State) {
	for _, t := range []*table{m.models, m.keys} {
		for name, q := range st.quotas(t.scope) {
			t.setQuota(name, q)
		}
		for name, h := range st.usage(t.scope) {
			sh, hash := t.shard(name)
			sh.lock()
			if s := sh.index.find(hash, name); s != nil {
				sh.remove(s)
			}
			s := t.ensure(sh, hash, name)
			s.load(h)
			s.prune(m.now())
			sh.mu.Unlock()
		}
	}
}

func (m *memory) resetAll() {
	for _, t := range []*table{m.models, m.keys} {
		for i := range t.shards {
			sh := &t.shards[i]
			sh.lock()
			for len(sh.order) > 0 {
				sh.remove(sh.order[0])
			}
			sh.mu.Unlock()
		}
	}
}
