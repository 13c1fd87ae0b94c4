package connectlimit

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/zlimit/zlimit-go/internal/rpc"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Option changes how an interceptor works.
type Option func(*rpc.Interceptor)

// An interceptor is what the interceptors of this package share.
type interceptor struct {
	rpc.Interceptor
	request RequestFunc
}

// PerMessage makes streams acquire for each message, in place of once for each stream. At a handler those are the
// messages that come in, in a client those that go out. Those requests are not settled, since the messages of a stream
// have no lease. A message that is refused fails the stream. Unary calls are not changed.
func PerMessage() Option { return func(i *rpc.Interceptor) { i.PerMessage = true } }

// WithLogger sets where leases are reported that cannot be settled; by default nowhere.
func WithLogger(l *slog.Logger) Option { return func(i *rpc.Interceptor) { i.LogTo(l) } }

// New returns an interceptor for handlers and clients. It acquires before a call is handled or sent, and commits when
// it was, with an error or without. A handler that panics gives everything back, and so does a client's call that fails
// with unavailable. A stream acquires once: that of a handler when it is opened, that of a client at its first message.
// A refused call is neither handled nor sent, and fails with the error of [Error].
//
// It panics for a limiter or function that is nil. A call costs what [zlimit.RateLimiter.Acquire] and [zlimit.Lease.Commit]
// cost.
func New(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) connect.Interceptor {
	if request == nil {
		panic("connectlimit: the request function is nil")
	}
	return &interceptor{rpc.New("connectlimit", l, opts), request}
}

// Lease returns the lease of a call from the context of its handler, to correct what the call consumes. It is nil where
// no interceptor of this package is in use. The interceptor settles it.
func Lease(ctx context.Context) *zlimit.Lease { return rpc.Lease(ctx) }

func (i *interceptor) acquire(ctx context.Context, spec connect.Spec, header http.Header) (*zlimit.Lease, error) {
	request, err := i.request(ctx, spec, header)
	if err != nil {
		return nil, Error(err)
	}
	lease, err := i.Limiter.Acquire(ctx, request)
	return lease, Error(err)
}

// taken reports whether a server may have taken a call that ended with an error.
func taken(err error) bool { return err == nil || connect.CodeOf(err) != connect.CodeUnavailable }

// WrapUnary implements [connect.Interceptor].
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		lease, err := i.acquire(ctx, r.Spec(), r.Header())
		if err != nil {
			return nil, err
		}
		keep := false
		defer func() { i.Settle(ctx, lease, keep) }()
		answer, err := next(rpc.WithLease(ctx, lease), r)
		keep = !r.Spec().IsClient || taken(err)
		return answer, err
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if i.PerMessage {
			return next(ctx, &handlerConn{conn, ctx, i})
		}
		lease, err := i.acquire(ctx, conn.Spec(), conn.RequestHeader())
		if err != nil {
			return err
		}
		done := false
		defer func() { i.Settle(ctx, lease, done) }()
		err = next(rpc.WithLease(ctx, lease), conn)
		done = true
		return err
	}
}

// A handlerConn acquires for each message that comes in.
type handlerConn struct {
	connect.StreamingHandlerConn
	ctx         context.Context //nolint:containedctx // it is the stream's, whose Receive takes none
	interceptor *interceptor
}

// Receive receives a message, and acquires for it.
func (c *handlerConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	_, err := c.interceptor.acquire(c.ctx, c.Spec(), c.RequestHeader())
	return err
}

// WrapStreamingClient implements [connect.Interceptor].
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return &clientConn{StreamingClientConn: next(ctx, spec), ctx: ctx, interceptor: i}
	}
}

// A clientConn acquires before its first message, or before each, and settles at its end.
type clientConn struct {
	connect.StreamingClientConn
	ctx         context.Context //nolint:containedctx // it is the stream's, whose Send takes none
	interceptor *interceptor

	mu      sync.Mutex
	lease   *zlimit.Lease
	refused error
	settled bool
	stop    func() bool
}

// Send sends a message, and acquires before.
func (c *clientConn) Send(m any) error {
	if err := c.admit(); err != nil {
		return err
	}
	return c.StreamingClientConn.Send(m)
}

func (c *clientConn) admit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused != nil || c.lease != nil && !c.interceptor.PerMessage {
		return c.refused
	}
	c.lease, c.refused = c.interceptor.acquire(c.ctx, c.Spec(), c.RequestHeader())
	if c.refused == nil && c.stop == nil && !c.interceptor.PerMessage {
		c.stop = context.AfterFunc(c.ctx, func() { c.end(c.ctx.Err()) })
	}
	return c.refused
}

// Receive receives a message. A refused stream has its error here as well, since generated clients return the error of
// Receive for a stream that cannot be sent.
func (c *clientConn) Receive(m any) error {
	c.mu.Lock()
	refused := c.refused
	c.mu.Unlock()
	if refused != nil {
		return refused
	}
	err := c.StreamingClientConn.Receive(m)
	if err != nil {
		c.end(err)
	}
	return err
}

// CloseResponse closes the receiving side.
func (c *clientConn) CloseResponse() error {
	err := c.StreamingClientConn.CloseResponse()
	c.end(nil)
	return err
}

// end settles once.
func (c *clientConn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease == nil || c.settled || c.interceptor.PerMessage {
		return
	}
	c.settled = true
	c.stop()
	c.interceptor.Settle(c.ctx, c.lease, taken(err))
}
