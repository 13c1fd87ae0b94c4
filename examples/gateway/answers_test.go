package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A replayed call is a file of llm/testdata/answers, as docs/answers.md describes it.
type replayed struct {
	name, path, body string
	asked            http.Header
	status           int
	broken           bool
	kind             string
	header           http.Header
	answer           []byte
	want             struct {
		llm.Usage
		Refused string
	}
}

// replays reads the recorded calls.
func replays(t *testing.T) (all []*replayed) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "llm", "testdata", "answers", "*.txt"))
	if err != nil || len(names) < 150 {
		t.Fatalf("%d recorded calls, %v", len(names), err)
	}
	for _, file := range names {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("os.ReadFile() = %v", err)
		}
		_, rest, _ := strings.Cut(string(text), "-- request --\n")
		request, rest, _ := strings.Cut(rest, "-- answer --\n")
		answer, want, _ := strings.Cut(rest, "-- charge --\n")
		r := &replayed{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
		var first string
		first, r.body, r.asked = parse(request)
		_, r.path, _ = strings.Cut(first, " ")
		r.body = strings.TrimSuffix(r.body, "\n")
		first, body, header := parse(answer)
		r.header, r.kind, r.answer = header, header.Get("Content-Type"), []byte(body)
		status, how, _ := strings.Cut(first, " ")
		r.status, _ = strconv.Atoi(status)
		r.broken = how == "broken"
		if r.kind == "application/vnd.amazon.eventstream" {
			r.answer = messages(t, body)
		}
		if err := json.Unmarshal([]byte(want), &r.want); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, r)
	}
	return all
}

func parse(text string) (first, body string, header http.Header) {
	head, body, _ := strings.Cut(text, "\n\n")
	header = http.Header{}
	for i, line := range strings.Split(head, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok && i > 0 {
			header.Add(name, value)
		} else if i == 0 {
			first = line
		}
	}
	return first, body, header
}

// messages encodes lines as a stream of Amazon.
func messages(t *testing.T, lines string) []byte {
	t.Helper()
	var b bytes.Buffer
	for line := range strings.Lines(lines) {
		kind, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "" {
			continue
		}
		name, exception := strings.CutPrefix(kind, "!")
		message, header := "event", ":event-type"
		if exception {
			message, header = "exception", ":exception-type"
		}
		if kind == "chunk" {
			payload = fmt.Sprintf(`{"bytes":%q}`, base64.StdEncoding.EncodeToString([]byte(payload)))
		}
		m := eventstream.Message{Payload: []byte(payload)}
		m.Headers.Set(":message-type", eventstream.StringValue(message))
		m.Headers.Set(header, eventstream.StringValue(name))
		if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
			t.Fatalf("Encode() = %v", err)
		}
	}
	return b.Bytes()
}

// TestAnswers sends the recorded calls of package llm through a gateway that has a provider of every path, whole and in pieces. The team is
// charged what each file says.
func TestAnswers(t *testing.T) {
	all := replays(t)
	var now atomic.Pointer[replayed]
	var size atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		call := now.Load()
		for name, values := range call.header {
			w.Header()[name] = values
		}
		w.WriteHeader(call.status)
		for rest := call.answer; len(rest) > 0; {
			n := min(len(rest), int(size.Load()))
			_, _ = w.Write(rest[:n])
			_ = http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
		if call.broken {
			panic(http.ErrAbortHandler)
		}
	}))
	defer upstream.Close()
	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1_000_000_000), zlimit.PerDay("requests", 1_000_000)}}
	limiter, err := zlimit.Open(t.Context(), "memory:", zlimit.WithDefaultLimits(limits.Limits...))
	if err != nil {
		t.Fatalf("zlimit.Open() = %v", err)
	}
	if _, err := limiter.Entities.Create(t.Context(), zlimit.Entity{ID: "team"}); err != nil {
		t.Fatalf("Entities.Create() = %v", err)
	}
	ring, err := newKeyring([]virtualKey{{Hash: hashOf("key"), Team: "team"}})
	if err != nil {
		t.Fatalf("newKeyring() = %v", err)
	}
	paths := map[string]bool{}
	every := provider{name: "every", base: upstream.URL, header: "Authorization", key: "Bearer provider-key", rules: rules("models", "*")}
	for _, call := range all {
		if !paths[call.path] {
			paths[call.path] = true
			every.calls = append(every.calls, call.path)
		}
	}
	meters, metrics, err := newMetrics()
	if err != nil {
		t.Fatalf("newMetrics() = %v", err)
	}
	g, err := newGateway(limiter, ring, []provider{every}, meters, metrics, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("newGateway() = %v", err)
	}
	front := httptest.NewServer(g)
	defer front.Close()
	w := &testbed{gateway: g, limiter: limiter, url: front.URL, client: front.Client()}
	for _, call := range all {
		if call.want.Refused != "" {
			continue
		}
		for _, n := range []int{len(call.answer) + 1, 64} {
			now.Store(call)
			size.Store(int64(n))
			before := w.taken(t, "team", "models")
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/every"+call.path, strings.NewReader(call.body))
			if err != nil {
				t.Fatalf("http.NewRequestWithContext() = %v", err)
			}
			for name, values := range call.asked {
				r.Header[name] = values
			}
			r.Header.Set("Authorization", "Bearer key")
			response, err := w.client.Do(r)
			if err != nil {
				t.Errorf("%s: %v", call.name, err)
				continue
			}
			answer, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			w.wait(t)
			if response.StatusCode != call.status || err != nil && !call.broken {
				t.Errorf("%s: %d %.200s, %v", call.name, response.StatusCode, answer, err)
			}
			if got := w.taken(t, "team", "models") - before; got != call.want.Total() {
				t.Errorf("%s, in pieces of %d bytes: %d tokens are charged, want %d", call.name, n, got, call.want.Total())
			}
		}
	}
	w.wait(t)
	if err := limiter.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
}
