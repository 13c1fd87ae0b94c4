package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/zlimit/zlimit-go/zlimit/blocking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }

// A clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// forEachStore runs a test in memory and on a DynamoDB engine: the data source name is all that differs.
func forEachStore(t *testing.T, test func(t *testing.T, g *gateway, c *clock)) {
	run := func(t *testing.T, dsn string) {
		c := &clock{now: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)}
		test(t, newGateway(t, dsn, zlimit.WithClock(c.Now)), c)
	}
	t.Run("memory", func(t *testing.T) { run(t, "memory:") })
	t.Run("dynamodb", func(t *testing.T) {
		engine := enginetest.Start(t)
		run(t, dsnOf(engine.Table(t), engine.Endpoint()))
	})
}

func dsnOf(table, endpoint string) string {
	return fmt.Sprintf("dynamodb:%s?region=%s&endpoint=%s", table, enginetest.Region, endpoint)
}

func newGateway(t *testing.T, dsn string, opts ...zlimit.Option) *gateway {
	t.Helper()
	limiter, err := open(t.Context(), dsn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := limiter.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return &gateway{limiter: limiter, model: fakeModel, logger: slog.New(slog.DiscardHandler)}
}

// chat asks a gateway and returns its answer, the body as JSON.
func chat(t *testing.T, g *gateway, tenant string, q question) (*http.Response, map[string]any) {
	t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat", bytes.NewReader(body))
	r.Header.Set("X-Tenant", tenant)
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("chat() = %d %s: %v", w.Code, w.Body, err)
	}
	return w.Result(), answer
}

func available(t *testing.T, g *gateway, tenant, limit string) int64 {
	t.Helper()
	statuses, err := g.limiter.Available(t.Context(), tenant, "small")
	if err != nil {
		t.Fatal(err)
	}
	s, ok := statuses.Limit(limit)
	if !ok {
		t.Fatalf("Available() = %v, want %s", statuses, limit)
	}
	return s.Available
}

func TestAnswersAreSettled(t *testing.T) {
	forEachStore(t, func(t *testing.T, g *gateway, _ *clock) {
		got, answer := chat(t, g, "acme-search", question{Model: "small", Prompt: "Why is the sky blue?", MaxTokens: 500})
		if got.StatusCode != http.StatusOK || answer["tokens"] != 12.0 {
			t.Fatalf("chat() = %d %v, want 200 with 12 tokens", got.StatusCode, answer)
		}
		for tenant, want := range map[string][2]int64{"acme-search": {59, 9_988}, "acme": {99, 19_988}} {
			if got := [2]int64{available(t, g, tenant, requests), available(t, g, tenant, tokens)}; got != want {
				t.Errorf("%s has %v left, want %v", tenant, got, want)
			}
		}
	})
}

func TestTenantsAreLimited(t *testing.T) {
	forEachStore(t, func(t *testing.T, g *gateway, c *clock) {
		q := question{Model: "small", Prompt: "hello", MaxTokens: 10}
		for range 10 {
			if got, answer := chat(t, g, "acme-batch", q); got.StatusCode != http.StatusOK {
				t.Fatalf("chat() = %d %v, want 200", got.StatusCode, answer)
			}
		}
		got, answer := chat(t, g, "acme-batch", q)
		if got.StatusCode != http.StatusTooManyRequests || answer["error"] != "rate_limit_exceeded" {
			t.Errorf("chat() = %d %v, want 429 with the error", got.StatusCode, answer)
		}
		if after := got.Header.Get("Retry-After"); after != "6" {
			t.Errorf("Retry-After = %q, want 6", after)
		}
		if got, _ := chat(t, g, "acme-search", q); got.StatusCode != http.StatusOK {
			t.Errorf("chat() of another tenant = %d, want 200", got.StatusCode)
		}
		c.sleep(6 * time.Second)
		if got, _ := chat(t, g, "acme-batch", q); got.StatusCode != http.StatusOK {
			t.Errorf("chat() after the wait = %d, want 200", got.StatusCode)
		}
	})
}

// TestOrganisationsAreLimited has two tenants take what the limits of each allow, and those of both together do not.
func TestOrganisationsAreLimited(t *testing.T) {
	forEachStore(t, func(t *testing.T, g *gateway, _ *clock) {
		g.model = func(_ context.Context, q question) (answer, error) { return answer{Tokens: q.estimate()}, nil }
		if got, answer := chat(t, g, "acme-batch", question{Model: "small", MaxTokens: 14_000}); got.StatusCode != http.StatusOK {
			t.Fatalf("chat() = %d %v, want 200", got.StatusCode, answer)
		}
		got, answer := chat(t, g, "acme-search", question{Model: "small", MaxTokens: 9_000})
		if got.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("chat() = %d %v, want 429", got.StatusCode, answer)
		}
		strictest := answer["limits"].([]any)[0].(map[string]any)
		if strictest["entity"] != "acme" || strictest["limit"] != tokens {
			t.Errorf("the strictest limit is %v, want the tokens of acme", strictest)
		}
		if got := available(t, g, "acme-search", requests); got != 60 {
			t.Errorf("acme-search has %d requests left, want all 60", got)
		}
	})
}

func TestRefusals(t *testing.T) {
	forEachStore(t, func(t *testing.T, g *gateway, _ *clock) {
		for _, test := range []struct {
			name, tenant string
			q            question
			status       int
			problem      string
		}{
			{"a tenant that nobody knows", "globex", question{Model: "small"}, http.StatusForbidden, "unknown_tenant"},
			{"no tenant", "", question{Model: "small"}, http.StatusBadRequest, "invalid_entity"},
			{"a model that is not there", "acme-search", question{Model: "huge"}, http.StatusNotFound, "unknown_model"},
			{"less than nothing", "acme-search", question{Model: "small", MaxTokens: -1}, http.StatusBadRequest, "bad_request"},
			{"more than a limit holds", "acme-search", question{Model: "small", MaxTokens: 10_000}, http.StatusRequestEntityTooLarge, "rate_limit_exceeded"},
			{"a model that fails", "acme-search", question{Model: "small", Prompt: "break"}, http.StatusBadGateway, "model_failed"},
		} {
			t.Run(test.name, func(t *testing.T) {
				got, answer := chat(t, g, test.tenant, test.q)
				if got.StatusCode != test.status || answer["error"] != test.problem {
					t.Errorf("chat() = %d %v, want %d %s", got.StatusCode, answer["error"], test.status, test.problem)
				}
			})
		}
		if got := available(t, g, "acme-search", tokens); got != 10_000 {
			t.Errorf("acme-search has %d tokens left, want all 10000", got)
		}
	})
}

func TestOtherPaths(t *testing.T) {
	g := newGateway(t, "memory:")
	for path, want := range map[string]int{"/ready": http.StatusNoContent, "/stats": http.StatusOK, "/nothing": http.StatusNotFound} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != want {
			t.Errorf("GET %s = %d, want %d", path, w.Code, want)
		}
	}
}

// TestRestart starts a gateway again after an operator has changed limits.
func TestRestart(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	g := newGateway(t, dsn)
	err := g.limiter.Limits.SetEntity(t.Context(), "acme-search", zlimit.DefaultResource, []zlimit.Limit{
		zlimit.PerMinute(requests, 7), zlimit.PerMinute(tokens, 70),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := available(t, newGateway(t, dsn), "acme-search", requests); got != 7 {
		t.Errorf("acme-search has %d requests, want the 7 of the operator", got)
	}
}

// TestOutage takes the network away between a gateway and DynamoDB.
func TestOutage(t *testing.T) {
	for _, test := range []struct {
		policy   zlimit.FailurePolicy
		status   int
		degraded uint64
	}{
		{zlimit.Allow, http.StatusOK, 1},
		{zlimit.Block, http.StatusServiceUnavailable, 0},
	} {
		t.Run(test.policy.String(), func(t *testing.T) {
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
			defer network.Close()
			g := newGateway(t, dsnOf(engine.Table(t), network.URL), zlimit.WithFailurePolicy(test.policy))

			q := question{Model: "small", Prompt: "hello", MaxTokens: 10}
			if got, answer := chat(t, g, "acme-search", q); got.StatusCode != http.StatusOK {
				t.Fatalf("chat() = %d %v, want 200", got.StatusCode, answer)
			}
			down.Store(true)
			if got, answer := chat(t, g, "acme-search", q); got.StatusCode != test.status {
				t.Errorf("chat() during the outage = %d %v, want %d", got.StatusCode, answer, test.status)
			}
			if got := g.limiter.Stats().Degraded; got != test.degraded {
				t.Errorf("Degraded = %d, want %d", got, test.degraded)
			}
			down.Store(false)
			if got, answer := chat(t, g, "acme-search", q); got.StatusCode != http.StatusOK {
				t.Errorf("chat() after the outage = %d %v, want 200", got.StatusCode, answer)
			}
		})
	}
}

// TestAnswersAreDelivered closes the limiter while the model thinks: the answer cannot be settled, and is delivered.
func TestAnswersAreDelivered(t *testing.T) {
	g := newGateway(t, "memory:")
	g.model = func(context.Context, question) (answer, error) {
		if err := g.limiter.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		return answer{Text: "blue", Tokens: 3}, nil
	}
	got, answer := chat(t, g, "acme-search", question{Model: "small", MaxTokens: 10})
	if got.StatusCode != http.StatusOK || answer["text"] != "blue" {
		t.Errorf("chat() = %d %v, want the answer", got.StatusCode, answer)
	}
}

func TestSummarizerWaits(t *testing.T) {
	forEachStore(t, func(t *testing.T, g *gateway, c *clock) {
		var waited time.Duration
		s := summarizer{
			limiter: blocking.Wrap(g.limiter),
			model:   func(context.Context, question) (answer, error) { return answer{Text: "short", Tokens: 7_500}, nil },
			sleep:   func(d time.Duration) { waited += d; c.sleep(d) },
		}
		for range 3 { // 15,000 tokens a minute are there for two, and 1,001 are asked for the third
			if got, err := s.summarize(question{Model: "small", MaxTokens: 1_000}); err != nil || got != "short" {
				t.Fatalf("summarize() = %q, %v", got, err)
			}
		}
		if want := 4004 * time.Millisecond; waited != want {
			t.Errorf("waited %v, want %v", waited, want)
		}
	})
}

func TestRunSummarizes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "monday.txt")
	if err := os.WriteFile(file, []byte("all is well"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	err := run(t.Context(), []string{"-store", "sqlite:" + filepath.Join(dir, "limits.db"), "-summarize", file}, &stdout, io.Discard)
	if got, want := stdout.String(), "You said: all is well\n"; err != nil || got != want {
		t.Errorf("run() = %q, %v, want %q", got, err, want)
	}
}

func TestServe(t *testing.T) {
	g := newGateway(t, "memory:")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx, listener, g) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+listener.Addr().String()+"/v1/chat", "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("POST /v1/chat = %d, want 400", resp.StatusCode)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve() = %v", err)
	}
}
