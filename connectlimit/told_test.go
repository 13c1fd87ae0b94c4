package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/connectlimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestHeadersTellWhatIsLeft reads the header of answers in each protocol.
func TestHeadersTellWhatIsLeft(t *testing.T) {
	for name, opts := range map[string][]connect.ClientOption{"connect": nil, "grpc-web": {connect.WithGRPCWeb()}} {
		for _, silent := range []bool{false, true} {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
			policy, state, limits := `"rpm";q=4;qu="calls";w=60`, [2]string{`"rpm";r=3;t=15`, `"rpm";r=2;t=30`}, []connectlimit.Option{connectlimit.WithQuotaUnit("rpm", "calls")}
			if silent {
				policy, state, limits = "", [2]string{}, []connectlimit.Option{connectlimit.WithoutHeaders()}
			}
			p := newPeer(t, []connect.HandlerOption{connect.WithInterceptors(connectlimit.New(limiter, byKey, limits...))}, opts...)
			r := connect.NewRequest(wrapperspb.String("hello"))
			r.Header().Set("X-API-Key", "alice")
			answer, err := p.once.CallUnary(t.Context(), r)
			check.Fatal(t, "CallUnary()", err)
			if h := answer.Header(); h.Get("RateLimit-Policy") != policy || h.Get("RateLimit") != state[0] {
				t.Errorf("%s: the header is %v, want %q and %q", name, h, policy, state[0])
			}
			s := p.many.CallClientStream(t.Context())
			s.RequestHeader().Set("X-API-Key", "alice")
			check.Fatal(t, "Send()", s.Send(wrapperspb.String("hello")))
			if answer, err = s.CloseAndReceive(); err != nil {
				t.Fatalf("CloseAndReceive() = %v", err)
			}
			if h := answer.Header(); h.Get("RateLimit-Policy") != policy || h.Get("RateLimit") != state[1] {
				t.Errorf("%s: the header of a stream is %v, want %q and %q", name, h, policy, state[1])
			}
		}
	}
}

// TestSkip calls a procedure without a key that an option exempts.
func TestSkip(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	skip := connectlimit.Skip(func(_ context.Context, procedure string) bool { return procedure == "/test.Echo/Once" })
	p := newPeer(t, []connect.HandlerOption{connect.WithInterceptors(connectlimit.New(limiter, byKey, skip))})
	p.key = ""
	check.Error(t, "a call that is skipped", p.call(t.Context(), "hello"))
	if _, err := p.stream(t.Context(), "hello"); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a call that is not skipped = %v, want unauthenticated", err)
	}
}

// TestPanicsAreCharged calls a handler that panics 50 times. It runs as often as the limit says.
func TestPanicsAreCharged(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	p := newPeer(t, []connect.HandlerOption{recovered, connect.WithInterceptors(connectlimit.New(limiter, byKey))})
	ran := 0
	for range 50 {
		if connect.CodeOf(p.call(t.Context(), "panic")) == connect.CodeUnknown {
			ran++
		}
	}
	if ran != 4 {
		t.Errorf("the handler ran %d times, want 4", ran)
	}
}

// TestRefusalsAreNoSuccess refuses calls with an error whose code is that of a success. No client takes it for one.
func TestRefusalsAreNoSuccess(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	refuse := func(context.Context, connect.Spec, http.Header) (zlimit.Request, error) {
		return zlimit.Request{}, fmt.Errorf("ask the other service: %w", connect.NewError(0, errors.New("no answer")))
	}
	for name, protocol := range map[string][]connect.ClientOption{"connect": nil, "grpc-web": {connect.WithGRPCWeb()}} {
		for _, opts := range [][]connectlimit.Option{nil, {connectlimit.PerMessage()}} {
			p := newPeer(t, []connect.HandlerOption{connect.WithInterceptors(connectlimit.New(limiter, refuse, opts...))}, protocol...)
			if err := p.call(t.Context(), "hello"); code(err) != connect.CodeInternal {
				t.Errorf("%s: a call = %v, want internal", name, err)
			}
			if answer, err := p.stream(t.Context(), "hello"); code(err) != connect.CodeInternal {
				t.Errorf("%s: a stream = %q, %v, want internal", name, answer, err)
			}
		}
	}
}

// TestStreamsWithoutMessages reads the header of streams that end well without a message.
func TestStreamsWithoutMessages(t *testing.T) {
	for name, protocol := range map[string][]connect.ClientOption{"connect": nil, "grpc-web": {connect.WithGRPCWeb()}} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
		handler := connect.NewServerStreamHandler("/test.Echo/None", func(context.Context, *connect.Request[text], *connect.ServerStream[text]) error {
			return nil
		}, connect.WithInterceptors(connectlimit.New(limiter, byKey)))
		server := httptest.NewServer(handler)
		defer server.Close()
		r := connect.NewRequest(wrapperspb.String("hello"))
		r.Header().Set("X-API-Key", "alice")
		stream, err := connect.NewClient[text, text](server.Client(), server.URL+"/test.Echo/None", protocol...).CallServerStream(t.Context(), r)
		check.Fatal(t, "CallServerStream()", err)
		if stream.Receive() || stream.Err() != nil {
			t.Errorf("%s: the stream has a message, or %v", name, stream.Err())
		}
		if got := stream.ResponseHeader().Get("RateLimit"); got != `"rpm";r=3;t=15` {
			t.Errorf("%s: RateLimit = %q", name, got)
		}
		_ = stream.Close()
	}
}
