package grpclimit

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/zlimit/zlimit-go/internal/edge/rpc"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Option changes how an interceptor works.
type Option func(*rpc.Interceptor)

// An interceptor holds the settings of the interceptors of this package.
type interceptor struct {
	rpc.Interceptor
	request RequestFunc
}

// PerMessage makes streams acquire for each message, in place of once for each stream. At a server those are the
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

func newInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts []Option) *interceptor {
	if request == nil {
		panic("grpclimit: the request function is nil")
	}
	return &interceptor{rpc.New("grpclimit", l, opts), request}
}

// Lease returns the lease of a call from the context of its handler, to correct the amounts of the call. It is nil
// where no interceptor of this package is in use. The interceptor settles it.
func Lease(ctx context.Context) *zlimit.Lease { return rpc.Lease(ctx) }

// acquire returns the lease of a call, and a context that has it. Its errors have a status.
func (i *interceptor) acquire(ctx context.Context, method string) (context.Context, *zlimit.Lease, error) {
	request, err := i.request(ctx, method)
	if err != nil {
		return ctx, nil, Error(err)
	}
	lease, err := i.Acquire(ctx, request)
	if err != nil {
		return ctx, nil, Error(err)
	}
	return rpc.WithLease(ctx, lease), lease, nil
}

// report adds the status of the limits to the header of an answer. It does nothing for a header that was already sent.
func (i *interceptor) report(lease *zlimit.Lease, set func(metadata.MD) error) {
	md := metadata.MD{}
	i.Fields(lease, func(name, value string) { md.Set(name, value) })
	_ = set(md)
}

// UnaryServerInterceptor returns an interceptor that acquires before a unary call is handled, and commits when it was,
// with an error, a panic or without. The header of an answer has the fields ratelimit and ratelimit-policy. An error
// has no such header: after a header, a client stops obeying its retry policy. It panics for a limiter or function that
// is nil. A call costs what [zlimit.RateLimiter.Acquire] and [zlimit.Lease.Commit] cost.
func UnaryServerInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.UnaryServerInterceptor {
	i := newInterceptor(l, request, opts)
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if i.Skips(ctx, info.FullMethod) {
			return handler(ctx, message)
		}
		ctx, lease, err := i.acquire(ctx, info.FullMethod)
		if err != nil {
			_ = grpc.SetTrailer(ctx, pushback(err)) // it fails for a call that has ended
			return nil, err
		}
		keep := !i.RefundPanics
		defer func() { i.Settle(ctx, lease, keep) }()
		answer, err := handler(ctx, message)
		keep = true
		if err == nil {
			i.report(lease, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) })
		}
		return answer, err
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. A stream acquires once when it is opened, or with
// [PerMessage] for each incoming message.
func StreamServerInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.StreamServerInterceptor {
	i := newInterceptor(l, request, opts)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if i.Skips(stream.Context(), info.FullMethod) {
			return handler(server, stream)
		}
		s := &serverStream{ServerStream: stream, ctx: stream.Context(), interceptor: i, method: info.FullMethod}
		if i.PerMessage {
			return handler(server, s)
		}
		ctx, lease, err := i.acquire(s.ctx, info.FullMethod)
		if err != nil {
			stream.SetTrailer(pushback(err))
			return err
		}
		s.ctx, s.lease = ctx, lease
		keep := !i.RefundPanics
		defer func() { i.Settle(ctx, lease, keep) }()
		err = handler(server, s)
		keep = true
		if err == nil {
			s.report()
		}
		return err
	}
}

// A serverStream has the lease in its context, or acquires for each message.
type serverStream struct {
	grpc.ServerStream
	ctx         context.Context //nolint:containedctx // it is the stream's, which has a method for it
	interceptor *interceptor
	method      string
	lease       *zlimit.Lease // nil once it is reported, and of a stream that acquires for each message
}

// report adds the status of the limits to the header, once.
func (s *serverStream) report() {
	if s.lease != nil {
		s.interceptor.report(s.lease, s.SetHeader)
		s.lease = nil
	}
}

// SendHeader sends the header.
func (s *serverStream) SendHeader(md metadata.MD) error {
	s.report()
	return s.ServerStream.SendHeader(md)
}

// SendMsg sends a message, and the header before the first.
func (s *serverStream) SendMsg(m any) error {
	s.report()
	return s.ServerStream.SendMsg(m)
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

// unsent stands for the peer of a call until gRPC has begun to send it.
type unsent struct{ net.Addr }

// A proof is what gRPC reports about a call through options: that the call has ended, and to whom any try of it was given a stream. Without
// either the call counts as sent, since an interceptor between may have dropped the options.
type proof struct {
	to           peer.Peer
	ended, begun atomic.Bool
}

// options adds the call options that the proof needs.
func (p *proof) options(given []grpc.CallOption) []grpc.CallOption {
	p.to.Addr = unsent{}
	return append(slices.Clip(given), grpc.Peer(&p.to), grpc.OnFinish(func(error) { // which gRPC calls once the peer is filled in
		if p.to.Addr != net.Addr(unsent{}) {
			p.begun.Store(true)
		}
		p.ended.Store(true)
	}))
}

// unsent reports that gRPC has ended the call without having begun to send it.
func (p *proof) unsent() bool { return p.ended.Load() && !p.begun.Load() }

// UnaryClientInterceptor returns an interceptor that acquires before a unary call is sent. A call that is refused is
// not sent, and fails with the error of [Error]. A call that fails before gRPC has begun to send it, such as one
// without a server, gives its tokens back. gRPC says so by options of the call. Every other outcome commits, whatever
// its code, since the server may have served the call. Among these are UNAVAILABLE, a deadline that passes, and a panic
// of another interceptor. So is a message that cannot be encoded, or is too large, since gRPC has opened the stream by
// then. So is the failure of an interceptor between that drops the options or makes no call: the limiter should be the
// last in the chain.
func UnaryClientInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.UnaryClientInterceptor {
	i := newInterceptor(l, request, opts)
	return func(
		ctx context.Context, method string, message, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, callOptions ...grpc.CallOption,
	) (err error) {
		if i.Skips(ctx, method) {
			return invoke(ctx, method, message, answer, conn, callOptions...)
		}
		ctx, lease, err := i.acquire(ctx, method)
		if err != nil {
			return err
		}
		keep := true
		defer func() { i.Settle(ctx, lease, keep) }()
		var p proof
		err = invoke(ctx, method, message, answer, conn, p.options(callOptions)...)
		keep = err == nil || !p.unsent()
		return err
	}
}

// StreamClientInterceptor is [UnaryClientInterceptor] for streams. A stream acquires once when it is opened, or with
// [PerMessage] for each outgoing message. A stream that gRPC cannot open gives back its tokens. A stream opened and
// then failed by another interceptor does not. The lease of any other is committed when the stream ends: RecvMsg has
// returned an error or the only answer, or the context has ended. A client that abandons a stream must therefore cancel
// its context, as gRPC asks anyway. A stream is cancelled when a message is refused, so that the server does not take
// the earlier messages for all.
func StreamClientInterceptor(l *zlimit.RateLimiter, request RequestFunc, opts ...Option) grpc.StreamClientInterceptor {
	i := newInterceptor(l, request, opts)
	return func(
		ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, callOptions ...grpc.CallOption,
	) (_ grpc.ClientStream, err error) {
		if i.Skips(ctx, method) {
			return open(ctx, description, conn, method, callOptions...)
		}
		s := &clientStream{ctx: ctx, interceptor: i, method: method, one: !description.ServerStreams}
		var lease *zlimit.Lease
		if i.PerMessage {
			var cancel context.CancelFunc
			s.ctx, cancel = context.WithCancel(ctx)
			s.end = func(bool) { cancel() }
		} else {
			if s.ctx, lease, err = i.acquire(ctx, method); err != nil {
				return nil, err
			}
			s.end = func(keep bool) { i.Settle(s.ctx, lease, keep) }
		}
		keep := true // of a panic of another interceptor
		defer func() {
			if s.ClientStream == nil {
				s.end(keep)
			}
		}()
		var p proof
		s.ClientStream, err = open(s.ctx, description, conn, method, p.options(callOptions)...) //nolint:contextcheck // it is made from ctx
		if err != nil {
			s.ClientStream, keep = nil, !p.unsent()
			return nil, err
		}
		if lease != nil {
			s.end = i.SettleAtEnd(s.ctx, lease) //nolint:contextcheck // it is made from ctx
		}
		return s, nil
	}
}

// A clientStream settles at its end, or acquires for each message.
type clientStream struct {
	grpc.ClientStream
	ctx         context.Context //nolint:containedctx // it is the stream's, whose own ends the tries of gRPC when it is read
	interceptor *interceptor
	method      string
	one         bool // there is one answer
	end         func(keep bool)
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
		defer s.end(true)
		return s.refusal.Set(err)
	}
	err = s.ClientStream.SendMsg(m)
	s.interceptor.Settle(ctx, lease, err == nil)
	return err
}

// CloseSend ends the messages. After a refused one it leaves the stream open until the stream is cancelled, after a
// moment. Otherwise the server would take the earlier messages for all.
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
		s.end(true)
	}
	if refused := s.refusal.Err(); err != nil && refused != nil {
		return refused
	}
	return err
}
