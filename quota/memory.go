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

func newMemory(c *Config) *memory {
	quotas, strict := c.resolve()
	m := &memory{
		clock:  c.Clock,
		start:  time.Now(), //nolint:forbidigo // the monotonic clock that backs a nil Config.Clock
		models: newTable(ScopeModel, quotas, c.DefaultQuota),
		keys:   newTable(ScopeKey, c.KeyQuotas, c.DefaultKeyQuota),
	}
	m.models.strict = strict
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

// A place is a recorded entry: where a reservation finds it again. s is nil for
// a key where the request has none.
type place struct {
	s *subject
	mark
}

// locked has the parts of one table that a call needs while its shard is locked. For the key of a request without one,
// sh is nil.
type locked struct {
	sh   *shard
	hash uint64
	s    *subject // nil where the name has no window
}

func (at *locked) find(name string, now int64) {
	if at.s = at.sh.index.find(at.hash, name); at.s != nil {
		at.s.prune(now)
	}
}

// A call is a request whose shards are locked and advanced to now.
type call struct {
	model, key locked
	now        int64
	round      uint32 // see shard.tick
}

// lock locks the shards of a request, the model's first, and looks up both
// names. A name with a window was checked when it got it; others are checked
// here. The call is the caller's, since copying it would show.
func (m *memory) lock(c *call, r *Request) error {
	c.model.sh, c.model.hash = m.models.shard(r.Model)
	c.model.sh.lock()
	if r.Key != "" {
		c.key.sh, c.key.hash = m.keys.shard(r.Key)
		c.key.sh.lock()
	}
	c.now = m.now()
	c.round = c.model.sh.tick()
	c.model.sh.advance(c.now)
	c.model.find(r.Model, c.now)
	missing := c.model.s == nil
	if c.key.sh != nil {
		c.key.sh.advance(c.now)
		c.key.find(r.Key, c.now)
		missing = missing || c.key.s == nil
	}
	if missing {
		if err := r.validateNames(); err != nil {
			m.unlock(c)
			return err
		}
	}
	return nil
}

// unlock ends a call, and gives memory of other names back when it is time.
func (m *memory) unlock(c *call) {
	if c.key.sh != nil {
		c.key.sh.mu.Unlock()
	}
	c.model.sh.mu.Unlock()
	if c.round != 0 {
		m.sweep(c.round, c.now)
	}
}

// sweep advances one shard of each table. The caller holds no lock.
func (m *memory) sweep(round uint32, now int64) {
	m.models.sweep(round, now)
	m.keys.sweep(round, now)
}

// check decides on a request and records nothing.
func (m *memory) check(r *Request) (*ExceededError, error) {
	var c call
	if err := m.lock(&c, r); err != nil {
		return nil, err
	}
	denied, err := m.decide(&c, r)
	m.unlock(&c)
	return denied, err
}

// charge records a request, where the limits admit it or force says so. That is
// one step under the locks of the model's and the key's shard.
func (m *memory) charge(r *Request, force bool) (model, key place, denied *ExceededError, err error) {
	var c call
	if err = m.lock(&c, r); err != nil {
		return
	}
	if !force {
		denied, err = m.decide(&c, r)
	}
	if denied == nil && err == nil {
		input, output := int64(r.Input), int64(r.Output)
		model = m.models.record(&c.model, r.Model, c.now, input, output)
		switch {
		case !force:
			model.s.track()
			model.s.begin()
		case model.s.calls != nil:
			model.s.calls.record(c.now, costsOf(input, output))
		}
		if c.key.sh != nil {
			key = m.keys.record(&c.key, r.Key, c.now, input, output)
		}
	}
	m.unlock(&c)
	return
}

// decide returns the error for a request that is refused, and nil where it is
// admitted. The limits refuse it, or its model is not known.
func (m *memory) decide(c *call, r *Request) (*ExceededError, error) {
	s := c.model.s
	if m.models.strict && (s == nil || !s.known) && !m.models.has(r.Model) {
		return nil, &UnknownModelError{Model: r.Model}
	}
	input, output := int64(r.Input), int64(r.Output)
	denied := m.models.decide(s, r.Model, input, output)
	if denied == nil && c.key.sh != nil {
		denied = m.keys.decide(c.key.s, r.Key, input, output)
	}
	if denied == nil && s != nil && s.calls != nil {
		denied = s.calls.refuses(c.now, costsOf(input, output))
	}
	return denied, nil
}

// reserveCall opens a call whose request a store decides on, unless the provider's last response refuses it. The place
// is where to end it.
func (m *memory) reserveCall(r *Request) (place, *ExceededError, error) {
	var c call
	if err := m.lock(&c, &Request{Model: r.Model}); err != nil {
		return place{}, nil, err
	}
	defer m.unlock(&c)
	input, output := int64(r.Input), int64(r.Output)
	if c.model.s != nil {
		if denied := c.model.s.calls.refuses(c.now, costsOf(input, output)); denied != nil {
			return place{}, denied, nil
		}
	}
	p := m.models.record(&c.model, r.Model, c.now, input, output)
	p.s.track()
	p.s.begin()
	return p, nil, nil
}

// ofCalls runs do on the calls of a model, whose requests a store decides on. It does nothing if none are known.
func (m *memory) ofCalls(model string, do func(cs *calls, now int64)) {
	var c call
	if err := m.lock(&c, &Request{Model: model}); err != nil {
		return
	}
	defer m.unlock(&c)
	if s := c.model.s; s != nil && s.calls != nil {
		do(s.calls, c.now)
	}
}

// checkCall returns the error for a request beyond the provider's known rest, and nil for any
// other.
func (m *memory) checkCall(r *Request) (denied *ExceededError) {
	m.ofCalls(r.Model, func(cs *calls, now int64) { denied = cs.refuses(now, r.costs()) })
	return denied
}

// recordCall counts a call that a store has recorded.
func (m *memory) recordCall(r *Request) {
	m.ofCalls(r.Model, func(cs *calls, now int64) { cs.record(now, r.costs()) })
}

// untilCall returns how long the provider's last response refuses the request.
func (m *memory) untilCall(r *Request) (d time.Duration) {
	m.ofCalls(r.Model, func(cs *calls, now int64) { d = time.Duration(cs.until(now, r.costs()) - now) })
	return d
}

// decide returns nil where the request is admitted. s is nil for a name without
// a window; the shard is locked, and s is pruned.
func (t *table) decide(s *subject, name string, input, output int64) *ExceededError {
	if s == nil {
		q := t.quota(name)
		if l := q.Impossible(input, output); l != LimitNone {
			return Refusal(t.scope, name, q, l, input, output)
		}
		return nil
	}
	if l := s.quota.Exceeded(&s.usage, input, output); l != LimitNone {
		return s.denied(t.scope, l, input, output)
	}
	return nil
}

func (t *table) record(at *locked, name string, now, input, output int64) place {
	s := at.s
	if s == nil {
		s = t.ensure(at.sh, at.hash, name, now)
	}
	return place{s, s.add(now, input, output)}
}

// settle replaces the token counts of a request with the real ones.
func (m *memory) settle(model, key *place, r *Request, input, output int64) {
	before := int64(r.Input) + int64(r.Output)
	round := m.lockPlaces(model, key)
	model.s.settle(model.mark, before, input, output)
	if key.s != nil {
		key.s.settle(key.mark, before, input, output)
	}
	m.unlockPlaces(model, key, round)
}

// cancel takes the entries of the request out.
func (m *memory) cancel(model, key *place, r *Request) {
	before := int64(r.Input) + int64(r.Output)
	round := m.lockPlaces(model, key)
	model.cancel(before)
	if key.s != nil {
		key.cancel(before)
	}
	m.unlockPlaces(model, key, round)
}

func (p *place) cancel(before int64) {
	p.s.cancel(p.mark, before)
	p.s.sh.cancelled(p.s)
}

// lockPlaces locks and advances the shards of a reservation, and returns the
// round for unlockPlaces.
func (m *memory) lockPlaces(model, key *place) (round uint32) {
	model.s.sh.lock()
	if key.s != nil {
		key.s.sh.lock()
	}
	now := m.now()
	model.s.sh.advance(now)
	model.s.prune(now)
	if key.s != nil {
		key.s.sh.advance(now)
		key.s.prune(now)
	}
	return model.s.sh.tick()
}

func (m *memory) unlockPlaces(model, key *place, round uint32) {
	if key.s != nil {
		key.s.sh.mu.Unlock()
	}
	now := model.s.sh.latest
	model.s.sh.mu.Unlock()
	if round != 0 {
		m.sweep(round, now)
	}
}

// timeUntil returns how long until the request would be admitted if nothing
// else were recorded, or an *ExceededError where it never would.
func (m *memory) timeUntil(r *Request) (time.Duration, error) {
	var c call
	if err := m.lock(&c, r); err != nil {
		return 0, err
	}
	defer m.unlock(&c)
	if m.models.strict && !m.models.has(r.Model) {
		return 0, &UnknownModelError{Model: r.Model}
	}
	input, output := int64(r.Input), int64(r.Output)
	t, denied := m.models.whenAdmitted(c.model.s, r.Model, c.now, input, output)
	if denied == nil && c.key.sh != nil {
		var tk int64
		tk, denied = m.keys.whenAdmitted(c.key.s, r.Key, c.now, input, output)
		t = max(t, tk)
	}
	if c.model.s != nil {
		t = max(t, c.model.s.calls.until(c.now, costsOf(input, output)))
	}
	if denied != nil {
		return 0, denied
	}
	return time.Duration(t - c.now), nil
}

func (t *table) whenAdmitted(s *subject, name string, now, input, output int64) (int64, *ExceededError) {
	if s == nil {
		return now, t.decide(nil, name, input, output)
	}
	if l := s.quota.Impossible(input, output); l != LimitNone {
		return 0, s.denied(t.scope, l, input, output)
	}
	return s.whenAdmitted(now, input, output), nil
}

// stats returns the present content of a name's windows.
func (m *memory) stats(sc Scope, name string) Stats {
	t := m.table(sc)
	sh, h := t.shard(name)
	sh.lock()
	defer sh.mu.Unlock()
	now := m.now()
	sh.advance(now)
	s := sh.index.find(h, name)
	if s == nil {
		return (&window{quota: t.quota(name)}).stats()
	}
	s.prune(now)
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
		for _, s := range sh.queue {
			s.prune(now)
			if !s.window.idle() {
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
		for _, s := range t.shards[i].queue {
			s.forgetPast(now)
			if !s.window.idle() {
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
			var kept *calls
			if s := sh.index.find(hash, name); s != nil {
				if kept = s.calls; kept != nil {
					kept.closeAll()
				}
				sh.remove(s)
			}
			now := m.now()
			s := t.ensure(sh, hash, name, now)
			s.load(h)
			s.calls = kept
			s.forgetPast(now)
			sh.mu.Unlock()
		}
	}
}

func (m *memory) resetAll() {
	for _, t := range []*table{m.models, m.keys} {
		for i := range t.shards {
			sh := &t.shards[i]
			sh.lock()
			for len(sh.queue) > 0 {
				sh.remove(sh.queue[0])
			}
			sh.mu.Unlock()
		}
	}
}
