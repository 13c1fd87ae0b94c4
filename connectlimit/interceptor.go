package connectlimit

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/zlimit/zlimit-go/internal/edge/rpc"
	"github.com/zlimit/zlimit-go/internal/edge/sent"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Option changes how an interceptor works.
type Option func(*rpc.Interceptor)

// An interceptor holds the settings of the interceptors of this package.
type interceptor struct {
	rpc.Interceptor
	request RequestFunc
}

// PerMessage makes streams acquire for each message, in place of once for each stream. At a handler those are the
// incoming messages, in a client the outgoing ones. Tokens taken for a message are spent, since no handler finds a
// lease to correct. Only a message that a client cannot send gives them back. A message that is refused fails the
// stream. Unary calls are not changed.
func PerMessage() Option { return func(i *rpc.Interceptor) { i.PerMessage = true } }

// WithMaxWait makes calls wait for their tokens, up to a time, in one queue over all processes, as [zlimit.RateLimiter.Wait] does. A call
// whose wait would exceed it, or the deadline of its context, fails immediately. By default no call waits. In a client a call that waits
// is not sent yet.
func WithMaxWait(d time.Duration) Option { return func(i *rpc.Interceptor) { i.MaxWait = d } }

// WithLogger sets where leases are reported that cannot be settled, once a minute at most; by default nowhere.
func WithLogger(l *slog.Logger) Option { return func(i *rpc.Interceptor) { i.LogTo(l) } }

// Skip lets calls through that a function chooses by their procedure, such as /library.Books/Get, without a limit. Each Skip
// adds to those before. Calls of the services grpc.health.v1.Health and grpc.reflection are skipped by default, since the
// platform that makes them has no key.
func Skip(skip func(ctx context.Context, procedure string) bool) Option {
	return func(i *rpc.Interceptor) { i.Skip(skip) }
}

// WithHealthAndReflection limits health checks and reflection as other calls.
func WithHealthAndReflection() Option { return func(i *rpc.Interceptor) { i.All = true } }

// RefundPanics gives back the tokens of a call whose handler panics. By default it is charged, since a procedure that
// panics would have no limit otherwise.
func RefundPanics() Option { return func(i *rpc.Interceptor) { i.RefundPanics = true } }

// WithoutHeaders leaves out the fields of an answer that say where the limits stand.
func WithoutHeaders() Option { return func(i *rpc.Interceptor) { i.Silent = true } }

// WithQuotaUnit sets the parameter qu of a limit that does not count calls. It panics for a unit that a field cannot hold.
func WithQuotaUnit(limit, unit string) Option {
	return func(i *rpc.Interceptor) { i.SetUnit(limit, unit) }
}

// New returns an interceptor for handlers and clients. It acquires before a call is handled or sent, and commits when
// it was, with an error, a panic or without. The header of an answer has the fields RateLimit and RateLimit-Policy. A
// client's call is charged with any code, since the server may have served it, even with unavailable and after a
// deadline. The call gives its tokens back when net/http never gave it a connection; another HTTPClient gives nothing
// back. A refused call is neither handled nor sent, and fails with the error of [Error].
//
// A stream acquires once. A handler's does when it is opened, a client's at its first message, or when its sending side
// is closed without one. A client's stream is settled when Receive has returned an error, its receiving side is closed,
// or its context ends. A client's stream is cancelled when a message is refused, so that the server does not take the
// earlier messages for all.
//
// New panics for a nil limiter or function. A call costs what [zlimit.RateLimiter.Acquire] and [zlimit.Lease.Commit]
// cost.
func New(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) connect.Interceptor {
	if request == nil {
		panic("connectlimit: the request function is nil")
	}
	return &interceptor{rpc.New("connectlimit", l, opts), request}
}

// Lease returns the lease of a call from the context of its handler, to correct the amounts of the call. It is nil
// where no interceptor of this package is in use. The interceptor settles it.
func Lease(ctx context.Context) *zlimit.Lease { return rpc.Lease(ctx) }

func (i *interceptor) acquire(ctx context.Context, spec connect.Spec, header http.Header) (*zlimit.Lease, error) {
	request, err := i.request(ctx, spec, header)
	if err != nil {
		return nil, Error(err)
	}
	lease, err := i.Acquire(ctx, request)
	return lease, Error(err)
}

// WrapUnary implements [connect.Interceptor].
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if i.Skips(ctx, r.Spec().Procedure) {
			return next(ctx, r)
		}
		lease, err := i.acquire(ctx, r.Spec(), r.Header())
		if err != nil {
			return nil, err
		}
		keep := r.Spec().IsClient || !i.RefundPanics // of a panic
		defer func() { i.Settle(ctx, lease, keep) }()
		inner := rpc.WithLease(ctx, lease)
		if !r.Spec().IsClient {
			answer, err := next(inner, r)
			keep = true
			if err == nil && answer != nil {
				i.Fields(lease, answer.Header().Set)
			}
			return answer, err
		}
		var trace sent.Trace
		answer, err := next(trace.Context(inner), r)
		keep = err == nil || !trace.Never()
		return answer, err
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if i.Skips(ctx, conn.Spec().Procedure) {
			return next(ctx, conn)
		}
		if i.PerMessage {
			return next(ctx, &handlerConn{conn, ctx, i})
		}
		lease, err := i.acquire(ctx, conn.Spec(), conn.RequestHeader())
		if err != nil {
			return err
		}
		keep := !i.RefundPanics
		defer func() { i.Settle(ctx, lease, keep) }()
		reporting := &reportingConn{conn, i, lease}
		err = next(rpc.WithLease(ctx, lease), reporting)
		keep = true
		if err == nil {
			reporting.report() // of a stream without a message
		}
		return err
	}
}

// A reportingConn adds where the limits stand to the header of a stream.
type reportingConn struct {
	connect.StreamingHandlerConn
	interceptor *interceptor
	lease       *zlimit.Lease // nil once it is reported
}

// report adds the status of the limits to the header, once.
func (c *reportingConn) report() {
	if c.lease != nil {
		c.interceptor.Fields(c.lease, c.ResponseHeader().Set)
		c.lease = nil
	}
}

// Send sends a message, and the header before the first.
func (c *reportingConn) Send(m any) error {
	c.report()
	return c.StreamingHandlerConn.Send(m)
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
	lease, err := c.interceptor.acquire(c.ctx, c.Spec(), c.RequestHeader())
	if err != nil {
		return err
	}
	c.interceptor.Settle(c.ctx, lease, true)
	return nil
}

// WrapStreamingClient implements [connect.Interceptor].
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		if i.Skips(ctx, spec.Procedure) {
			return next(ctx, spec)
		}
		c := &clientConn{interceptor: i, begun: make(chan struct{}), settle: func(bool) {}}
		c.ctx, c.cancel = context.WithCancel(ctx)
		c.wire.end = func() { _ = c.StreamingClientConn.CloseRequest() }
		traced := c.trace.Context(c.ctx)
		if i.PerMessage { // no other stream is refused once it is under way
			traced = c.wire.trace(traced)
		}
		c.StreamingClientConn = next(traced, spec) //nolint:contextcheck // it is made from ctx
		return c
	}
}

// A clientConn acquires before its first message, or before each, and settles at its end. Until it has begun, nothing
// is sent. One goroutine may send and one may receive, as Connect allows.
type clientConn struct {
	connect.StreamingClientConn
	ctx         context.Context //nolint:containedctx // it is the stream's, whose Send takes none
	interceptor *interceptor

	begun   chan struct{} // closed when the stream has begun, or was refused before
	sent    bool          // the server knows of the stream; does not change once begun is closed
	settle  func(bool)    // settles the lease of the stream; does not change once begun is closed
	cancel  func()        // ends the stream at both sides
	refusal rpc.Refusal
	trace   sent.Trace
	wire    wire
}

// Send sends a message, and acquires before. Without a message it sends the header.
func (c *clientConn) Send(m any) error {
	if err := c.begin(); err != nil {
		return err
	}
	if !c.interceptor.PerMessage || m == nil {
		return c.send(m)
	}
	lease, err := c.acquire()
	if err != nil {
		return err
	}
	err = c.send(m)
	c.interceptor.Settle(c.ctx, lease, err == nil)
	return err
}

func (c *clientConn) send(m any) error {
	c.start()
	return c.StreamingClientConn.Send(m)
}

// begin acquires for the stream before its first message, and returns the error of a stream that was refused.
func (c *clientConn) begin() error {
	if err := c.refusal.Err(); err != nil || c.interceptor.PerMessage || c.sent {
		return err
	}
	lease, err := c.acquire()
	if err != nil {
		return err
	}
	c.settle = c.interceptor.SettleAtEnd(c.ctx, lease)
	c.start()
	return nil
}

// acquire returns a lease, or ends the stream.
func (c *clientConn) acquire() (*zlimit.Lease, error) {
	lease, err := c.interceptor.acquire(c.ctx, c.Spec(), c.RequestHeader())
	if err == nil {
		return lease, nil
	}
	_ = c.refusal.Set(err)
	c.cancel()
	if c.sent {
		_ = c.StreamingClientConn.CloseResponse() // HTTP/2 looks at the context no more while it waits for messages
		c.wire.refuse()
	} else {
		close(c.begun)
	}
	return nil, err
}

// start lets the receiving side go on.
func (c *clientConn) start() {
	if !c.sent {
		c.sent = true
		close(c.begun)
	}
}

// CloseRequest closes the sending side. It acquires for a stream without a message, which goes to the server as well. A
// refused stream is cancelled, and not closed: the server would take the messages before the refused one for all.
func (c *clientConn) CloseRequest() error {
	if refused := c.begin(); refused != nil {
		return refused
	}
	c.start()
	return c.StreamingClientConn.CloseRequest()
}

// Receive receives a message. A refused stream has its error here as well, since generated clients return the error of
// Receive for a stream that cannot be sent.
func (c *clientConn) Receive(m any) error {
	select {
	case <-c.begun:
	case <-c.ctx.Done():
		if err := c.refusal.Err(); err != nil {
			return err
		}
		return c.StreamingClientConn.Receive(m) // says so
	}
	if err := c.refusal.Err(); err != nil {
		return err
	}
	err := c.StreamingClientConn.Receive(m)
	if err == nil {
		return nil
	}
	// The code unavailable means that the request has ended; a request whose context ends may still be given a
	// connection.
	c.settle(connect.CodeOf(err) != connect.CodeUnavailable || !c.trace.Never())
	if refused := c.refusal.Err(); refused != nil {
		return refused
	}
	return err
}

// CloseResponse closes the receiving side.
func (c *clientConn) CloseResponse() error {
	defer c.cancel()
	select {
	case <-c.begun:
	default:
		return nil // there is nothing to close except a waiting Receive, which is cancelled
	}
	if !c.sent {
		return nil
	}
	err := c.StreamingClientConn.CloseResponse()
	c.settle(true)
	return err
}
