package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }

// A testbed is a gateway before a provider that repeats a recorded stream.
type testbed struct {
	*gateway
	limiter *zlimit.RateLimiter
	url     string
	client  *http.Client
	clock   *zlimittest.Clock
	gate    chan struct{} // where it is not nil, the provider waits for it after each event
}

// newWorld starts a gateway whose limits are in a store.
func newTestbed(t *testing.T, dsn string, opts ...zlimit.Option) *testbed {
	t.Helper()
	w := &testbed{clock: zlimittest.NewClock()}
	limiter, err := open(t.Context(), dsn, append(opts, zlimit.WithClock(w.clock.Now))...)
	if err != nil {
		t.Fatal(err)
	}
	provider1 := httptest.NewServer(http.HandlerFunc(w.answer))
	to := map[string]provider{
		"openai": {provider1.URL, "Authorization", "Bearer provider-key"}, "anthropic": {provider1.URL, "X-Api-Key", "provider-key"},
		"nobody": {"http://127.0.0.1:1", "X-Api-Key", ""},
	}
	if w.gateway, err = newGateway(limiter, to, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w.gateway)
	w.limiter, w.url, w.client = limiter, server.URL, server.Client()
	t.Cleanup(func() {
		server.Close()
		if err := w.models.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		provider1.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := limiter.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return w
}

// answer is the provider: it checks the key, and sends a recorded stream.
func (w *testbed) answer(rw http.ResponseWriter, r *http.Request) {
	name := "chat.sse"
	if strings.HasSuffix(r.URL.Path, "/messages") {
		name = "anthropic.sse"
	}
	if r.Header.Get("Authorization") != "Bearer provider-key" && r.Header.Get("X-Api-Key") != "provider-key" {
		http.Error(rw, "wrong key", http.StatusUnauthorized)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	stream, err := os.ReadFile(filepath.Join("..", "..", "llm", "testdata", "streams", name))
	if err != nil {
		panic(err)
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	for event := range strings.SplitAfterSeq(string(stream), "\n\n") {
		_, _ = io.WriteString(rw, event)
		rw.(http.Flusher).Flush()
		if w.gate != nil {
			<-w.gate
		}
	}
}

// post sends a call with a key.
func (w *testbed) post(ctx context.Context, t *testing.T, path, key, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// chat calls a model and returns the status and the whole answer.
func (w *testbed) chat(t *testing.T, key, model string) (int, string) {
	t.Helper()
	r := w.post(t.Context(), t, "/openai/v1/chat/completions", key, `{"stream":true,"max_tokens":3000,"model":"`+model+`"}`)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func (w *testbed) left(t *testing.T, tenant, resource string) int64 {
	t.Helper()
	statuses, err := w.limiter.Available(t.Context(), tenant, resource)
	if err != nil {
		t.Fatal(err)
	}
	return statuses[0].Available
}

// forEachStore runs a test in memory and on a DynamoDB engine: the data source name is all that differs.
func forEachStore(t *testing.T, test func(t *testing.T, w *testbed)) {
	t.Run("memory", func(t *testing.T) { test(t, newTestbed(t, "memory:")) })
	t.Run("dynamodb", func(t *testing.T) {
		engine := enginetest.Start(t)
		test(t, newTestbed(t, dsnOf(engine.Table(t), engine.Endpoint())))
	})
}

func dsnOf(table, endpoint string) string {
	return fmt.Sprintf("dynamodb:%s?region=%s&endpoint=%s", table, enginetest.Region, endpoint)
}

func TestStreamsAreSettled(t *testing.T) {
	forEachStore(t, func(t *testing.T, w *testbed) {
		r := w.post(t.Context(), t, "/openai/v1/chat/completions", "search-key", `{"stream":true,"max_tokens":3000,"model":"gpt-4o-mini"}`)
		body, err := io.ReadAll(r.Body)
		if r.StatusCode != http.StatusOK || err != nil || strings.Contains(string(body), `"choices":[]`) || !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
			t.Errorf("the answer is %d %s, %v", r.StatusCode, body, err)
		}
		if got, want := r.Header.Get("RateLimit"), `"requests";r=59;t=1, "requests";r=99;t=1`; got != want {
			t.Errorf("RateLimit = %s, want %s", got, want)
		}
		for tenant, want := range map[string][2]int64{"acme-search": {59, 10_000 - 2306}, "acme": {99, 20_000 - 2306}} {
			if got := [2]int64{w.left(t, tenant, "gateway"), w.left(t, tenant, "small")}; got != want {
				t.Errorf("%s has %v left, want %v", tenant, got, want)
			}
		}
		metrics, err := w.client.Get(w.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer metrics.Body.Close()
		if text, _ := io.ReadAll(metrics.Body); !strings.Contains(string(text), `gen_ai_token_type="output"`) {
			t.Errorf("the metrics are %s", text)
		}
	})
}

func TestOtherProviders(t *testing.T) {
	w := newTestbed(t, "memory:")
	r := w.post(t.Context(), t, "/anthropic/v1/messages", "search-key", `{"stream":true,"max_tokens":3000,"model":"claude-sonnet-4-5"}`)
	if body, err := io.ReadAll(r.Body); r.StatusCode != http.StatusOK || err != nil || !strings.Contains(string(body), "message_stop") {
		t.Errorf("the answer is %d %s, %v", r.StatusCode, body, err)
	}
	if got := w.left(t, "acme-search", "large"); got != 10_000-1800 {
		t.Errorf("%d tokens are left, want 8200", got)
	}
}

// TestClientLeaves ends a call after its first event: the gateway reads on, and charges all of it.
func TestClientLeaves(t *testing.T) {
	w := newTestbed(t, "memory:")
	w.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	r := w.post(ctx, t, "/openai/v1/chat/completions", "search-key", `{"stream":true,"max_tokens":3000,"model":"gpt-4o-mini"}`)
	if _, err := bufio.NewReader(r.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = r.Body.Close()
	close(w.gate)
	if err := w.models.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.left(t, "acme-search", "small"); got != 10_000-2306 {
		t.Errorf("%d tokens are left, want 7694", got)
	}
}

func TestTenantsAreLimited(t *testing.T) {
	forEachStore(t, func(t *testing.T, w *testbed) {
		for range 10 {
			if got, answer := w.chat(t, "batch-key", "gpt-4o-nothing"); got != http.StatusOK && got != http.StatusTooManyRequests {
				t.Fatalf("chat() = %d %s", got, answer)
			}
		}
		r := w.post(t.Context(), t, "/openai/v1/chat/completions", "batch-key", `{"model":"gpt-4o"}`)
		body, _ := io.ReadAll(r.Body)
		if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "6" || !strings.Contains(string(body), `"violated-policies":["requests"]`) {
			t.Errorf("the answer is %d %v %s, want 429 for 6 seconds", r.StatusCode, r.Header, body)
		}
		if got, _ := w.chat(t, "search-key", "gpt-4o-mini"); got != http.StatusOK {
			t.Errorf("chat() of another tenant = %d, want 200", got)
		}
		w.clock.Advance(6 * time.Second)
		if got := w.post(t.Context(), t, "/openai/v1/chat/completions", "batch-key", `{"model":"gpt-4o-mini"}`); got.StatusCode != http.StatusOK {
			t.Errorf("the answer after the wait = %d, want 200", got.StatusCode)
		}
	})
}

// TestOrganizationsAreLimited lets two teams take what the limits of each allow, and those of both together do not.
func TestOrganizationsAreLimited(t *testing.T) {
	w := newTestbed(t, "memory:")
	take := func(tenant string, n int64) error {
		_, err := w.limiter.Acquire(t.Context(), zlimit.Request{Entity: tenant, Resource: "small", Consume: zlimit.Amounts{"tokens": n}})
		return err
	}
	if err := take("acme-batch", 14_000); err != nil {
		t.Fatal(err)
	}
	if err := take("acme-search", 4_000); err != nil {
		t.Fatal(err)
	}
	got, answer := w.chat(t, "search-key", "gpt-4o-mini")
	if got != http.StatusTooManyRequests || !strings.Contains(answer, `"violated-policies":["tokens"]`) {
		t.Errorf("chat() = %d %s, want 429 for tokens", got, answer)
	}
	if got := w.left(t, "acme-search", "gateway"); got != 59 {
		t.Errorf("acme-search has %d requests left, want 59: the call was one", got)
	}
}

func TestRefusals(t *testing.T) {
	w := newTestbed(t, "memory:")
	for _, test := range []struct {
		name, path, key, body string
		status                int
	}{
		{"no key", "/openai/v1/chat/completions", "", `{"model":"gpt-4o"}`, 401},
		{"a key that is not known", "/openai/v1/chat/completions", "globex", `{"model":"gpt-4o"}`, 401},
		{"a model that is not there", "/openai/v1/chat/completions", "search-key", `{"model":"made-up"}`, 400},
		{"no model", "/openai/v1/chat/completions", "search-key", `hello`, 400},
		{"a provider that does not answer", "/nobody/v1/messages", "search-key", `{"model":"claude-haiku","max_tokens":5}`, 502},
		{"a provider that is not there", "/other/v1/messages", "search-key", `{}`, 404},
	} {
		if got := w.post(t.Context(), t, test.path, test.key, test.body); got.StatusCode != test.status {
			t.Errorf("%s: %d, want %d", test.name, got.StatusCode, test.status)
		}
	}
	if got := w.left(t, "acme-search", "small"); got != 10_000 {
		t.Errorf("%d tokens are left, want all", got)
	}
	ready, err := w.client.Get(w.url + "/ready")
	if err != nil || ready.StatusCode != http.StatusOK {
		t.Errorf("GET /ready = %v, %v", ready, err)
	}
	_ = ready.Body.Close()
}

// TestOutage takes the network away between a gateway and DynamoDB.
func TestOutage(t *testing.T) {
	for policy, status := range map[zlimit.FailurePolicy]int{zlimit.Allow: http.StatusOK, zlimit.Block: http.StatusServiceUnavailable} {
		t.Run(policy.String(), func(t *testing.T) {
			engine := enginetest.Start(t)
			target, err := url.Parse(engine.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			var down atomic.Bool
			forward := httputil.NewSingleHostReverseProxy(target)
			forward.Transport = engine.Transport()
			network := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if down.Load() {
					panic(http.ErrAbortHandler)
				}
				forward.ServeHTTP(w, r)
			}))
			t.Cleanup(network.Close)
			w := newTestbed(t, dsnOf(engine.Table(t), network.URL), zlimit.WithFailurePolicy(policy))
			for i, want := range []int{http.StatusOK, status, http.StatusOK} {
				down.Store(i == 1)
				if got, answer := w.chat(t, "search-key", "gpt-4o-mini"); got != want {
					t.Errorf("chat() %d of before, during and after the outage = %d %s, want %d", i, got, answer, want)
				}
			}
		})
	}
}

// TestRestart starts a gateway again after an operator has changed limits.
func TestRestart(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	w := newTestbed(t, dsn)
	if err := w.limiter.Limits.SetEntity(t.Context(), "acme-search", "gateway", []zlimit.Limit{zlimit.PerMinute("requests", 7)}); err != nil {
		t.Fatal(err)
	}
	if got := newTestbed(t, dsn).left(t, "acme-search", "gateway"); got != 7 {
		t.Errorf("acme-search has %d requests, want the 7 of the operator", got)
	}
}

func TestServe(t *testing.T) {
	w := newTestbed(t, "memory:")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var served error
	group.Go(func() { served = w.serve(ctx, listener) })
	r, err := http.Get("http://" + listener.Addr().String() + "/ready")
	if err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("GET /ready = %v, %v", r, err)
	}
	_ = r.Body.Close()
	cancel()
	group.Wait()
	if served != nil {
		t.Errorf("serve() = %v", served)
	}
}

func TestRun(t *testing.T) {
	env := func(string) string { return "" }
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"help", []string{"-h"}, ""},
		{"a flag that is not there", []string{"-x"}, "flag provided but not defined: -x"},
		{"a policy that is not there", []string{"-on-unavailable", "perhaps"}, `invalid value "perhaps" for flag -on-unavailable: zlimit: invalid failure policy "perhaps": must be inherit, block or allow`},
		{"an address that is none", []string{"-listen", "nowhere:x"}, "listen tcp: lookup tcp/x: unknown port"},
	} {
		err := run(t.Context(), test.args, env, io.Discard)
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("%s: run() = %v, want %s", test.name, err, test.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, []string{"-listen", "localhost:0"}, env, io.Discard); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("run() = %v", err)
	}
}

// TestBodiesThatStall answers a request whose body does not come in time, and lets an answer take longer than that.
func TestBodiesThatStall(t *testing.T) {
	bodyTimeout = 300 * time.Millisecond
	defer func() { bodyTimeout = 30 * time.Second }()
	w := newTestbed(t, "memory:")
	w.gate = make(chan struct{})
	for _, sent := range []string{"", `{"stream":true,`} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n%s", anyKey(), sent)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("a body that stalls after %q: %v", sent, err)
		}
		if response.StatusCode != http.StatusRequestTimeout {
			t.Errorf("a body that stalls after %q is answered by %s, want 408", sent, response.Status)
		}
		_ = response.Body.Close()
	}
	go func() {
		time.Sleep(600 * time.Millisecond)
		close(w.gate)
	}()
	if status, answer := w.chat(t, anyKey(), "gpt-4o-mini"); status != http.StatusOK || !strings.Contains(answer, "[DONE]") {
		t.Errorf("an answer that takes longer than the body may: %d, %q", status, answer)
	}
}

// anyKey returns a key that is known.
func anyKey() string {
	for key := range keys {
		return key
	}
	return ""
}
