package httplimit

import (
	"io"
	"net/http"
	"sync"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Transport is an [http.RoundTripper] that acquires before it sends a request, so that a client keeps within limits
// that it shares with others. A request that is not admitted is not sent, and fails with the error of
// [zlimit.RateLimiter.Acquire]. A lease is committed when the response has been read to its end or closed, and rolled
// back when no response comes. The zero value is not usable, since Limiter and Request must be set. A Transport is safe
// for concurrent use once it is in use.
type Transport struct {
	Limiter *zlimit.RateLimiter
	// Request says who asks, and for what.
	Request func(*http.Request) (zlimit.Request, error)
	// Base sends the requests; nil stands for [http.DefaultTransport].
	Base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper]. The lease is in the context of the request that Base gets, and in that of the
// response's Request, for [Lease].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	lease, err := t.acquire(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a transport must
		}
		return nil, err
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	ctx := r.Context()
	request := r.WithContext(&scope{Context: ctx, lease: lease}) //nolint:contextcheck // it is made from the request's
	response, err := base.RoundTrip(request)
	if err != nil {
		_ = lease.Rollback(ctx) // the error of the request counts; the outcome is in the limiter's Stats
		return nil, err
	}
	response.Request = request
	response.Body = &settlingBody{ReadCloser: response.Body, settle: sync.OnceFunc(func() { _ = lease.Commit(ctx) })}
	return response, nil
}

func (t *Transport) acquire(r *http.Request) (*zlimit.Lease, error) {
	switch {
	case t.Limiter == nil:
		return nil, &zlimit.ValidationError{Field: "transport limiter", Value: "nil", Reason: "must not be nil"}
	case t.Request == nil:
		return nil, &zlimit.ValidationError{Field: "transport request", Value: "nil", Reason: "must not be nil"}
	}
	request, err := t.Request(r)
	if err != nil {
		return nil, err
	}
	return t.Limiter.Acquire(r.Context(), request)
}

// A settlingBody commits a lease at its end.
type settlingBody struct {
	io.ReadCloser
	settle func()
}

// Read reads the body, and commits before it returns the end.
func (b *settlingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.settle()
	}
	return n, err
}

// Close closes the body and commits.
func (b *settlingBody) Close() error {
	err := b.ReadCloser.Close()
	b.settle()
	return err
}
