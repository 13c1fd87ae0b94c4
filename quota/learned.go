package quota

import "time"

// Learned is the provider's view of one model, from its last responses.
type Learned struct {
	Requests     Remaining `json:"requests"`
	Tokens       Remaining `json:"tokens"`
	InputTokens  Remaining `json:"input_tokens"`
	OutputTokens Remaining `json:"output_tokens"`
	RetryAt      time.Time `json:"retry_at,omitzero"` // no request before this; zero: none asked for
}

// Remaining is one of the provider's own limits.
type Remaining struct {
	// Left is the rest until Reset, less the amounts sent since, and less calls that the provider
	// may not have counted yet.
	Left  int64     `json:"left"`
	Limit int64     `json:"limit"`          // zero where the provider did not say
	Reset time.Time `json:"reset,omitzero"` // zero if nothing is known or Reset has passed
}

// Learned returns the provider's reports about a model that still hold. It is known to this process
// alone.
func (l *Limiter) Learned(model string) (Learned, bool) {
	return l.mem.learned(l.localModel(model))
}

func (m *memory) learned(model string) (Learned, bool) {
	sh, h := m.models.shard(model)
	sh.lock()
	defer sh.mu.Unlock()
	s := sh.index.find(h, model)
	if s == nil || s.calls == nil || s.calls.news == nil {
		return Learned{}, false
	}
	now := m.now()
	s.prune(now)
	n := s.calls.news
	if !n.alive(now) {
		return Learned{}, false
	}
	var out Learned
	taken := s.calls.taken().amounts()
	for i, to := range []*Remaining{&out.Requests, &out.Tokens, &out.InputTokens, &out.OutputTokens} {
		if b := &n.budgets[i]; now < b.until {
			*to = Remaining{Left: b.leftAfter(taken[i]), Limit: b.limit, Reset: fromNanos(b.until)}
		}
	}
	if now < n.retryAt {
		out.RetryAt = fromNanos(n.retryAt)
	}
	return out, true
}

// A budget is what may be sent until an instant. The zero value limits nothing.
type budget struct {
	left, limit int64
	until       int64
	known       int64 // what calls had taken of it, as far as left knows
}

// leftAfter returns the rest after calls have taken so much in all.
func (b *budget) leftAfter(taken int64) int64 { return max(0, b.left-max(0, taken-b.known)) }

// news is what responses said about a model.
type news struct {
	sent    int64 // when the request of the last response was sent
	at      int64 // when the last response was read
	budgets [len(amounts{})]budget
	retryAt int64 // zero: at any time
	worked  bool  // the call succeeded, so that its caller may record it
	silent  bool  // the response refused the call, and did not say for how long
	denied  *ExceededError
}

func (n *news) alive(now int64) bool {
	for i := range n.budgets {
		if now < n.budgets[i].until {
			return true
		}
	}
	return now < n.retryAt
}

// setBack follows a clock that was set back. Each report holds for as long as before.
func (n *news) setBack(now int64) {
	by := n.at - now
	if by <= 0 {
		return
	}
	for i := range n.budgets {
		if b := &n.budgets[i]; b.until != 0 {
			b.until -= by
		}
	}
	if n.retryAt != 0 {
		n.retryAt -= by
	}
	n.at, n.sent = now, min(n.sent, now)
}

// learn puts news in place, and reports whether its limits count. known is what
// calls had taken as far as the news knows. Limits it does not mention stay as
// they are. News from a request sent before that of the news in place are old,
// and only their retry time counts.
func (c *calls) learn(n *news, known costs) bool {
	old := c.news
	if old != nil && n.sent < old.sent {
		old.retryAt = max(old.retryAt, n.retryAt)
		return false
	}
	learned := false
	for i := range n.budgets {
		b := &n.budgets[i]
		if b.until != 0 {
			b.known = known.amounts()[i]
			learned = true
		} else if old != nil {
			*b = old.budgets[i]
		}
	}
	if old != nil && n.silent {
		n.retryAt = old.retryAt
	}
	c.news = n
	return learned
}

// learnAlone learns from a response whose call is not known. Every open call may
// be one that the provider has not counted.
func (m *memory) learnAlone(model string, n *news) {
	s, now := m.track(model)
	defer s.sh.mu.Unlock()
	s.latest = max(s.latest, now)
	s.calls.learn(n, s.calls.closed)
}
