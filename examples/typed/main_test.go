package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/examples/typed/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newChat returns a handler whose limits are declared.
func newChat(t *testing.T, m model) *chat {
	t.Helper()
	limiter, _ := zlimittest.New(t) // whose clock stands still
	if err := declare(t.Context(), limiter); err != nil {
		t.Fatalf("declare() = %v", err)
	}
	return &chat{limiter, m}
}

func (c *chat) post(key, prompt string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(prompt))
	r.Header.Set("X-API-Key", key)
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

// left returns what a key has left of the tokens of GPT-4o.
func (c *chat) left(t *testing.T, key string) int64 {
	t.Helper()
	statuses, err := c.limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: key, Resource: llm.ResourceGPT4o})
	if err != nil {
		t.Fatalf("Available() = %v", err)
	}
	status, ok := statuses.Limit(llm.LimitTPM)
	if !ok {
		t.Fatalf("Available() = %v, want a status of %s", statuses, llm.LimitTPM)
	}
	return status.Available
}

func costing(tokens int64) model {
	return func(context.Context, string) (string, int64, error) { return "because", tokens, nil }
}

func TestRun(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatalf("net.Listen() = %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "memory:", listener) }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener.Addr().String(), strings.NewReader("hello"))
	if err != nil {
		t.Fatalf("http.NewRequestWithContext() = %v", err)
	}
	r.Header.Set("X-API-Key", "alice")
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("http.DefaultClient.Do() = %v", err)
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || string(answer) != "hello!\n" {
		t.Errorf("POST = %d %q, %v, want an answer", response.StatusCode, answer, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run() = %v, want nil once it is stopped", err)
	}
}

func TestAnswersCostWhatTheyTook(t *testing.T) {
	c := newChat(t, costing(1000))
	if w := c.post("alice", "why is the sky blue"); w.Code != http.StatusOK || w.Body.String() != "because\n" {
		t.Errorf("post() = %d %q, want an answer", w.Code, w.Body)
	}
	if got := c.left(t, "alice"); got != 59_000 {
		t.Errorf("alice has %d tokens left, want 59000", got)
	}
	if got := c.left(t, "bob"); got != 60_000 {
		t.Errorf("bob has %d tokens left, want 60000", got)
	}
}

func TestAnAnswerThatFailsCostsNothing(t *testing.T) {
	c := newChat(t, func(context.Context, string) (string, int64, error) { return "", 0, errors.New("the model is down") })
	if w := c.post("alice", "why"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("post() = %d %q, want 503", w.Code, w.Body)
	}
	if got := c.left(t, "alice"); got != 60_000 {
		t.Errorf("alice has %d tokens left, want 60000", got)
	}
}

func TestWhoIsOutOfTokensIsToldWhenToComeBack(t *testing.T) {
	c := newChat(t, costing(75_000)) // 15,000 in debt afterwards, which come back in half a minute
	if w := c.post("alice", "tell me everything"); w.Code != http.StatusOK {
		t.Fatalf("post() = %d %q, want an answer", w.Code, w.Body)
	}
	w := c.post("alice", "and now the rest")
	if got := w.Header().Get("Retry-After"); w.Code != http.StatusTooManyRequests || got != "31" {
		t.Errorf("post() = %d with Retry-After %q, want 429 with 31", w.Code, got)
	}
	if w := c.post("bob", "hello"); w.Code != http.StatusOK {
		t.Errorf("post() of another key = %d, want an answer", w.Code)
	}
}

func TestARequestWithoutAKeyIsABadOne(t *testing.T) {
	if w := newChat(t, parrot).post("", "hello"); w.Code != http.StatusBadRequest {
		t.Errorf("post() = %d %q, want 400", w.Code, w.Body)
	}
}

// TestAnOperatorPrevails starts the application again after an operator has changed a
// limit.
func TestAnOperatorPrevails(t *testing.T) {
	c := newChat(t, parrot)
	own := []zlimit.Limit{zlimit.PerMinute(llm.LimitRPM, 5), zlimit.PerMinute(llm.LimitTPM, 100)}
	if err := c.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: llm.ResourceGPT4o}, zlimit.Config{Limits: own}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	if err := declare(t.Context(), c.limiter); err != nil {
		t.Fatalf("declare() = %v", err)
	}
	if got := c.left(t, "alice"); got != 100 {
		t.Errorf("alice has %d tokens left, want 100", got)
	}
}
