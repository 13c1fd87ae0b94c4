package rpc

import (
	"context"
	"errors"
	"log/slog"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An Interceptor is what the interceptors of gRPC and Connect have in common.
type Interceptor struct {
	Limiter    *zlimit.RateLimiter
	PerMessage bool // streams acquire for each message

	name   string // of the package, which its panics and log lines begin with
	logger *slog.Logger
}

// New returns an interceptor of a package. It panics for a limiter or option that is nil.
func New[O ~func(*Interceptor)](name string, l *zlimit.RateLimiter, opts []O) Interceptor {
	if l == nil {
		panic(name + ": the limiter is nil")
	}
	i := Interceptor{Limiter: l, name: name, logger: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		if opt == nil {
			panic(name + ": an option is nil")
		}
		opt(&i)
	}
	return i
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
		i.logger.ErrorContext(ctx, i.name+": a lease could not be settled", "error", err)
	}
}

type leaseKey struct{}

// WithLease returns a context with the lease of a call.
func WithLease(ctx context.Context, lease *zlimit.Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// Lease returns the lease of a call from its context, nil where there is none.
func Lease(ctx context.Context) *zlimit.Lease {
	lease, _ := ctx.Value(leaseKey{}).(*zlimit.Lease)
	return lease
}
