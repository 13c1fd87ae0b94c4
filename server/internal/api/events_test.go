package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// readEvents opens a stream of events, and returns it after its first line.
func readEvents(t *testing.T, url, query string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/events"+query, nil)
	check.Fatal(t, "http.NewRequestWithContext()", err)
	request.Header.Set("Authorization", "Bearer "+keyOfReader)
	answer := check.Call(http.DefaultClient.Do(request)).Must(t, "http.DefaultClient.Do()")
	t.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" || !lines.Scan() || !strings.HasPrefix(lines.Text(), ": events that this process sees") {
		t.Fatalf("GET /v1/events = %d, %q", answer.StatusCode, lines.Text())
	}
	return answer, lines
}

func TestEvents(t *testing.T) {
	draining := make(chan struct{})
	s := newService(t, func(o *Options) { o.Draining = draining })
	server := httptest.NewServer(s)
	defer server.Close()
	_, all := readEvents(t, server.URL, "?kinds=decision,settle")
	lease := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"tpm":500},"lease":"1m"}`).Lease
	ok[client.Settled](t, s, "POST", "/v1/rollback", keyOfGateway, fmt.Sprintf(`{"lease":%q}`, lease))
	close(draining)
	var seen []string
	for all.Scan() {
		if name, ok := strings.CutPrefix(all.Text(), "event: "); ok {
			all.Scan()
			data, _ := strings.CutPrefix(all.Text(), "data: ")
			var event struct{ Entity, Result, Reason string }
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatalf("%q: %v", all.Text(), err)
			}
			seen = append(seen, name+" "+event.Entity+" "+event.Result+event.Reason)
		}
	}
	if got, want := strings.Join(seen, ", "), "decision alice ok, settle alice ok, end  draining"; got != want {
		t.Errorf("events = %q, want %q", got, want)
	}
}

// TestPendingEvents hands on what is pending at a drain, and how much was lost, before the stream ends.
func TestPendingEvents(t *testing.T) {
	draining := make(chan struct{})
	close(draining)
	h := &handler{Options: Options{Draining: draining}}
	r := &reader{pending: make(chan []byte, maxPending)}
	for range maxPending { // so many that the stream notices the drain while some are pending
		r.pending <- []byte("event: decision\n\n")
	}
	r.lost.Store(3)
	recorder := httptest.NewRecorder()
	h.stream(&call{w: recorder, r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events", nil)}, r)
	got := recorder.Body.String()
	if n := strings.Count(got, "event: decision\n"); n != maxPending {
		t.Errorf("the stream has %d events, want %d", n, maxPending)
	}
	if n := strings.Count(got, "event: lost\ndata: {\"events\":3}\n"); n != 1 || !strings.HasSuffix(got, "event: end\ndata: {\"reason\":\"draining\"}\n\n") {
		t.Errorf("the stream says %d times that events were lost, want once, and ends with %q", n, got[max(0, len(got)-60):])
	}
}

// TestSlowReaders holds that a reader that takes nothing holds up no one, and learns how many events it has missed.
func TestSlowReaders(t *testing.T) {
	events := NewEvents()
	observe := events.Observer("default")
	observe(t.Context(), zlimit.Event{Kind: zlimit.EventStore})
	slow, other := &reader{namespace: "default", pending: make(chan []byte, 2)}, &reader{namespace: "second", pending: make(chan []byte, 2)}
	if !events.add(slow) || !events.add(other) {
		t.Fatal("add = false, want true")
	}
	for range 5 {
		observe(t.Context(), zlimit.Event{Kind: zlimit.EventStore})
	}
	if len(slow.pending) != 2 || slow.lost.Load() != 3 || len(other.pending) != 0 {
		t.Errorf("pending %d, lost %d, of another namespace %d, want 2, 3, 0", len(slow.pending), slow.lost.Load(), len(other.pending))
	}
	events.remove(slow)
	events.remove(other)
	if allocs := testing.AllocsPerRun(100, func() { observe(t.Context(), zlimit.Event{Kind: zlimit.EventStore}) }); allocs != 0 {
		t.Errorf("an event without readers allocates %v times, want 0", allocs)
	}
	for range maxReaders {
		events.add(&reader{})
	}
	if events.add(&reader{}) {
		t.Error("add of one reader too many = true, want false")
	}
	s := newService(t, func(o *Options) { o.Events = events })
	fails(t, s, http.StatusServiceUnavailable, "too_many_readers", "GET", "/v1/events", keyOfReader, "")
	fails(t, s, http.StatusBadRequest, "invalid", "GET", "/v1/events?kinds=decision,x", keyOfReader, "")
}

func TestUsage(t *testing.T) {
	s := newService(t)
	got := ok[usageReply](t, s, "GET", "/v1/usage?entity=alice&window=daily&from=2026-11-01T00:00:00%2B01:00&to=2026-11-28T00:00:00Z&windows=10", keyOfReader, "")
	if got.Summary.Window != zlimit.WindowDaily || got.Summary.Windows != 0 || len(got.Windows) != 0 {
		t.Errorf("usage of nothing = %+v, want an empty sum", got)
	}
}

// TestReports asks for forecasts and rejections.
func TestReports(t *testing.T) {
	s := newService(t)
	ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"budget","consume":{"tokens":400}}`)
	got := ok[struct{ Budgets []zlimit.Forecast }](t, s, "GET", "/v1/forecast?entity=alice&resource=budget", keyOfReader, "")
	if len(got.Budgets) != 1 || got.Budgets[0].Available != 600 || got.Budgets[0].Limit != "tokens" {
		t.Errorf("forecast = %+v, want one of tokens with 600 left", got.Budgets)
	}
	fails(t, s, http.StatusForbidden, "forbidden", "GET", "/v1/forecast?entity=alice&resource=budget", keyOfTeam, "")
	fails(t, s, http.StatusForbidden, "forbidden", "GET", "/v1/forecast?entity=alice&resource=budget", keyOfGateway, "")
	fails(t, s, http.StatusBadRequest, "invalid", "GET", "/v1/forecast?resource=budget", keyOfReader, "")
	rejected := ok[zlimit.Rejections](t, s, "GET", "/v1/rejections?max=5", keyOfReader, "")
	if rejected.Total != 0 || len(rejected.Heaviest) != 0 || rejected.To.Sub(rejected.From) != 10*time.Minute {
		t.Errorf("rejections = %+v, want none in ten minutes", rejected)
	}
	fails(t, s, http.StatusForbidden, "forbidden", "GET", "/v1/rejections?entity=team-a/1", keyOfTeam, "")
	for _, query := range []string{"max=0", "max=101", "from=2026-11-28T12:00:00Z&to=2026-11-28T12:00:00Z", "from=2020-01-01T00:00:00Z", "top=1"} {
		fails(t, s, http.StatusBadRequest, "invalid", "GET", "/v1/rejections?"+query, keyOfReader, "")
	}
}

func TestDocumentIsServed(t *testing.T) {
	s := newService(t)
	r := send(t, s, "GET", "/v1/openapi.yaml", "", "")
	want, _ := documents.ReadFile("openapi.yaml")
	if r.StatusCode != 200 || !bytes.Equal(r.text, want) || r.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("GET /v1/openapi.yaml = %d, %d bytes of %s", r.StatusCode, len(r.text), r.Header.Get("Content-Type"))
	}
}

// TestLogHasNoSecrets looks for keys, leases and the names of a query in the log.
func TestLogHasNoSecrets(t *testing.T) {
	var log bytes.Buffer
	s := newService(t, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	lease := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"tpm":500},"lease":"1m"}`, "Idempotency-Key: secret-idempotency-key").Lease
	send(t, s, "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"x":1}}`, lease))
	send(t, s, "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"lease":"x"}`, lease))
	send(t, s, "POST", "/v1/settle", "wrong-key", fmt.Sprintf(`{"lease":%q}`, lease))
	send(t, s, "GET", "/v1/available?entity=alice&resource=gpt-4", keyOfGateway, "")
	lines := strings.Count(log.String(), "\n")
	if lines != 5 || !strings.Contains(log.String(), `"route":"POST /v1/acquire","status":200`) || !strings.Contains(log.String(), `"caller":"gateway"`) {
		t.Errorf("the log has %d lines, want 5 with route, status and caller:\n%s", lines, log.String())
	}
	for _, secret := range []string{lease, lease[20:60], "Bearer", "wrong-key", "alice", "secret-idempotency-key"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}
