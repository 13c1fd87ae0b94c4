package quota

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Learned is what the provider said in its last responses about one model.
type Learned struct {
	Requests     Remaining
	Tokens       Remaining
	InputTokens  Remaining
	OutputTokens Remaining
	RetryAt      time.Time // no request before this; zero: none asked for
}

// Remaining is one of the provider's own limits.
type Remaining struct {
	Left  int64     // what is left until Reset, less what was sent since
	Limit int64     // zero where the provider did not say
	Reset time.Time // zero where nothing is known or Reset has passed
}

// Learned returns what the provider said about a model and what still holds. It
// is known to this process alone.
func (l *Limiter) Learned(model string) (Learned, bool) {
	e := l.learned.find(model)
	if e == nil {
		return Learned{}, false
	}
	now := l.mem.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.alive(now) {
		return Learned{}, false
	}
	var out Learned
	for i, to := range []*Remaining{&out.Requests, &out.Tokens, &out.InputTokens, &out.OutputTokens} {
		if b := e.budgets[i]; now < b.until {
			*to = Remaining{Left: b.left, Limit: b.limit, Reset: fromNanos(b.until)}
		}
	}
	if now < e.retryAt {
		out.RetryAt = fromNanos(e.retryAt)
	}
	return out, true
}

// budgetCount is the number of limits a provider reports: requests, tokens,
// input tokens, output tokens.
const budgetCount = 4

// A budget is what may be sent until an instant. The zero value limits nothing.
type budget struct {
	left, limit int64
	until       int64
}

// learned is what one response taught. The next response puts another one in
// its place, so what is given back to an old one changes nothing.
type learned struct {
	sent   int64 // when the request of the response was sent
	denied *ExceededError

	mu      sync.Mutex
	budgets [budgetCount]budget
	retryAt int64
}

func costs(r *Request) [budgetCount]int64 {
	in, out := int64(r.Input), int64(r.Output)
	return [budgetCount]int64{1, in + out, in, out}
}

func (e *learned) alive(now int64) bool {
	for _, b := range e.budgets {
		if now < b.until {
			return true
		}
	}
	return now < e.retryAt
}

// until returns the instant from which nothing learned refuses the request; not
// after now where nothing does.
func (e *learned) until(now int64, r *Request) int64 {
	t := now
	if e.retryAt > t {
		t = e.retryAt
	}
	for i, cost := range costs(r) {
		if b := e.budgets[i]; now < b.until && cost > b.left {
			t = max(t, b.until)
		}
	}
	return t
}

func (e *learned) add(r *Request, sign int64) {
	for i, cost := range costs(r) {
		e.budgets[i].left = max(0, e.budgets[i].left+sign*cost)
	}
}

// giveBack returns what take took. A nil e took nothing.
func (e *learned) giveBack(r *Request) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.add(r, 1)
}

// learnedLimits holds what was learned by model. The zero value is ready, and
// costs a decision one atomic load until something is learned.
type learnedLimits struct {
	active atomic.Bool
	mu     sync.RWMutex
	models map[string]*learned
	sweep  int // size of models at which it is searched for what has passed
}

func (ls *learnedLimits) find(model string) *learned {
	if !ls.active.Load() {
		return nil
	}
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	return ls.models[model]
}

func (ls *learnedLimits) check(l *Limiter, r *Request) *ExceededError {
	e := ls.find(r.Model)
	if e == nil {
		return nil
	}
	now := l.mem.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until(now, r) > now {
		return e.denied
	}
	return nil
}

// take takes the request out of what is left; with force also where that is not
// enough. It returns where to give it back.
func (ls *learnedLimits) take(l *Limiter, r *Request, force bool) (*learned, *ExceededError) {
	e := ls.find(r.Model)
	if e == nil {
		return nil, nil
	}
	now := l.mem.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !force && e.until(now, r) > now {
		return nil, e.denied
	}
	e.add(r, -1)
	return e, nil
}

func (ls *learnedLimits) timeUntil(l *Limiter, r *Request) time.Duration {
	e := ls.find(r.Model)
	if e == nil {
		return 0
	}
	now := l.mem.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Duration(e.until(now, r) - now)
}

// learn puts news about a model in place. Limits it does not mention stay as
// they are. News from a request sent before that of the news in place are old,
// and only their retry time counts.
func (ls *learnedLimits) learn(model string, news *learned, now int64) {
	news.denied = &ExceededError{Scope: ScopeModel, Name: model, Limit: LimitProvider}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.models == nil {
		ls.models = map[string]*learned{}
		ls.sweep = 64
	}
	if old := ls.models[model]; old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		old.retryAt = max(old.retryAt, news.retryAt)
		if news.sent < old.sent {
			return
		}
		news.retryAt = old.retryAt
		for i := range news.budgets {
			if news.budgets[i].until == 0 {
				news.budgets[i] = old.budgets[i]
			}
		}
	}
	ls.models[model] = news
	if len(ls.models) > ls.sweep {
		maps.DeleteFunc(ls.models, func(_ string, e *learned) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e != news && !e.alive(now)
		})
		ls.sweep = max(64, 2*len(ls.models))
	}
	ls.active.Store(true)
}

func (ls *learnedLimits) forget(model string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.models, model)
}

func (ls *learnedLimits) forgetAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	clear(ls.models)
}

type modelKey struct{}

// WithModel returns a context that names the model of the HTTP requests made
// with it, for a Transport without a Model function.
func WithModel(ctx context.Context, model string) context.Context {
	return context.WithValue(ctx, modelKey{}, model)
}
