package server

import (
	"bufio"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestHTTP asks a server by its client, and drains it while one waits and another reads events.
func TestHTTP(t *testing.T) {
	s, end := start(t, filepath.Join(directory(t, map[string]string{"zlimitd.yaml": config, "a.limits.yaml": limits}), "zlimitd.yaml"))
	check.Fatal(t, "Limits.Set()", s.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 1000)}}))
	c := &client.Client{URL: "http://" + s.HTTPAddr()}
	request := client.AcquireRequest{Entity: "alice", Resource: "gpt-4", Consume: map[string]int64{"tpm": 600}, Lease: "1m"}
	acquired := check.Call(c.Acquire(t.Context(), request)).Must(t, "Acquire()")
	var problem *client.Problem
	if _, err := c.Acquire(t.Context(), request); !errors.As(err, &problem) || problem.Status != http.StatusTooManyRequests || problem.RetryAfter == 0 {
		t.Errorf("Acquire beyond the limit = %v, want 429 and Retry-After", err)
	}
	longer, err := c.Extend(t.Context(), acquired.Lease, time.Hour)
	if err != nil || !longer.ExpiresAt.After(acquired.ExpiresAt) {
		t.Fatalf("Extend = %+v, %v, want a later end than %v", longer, err, acquired.ExpiresAt)
	}
	settled, err := c.Settle(t.Context(), client.SettleRequest{Lease: longer.Lease, Settlement: client.Settlement{Actual: map[string]int64{"tpm": 1000}}})
	if err != nil || settled.Settled[0].Consume["tpm"] != 1000 {
		t.Errorf("Settle = %+v, %v, want 1000", settled, err)
	}
	if limits, err := c.Available(t.Context(), "alice", "gpt-4"); err != nil || len(limits) != 1 || limits[0].Available > 10 {
		t.Errorf("Available = %+v, %v, want next to nothing", limits, err)
	}

	answer, err := http.Get(c.URL + "/v1/events?kinds=decision") //nolint:bodyclose // it ends with the server
	check.Fatal(t, "http.Get()", err)
	lines := bufio.NewScanner(answer.Body)
	lines.Scan()
	waited := make(chan error, 1)
	go func() {
		r := client.AcquireRequest{Entity: "alice", Resource: "gpt-4", Consume: map[string]int64{"tpm": 900}, MaxWaitMS: 60_000}
		_, err := (&client.Client{URL: c.URL, Tries: 1}).Acquire(t.Context(), r)
		waited <- err
	}()
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "event: decision") { // the one that waits
	}
	check.Error(t, "Run with streams and waits", end())
	if err := <-waited; !errors.As(err, &problem) || problem.Code != "draining" {
		t.Errorf("the wait ends with %v, want draining", err)
	}
	var last string
	for lines.Scan() {
		if text := lines.Text(); text != "" {
			last = text
		}
	}
	if want := `data: {"reason":"draining"}`; last != want {
		t.Errorf("the stream ends with %s, want %s", last, want)
	}
}

// TestNamespaces serves two namespaces, each with its own limits.
func TestNamespaces(t *testing.T) {
	dir := directory(t, map[string]string{"zlimitd.yaml": "namespaces: [second]\nsetup: true\n" + config, "a.limits.yaml": limits})
	s, _ := start(t, filepath.Join(dir, "zlimitd.yaml"))
	check.Fatal(t, "Limits.Set()", s.others["second"].Limits.Set(t.Context(), zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 1000)}}))
	request := client.AcquireRequest{Entity: "alice", Resource: "gpt-4", Consume: map[string]int64{"tpm": 600}}
	if _, err := (&client.Client{URL: "http://" + s.HTTPAddr(), Namespace: "second"}).Acquire(t.Context(), request); err != nil {
		t.Errorf("Acquire in the second namespace = %v, want nil", err)
	}
	var problem *client.Problem
	if _, err := (&client.Client{URL: "http://" + s.HTTPAddr()}).Acquire(t.Context(), request); !errors.As(err, &problem) || problem.Code != "no_limits" {
		t.Errorf("Acquire in the first namespace = %v, want no_limits", err)
	}
	for text, want := range map[string]string{
		"namespaces: [default]\n": "namespaces[0]: must be a name that is served once",
		"namespaces: [a, a]\n":    "namespaces[1]: must be a name that is served once",
		"callers: [{name: a, certificate: b, roles: [read], namespaces: [third]}]\nsigning_keys: [{id: k, file: k}]\n": "callers[0] namespaces: must be served",
	} {
		path := filepath.Join(directory(t, map[string]string{"zlimitd.yaml": text, "k": strings.Repeat("k", 32)}), "zlimitd.yaml")
		if _, err := Load(path, noEnv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load of %q = %v, want %s", text, err, want)
		}
	}
}
