package grpclimit

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// PerMessage makes streams acquire for each message, in place of once for each stream. At a server those are the
// messages that come in, in a client those that go out. What a message takes is spent, since no handler finds a lease to
// correct; only a message that a client cannot send gives it back. A message that is refused fails the stream. Unary calls
// are not changed.
func PerMessage() Option { return func(i *rpc.Interceptor) { i.PerMessage = true } }

// WithLogger sets where leases are reported that cannot be settled; by default nowhere.
func WithLogger(l *slog.Logger) Option { return func(i *rpc.Interceptor) { i.LogTo(l) } }

func newInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts []Option) *interceptor {
	if request == nil {
		panic("grpclimit: the request function is nil")
	}
	return &interceptor{rpc.New("grpclimit", l, opts), request}
}

// Lease returns the lease of a call from the context of its handler, to correct what the call consumes. It is nil where
// no interceptor of this package is in use. The interceptor settles it.
func Lease(ctx context.Context) *zlimit.Lease { return rpc.Lease(ctx) }

// acquire returns the lease of a call, and a context that has it. Its errors have a status.
func (i *interceptor) acquire(ctx context.Context, method string) (context.Context, *zlimit.Lease, error) {
	request, err := i.request(ctx, method)
	if err != nil {
		return ctx, nil, Error(err)
	}
	lease, err := i.Limiter.Acquire(ctx, request)
	if err != nil {
		return ctx, nil, Error(err)
	}
	return rpc.WithLease(ctx, lease), lease, nil
}

// UnaryServerInterceptor returns an interceptor that acquires before a unary call is handled, and commits when it was, with
// an error or without. A handler that panics gives everything back. It panics for a limiter or function that is nil. A call
// costs what [zlimit.RateLimiter.Acquire] and [zlimit.Lease.Commit] cost.
func UnaryServerInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.UnaryServerInterceptor {
	i := newInterceptor(l, request, opts)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, lease, err := i.acquire(ctx, info.FullMethod)
		if err != nil {
			_ = grpc.SetTrailer(ctx, pushback(err)) // which fails for a call that has ended
			return nil, err
		}
		done := false
		defer func() { i.Settle(ctx, lease, done) }()
		answer, err := handler(ctx, message)
		done = true
		return answer, err
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams, which acquire once when they are opened, or with
// [PerMessage] for each message that comes in.
func StreamServerInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.StreamServerInterceptor {
	i := newInterceptor(l, request, opts)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		s := &serverStream{ServerStream: stream, ctx: stream.Context(), interceptor: i, method: info.FullMethod}
		if i.PerMessage {
			return handler(server, s)
		}
		ctx, lease, err := i.acquire(s.ctx, info.FullMethod)
		if err != nil {
			stream.SetTrailer(pushback(err))
			return err
		}
		s.ctx = ctx
		done := false
		defer func() { i.Settle(ctx, lease, done) }()
		err = handler(server, s)
		done = true
		return err
	}
}

// A serverStream has the lease in its context, or acquires for each message.
type serverStream struct {
	grpc.ServerStream
	ctx         context.Context //nolint:containedctx // it is the stream's, which has a method for it
	interceptor *interceptor
	method      string
}

// Context returns the context of the stream.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg receives a message, and acquires for it.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || !s.interceptor.PerMessage {
		return err
	}
	ctx, lease, err := s.interceptor.acquire(s.ctx, s.method)
	if err != nil {
		s.SetTrailer(pushback(err))
		return err
	}
	s.interceptor.Settle(ctx, lease, true)
	return nil
}

// taken reports whether a server may have taken a call that ended with an error.
func taken(err error) bool { return status.Code(err) != codes.Unavailable }

// UnaryClientInterceptor returns an interceptor that acquires before a unary call is sent. A call that is refused is not
// sent, and fails with the error of [Error]. A call that no server took, which fails with UNAVAILABLE, gives back what it
// took; every other outcome commits, a panic of another interceptor included.
func UnaryClientInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.UnaryClientInterceptor {
	i := newInterceptor(l, request, opts)
	return func(
		ctx context.Context, method string, message, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, callOptions ...grpc.CallOption,
	) (err error) {
		ctx, lease, err := i.acquire(ctx, method)
		if err != nil {
			return err
		}
		defer func() { i.Settle(ctx, lease, taken(err)) }()
		return invoke(ctx, method, message, answer, conn, callOptions...)
	}
}

// StreamClientInterceptor is [UnaryClientInterceptor] for streams, which acquire once when they are opened, or with
// [PerMessage] for each message that goes out. The lease is settled when the stream ends: RecvMsg has returned an error or
// the only answer, or the context has ended. A client that abandons a stream must therefore cancel its context, as gRPC
// asks anyway. A stream of which a message is refused is cancelled, so that the server does not take the messages before
// it for all.
func StreamClientInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.StreamClientInterceptor {
	i := newInterceptor(l, request, opts)
	return func(
		ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, callOptions ...grpc.CallOption,
	) (_ grpc.ClientStream, err error) {
		s := &clientStream{ctx: ctx, interceptor: i, method: method, one: !description.ServerStreams}
		if i.PerMessage {
			var cancel context.CancelFunc
			s.ctx, cancel = context.WithCancel(ctx)
			s.end = func(error) { cancel() }
		} else {
			var lease *zlimit.Lease
			if s.ctx, lease, err = i.acquire(ctx, method); err != nil {
				return nil, err
			}
			s.end = i.SettleAtEnd(s.ctx, lease, taken) //nolint:contextcheck // it is made from ctx
		}
		opened := false
		defer func() {
			if !opened {
				s.end(err)
			}
		}()
		s.ClientStream, err = open(s.ctx, description, conn, method, callOptions...) //nolint:contextcheck // it is made from ctx
		if err != nil {
			return nil, err
		}
		opened = true
		return s, nil
	}
}

// A clientStream settles at its end, or acquires for each message.
type clientStream struct {
	grpc.ClientStream
	ctx         context.Context //nolint:containedctx // it is the stream's, whose own ends the tries of gRPC when it is asked for
	interceptor *interceptor
	method      string
	one         bool // there is one answer
	end         func(error)
	refusal     rpc.Refusal
}

// SendMsg sends a message, and acquires for it before.
func (s *clientStream) SendMsg(m any) error {
	if !s.interceptor.PerMessage {
		return s.ClientStream.SendMsg(m)
	}
	if err := s.refusal.Err(); err != nil {
		return err
	}
	ctx, lease, err := s.interceptor.acquire(s.ctx, s.method)
	if err != nil {
		defer s.end(err)
		return s.refusal.Set(err)
	}
	err = s.ClientStream.SendMsg(m)
	s.interceptor.Settle(ctx, lease, err == nil)
	return err
}

// CloseSend ends the messages. After a refused one it leaves the stream open until the stream is cancelled, which takes a
// moment: otherwise the server would take the messages before for all.
func (s *clientStream) CloseSend() error {
	if err := s.refusal.Err(); err != nil {
		return err
	}
	return s.ClientStream.CloseSend()
}

// RecvMsg receives a message. A refused stream has its error here as well, since generated clients return that of RecvMsg.
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil || s.one {
		s.end(err)
	}
	if refused := s.refusal.Err(); err != nil && refused != nil {
		return refused
	}
	return err
}
