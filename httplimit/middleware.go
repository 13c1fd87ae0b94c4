package httplimit

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/fields"
	"github.com/zlimit/zlimit-go/internal/edge/unsettled"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Option changes how the middleware works.
type Option func(*middleware)

// WithLegacyHeaders adds the fields from before the draft: X-RateLimit-Limit, -Remaining and -Reset, in seconds, of the
// limit with the smallest part left. They are off by default.
func WithLegacyHeaders() Option { return func(m *middleware) { m.legacy = true } }

// WithoutHeaders omits the fields that say where the limits stand, and the limits in the body of a rejection. Retry-After and the names of
// exceeded limits remain. It is for servers that do not publish their limits.
func WithoutHeaders() Option { return func(m *middleware) { m.silent = true } }

// WithPartitionKey adds the parameter pk to the fields, by which a client distinguishes the limits of several entities.
// It is the first 12 bytes of HMAC-SHA-256 of the entity with the key. The key must be secret and have at least 16
// bytes. The default is no such parameter.
func WithPartitionKey(key []byte) Option {
	return func(m *middleware) {
		if len(key) < 16 {
			panic("httplimit: the partition key has " + strconv.Itoa(len(key)) + " bytes; it must have at least 16")
		}
		m.format.Partition = append([]byte(nil), key...)
	}
}

// WithQuotaUnit sets the parameter qu of a limit that does not count requests. The draft registers units such as
// content-bytes. A client takes a limit without it for one of requests. It panics for a unit that a field cannot hold.
func WithQuotaUnit(limit, unit string) Option {
	return func(m *middleware) { m.format.SetUnit("httplimit", limit, unit) }
}

// Skip lets some requests through without a limit and its fields, as a function chooses: preflights, which carry no
// key, health checks and static files. Each Skip adds to those before. It runs before the request function.
func Skip(skip func(*http.Request) bool) Option {
	return func(m *middleware) {
		if skip == nil {
			panic("httplimit: the skip function is nil")
		}
		m.skips = append(m.skips, skip)
	}
}

// IsPreflight reports whether a request is a preflight of CORS, for [Skip].
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// RefundPanics gives back the tokens of a request whose handler panics. By default it is charged, since a path that
// panics would have no limit otherwise.
func RefundPanics() Option { return func(m *middleware) { m.refundPanics = true } }

// WithMaxWait makes requests wait for their tokens, up to a time, in one queue over all processes, as [zlimit.RateLimiter.Wait] does. A
// request whose wait would be longer is rejected immediately. So is one whose context has an earlier deadline. When a client leaves, its
// request stops waiting, and its tokens are given back. By default no request waits. A request that waits takes up a connection and a
// goroutine: choose a time that clients tolerate, and that the timeouts of the server allow. It panics for a time that is not positive.
func WithMaxWait(d time.Duration) Option {
	return func(m *middleware) {
		if d <= 0 {
			panic("httplimit: the longest wait is " + d.String() + "; it must be positive")
		}
		m.maxWait = d
	}
}

// WithErrorHandler sets the handler for requests that are not admitted; the default is [Refuse]. The fields that say
// where the limits stand are set before it is called.
func WithErrorHandler(handle func(http.ResponseWriter, *http.Request, error)) Option {
	return func(m *middleware) {
		if handle == nil {
			panic("httplimit: the error handler is nil")
		}
		m.refuse = handle
	}
}

// WithLogger sets the log for leases that cannot be settled, for errors answered with status 500, and for requests whose limits are
// missing; by default there is none. Each has a line a minute at most, with the number of those left out. The line of missing limits has
// the command that stores some.
func WithLogger(l *slog.Logger) Option {
	return func(m *middleware) {
		if l == nil {
			panic("httplimit: the logger is nil")
		}
		m.logger = l
	}
}

// notSettled is logged of a lease whose settling fails.
const notSettled = "httplimit: a lease could not be settled"

// A middleware holds the settings of the handlers of one call of New.
type middleware struct {
	limiter *zlimit.RateLimiter
	request func(*http.Request) (zlimit.Request, error)
	legacy  bool
	silent  bool
	format  fields.Format

	skips        []func(*http.Request) bool
	refundPanics bool
	maxWait      time.Duration // 0 for requests that do not wait

	refuse    func(http.ResponseWriter, *http.Request, error)
	logger    *slog.Logger
	unsettled unsettled.Log
	faulty    unsettled.Log // requests that could not be limited
	missing   unsettled.Missing
}

// New returns middleware that acquires the amounts of a request before it calls the handler, and settles when the
// handler returns. It commits the lease with the handler's corrections, also when the handler panics, and the panic
// goes on; [RefundPanics] changes that. The handler finds its lease with [Lease].
//
// Middleware within middleware acquires after it. A request that the inner one rejects for lack of room takes nothing
// from the outer one either. Other errors of the inner one are charged: an outer limit by address bounds how many keys a
// client can try.
//
// The function says who asks, and for what; it may be [Requests]. Its error answers the request as an error of Acquire
// does, and [WithErrorHandler] can distinguish them. A panic of it propagates before anything is acquired.
//
// The fields of the response are set before the handler is called, so that it may change them. The ResponseWriter is
// passed on as it is, so that flushing, hijacking and [http.ResponseController] work as without the middleware. A
// response may end long after its handler, as on a hijacked connection. It is settled when the handler returns.
//
// New panics for a nil limiter or function, or a wrong option. A request costs what [zlimit.RateLimiter.Acquire] and
// [zlimit.Lease.Commit] cost.
func New(l *zlimit.RateLimiter, request func(*http.Request) (zlimit.Request, error), opts ...Option) func(http.Handler) http.Handler {
	if l == nil {
		panic("httplimit: the limiter is nil")
	}
	if request == nil {
		panic("httplimit: the request function is nil")
	}
	m := &middleware{limiter: l, request: request, logger: slog.New(slog.DiscardHandler)}
	for i, opt := range opts {
		if opt == nil {
			panic("httplimit: option " + strconv.Itoa(i+1) + " is nil")
		}
		opt(m)
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplimit: the handler is nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	for _, skip := range m.skips {
		if skip(r) {
			next.ServeHTTP(w, r)
			return
		}
	}
	lease, err := m.acquire(r)
	if err != nil {
		m.reject(w, r, err)
		return
	}
	s := &scope{Context: r.Context(), lease: lease}
	if !m.silent {
		space := statusSpaces.Get().(*[8]zlimit.Status)
		m.describe(w.Header(), lease.AppendStatuses(space[:0]), &s.values)
		statusSpaces.Put(space)
	}
	done := false
	defer func() {
		settle, op := lease.Commit, "commit"
		refund := s.rejected.Load()
		if !done && m.refundPanics { // the handler panics, or ends its goroutine
			broken := recover()
			if broken != nil {
				defer panic(broken)
			}
			refund = refund || broken != http.ErrAbortHandler //nolint:errorlint // net/http compares it so, too
		}
		if refund {
			settle, op = lease.Rollback, "roll back"
		}
		if err := settle(s.Context); err != nil && !isClosed(err) { // by the handler itself
			m.unsettled.Error(s.Context, m.logger, notSettled, err, "op", op)
		}
	}()
	next.ServeHTTP(w, r.WithContext(s)) //nolint:contextcheck // it is made from the request's
	done = true
}

// statusSpaces are lists for the statuses of a request. They are reused, since a list of a caller's escapes.
var statusSpaces = sync.Pool{New: func() any { return new([8]zlimit.Status) }}

func (m *middleware) acquire(r *http.Request) (*zlimit.Lease, error) {
	request, err := m.request(r)
	if err != nil {
		return nil, err
	}
	var lease *zlimit.Lease
	if m.maxWait > 0 {
		lease, err = m.limiter.Wait(r.Context(), request, zlimit.MaxWait(m.maxWait))
	} else {
		lease, err = m.limiter.Acquire(r.Context(), request)
	}
	if err != nil {
		m.missing.Warn(r.Context(), m.logger, "httplimit: a request was refused since limits are missing", &request, err)
	}
	return lease, err
}

// A scope is the context of an admitted request. It has the values of its response's fields, too, which saves their
// allocation.
type scope struct {
	context.Context //nolint:containedctx // it is a context
	lease           *zlimit.Lease
	rejected        atomic.Bool // by middleware within
	values          [2]string
}

type scopeKey struct{}

// Value returns the scope for its key.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// scopeOf returns the innermost scope of a context, nil for none.
func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// Lease returns the lease of a request from the context of its handler, to correct the amounts of the request. It is
// nil where the middleware is not in use. The middleware settles it.
func Lease(ctx context.Context) *zlimit.Lease {
	if s := scopeOf(ctx); s != nil {
		return s.lease
	}
	return nil
}
