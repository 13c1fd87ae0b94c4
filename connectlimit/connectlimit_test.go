package connectlimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/connectlimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

type text = wrapperspb.StringValue

var byKey = connectlimit.Requests("api", "rpm", connectlimit.ByHeader("X-API-Key"))

// echo answers as a message says: it corrects the lease, fails or panics.
func echo(ctx context.Context, m string) error {
	switch m {
	case "adjust":
		return connectlimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": 2})
	case "fail":
		return connect.NewError(connect.CodeNotFound, errors.New("fail"))
	case "panic":
		panic("panic")
	}
	return nil
}

// A peer is a client of a server that repeats what it is sent.
type peer struct {
	once *connect.Client[text, text]
	many *connect.Client[text, text]
	key  string
}

func newPeer(t testing.TB, server []connect.HandlerOption, client ...connect.ClientOption) *peer {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/test.Echo/Once", connect.NewUnaryHandler("/test.Echo/Once", func(ctx context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
		return connect.NewResponse(r.Msg), echo(ctx, r.Msg.GetValue())
	}, server...))
	mux.Handle("/test.Echo/Many", connect.NewClientStreamHandler("/test.Echo/Many", func(ctx context.Context, s *connect.ClientStream[text]) (*connect.Response[text], error) {
		all := ""
		for s.Receive() {
			all += s.Msg().GetValue()
			if err := echo(ctx, s.Msg().GetValue()); err != nil {
				return nil, err
			}
		}
		return connect.NewResponse(wrapperspb.String(all)), s.Err()
	}, server...))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &peer{
		connect.NewClient[text, text](s.Client(), s.URL+"/test.Echo/Once", client...),
		connect.NewClient[text, text](s.Client(), s.URL+"/test.Echo/Many", client...), "alice",
	}
}

func (p *peer) call(ctx context.Context, m string) error {
	r := connect.NewRequest(wrapperspb.String(m))
	r.Header().Set("X-API-Key", p.key)
	_, err := p.once.CallUnary(ctx, r)
	return err
}

func (p *peer) stream(ctx context.Context, messages ...string) (string, error) {
	s := p.many.CallClientStream(ctx)
	s.RequestHeader().Set("X-API-Key", p.key)
	for _, m := range messages {
		if err := s.Send(wrapperspb.String(m)); err != nil {
			break // the answer says why
		}
	}
	answer, err := s.CloseAndReceive()
	if err != nil {
		return "", err
	}
	return answer.Msg.GetValue(), nil
}

// code returns the code of an error; 0 for none.
func code(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

func TestUnaryHandlers(t *testing.T) {
	for name, protocol := range map[string][]connect.ClientOption{"connect": nil, "grpc-web": {connect.WithGRPCWeb()}} {
		limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
		p := newPeer(t, []connect.HandlerOption{
			connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
				return connect.NewError(connect.CodeUnknown, nil)
			}),
			connect.WithInterceptors(connectlimit.New(limiter, byKey, connectlimit.RefundPanics())),
		}, protocol...)
		for _, test := range []struct {
			text string
			code connect.Code
			left int64
		}{
			{"hello", 0, 3},
			{"panic", connect.CodeUnknown, 3},
			{"fail", connect.CodeNotFound, 2},
			{"adjust", 0, -1},
		} {
			if err := p.call(t.Context(), test.text); code(err) != test.code || faulttest.Left(t, limiter, "alice") != test.left {
				t.Errorf("%s, %s: %v, %d left, want %v and %d", name, test.text, err, faulttest.Left(t, limiter, "alice"), test.code, test.left)
			}
		}
		var refused *connect.Error
		if err := p.call(t.Context(), "hello"); !errors.As(err, &refused) || refused.Code() != connect.CodeResourceExhausted || len(refused.Details()) != 2 {
			t.Fatalf("%s: a refused call fails with %v", name, err)
		}
		if got := refused.Meta(); got.Get("Retry-After") != "30" || got.Get("Grpc-Retry-Pushback-Ms") != "30000" {
			t.Errorf("%s: the metadata is %v", name, got)
		}
		quota := check.Call(refused.Details()[0].Value()).Must(t, "Value()")
		if v := quota.(*errdetails.QuotaFailure).GetViolations()[0]; v.GetQuotaId() != "api/rpm" || v.GetQuotaValue() != 4 || strings.Contains(v.String(), "alice") {
			t.Errorf("%s: the violation is %v", name, v)
		}
		retry, err := refused.Details()[1].Value()
		if err != nil || retry.(*errdetails.RetryInfo).GetRetryDelay().AsDuration() != 30*time.Second {
			t.Errorf("%s: the delay is %v, %v", name, retry, err)
		}
		clock.Advance(30 * time.Second)
		if err := p.call(t.Context(), "hello"); err != nil {
			t.Errorf("%s: a call after the delay = %v", name, err)
		}
	}
}

func TestKeysAndErrors(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Entity: "alice", Resource: "api"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 4)}}))
	p := newPeer(t, []connect.HandlerOption{connect.WithInterceptors(connectlimit.New(limiter, byKey))})
	for key, want := range map[string]string{
		"":                        "unauthenticated: the key in the header X-API-Key is missing",
		strings.Repeat("k", 1000): "unauthenticated: the key in the header X-API-Key has 1000 bytes; it must have at most 256",
		"a b":                     "invalid_argument: the entity must hold only ASCII letters, digits and _.-:@/+|=~%",
		"globex":                  "permission_denied: no quota",
	} {
		p.key = key
		if err := p.call(t.Context(), "hello"); err == nil || err.Error() != want {
			t.Errorf("%.10q: %v, want %s", key, err, want)
		}
	}
	for _, test := range []struct {
		err  error
		want connect.Code
	}{
		{nil, 0},
		{&zlimit.UnavailableError{Op: "acquire", Err: errors.New("secret")}, connect.CodeUnavailable},
		{zlimit.ErrClosed, connect.CodeUnavailable},
		{context.Canceled, connect.CodeCanceled},
		{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
		{errors.New("secret"), connect.CodeInternal},
		{connect.NewError(connect.CodeAborted, nil), connect.CodeAborted},
	} {
		got := connectlimit.Error(test.err)
		if code(got) != test.want || got != nil && strings.Contains(got.Error(), "secret") || !errors.Is(got, test.err) {
			t.Errorf("Error(%v) = %v, want %v", test.err, got, test.want)
		}
	}
}

func TestMoreThanALimitHolds(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	_, err := limiter.Acquire(t.Context(), zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 5}})
	var refused *connect.Error
	if !errors.As(connectlimit.Error(err), &refused) || refused.Meta().Get("Grpc-Retry-Pushback-Ms") != "-1" || len(refused.Details()) != 1 {
		t.Errorf("Error() = %v", refused)
	}
}

func TestStreams(t *testing.T) {
	client := connectlimit.Requests("api", "rpm", connectlimit.For("alice"))
	for _, test := range []struct {
		name     string
		request  connectlimit.RequestFunc
		client   bool
		opts     []connectlimit.Option
		messages []string
		code     connect.Code
		left     int64
	}{
		{"a handler's, once", byKey, false, nil, []string{"a", "b", "c"}, 0, 1},
		{"a handler's, corrected", byKey, false, nil, []string{"adjust"}, 0, -1},
		{"a handler's, for each message", byKey, false, []connectlimit.Option{connectlimit.PerMessage()}, []string{"a", "b"}, 0, 0},
		{"a handler's, too many messages", byKey, false, []connectlimit.Option{connectlimit.PerMessage()}, []string{"a", "b", "c"}, connect.CodeResourceExhausted, 0},
		{"a client's, once", client, true, nil, []string{"a", "b", "c"}, 0, 1},
		{"a client's, for each message", client, true, []connectlimit.Option{connectlimit.PerMessage()}, []string{"a", "b"}, 0, 0},
		{"a client's, too many messages", client, true, []connectlimit.Option{connectlimit.PerMessage()}, []string{"a", "b", "c"}, connect.CodeResourceExhausted, 0},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
		interceptors := connect.WithInterceptors(connectlimit.New(limiter, test.request, test.opts...))
		p := newPeer(t, []connect.HandlerOption{interceptors})
		if test.client {
			p = newPeer(t, nil, interceptors)
		}
		got, err := p.stream(t.Context(), test.messages...)
		if code(err) != test.code || err == nil && got != strings.Join(test.messages, "") {
			t.Errorf("%s: %q, %v, want %v", test.name, got, err, test.code)
		}
		if got := faulttest.Left(t, limiter, "alice"); got != test.left {
			t.Errorf("%s: %d left, want %d", test.name, got, test.left)
		}
	}
}

func TestClients(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
	option := connect.WithInterceptors(connectlimit.New(limiter, connectlimit.Requests("api", "rpm", connectlimit.For("alice"))))
	p := newPeer(t, nil, option)
	nobody := &peer{connect.NewClient[text, text](http.DefaultClient, "http://127.0.0.1:1/test.Echo/Once", option), nil, "alice"}
	if err := nobody.call(t.Context(), "hello"); code(err) != connect.CodeUnavailable || faulttest.Left(t, limiter, "alice") != 2 {
		t.Errorf("a call to nobody: %v, %d left, want all", err, faulttest.Left(t, limiter, "alice"))
	}
	for i, want := range []connect.Code{0, connect.CodeNotFound, connect.CodeResourceExhausted} {
		err := p.call(t.Context(), []string{"hello", "fail", "hello"}[i])
		if code(err) != want || errors.As(err, new(*zlimit.ExceededError)) != (i == 2) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	if _, err := p.stream(t.Context(), "a"); code(err) != connect.CodeResourceExhausted {
		t.Errorf("a refused stream: %v", err)
	}
}

func TestWrongUse(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	for name, wrong := range map[string]func(){
		"no limiter":  func() { connectlimit.New(nil, byKey) },
		"no function": func() { connectlimit.New(limiter, nil) },
		"no option":   func() { connectlimit.New(limiter, byKey, nil) },
		"no logger":   func() { connectlimit.New(limiter, byKey, connectlimit.WithLogger(nil)) },
		"no key":      func() { connectlimit.Requests("api", "rpm", nil) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "connectlimit: ") {
					t.Errorf("%s: recover() = %q, want a panic of this package", name, text)
				}
			}()
			wrong()
		}()
	}
	if got := connectlimit.Lease(t.Context()); got != nil {
		t.Errorf("Lease() outside = %v, want nil", got)
	}
}

// TestErrorOfPrepaid refuses a call until a prepaid limit is topped up: no time is named.
func TestErrorOfPrepaid(t *testing.T) {
	var refused *connect.Error
	err := connectlimit.Error(&zlimit.ExceededError{Statuses: zlimit.Statuses{
		{Entity: "alice", Resource: "api", Limit: zlimit.Prepaid("usd", 5_000_000_000), Available: 2_000_000_000, Requested: 7_000_000_000, Exceeded: true, RetryAfter: zlimit.Never},
	}})
	if !errors.As(err, &refused) || refused.Code() != connect.CodeResourceExhausted || len(refused.Details()) != 1 ||
		len(refused.Meta().Values("Retry-After")) != 0 || refused.Meta().Get("Grpc-Retry-Pushback-Ms") != "-1" {
		t.Errorf("Error() = %v with %v and %v", err, refused.Details(), refused.Meta())
	}
}
