package connectlimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/connectlimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// A pipe is a network in memory.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	wrap   func(net.Conn) net.Conn // the client's side of a connection, where it is set
}

// one is HTTP/1.1 alone.
func one() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	if p.wrap != nil {
		client = p.wrap(client)
	}
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A service has a procedure of each kind, and says how its streams of messages ended. Each message goes through a function.
type service struct {
	calls atomic.Int64 // that reach a handler
	ended chan error   // of the streams of a client

	network *pipe
	unary   *connect.Client[text, text]
	client  *connect.Client[text, text]
	server  *connect.Client[text, text]
	bidi    *connect.Client[text, text]
}

func newService(t *testing.T, handle func(context.Context, string) error, server []connect.HandlerOption, client ...connect.ClientOption) *service {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return newServiceOver(t, protocols, handle, server, client...)
}

func newServiceOver(
	t *testing.T, protocols *http.Protocols, handle func(context.Context, string) error, server []connect.HandlerOption, client ...connect.ClientOption,
) *service {
	t.Helper()
	s := &service{ended: make(chan error, 1)}
	end := func(err error) error {
		select {
		case s.ended <- err:
		default:
		}
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/test.All/Unary", connect.NewUnaryHandler("/test.All/Unary", func(ctx context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(r.Msg), handle(ctx, r.Msg.GetValue())
	}, server...))
	mux.Handle("/test.All/Client", connect.NewClientStreamHandler("/test.All/Client", func(ctx context.Context, stream *connect.ClientStream[text]) (*connect.Response[text], error) {
		all := ""
		for stream.Receive() {
			all += stream.Msg().GetValue()
			if err := handle(ctx, stream.Msg().GetValue()); err != nil {
				return nil, end(err)
			}
		}
		return connect.NewResponse(wrapperspb.String(all)), end(stream.Err())
	}, server...))
	mux.Handle("/test.All/Server", connect.NewServerStreamHandler("/test.All/Server", func(ctx context.Context, r *connect.Request[text], stream *connect.ServerStream[text]) error {
		for range 2 {
			if err := stream.Send(r.Msg); err != nil {
				return err
			}
		}
		return handle(ctx, r.Msg.GetValue())
	}, server...))
	mux.Handle("/test.All/Bidi", connect.NewBidiStreamHandler("/test.All/Bidi", func(ctx context.Context, stream *connect.BidiStream[text, text]) error {
		for {
			m, err := stream.Receive()
			if errors.Is(err, io.EOF) {
				return end(nil)
			}
			if err == nil {
				err = handle(ctx, m.GetValue())
			}
			if err == nil {
				err = stream.Send(m)
			}
			if err != nil {
				return end(err)
			}
		}
	}, server...))
	s.network = &pipe{conns: make(chan net.Conn), closed: make(chan struct{})}
	h := &http.Server{Protocols: protocols, ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		mux.ServeHTTP(w, r)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = h.Serve(s.network)
	}()
	transport := &http.Transport{Protocols: protocols, DialContext: s.network.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = h.Close()
		<-served
	})
	procedure := func(name string) *connect.Client[text, text] {
		return connect.NewClient[text, text](&http.Client{Transport: transport}, "http://memory/test.All/"+name, client...)
	}
	s.unary, s.client, s.server, s.bidi = procedure("Unary"), procedure("Client"), procedure("Server"), procedure("Bidi")
	return s
}

// kinds are the kinds of calls, each as generated clients make it. They return how many answers came.
var kinds = map[string]func(ctx context.Context, s *service, messages ...string) (int, error){
	"unary": func(ctx context.Context, s *service, messages ...string) (int, error) {
		if _, err := s.unary.CallUnary(ctx, connect.NewRequest(wrapperspb.String(messages[0]))); err != nil {
			return 0, err
		}
		return 1, nil
	},
	"a client's stream": func(ctx context.Context, s *service, messages ...string) (int, error) {
		stream := s.client.CallClientStream(ctx)
		for _, m := range messages {
			if err := stream.Send(wrapperspb.String(m)); err != nil {
				break // the answer says why
			}
		}
		if _, err := stream.CloseAndReceive(); err != nil {
			return 0, err
		}
		return 1, nil
	},
	"a server's stream": func(ctx context.Context, s *service, messages ...string) (int, error) {
		stream, err := s.server.CallServerStream(ctx, connect.NewRequest(wrapperspb.String(messages[0])))
		if err != nil {
			return 0, err
		}
		n := 0
		for stream.Receive() {
			n++
		}
		return n, errors.Join(stream.Err(), stream.Close())
	},
	"both ways": func(ctx context.Context, s *service, messages ...string) (int, error) {
		stream := s.bidi.CallBidiStream(ctx)
		for i, m := range messages {
			if err := stream.Send(wrapperspb.String(m)); err != nil && !errors.Is(err, io.EOF) {
				return i, err
			}
			if _, err := stream.Receive(); err != nil {
				return i, err
			}
		}
		if err := stream.CloseRequest(); err != nil {
			return 0, err
		}
		_, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return len(messages), errors.Join(err, stream.CloseResponse())
	},
}

var alice = connectlimit.Requests("api", "rpm", connectlimit.For("alice"))

// recovered turns the panic of a handler into an error, as servers do.
var recovered = connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
	return connect.NewError(connect.CodeUnknown, errors.New("panic"))
})

// TestClientsSettleAtTheEnd makes calls of each kind under a context that never ends.
func TestClientsSettleAtTheEnd(t *testing.T) {
	for kind, call := range kinds {
		t.Run(kind, func(t *testing.T) {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4)) // which finds leases that are forgotten
			s := newService(t, echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice)))
			for range 2 {
				if n, err := call(context.Background(), s, "a", "b"); n == 0 || err != nil {
					t.Fatalf("%d answers, %v", n, err)
				}
			}
			if got := faulttest.Left(t, limiter, "alice"); got != 2 {
				t.Errorf("%d left, want 2", got)
			}
			if _, err := call(context.Background(), s, "fail"); code(err) != connect.CodeNotFound || faulttest.Left(t, limiter, "alice") != 1 {
				t.Errorf("a call that fails: %v, %d left, want 1", err, faulttest.Left(t, limiter, "alice"))
			}
		})
	}
}

// TestRefusedCalls refuses calls of each kind, for the whole call and for its first message. None reaches the server, and
// every method of a stream says why.
func TestRefusedCalls(t *testing.T) {
	for kind, call := range kinds {
		for mode, opts := range map[string][]connectlimit.Option{"once": nil, "for each message": {connectlimit.PerMessage()}} {
			t.Run(kind+", "+mode, func(t *testing.T) {
				limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
				s := newService(t, echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice, opts...)))
				if _, err := call(context.Background(), s, "a"); err != nil {
					t.Fatalf("call() = %v", err)
				}
				before := s.calls.Load()
				n, err := call(context.Background(), s, "b")
				if n != 0 || code(err) != connect.CodeResourceExhausted || !errors.As(err, new(*zlimit.ExceededError)) {
					t.Errorf("a refused call: %d answers, %v, want the refusal", n, err)
				}
				if got := s.calls.Load() - before; got != 0 {
					t.Errorf("%d refused calls reach the server", got)
				}
			})
		}
	}
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	for mode, opts := range map[string][]connectlimit.Option{"once": nil, "for each message": {connectlimit.PerMessage()}} {
		s := newService(t, echo, nil, connect.WithInterceptors(connectlimit.New(limiter, connectlimit.Requests("api", "rpm", connectlimit.For(strings.ReplaceAll(mode, " ", "-"))), opts...)))
		if _, err := kinds["both ways"](context.Background(), s, "a"); err != nil {
			t.Fatalf("kinds() = %v", err)
		}
		stream := s.bidi.CallBidiStream(context.Background())
		for name, method := range map[string]func() error{
			"Send":                 func() error { return stream.Send(wrapperspb.String("b")) },
			"Send of the header":   func() error { return stream.Send(nil) },
			"Send after a refusal": func() error { return stream.Send(wrapperspb.String("b")) },
		} {
			_ = stream.Send(wrapperspb.String("b"))
			if err := method(); code(err) != connect.CodeResourceExhausted {
				t.Errorf("%s, %s of a refused stream = %v, want the refusal", mode, name, err)
			}
		}
		if err := stream.CloseRequest(); code(err) != connect.CodeResourceExhausted {
			t.Errorf("%s, CloseRequest() of a refused stream = %v, want the refusal", mode, err)
		}
		if _, err := stream.Receive(); code(err) != connect.CodeResourceExhausted {
			t.Errorf("%s, Receive() of a refused stream = %v, want the refusal", mode, err)
		}
		if err := stream.CloseResponse(); err != nil {
			t.Errorf("%s, CloseResponse() of a refused stream = %v", mode, err)
		}
	}
}

// TestRefusedMessages refuses a message of a stream that is under way. The client hears why. The server's stream is cancelled,
// so that it does not take the messages before for all.
func TestRefusedMessages(t *testing.T) {
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	for kind, protocols := range map[string]*http.Protocols{"a client's stream": two, "both ways": two, "a client's stream over HTTP/1.1": one()} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
		s := newServiceOver(t, protocols, echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice, connectlimit.PerMessage())))
		_, err := kinds[strings.TrimSuffix(kind, " over HTTP/1.1")](context.Background(), s, "a", "b", "c")
		if code(err) != connect.CodeResourceExhausted || !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("%s with a refused message: %v, want the refusal", kind, err)
		}
		select {
		case ended := <-s.ended:
			if ended == nil {
				t.Errorf("%s: the server took the messages before the refused one for all", kind)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the server waits for more messages", kind)
		}
	}
}

// A lateConn closes only when a write has failed, or has ended with some text.
type lateConn struct {
	net.Conn
	end     string
	written chan struct{}
	once    sync.Once
}

func (c *lateConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil || bytes.HasSuffix(b[:n], []byte(c.end)) {
		c.once.Do(func() { close(c.written) })
	}
	return n, err
}

func (c *lateConn) Close() error {
	<-c.written
	return c.Conn.Close()
}

// closeAfter returns what makes connections late.
func closeAfter(end string) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn { return &lateConn{Conn: c, end: end, written: make(chan struct{})} }
}

// TestRefusedOverLateConnections refuses a message over HTTP/1.1 where the end of the messages comes before the
// connection is closed. The server does not take the messages before for all.
func TestRefusedOverLateConnections(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 1))
	s := newServiceOver(t, one(), echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice, connectlimit.PerMessage())))
	s.network.wrap = closeAfter("0\r\n\r\n") // which ends a body
	_, err := kinds["a client's stream"](t.Context(), s, "a", "b")
	if ended := <-s.ended; code(err) != connect.CodeResourceExhausted || ended == nil {
		t.Errorf("the stream fails with %v, and ends at the server with %v, want an error", err, ended)
	}
}

// TestRefusedAfterTheHeader refuses the first message of a stream whose header is sent, or is about to be. Nothing
// stays behind at the client, and the server takes no stream without messages for all.
func TestRefusedAfterTheHeader(t *testing.T) {
	for _, when := range []string{"sent", "with a connection", "without a connection"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 1))
				if _, err := limiter.Acquire(t.Context(), zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 1}}); err != nil {
					t.Fatalf("Acquire() = %v", err)
				}
				zlimittest.IgnoreLeases(limiter)
				s := newServiceOver(t, one(), echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice, connectlimit.PerMessage())))
				now, done := make(chan struct{}), make(chan struct{})
				trace := &httptrace.ClientTrace{}
				switch when {
				case "sent":
					trace.WroteHeaders = func() { close(now) }
				case "with a connection":
					s.network.wrap = closeAfter("\r\n\r\n") // which ends a header
					trace.GotConn = func(httptrace.GotConnInfo) {
						close(now)
						<-done
					}
				default:
					trace.GetConn = func(string) {
						close(now)
						<-done
					}
				}
				stream := s.client.CallClientStream(httptrace.WithClientTrace(t.Context(), trace))
				check.Fatal(t, "Send()", stream.Send(nil))
				<-now
				if err := stream.Send(wrapperspb.String("b")); code(err) != connect.CodeResourceExhausted {
					t.Errorf("Send() = %v, want the refusal", err)
				}
				close(done)
				synctest.Wait()
				select {
				case err := <-s.ended:
					if err == nil {
						t.Error("the server took a stream without messages for all")
					}
				default:
				}
			})
		})
	}
}

// TestRefusedByHandlers refuses calls of each kind, and messages, at the server.
func TestRefusedByHandlers(t *testing.T) {
	for kind, call := range kinds {
		for mode, opts := range map[string][]connectlimit.Option{"once": nil, "for each message": {connectlimit.PerMessage()}} {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
			handled := atomic.Int64{}
			s := newService(t, func(context.Context, string) error {
				handled.Add(1)
				return nil
			}, []connect.HandlerOption{connect.WithInterceptors(connectlimit.New(limiter, alice, opts...))})
			for range 2 {
				if _, err := call(context.Background(), s, "a"); err != nil {
					t.Fatalf("%s, %s: %v", kind, mode, err)
				}
			}
			_, err := call(context.Background(), s, "b")
			var refused *connect.Error
			if !errors.As(err, &refused) || refused.Code() != connect.CodeResourceExhausted || len(refused.Details()) != 2 || refused.Meta().Get("Grpc-Retry-Pushback-Ms") != "30000" {
				t.Errorf("%s, %s: a refused call fails with %v and %v", kind, mode, err, refused.Meta())
			}
			if got := handled.Load(); got != 2 {
				t.Errorf("%s, %s: %d messages are handled, want 2", kind, mode, got)
			}
		}
	}
}

// TestStreamsThatPanic and unary calls give back what they took where they are asked to. A panic in a client does not, since a server may have
// taken the call.
func TestStreamsThatPanic(t *testing.T) {
	for kind, call := range kinds {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
		s := newService(t, echo, []connect.HandlerOption{recovered, connect.WithInterceptors(connectlimit.New(limiter, alice, connectlimit.RefundPanics()))})
		if _, err := call(t.Context(), s, "panic"); code(err) != connect.CodeUnknown || faulttest.Left(t, limiter, "alice") != 4 {
			t.Errorf("%s that panics: %v, %d left, want 4", kind, err, faulttest.Left(t, limiter, "alice"))
		}
	}
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	panics := connect.UnaryInterceptorFunc(func(connect.UnaryFunc) connect.UnaryFunc {
		return func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { panic("panic") }
	})
	s := newService(t, echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice), panics))
	func() {
		defer func() { _ = recover() }()
		_, _ = kinds["unary"](t.Context(), s, "a")
	}()
	if got := faulttest.Left(t, limiter, "alice"); got != 3 {
		t.Errorf("%d left after a client's panic, want 3", got)
	}
}

// TestAbandonedStreams settles once when the context ends, whatever else happens at that time: nothing at all, or the
// end of the stream by its methods.
func TestAbandonedStreams(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 100))
	s := newService(t, echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice)))
	opened := int64(0)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		stream := s.bidi.CallBidiStream(ctx)
		if err := stream.Send(wrapperspb.String("a")); err == nil {
			opened++
		}
		go cancel()
		if i%2 == 0 {
			continue
		}
		_, _ = stream.Receive()
		_ = stream.CloseResponse()
	}
	if got := faulttest.Left(t, limiter, "alice"); got != 100-opened {
		t.Errorf("%d left, want %d", got, 100-opened)
	}
}

// TestStreamsToNobody give back what they took.
func TestStreamsToNobody(t *testing.T) {
	for kind, call := range kinds {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
		interceptors := connect.WithInterceptors(connectlimit.New(limiter, alice))
		procedure := func(name string) *connect.Client[text, text] {
			return connect.NewClient[text, text](&http.Client{Transport: &http.Transport{
				DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody") },
			}}, "http://nobody/"+name, interceptors)
		}
		s := &service{unary: procedure("Unary"), client: procedure("Client"), server: procedure("Server"), bidi: procedure("Bidi")}
		if _, err := call(t.Context(), s, "a"); code(err) != connect.CodeUnavailable || faulttest.Left(t, limiter, "alice") != 2 {
			t.Errorf("%s to nobody: %v, %d left, want all", kind, err, faulttest.Left(t, limiter, "alice"))
		}
	}
}

// TestClosedBeforeItBegins closes streams that have sent nothing: nothing is taken, and nothing waits.
func TestClosedBeforeItBegins(t *testing.T) {
	for mode, opts := range map[string][]connectlimit.Option{"once": nil, "for each message": {connectlimit.PerMessage()}} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
		s := newService(t, echo, nil, connect.WithInterceptors(connectlimit.New(limiter, alice, opts...)))
		ctx, cancel := context.WithCancel(context.Background())
		stream := s.bidi.CallBidiStream(ctx)
		received := make(chan error, 1)
		go func() {
			_, err := stream.Receive()
			received <- err
		}()
		if err := stream.CloseResponse(); err != nil {
			t.Errorf("%s: CloseResponse() = %v", mode, err)
		}
		select {
		case err := <-received:
			if err == nil {
				t.Errorf("%s: Receive() of a closed stream = nil", mode)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: Receive() of a closed stream waits", mode)
		}
		cancel()
		if got := faulttest.Left(t, limiter, "alice"); got != 2 {
			t.Errorf("%s: %d left, want 2", mode, got)
		}
	}
}
