package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

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

// SettleAtEnd returns what settles the lease of a client's stream once: when it is called with the error that the stream
// ended with, nil for none, or when the context ends. Taken says whether a server may have taken a stream with such an error.
// A call while another settles waits until the lease is settled.
func (i *Interceptor) SettleAtEnd(ctx context.Context, lease *zlimit.Lease, taken func(error) bool) (end func(error)) {
	var begun atomic.Bool
	settled := make(chan struct{})
	settle := func(err error) {
		if begun.CompareAndSwap(false, true) {
			defer close(settled)
			i.Settle(ctx, lease, taken(err))
			return
		}
		<-settled
	}
	stop := context.AfterFunc(ctx, func() { settle(ctx.Err()) })
	return func(err error) {
		stop()
		settle(err)
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

// Lease returns the lease of a call from its context, nil where there is none.
func Lease(ctx context.Context) *zlimit.Lease {
	lease, _ := ctx.Value(leaseKey{}).(*zlimit.Lease)
	return lease
}
