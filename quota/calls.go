package quota

import "sort"

// costs are the amounts that calls take of the limits reported by a provider.
type costs struct{ requests, input, output int64 }

func costsOf(input, output int64) costs { return costs{1, input, output} }

func (r *Request) costs() costs { return costsOf(int64(r.Input), int64(r.Output)) }

func (e *entry) costs() costs { return costsOf(int64(e.in), int64(e.out)) }

func (c *costs) add(o costs) {
	c.requests += o.requests
	c.input += o.input
	c.output += o.output
}

func (c *costs) sub(o costs) {
	c.requests -= o.requests
	c.input -= o.input
	c.output -= o.output
}

// amounts are amounts of each of the limits that a provider reports: requests,
// tokens, input tokens, output tokens.
type amounts [4]int64

func (c costs) amounts() amounts { return amounts{c.requests, c.input + c.output, c.input, c.output} }

// oneRequest counts a call without a reservation.
var oneRequest = costs{requests: 1}

// calls are the calls of this process to one model, as far as they matter for what its provider
// says. A response knows the calls that had ended when its own request was sent. It may know
// nothing of calls open then, or begun later. They are taken off the reported rest.
//
// A call is open from its reservation until its response, its settlement or its
// cancellation. It is open for at most the minute for which it is in the log.
type calls struct {
	open   costs  // of the open entries of the log
	loose  costs  // of round trips in flight without a reservation
	closed costs  // of all calls that have ended, cancelled ones left out
	next   uint64 // the next round trip claims the first open entry from this id on
	// Calls that have ended, closed and still to be recorded, and those already known to the provider's news.
	unrecorded, known int
	news              *news // nil: nothing was learned
}

// taken is everything that calls took. It only grows, apart from cancellations.
func (c *calls) taken() costs {
	sum := c.open
	sum.add(c.loose)
	sum.add(c.closed)
	return sum
}

func (c *calls) closeAll() {
	c.closed.add(c.open)
	c.open = costs{}
}

// record counts a call that has ended, unless its round trip was counted.
func (c *calls) record(now int64, cost costs) {
	if c.news == nil || !c.news.alive(now) {
		c.unrecorded, c.known = 0, 0
	}
	if c.unrecorded > 0 {
		c.unrecorded--
		cost.sub(oneRequest)
	}
	if c.known > 0 {
		c.known--
		cost = costs{}
	}
	c.closed.add(cost)
}

// quiet reports whether nothing would be lost with the calls.
func (c *calls) quiet(now int64) bool {
	return c == nil || c.loose == costs{} && (c.news == nil || !c.news.alive(now))
}

// refuses returns the error for a request beyond the reported rest, and nil for any other. A nil c
// admits everything.
func (c *calls) refuses(now int64, cost costs) *ExceededError {
	if c == nil || c.news == nil || c.until(now, cost) <= now {
		return nil
	}
	return c.news.denied
}

// until returns the instant from which nothing learned refuses the request; not
// after now if nothing does.
func (c *calls) until(now int64, cost costs) int64 {
	if c == nil || c.news == nil {
		return now
	}
	t := max(now, c.news.retryAt)
	taken := c.taken().amounts()
	for i, amount := range cost.amounts() {
		if b := &c.news.budgets[i]; now < b.until && amount > b.leftAfter(taken[i]) {
			t = max(t, b.until)
		}
	}
	return t
}

// begin opens the newest entry of the log, which its reservation just made.
func (w *window) begin() {
	e := w.at(w.n - 1)
	e.kind |= kindOpen
	w.calls.open.add(e.costs())
}

// end closes an entry; one that is not open stays as it is.
func (w *window) end(e *entry) {
	if e.kind&kindOpen == 0 {
		return
	}
	e.kind &^= kindOpen | kindClaimed
	w.calls.open.sub(e.costs())
	w.calls.closed.add(e.costs())
}

// claim returns the first open entry that no round trip has claimed.
func (w *window) claim() (e *entry, ok bool) {
	i := sort.Search(w.n, func(i int) bool { return w.at(i).id >= w.calls.next })
	for ; i < w.n; i++ {
		if e := w.at(i); e.kind&(kindOpen|kindClaimed) == kindOpen {
			e.kind |= kindClaimed
			w.calls.next = e.id + 1
			return e, true
		}
	}
	w.calls.next = w.lastID + 1
	return nil, false
}

// A trip is a round trip of a Transport.
type trip struct {
	model  string
	s      *subject
	sent   int64
	closed costs // of the model's calls when the request was sent
	own    costs // of the call itself
	loose  bool  // it has no reservation
	id     uint64
}

// track returns the subject of a model with its calls, and the time. Its shard is locked, and the caller unlocks it.
func (m *memory) track(model string) (s *subject, now int64) {
	sh, h := m.models.shard(model)
	sh.lock()
	now = m.now()
	sh.advance(now)
	s = m.models.ensure(sh, h, model, now)
	s.prune(now)
	s.track()
	return s, now
}

// beginTrip notes that the request of a call is sent. It belongs to res, or where
// that is nil to the oldest reservation of the model whose request was not sent.
func (m *memory) beginTrip(model string, res *Reservation) trip {
	s, now := m.track(model)
	defer s.sh.mu.Unlock()
	c := s.calls
	t := trip{model: model, s: s, sent: now, closed: c.closed}
	e, ok := s.entryOf(res)
	if !ok {
		e, ok = s.claim()
	}
	if ok {
		t.own, t.id = e.costs(), e.id
	} else {
		t.own, t.loose = oneRequest, true
		c.loose.add(oneRequest)
	}
	return t
}

// entryOf claims the entry of a reservation, if it is open and of s.
func (s *subject) entryOf(res *Reservation) (*entry, bool) {
	if res == nil || res.model.s != s {
		return nil, false
	}
	i := s.find(res.model.id)
	if i < 0 || s.at(i).kind&(kindOpen|kindClaimed) != kindOpen {
		return nil, false
	}
	s.at(i).kind |= kindClaimed
	return s.at(i), true
}

// failTrip notes that a request was sent and got no response. Its call may be
// tried again.
func (m *memory) failTrip(t *trip) {
	t.s.sh.lock()
	defer t.s.sh.mu.Unlock()
	if t.loose {
		t.s.calls.loose.sub(oneRequest)
		return
	}
	if i := t.s.find(t.id); i >= 0 {
		t.s.at(i).kind &^= kindClaimed
		t.s.calls.next = min(t.s.calls.next, t.id)
	}
}

// endTrip notes the response of a call and learns from it.
func (m *memory) endTrip(t *trip, n *news) {
	s, now := m.track(t.model)
	defer s.sh.mu.Unlock()
	c := s.calls
	if s != t.s { // The model was reset meanwhile.
		t = &trip{closed: c.closed}
	}
	s.latest = max(s.latest, now)
	known := t.closed
	known.add(t.own)
	learned := c.learn(n, known)
	switch {
	case t.loose:
		c.loose.sub(oneRequest)
		c.closed.add(oneRequest)
		if n.worked {
			c.unrecorded++
			if learned {
				c.known++
			}
		}
	case t.id != 0:
		if i := s.find(t.id); i >= 0 {
			s.end(s.at(i))
		}
	}
}
