package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A script answers requests in order, and remembers them.
type script struct {
	mu      sync.Mutex
	answers []string // of status and body; "drop" breaks the connection
	seen    []string
	keys    []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body json.RawMessage
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.seen = append(s.seen, fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL, r.Header.Get("Authorization"), r.Header.Get("Zlimit-Namespace"), body))
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	answer := s.answers[0]
	s.answers = s.answers[1:]
	if answer == "drop" {
		panic(http.ErrAbortHandler)
	}
	status, text, _ := strings.Cut(answer, " ")
	var code int
	_, _ = fmt.Sscan(status, &code)
	w.Header().Set("Retry-After", "7")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

func serve(t *testing.T, answers ...string) (*Client, *script) {
	t.Helper()
	s := &script{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &Client{URL: server.URL + "/", Key: "k", Namespace: "n"}, s
}

// TestRetries sends a request again with the same key, after failures of the network and the server alone.
func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []string
		key     string
		tries   int
		want    string // of the error
	}{
		{"admitted", []string{"200 {}"}, "job", 1, ""},
		{"a broken connection", []string{"drop", "200 {}"}, "job", 2, ""},
		{"a server that cannot serve", []string{`503 {"title":"away"}`, "502 <html>", "200 {}"}, "job", 3, ""},
		{"for long", []string{"503 {}", "503 {}", `503 {"title":"away"}`}, "job", 3, "zlimit: away"},
		{"rejected", []string{`429 {"title":"Quota exceeded","detail":"No."}`}, "job", 1, "zlimit: Quota exceeded: No."},
		{"without a key, a server that has taken nothing", []string{`503 {"outcome":"none"}`, "200 {}"}, "", 2, ""},
		{"without a key, a server that may have taken it", []string{`503 {"title":"away","outcome":"unknown"}`}, "", 1, "zlimit: away"},
		{"without a key, a proxy that does not say", []string{`502 <html>`}, "", 1, "zlimit: 502 Bad Gateway"},
		{"without a key, a broken connection", []string{"drop"}, "", 1, "client: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, s := serve(t, c.answers...)
			_, err := client.acquire(t.Context(), AcquireRequest{Entity: "alice", Resource: "gpt-4", Consume: map[string]int64{"tpm": 1}}, c.key)
			if len(s.seen) != c.tries || (c.want == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("acquire = %v after %d tries, want %q after %d", err, len(s.seen), c.want, c.tries)
			}
			if problem, ok := errors.AsType[*Problem](err); ok && (problem.RetryAfter != 7 || problem.Status < 400) {
				t.Errorf("problem = %+v, want status and Retry-After", problem)
			}
			if keys := slices.Compact(slices.Clone(s.keys)); !slices.Equal(keys, []string{c.key}) {
				t.Errorf("the keys are %q, want %q", s.keys, c.key)
			}
		})
	}
}

func TestDo(t *testing.T) {
	const acquired = `200 {"lease":"zl1.x"}`
	wrong := errors.New("wrong")
	for _, c := range []struct {
		name string
		f    func(context.Context) (map[string]int64, error)
		want string
	}{
		{"done", func(context.Context) (map[string]int64, error) { return map[string]int64{"tpm": 3}, nil }, `POST /v1/settle Bearer k n {"lease":"zl1.x","actual":{"tpm":3}}`},
		{"failed", func(context.Context) (map[string]int64, error) { return nil, wrong }, `POST /v1/rollback Bearer k n {"lease":"zl1.x"}`},
		{"panics", func(context.Context) (map[string]int64, error) { panic(wrong) }, `POST /v1/rollback Bearer k n {"lease":"zl1.x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, s := serve(t, acquired, "200 {}")
			func() {
				defer func() { _ = recover() }()
				err := client.Do(t.Context(), AcquireRequest{Entity: "alice", Resource: "gpt-4", Consume: map[string]int64{"tpm": 9}}, c.f)
				if c.name == "done" && err != nil || c.name == "failed" && !errors.Is(err, wrong) {
					t.Errorf("Do = %v", err)
				}
			}()
			want := []string{`POST /v1/acquire Bearer k n {"entity":"alice","resource":"gpt-4","consume":{"tpm":9},"lease":"10m"}`, c.want}
			if !slices.Equal(s.seen, want) {
				t.Errorf("requests = %q, want %q", s.seen, want)
			}
		})
	}
}
