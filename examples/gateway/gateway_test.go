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
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/otelzlimit"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestMain(m *testing.M) {
	worker := goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start") // of Gemini's SDK, for good
	goleak.VerifyTestMain(enginetest.With(m), worker)
}

// A testbed is a gateway before a provider that repeats a recorded stream.
type testbed struct {
	*gateway
	limiter   *zlimit.RateLimiter
	url       string
	client    *http.Client
	clock     *zlimittest.Clock
	providers []provider
	paths     []string      // that the provider was asked for, by one caller at a time
	gate      chan struct{} // if it is not nil, the provider waits for it after each event
}

// newWorld starts a gateway whose limits are in a store.
func newTestbed(t *testing.T, dsn string, opts ...zlimit.Option) *testbed {
	t.Helper()
	w := &testbed{clock: zlimittest.NewClock()}
	meters, metrics, err := newMetrics()
	if err != nil {
		t.Fatalf("newMetrics() = %v", err)
	}
	observer, err := otelzlimit.New(meters)
	if err != nil {
		t.Fatalf("otelzlimit.New() = %v", err)
	}
	limiter, err := open(t.Context(), dsn, append(opts, zlimit.WithClock(w.clock.Now), zlimit.WithObserver(observer))...)
	if err != nil {
		t.Fatalf("open() = %v", err)
	}
	ring, err := newKeyring(append([]virtualKey{{Hash: hashOf("old-key"), Team: "acme-search", Expires: time.Now().Add(-time.Second)}}, demoKeys...))
	if err != nil {
		t.Fatalf("newKeyring() = %v", err)
	}
	provider1 := httptest.NewServer(http.HandlerFunc(w.answer))
	to := providers(func(string) string { return "provider-key" })
	for i := range to {
		to[i].base = provider1.URL
	}
	nobody := to[1]
	nobody.name, nobody.base = "nobody", "http://127.0.0.1:1"
	if w.gateway, err = newGateway(limiter, ring, append(to, nobody), meters, metrics, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("newGateway() = %v", err)
	}
	server := httptest.NewServer(w.gateway)
	w.limiter, w.url, w.client = limiter, server.URL, server.Client()
	t.Cleanup(func() {
		server.Close()
		w.wait(t)
		provider1.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := limiter.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return w
}

// wait waits for what goes on behind the clients.
func (w *testbed) wait(t *testing.T) {
	for _, transport := range w.models {
		if err := transport.Wait(context.Background()); err != nil {
			t.Errorf("Wait() = %v", err)
		}
	}
}

// operate asks what operators ask.
func (w *testbed) operate(path string) (status int, body string) {
	r := httptest.NewRecorder()
	w.operators.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, r.Body.String()
}

// answer is the provider: it checks the key, and sends a recorded stream.
func (w *testbed) answer(rw http.ResponseWriter, r *http.Request) {
	name := "chat.sse"
	if strings.HasSuffix(r.URL.Path, "/messages") {
		name = "anthropic.sse"
	}
	w.paths = append(w.paths, r.URL.String())
	keys := strings.Join(r.Header.Values("Authorization"), ",") + strings.Join(r.Header.Values("X-Api-Key"), ",") + strings.Join(r.Header.Values("X-Goog-Api-Key"), ",")
	if strings.TrimPrefix(keys, "Bearer ") != "provider-key" || r.URL.Query().Has("key") || r.Header.Get("Cookie") != "" {
		http.Error(rw, "wrong key", http.StatusUnauthorized)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	stream, err := os.ReadFile(filepath.Join("..", "..", "llm", "testdata", "streams", name))
	if err != nil {
		panic(err)
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.Header().Set("X-Ratelimit-Remaining-Requests", "17")
	rw.Header().Set("Openai-Organization", "acme-internal")
	rw.Header().Set("X-Account-Of-Tomorrow", "acme-internal")
	rw.Header().Set("X-Request-Id", "request 1")
	rw.Header().Set("Anthropic-Ratelimit-Requests-Limit", "50")
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
		t.Fatalf("http.NewRequestWithContext() = %v", err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := w.client.Do(r)
	if err != nil {
		t.Fatalf("Do() = %v", err)
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
		t.Fatalf("io.ReadAll() = %v", err)
	}
	return r.StatusCode, string(body)
}

func (w *testbed) left(t *testing.T, tenant, resource string) int64 {
	t.Helper()
	statuses, err := w.limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: tenant, Resource: resource})
	if err != nil {
		t.Fatalf("Available() = %v", err)
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
		if got, want := strings.Join(r.Header.Values("RateLimit"), ", "), `"requests";r=59;t=1, "parent:requests";r=99;t=1, "tokens";r=7000;t=18, "parent:tokens";r=17000;t=9`; got != want {
			t.Errorf("RateLimit = %s, want %s", got, want)
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Ratelimit") || strings.HasPrefix(name, "Anthropic-Ratelimit") || strings.Contains(strings.Join(r.Header.Values(name), ""), "acme-internal") {
				t.Errorf("the client learns %s of the organization's account", name)
			}
		}
		if r.Header.Get("X-Request-Id") != "request 1" {
			t.Error("the client does not learn the number of the request")
		}
		for tenant, want := range map[string][2]int64{"acme-search": {59, 10_000 - 2306}, "acme": {99, 20_000 - 2306}} {
			if got := [2]int64{w.left(t, tenant, "gateway"), w.left(t, tenant, "openai-small")}; got != want {
				t.Errorf("%s has %v left, want %v", tenant, got, want)
			}
		}
		if _, text := w.operate("/metrics"); !strings.Contains(text, `gen_ai_client_inference_usage_output_tokens_total`) {
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
	if got := w.left(t, "acme-search", "claude-large"); got != 10_000-1800 {
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
		t.Fatalf("ReadString() = %v", err)
	}
	cancel()
	_ = r.Body.Close()
	close(w.gate)
	w.wait(t)
	if got := w.left(t, "acme-search", "openai-small"); got != 10_000-2306 {
		t.Errorf("%d tokens are left, want 7694", got)
	}
}

func TestTenantsAreLimited(t *testing.T) {
	forEachStore(t, func(t *testing.T, w *testbed) {
		for range 10 {
			if got, answer := w.chat(t, "batch-key", "gpt-4o-mini-nothing"); got != http.StatusOK && got != http.StatusTooManyRequests {
				t.Fatalf("chat() = %d %s", got, answer)
			}
		}
		r := w.post(t.Context(), t, "/openai/v1/chat/completions", "batch-key", `{"model":"gpt-4o-mini"}`)
		body, _ := io.ReadAll(r.Body)
		if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "6" || !strings.Contains(string(body), `"type":"rate_limit_error"`) {
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
		_, err := w.limiter.Acquire(t.Context(), zlimit.Request{Entity: tenant, Resource: "openai-small", Consume: zlimit.Amounts{"tokens": n}})
		return err
	}
	if err := take("acme-batch", 14_000); err != nil {
		t.Fatalf("take() = %v", err)
	}
	if err := take("acme-search", 4_000); err != nil {
		t.Fatalf("take() = %v", err)
	}
	got, answer := w.chat(t, "search-key", "gpt-4o-mini")
	if got != http.StatusTooManyRequests || !strings.Contains(answer, `"type":"rate_limit_error"`) {
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
		{"a key that has expired", "/openai/v1/chat/completions", "old-key", `{"model":"gpt-4o"}`, 401},
		{"a model that the key is not for", "/openai/v1/chat/completions", "batch-key", `{"model":"gpt-4o"}`, 403},
		{"another model at the end", "/openai/v1/chat/completions", "batch-key", `{"model":"gpt-4o-mini","model":"gpt-4o"}`, 403},
		{"a call that is not listed", "/openai/v1/batches", "search-key", `{"model":"gpt-4o"}`, 404},
		{"administration", "/openai/v1/organization/admin_api_keys", "search-key", `{"model":"gpt-4o"}`, 404},
		{"a file", "/openai/v1/files", "search-key", `{"model":"gpt-4o"}`, 404},
		{"an assistant", "/openai/v1/assistants", "search-key", `{"model":"gpt-4o"}`, 404},
		{"a batch of Anthropic", "/anthropic/v1/messages/batches", "search-key", `{"model":"claude-haiku"}`, 404},
		{"a batch of Gemini", "/gemini/v1beta/models/gemini-2.5-pro:batchGenerateContent", "search-key", `{}`, 404},
		{"a tuned model of another", "/gemini/v1beta/models/..%2Ftuned:generateContent", "search-key", `{}`, 404},
		{"an encoded path", "/gemini/v1beta/models/x%252F..%252Ffiles:generateContent", "search-key", `{}`, 404},
		{"interactions", "/gemini/v1beta/interactions", "search-key", `{"model":"gemini-2.5-pro"}`, 404},
	} {
		got := w.post(t.Context(), t, test.path, test.key, test.body)
		if got.StatusCode != test.status {
			t.Errorf("%s: %d, want %d", test.name, got.StatusCode, test.status)
		}
		form := `"param":null`
		switch {
		case strings.Contains(test.path, "/messages"):
			form = `"type":"error"`
		case strings.HasPrefix(test.path, "/gemini"):
			form = fmt.Sprintf(`{"error":{"code":%d,`, test.status)
		}
		if body, _ := io.ReadAll(got.Body); !strings.Contains(string(body), form) {
			t.Errorf("%s: the error %s has not the form of the provider", test.name, body)
		}
	}
	if len(w.paths) > 0 {
		t.Errorf("the provider was asked for %v", w.paths)
	}
	if got := w.left(t, "acme-search", "openai-small"); got != 10_000 {
		t.Errorf("%d tokens are left, want all", got)
	}
	if status, _ := w.operate("/ready"); status != http.StatusOK {
		t.Errorf("GET /ready = %d", status)
	}
}

// TestTenantsDoNotOperate asks the port of the tenants for what belongs to operators.
func TestTenantsDoNotOperate(t *testing.T) {
	w := newTestbed(t, "memory:")
	for _, path := range []string{"/metrics", "/ready"} {
		r, err := w.client.Get(w.url + path)
		if err != nil || r.StatusCode != http.StatusNotFound {
			t.Fatalf("GET %s = %v, %v, want 404", path, r, err)
		}
		_ = r.Body.Close()
	}
}

// TestSilentProvider checks that a call ends whose provider begins an answer and then sends nothing, and that it is charged for what came.
func TestSilentProvider(t *testing.T) {
	silence = 50 * time.Millisecond
	defer func() { silence = 10 * time.Minute }()
	w := newTestbed(t, "memory:")
	w.gate = make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := w.post(t.Context(), t, "/openai/v1/chat/completions", "search-key", `{"stream":true,"model":"gpt-4o-mini","max_tokens":100}`)
		_, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}()
	w.gate <- struct{}{}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the call goes on")
	}
	close(w.gate)
	w.wait(t)
}

// TestOutage takes the network away between a gateway and DynamoDB.
func TestOutage(t *testing.T) {
	for policy, status := range map[zlimit.FailurePolicy]int{zlimit.PolicyAllow: http.StatusOK, zlimit.PolicyBlock: http.StatusServiceUnavailable} {
		t.Run(policy.String(), func(t *testing.T) {
			engine := enginetest.Start(t)
			target, err := url.Parse(engine.Endpoint())
			if err != nil {
				t.Fatalf("url.Parse() = %v", err)
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
	if err := w.limiter.Limits.Set(t.Context(), zlimit.Level{Entity: "acme-search", Resource: "gateway"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("requests", 7)}}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	if got := newTestbed(t, dsn).left(t, "acme-search", "gateway"); got != 7 {
		t.Errorf("acme-search has %d requests, want the 7 of the operator", got)
	}
}

func TestServe(t *testing.T) {
	w := newTestbed(t, "memory:")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatalf("Listen() = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var served error
	operators, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatalf("Listen() = %v", err)
	}
	group.Go(func() { served = w.serve(ctx, listener, operators, time.Millisecond) })
	r, err := http.Get("http://" + operators.Addr().String() + "/ready")
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
			t.Fatalf("DialContext() = %v", err)
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n%s", "search-key", sent)
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
	if status, answer := w.chat(t, "search-key", "gpt-4o-mini"); status != http.StatusOK || !strings.Contains(answer, "[DONE]") {
		t.Errorf("an answer that takes longer than the body may: %d, %q", status, answer)
	}
}

// TestHeadersOfKeys sends the key as the SDK of each provider does, and nothing of the tenant's goes upstream.
func TestHeadersOfKeys(t *testing.T) {
	w := newTestbed(t, "memory:")
	for name, test := range map[string]struct{ path, header, body string }{
		"OpenAI":             {"/openai/v1/chat/completions", "Authorization: Bearer search-key", `{"model":"gpt-4o-mini","stream":true}`},
		"Anthropic":          {"/anthropic/v1/messages?beta=true", "X-Api-Key: search-key", `{"model":"claude-sonnet-4-5","stream":true,"max_tokens":9}`},
		"Gemini":             {"/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", "X-Goog-Api-Key: search-key", `{}`},
		"Gemini, version 1":  {"/gemini/v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse", "X-Goog-Api-Key: search-key", `{}`},
		"Gemini, by a query": {"/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse&key=search-key", "Cookie: a=b", `{}`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatalf("http.NewRequestWithContext() = %v", err)
		}
		header, value, _ := strings.Cut(test.header, ": ")
		r.Header.Set(header, value)
		response, err := w.client.Do(r)
		if err != nil {
			t.Fatalf("Do() = %v", err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", name, response.StatusCode, body)
		}
	}
}

// TestKeys reads files of keys, makes a key, and refuses what is none.
func TestKeys(t *testing.T) {
	secret, entry, err := newKey("acme-search")
	if err != nil {
		t.Fatalf("newKey() = %v", err)
	}
	name := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(name, entry, 0o600); err != nil {
		t.Fatalf("os.WriteFile() = %v", err)
	}
	ring, err := readKeyring(name)
	if err != nil {
		t.Fatalf("readKeyring() = %v", err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+secret)
	if k, err := ring.find(r); err != nil || k.Team != "acme-search" || strings.Contains(string(entry), secret) {
		t.Errorf("the key is found as %+v, %v, its entry is %s", k, err, entry)
	}
	for want, k := range map[string]virtualKey{
		`hash "abc" must be`:    {Hash: "abc", Team: "a"},
		"team must not be":      {Hash: hashOf("x")},
		`model "[" must be`:     {Hash: hashOf("x"), Team: "a", Models: []string{"["}},
		`model "gpt-?" must be`: {Hash: hashOf("x"), Team: "a", Models: []string{"gpt-?"}},
	} {
		if _, err := newKeyring([]virtualKey{k}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("newKeyring() = %v, want %s", err, want)
		}
	}
	for _, text := range []string{"", "{}", `[{"hash":5}]`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatalf("os.WriteFile() = %v", err)
		}
		if _, err := readKeyring(name); err == nil {
			t.Errorf("a file of keys with %q is read", text)
		}
	}
}

// TestTelemetry holds the dashboard and the alerts against what the gateway serves to Prometheus.
func TestTelemetry(t *testing.T) {
	w := newTestbed(t, "memory:")
	for range 12 { // of which two are rejected
		w.chat(t, "batch-key", "gpt-4o-mini")
	}
	w.wait(t)
	_, text := w.operate("/metrics")
	scraped := map[string]bool{"zlimit_shards": true} // which a store without hot keys has none of
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "{")
		scraped[name] = true
	}
	asked := regexp.MustCompile(`\b(zlimit|gen_ai)_\w+(_total|_bucket|_sum|_count|_shards)\b`)
	for _, name := range []string{"dashboard.json", "alerts.yaml"} {
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", "telemetry", name))
		if err != nil {
			t.Fatalf("os.ReadFile() = %v", err)
		}
		for _, metric := range asked.FindAllString(string(page), -1) {
			if !scraped[metric] && metric != "zlimit_store_units_total" { // a store in memory has no units
				t.Errorf("%s asks for %s, which the gateway does not serve", name, metric)
			}
		}
	}
}
