package quota

import (
	"context"
	"errors"
	"time"
)

// A Limiter decides which calls to a model may be made. It is safe for
// concurrent use. Close it when it works on SQLite; a Limiter on YAML or in
// memory holds nothing to release.
type Limiter struct {
	cfg     Config
	mem     *memory
	store   *shared // nil: the windows are in mem
	waiting waitQueues
}

// New returns a limiter with Gemini's default quotas and its state in memory.
// It does no I/O; Load reads the default YAML file.
func New(ctx context.Context) (*Limiter, error) { return NewWithConfig(ctx, Config{}) }

// NewWithConfig returns a limiter as configured. Bad values are a
// *ValidationError before anything is opened. With BackendSQLite it opens the
// file, otherwise it does no I/O.
func NewWithConfig(ctx context.Context, c Config) (*Limiter, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Backend != BackendSQLite {
		return newLimiter(c, nil), nil
	}
	path, err := c.path()
	if err != nil {
		return nil, err
	}
	s, err := openSQLite(ctx, path, c.Clock)
	if err != nil {
		return nil, err
	}
	l, err := NewWithStore(ctx, s, c)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}

// NewWithSQLite returns a limiter with Gemini's default quotas on an SQLite
// file, which is created if it is missing. All processes that open the file
// share its windows: together they never exceed a quota. The program must
// import quota/quotasqlite; without it the error is ErrNoSQLite.
func NewWithSQLite(ctx context.Context, path string) (*Limiter, error) {
	return NewWithSQLiteConfig(ctx, path, Config{})
}

// NewWithSQLiteConfig is NewWithSQLite with a configuration, whose FilePath and Backend are not looked at. The explicit
// quotas of the configuration are written to the file, where they count for every process. Default quotas are not, and
// give way to those in the file.
func NewWithSQLiteConfig(ctx context.Context, path string, c Config) (*Limiter, error) {
	if path == "" {
		return nil, &ValidationError{Field: "path", Value: path, Rule: "must not be empty"}
	}
	c.Backend, c.FilePath = BackendSQLite, path
	return NewWithConfig(ctx, c)
}

// NewWithStore returns a limiter on a store, which Close closes. It writes the
// explicit quotas of the configuration to the store.
func NewWithStore(ctx context.Context, s Store, c Config) (*Limiter, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if len(c.Quotas) > 0 {
		if err := s.SetQuotas(ctx, ScopeModel, c.Quotas, false); err != nil {
			return nil, err
		}
	}
	if len(c.KeyQuotas) > 0 {
		if err := s.SetQuotas(ctx, ScopeKey, c.KeyQuotas, false); err != nil {
			return nil, err
		}
	}
	return newLimiter(c, s), nil
}

func newLimiter(c Config, s Store) *Limiter {
	if c.After == nil {
		c.After = time.After
	}
	if s != nil && c.Clock == nil {
		c.Clock = time.Now //nolint:forbidigo // Processes that share a store share the machine's clock.
	}
	l := &Limiter{cfg: c, mem: newMemory(&c)}
	if s != nil {
		l.store = &shared{Store: s, mem: l.mem}
	}
	return l
}

// CanSend reports whether a request of the given size would be admitted now. It
// records nothing. The tokens count as input.
func (l *Limiter) CanSend(ctx context.Context, model string, estimatedTokens int) (bool, error) {
	err := l.Check(ctx, Request{Model: model, Input: estimatedTokens})
	if err == nil {
		return true, nil
	}
	if _, exceeded := err.(*ExceededError); exceeded { //nolint:errorlint // Check returns it bare, and this is the hot path.
		return false, nil
	}
	return false, err
}

// Check returns nil where the request would be admitted now, and an
// *ExceededError where a limit refuses it. It records nothing.
func (l *Limiter) Check(ctx context.Context, r Request) error {
	if err := r.validateTokens(); err != nil {
		return err
	}
	denied, err := l.check(ctx, &r)
	if err != nil {
		return err
	}
	if denied != nil {
		l.event(EventDenied, r, denied)
		return denied
	}
	l.event(EventAllowed, r, nil)
	return nil
}

func (l *Limiter) check(ctx context.Context, r *Request) (denied *ExceededError, err error) {
	if mayBeRelease(r.Model) {
		counted := *r
		r = &counted
		if r.Model, err = l.model(ctx, r.Model); err != nil {
			return nil, err
		}
	}
	if l.store == nil {
		return l.mem.check(r)
	}
	if err := l.store.refuseUnknown(ctx, r.Model); err != nil {
		return nil, err
	}
	if denied, err = split(l.store.check(ctx, *r)); denied == nil && err == nil {
		denied = l.mem.checkCall(r)
	}
	return denied, err
}

// RecordUsage records one request with its real token counts, at any limits, even after ctx has ended; a store then has
// five seconds more.
func (l *Limiter) RecordUsage(ctx context.Context, model string, promptTokens, outputTokens int) error {
	return l.Record(ctx, Request{Model: model, Input: promptTokens, Output: outputTokens})
}

// Record records one request, as RecordUsage does.
func (l *Limiter) Record(ctx context.Context, r Request) error {
	if err := r.validateTokens(); err != nil {
		return err
	}
	if err := l.record(ctx, r); err != nil {
		return err
	}
	l.event(EventRecorded, r, nil)
	return nil
}

func (l *Limiter) record(ctx context.Context, r Request) (err error) {
	if l.store == nil {
		r.Model = l.localModel(r.Model)
		_, _, _, err = l.mem.charge(&r, true)
		return err
	}
	if err := r.validateNames(); err != nil {
		return err
	}
	ctx, end := outlive(ctx)
	defer end()
	if r.Model, err = l.model(ctx, r.Model); err != nil {
		return err
	}
	if err := l.store.Record(ctx, l.store.charge(r)); err != nil {
		return err
	}
	l.mem.recordCall(&r)
	return nil
}

// TimeUntil returns how long until the request would be admitted if nothing
// else were recorded meanwhile; zero means now. A request that can never pass
// is an *ExceededError with Impossible set. Its cost grows with the number of
// entries that must age out first.
func (l *Limiter) TimeUntil(ctx context.Context, r Request) (time.Duration, error) {
	if err := r.validate(); err != nil {
		return 0, err
	}
	var err error
	if r.Model, err = l.model(ctx, r.Model); err != nil {
		return 0, err
	}
	if l.store == nil {
		return l.mem.timeUntil(&r)
	}
	if err := l.store.refuseUnknown(ctx, r.Model); err != nil {
		return 0, err
	}
	d, err := l.store.timeUntil(ctx, r)
	if err != nil {
		return 0, err
	}
	return max(d, l.mem.untilCall(&r)), nil
}

// SetQuota sets the limits of a model, effective immediately. On SQLite
// they are written to the file and apply to every process.
func (l *Limiter) SetQuota(ctx context.Context, model string, q ModelQuota) error {
	return l.setQuotas(ctx, ScopeModel, map[string]ModelQuota{model: q})
}

// SetKeyQuota sets the limits of a key, as SetQuota does for a model.
func (l *Limiter) SetKeyQuota(ctx context.Context, key string, q ModelQuota) error {
	return l.setQuotas(ctx, ScopeKey, map[string]ModelQuota{key: q})
}

// AddProvider adds a provider's default quotas to those there are; quotas of
// the same models are replaced, all others stay.
func (l *Limiter) AddProvider(ctx context.Context, p Provider) error {
	if err := p.validate("provider"); err != nil {
		return err
	}
	return l.setQuotas(ctx, ScopeModel, p.profile())
}

func (l *Limiter) setQuotas(ctx context.Context, sc Scope, quotas map[string]ModelQuota) error {
	if err := validateQuotas(sc.String(), quotas); err != nil {
		return err
	}
	if l.store != nil {
		if err := l.store.SetQuotas(ctx, sc, quotas, false); err != nil {
			return err
		}
	}
	for name, q := range quotas {
		l.mem.table(sc).setQuota(name, q)
	}
	l.waiting.wake()
	return nil
}

// Reset forgets the usage of a model, and what its provider said. Its quota stays, and so does what its
// requests counted against their keys. Reservations made before no longer
// change anything.
func (l *Limiter) Reset(ctx context.Context, model string) error {
	if err := l.reset(ctx, ScopeModel, model); err != nil {
		return err
	}
	owner, err := l.model(ctx, model)
	if err != nil || owner == model {
		return err
	}
	return l.reset(ctx, ScopeModel, owner)
}

// ResetKey forgets the usage of a key, as Reset does for a model.
func (l *Limiter) ResetKey(ctx context.Context, key string) error {
	return l.reset(ctx, ScopeKey, key)
}

func (l *Limiter) reset(ctx context.Context, sc Scope, name string) error {
	if err := ValidateName(sc.String(), name); err != nil {
		return err
	}
	if l.store != nil {
		if err := l.store.Reset(ctx, sc, name); err != nil {
			return err
		}
	}
	l.mem.table(sc).reset(name)
	l.waiting.wake()
	return nil
}

// ResetAll forgets the usage of all models and keys.
func (l *Limiter) ResetAll(ctx context.Context) error {
	if l.store != nil {
		if err := l.store.Reset(ctx, ScopeModel, ""); err != nil {
			return err
		}
	}
	l.mem.resetAll()
	l.waiting.wake()
	return nil
}

// Close releases the SQLite file. On YAML and in memory it does nothing; it
// does not write the state.
func (l *Limiter) Close() error {
	if l.store == nil {
		return nil
	}
	return l.store.Close()
}

// split separates a rejection from a failure.
func split(err error) (*ExceededError, error) {
	if denied, ok := errors.AsType[*ExceededError](err); ok {
		return denied, nil
	}
	return nil, err
}

func (l *Limiter) event(k EventKind, r Request, denied *ExceededError) {
	if l.cfg.OnEvent != nil {
		l.cfg.OnEvent(Event{Kind: k, Request: r, Denied: denied})
	}
}
