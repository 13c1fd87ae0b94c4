package zlimit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// ContextWithPrincipal returns a context whose changes are made by a principal, instead of the principal of
// [WithPrincipal]. It is for a service that changes entities and limits on behalf of its callers. Audit events, the
// lock of [ManagedService] and the version record of [RateLimiter.Setup] name the principal.
//
// An empty name stands for the limiter's own principal, even in a context that is derived from one with another name. Names follow the
// rules of [WithPrincipal]. A call that changes something returns a [*ValidationError] for an invalid name. Other calls ignore the
// principal. It makes no call.
func ContextWithPrincipal(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, principalKey{}, name)
}

// principalKey is the key of the principal in a context.
type principalKey struct{}

// principalOf returns the principal of a context, "" for none.
func principalOf(ctx context.Context) (string, error) {
	name, _ := ctx.Value(principalKey{}).(string)
	return name, validatePrincipal(name)
}

// A caller is the identity of the process at its store, once that is known. It is safe for concurrent use.
type caller struct {
	name    atomic.Pointer[string]
	mu      sync.Mutex
	retryAt time.Time // after a failure
}

// retryIdentity is the time after which the caller's identity is looked up again.
const retryIdentity = time.Minute

// principal returns who makes a change: the principal of the context, of the limiter, or of the process. It is "" if none
// is known. A context with an invalid name is a [*ValidationError], before any call.
func (l *RateLimiter) principal(ctx context.Context) (string, error) {
	if name, err := principalOf(ctx); err != nil || name != "" {
		return name, err
	}
	if l.options.principal != "" {
		return l.options.principal, nil
	}
	return l.identity(ctx), nil
}

// identity returns the process as its store knows it, "" if that is not known. It asks the store once. A failed call
// does not stop the change.
func (l *RateLimiter) identity(ctx context.Context) string {
	c := &l.caller
	if known := c.name.Load(); known != nil {
		return *known
	}
	s, ok := l.store.(interface {
		Identity(ctx context.Context) (string, error)
	})
	if !ok {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.name.Load(); known != nil {
		return *known
	}
	now := l.now()
	if now.Before(c.retryAt) {
		return ""
	}
	bounded, cancel := context.WithTimeout(ctx, l.options.callTimeout)
	defer cancel()
	name, err := s.Identity(bounded)
	if err != nil {
		if ctx.Err() == nil {
			c.retryAt = now.Add(retryIdentity)
			l.options.logger.Warn("zlimit: the caller's identity is unknown, audit events go without", "error", err)
		}
		return ""
	}
	c.name.Store(&name)
	return name
}

// validatePrincipal checks the name of a principal, "" for the default.
func validatePrincipal(name string) error {
	if len(name) > 256 || !printable(name) {
		const reason = "must be at most 256 bytes of UTF-8 without control characters"
		return &ValidationError{Field: "principal", Value: name, Reason: reason}
	}
	return nil
}
