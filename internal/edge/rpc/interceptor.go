package rpc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/fields"
	"github.com/zlimit/zlimit-go/internal/edge/unsettled"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Interceptor holds the common parts of the interceptors of gRPC and Connect.
type Interceptor struct {
	Limiter    *zlimit.RateLimiter
	PerMessage bool // streams acquire for each message

	RefundPanics bool // of handlers
	Silent       bool // fields with the rest of limits are left out
	All          bool // health checks and reflection are limited too
	Format       fields.Format
	MaxWait      time.Duration // of a call for its tokens; 0 for one that does not wait

	skips  []func(ctx context.Context, procedure string) bool
	name   string // of the package, which its panics and log lines begin with
	logger *slog.Logger
	failed *unsettled.Log

	missing *unsettled.Missing
}

// New returns an interceptor of a package. It panics for a limiter or option that is nil.
func New[O ~func(*Interceptor)](name string, l *zlimit.RateLimiter, opts []O) Interceptor {
	if l == nil {
		panic(name + ": the limiter is nil")
	}
	i := Interceptor{Limiter: l, name: name, logger: slog.New(slog.DiscardHandler), failed: new(unsettled.Log), missing: new(unsettled.Missing)}
	for _, opt := range opts {
		if opt == nil {
			panic(name + ": an option is nil")
		}
		opt(&i)
	}
	return i
}

// Acquire takes the amounts of a call, and waits for them where calls do.
func (i *Interceptor) Acquire(ctx context.Context, r zlimit.Request) (*zlimit.Lease, error) {
	lease, err := i.take(ctx, r)
	if err != nil {
		i.missing.Warn(ctx, i.logger, i.name+": a call was refused since limits are missing", &r, err)
	}
	return lease, err
}

func (i *Interceptor) take(ctx context.Context, r zlimit.Request) (*zlimit.Lease, error) {
	if i.MaxWait == 0 {
		return i.Limiter.Acquire(ctx, r)
	}
	return i.Limiter.Wait(ctx, r, zlimit.MaxWait(i.MaxWait))
}

// Skip adds a function that chooses calls without a limit. It panics for nil.
func (i *Interceptor) Skip(skip func(ctx context.Context, procedure string) bool) {
	if skip == nil {
		panic(i.name + ": the skip function is nil")
	}
	i.skips = append(i.skips, skip)
}

// infrastructure are the services that a platform calls without a key.
var infrastructure = [...]string{
	"/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/",
}

// Skips reports whether a call has no limit.
func (i *Interceptor) Skips(ctx context.Context, procedure string) bool {
	of := func(service string) bool { return strings.HasPrefix(procedure, service) }
	return !i.All && slices.ContainsFunc(infrastructure[:], of) ||
		slices.ContainsFunc(i.skips, func(skip func(context.Context, string) bool) bool { return skip(ctx, procedure) })
}

// SetUnit sets the quota unit of a limit. It panics for a text that is no unit.
func (i *Interceptor) SetUnit(limit, unit string) { i.Format.SetUnit(i.name, limit, unit) }

// Fields calls a function with the fields RateLimit-Policy and RateLimit of a lease, in lower-case names, unless there are none.
func (i *Interceptor) Fields(lease *zlimit.Lease, report func(name, value string)) {
	if i.Silent {
		return
	}
	if statuses := fields.InOrder(lease.Statuses()); len(statuses) > 0 {
		policy, state := i.Format.Values(statuses)
		report("ratelimit-policy", policy)
		report("ratelimit", state)
	}
}

// LogTo sets the logger. It panics for nil.
func (i *Interceptor) LogTo(l *slog.Logger) {
	if l == nil {
		panic(i.name + ": the logger is nil")
	}
	i.logger = l
}

// Settle commits a lease, or gives it back. A lease that the handler has settled itself stays as it is.
func (i *Interceptor) Settle(ctx context.Context, lease *zlimit.Lease, keep bool) {
	settle := lease.Commit
	if !keep {
		settle = lease.Rollback
	}
	if err := settle(ctx); err != nil && !errors.Is(err, zlimit.ErrLeaseClosed) {
		i.failed.Error(ctx, i.logger, i.name+": a lease could not be settled", err)
	}
}

// SettleAtEnd returns what settles the lease of a client's stream once: when it is called, or when the context ends. The
// end of the context keeps the lease, since the stream may have reached a server. A call while another settles waits until
// the lease is settled.
func (i *Interceptor) SettleAtEnd(ctx context.Context, lease *zlimit.Lease) (end func(keep bool)) {
	var begun atomic.Bool
	settled := make(chan struct{})
	settle := func(keep bool) {
		if begun.CompareAndSwap(false, true) {
			defer close(settled)
			i.Settle(ctx, lease, keep)
			return
		}
		<-settled
	}
	stop := context.AfterFunc(ctx, func() { settle(true) })
	return func(keep bool) {
		stop()
		settle(keep)
	}
}

// A Refusal is the error by which a message of a stream was refused, nil for none. It is safe for concurrent use.
type Refusal struct {
	mu  sync.Mutex
	err error
}

// Set keeps an error and returns it.
func (r *Refusal) Set(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	return err
}

// Err returns the error.
func (r *Refusal) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

type leaseKey struct{}

// WithLease returns a context with the lease of a call.
func WithLease(ctx context.Context, lease *zlimit.Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// Lease returns the lease of a call from its context, nil if there is none.
func Lease(ctx context.Context) *zlimit.Lease {
	lease, _ := ctx.Value(leaseKey{}).(*zlimit.Lease)
	return lease
}
