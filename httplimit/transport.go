package httplimit

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/sent"
	"github.com/zlimit/zlimit-go/internal/edge/unsettled"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Transport is an [http.RoundTripper] that acquires before it sends a request. A client thus keeps within limits that
// it shares with others. A request that is not admitted is not sent, and fails with the error of
// [zlimit.RateLimiter.Acquire]. A lease is committed when the response has been read to its end or closed. A connection
// that switches to another protocol can be written to, and its lease is settled when it is closed.
//
// A request without a response is charged as well, since the server may have served it: one that timed out, or whose
// connection broke. It is refunded if it asked for a connection and was given none, as package httptrace reports. A request that net/http
// rejects before, such as one with an invalid header, is charged. A Base that does not trace its connections refunds nothing.
//
// The bytes of a response never wait for the lease to be settled. Its end, Close, and the error of a request without a
// response do, as long as [zlimit.Lease.Commit] takes. The caller must close the response, as with every transport.
//
// The zero value is not usable, since Limiter and Request must be set. A Transport is safe for concurrent use once it is
// in use.
type Transport struct {
	Limiter *zlimit.RateLimiter
	// Request says who asks, and for what.
	Request func(*http.Request) (zlimit.Request, error)
	// MaxWait is how long a request waits for its tokens at most, in one queue over all processes, as [zlimit.RateLimiter.Wait] does.
	// The deadline of the request's context bounds it as well. With 0 no request waits.
	MaxWait time.Duration
	// Base sends the requests; nil stands for [http.DefaultTransport].
	Base http.RoundTripper
	// Logger gets the leases that cannot be settled, once a minute at most; nil for none.
	Logger *slog.Logger

	unsettled unsettled.Log
}

// RoundTrip implements [http.RoundTripper]. The lease is in the context of the request for Base, and in that of the
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
	var trace sent.Trace
	request := r.WithContext(trace.Context(&scope{Context: ctx, lease: lease})) //nolint:contextcheck // it is made from the request's
	returned := false
	defer func() {
		if !returned { // the base panics, and may have sent the request
			t.settle(ctx, "commit", lease.Commit)
		}
	}()
	response, err := base.RoundTrip(request)
	returned = true
	if err != nil { // this error counts, even if settling fails as well
		if trace.Never() {
			t.settle(ctx, "roll back", lease.Rollback)
		} else {
			t.settle(ctx, "commit", lease.Commit)
		}
		return nil, err
	}
	response.Request = request
	body := &settlingBody{ReadCloser: response.Body, settle: sync.OnceFunc(func() { t.settle(ctx, "commit", lease.Commit) })}
	response.Body = body
	if w, ok := body.ReadCloser.(io.Writer); ok { // of a protocol that was switched to, such as WebSocket
		response.Body = &settlingConn{settlingBody: body, w: w}
	}
	return response, nil
}

// settle commits a lease, or rolls it back, and logs a failure. A lease that the caller has settled stays as it is.
func (t *Transport) settle(ctx context.Context, op string, settle func(context.Context) error) {
	if err := settle(ctx); err != nil && !isClosed(err) && t.Logger != nil {
		t.unsettled.Error(ctx, t.Logger, notSettled, err, "op", op)
	}
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
	if t.MaxWait != 0 {
		return t.Limiter.Wait(r.Context(), request, zlimit.MaxWait(t.MaxWait))
	}
	return t.Limiter.Acquire(r.Context(), request)
}

// A settlingBody commits a lease at its end.
type settlingBody struct {
	io.ReadCloser
	settle func()
	end    error // that the body has returned; nil before
}

// Read reads the body. It returns the last bytes as they come, and commits before it returns the end, in the next call.
func (b *settlingBody) Read(p []byte) (n int, err error) {
	if b.end == nil {
		n, b.end = b.ReadCloser.Read(p)
	}
	if n > 0 || b.end == nil {
		return n, nil
	}
	b.settle()
	return 0, b.end
}

// Close closes the body and commits.
func (b *settlingBody) Close() error {
	err := b.ReadCloser.Close()
	b.settle()
	return err
}

// A settlingConn is the body of a response of status 101, which is written to as well.
type settlingConn struct {
	*settlingBody
	w io.Writer
}

// Write writes to the connection.
func (c *settlingConn) Write(p []byte) (int, error) { return c.w.Write(p) }

// CloseWrite ends the writing, if the connection supports that.
func (c *settlingConn) CloseWrite() error {
	if w, ok := c.w.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
