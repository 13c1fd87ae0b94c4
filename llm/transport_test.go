package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// reports are those of a transport.
type reports struct {
	mu  sync.Mutex
	all []llm.Report
}

func (r *reports) observe(_ context.Context, report llm.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, report)
}

// one returns the only report.
func (r *reports) one(t testing.TB) llm.Report {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) != 1 {
		t.Fatalf("%d settlements, want 1: %+v", len(r.all), r.all)
	}
	return r.all[0]
}

// respond returns a base that reads the request and answers with a body.
func respond(status int, header http.Header, body io.ReadCloser) faulttest.RoundTripper {
	return func(r *http.Request) (*http.Response, error) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: status, Header: header, Body: body, ContentLength: -1, Request: r}, r.Body.Close()
	}
}

func newTransport(t testing.TB, l *zlimit.RateLimiter, base http.RoundTripper, opts ...llm.Option) (*llm.Transport, *reports) {
	t.Helper()
	r := &reports{}
	transport, err := llm.NewTransport(l, llm.For("alice"), append([]llm.Option{llm.WithBase(base), llm.WithObserver(r.observe)}, opts...)...)
	check.Fatal(t, "llm.NewTransport()", err)
	return transport, r
}

func newRequest(t testing.TB, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path, strings.NewReader(body))
	check.Fatal(t, "http.NewRequestWithContext()", err)
	return r
}

const chatPath = "/v1/chat/completions"

// left returns what is left of each limit of alice and a resource.
func left(t testing.TB, l *zlimit.RateLimiter, resource string) map[string]int64 {
	t.Helper()
	statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: "alice", Resource: resource})).Must(t, "Available()")
	balances := map[string]int64{}
	for _, s := range statuses {
		balances[s.Limit.Name] = s.Available
	}
	return balances
}

// A closer notes that a body was closed.
type closer struct {
	io.Reader
	closed atomic.Bool
}

func (c *closer) Close() error {
	c.closed.Store(true)
	return nil
}

// brokenReader is a body whose client has gone.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

func TestBadRequests(t *testing.T) {
	noEntity := func(*http.Request) (string, error) { return "", errors.New("no key") }
	for _, test := range []struct {
		name, body string
		entity     func(*http.Request) (string, error)
		want       string
	}{
		{"no model", `{"max_tokens":5}`, llm.For("alice"), `zlimit: invalid model "": must be named by the request`},
		{"a body that is too long", `{"messages":"` + strings.Repeat("x", 1000) + `","model":"gpt-4o"}`, llm.For("alice"), `zlimit: invalid body "more bytes": must be at most 1000 bytes`},
		{"two models", `{"model":"gpt-4o","model":"made-up"}`, llm.For("alice"), `zlimit: invalid model "made-up": must match a rule`},
		{"two models, far apart", `{"model":"gpt-4o",` + strings.Repeat(" ", 900) + `"model":"made-up"}`, llm.For("alice"), `zlimit: invalid model "made-up": must match a rule`},
		{"a second model that is too long", `{"model":"gpt-4o","model":"` + strings.Repeat("x", 257) + `"}`, llm.For("alice"), `zlimit: invalid model "": must be named by the request`},
		{"a second model below no name", `{"model":"made-up","":{"model":"gpt-4o"}}`, llm.For("alice"), `zlimit: invalid model "made-up": must match a rule`},
		{"two documents", `{"model":"gpt-4o"}{"model":"gpt-4"}`, llm.For("alice"), `zlimit: invalid body "": must be one object of JSON, of at most 256 levels, to find its model`},
		{"a list", `[{"model":"gpt-4o"}]`, llm.For("alice"), `zlimit: invalid body "": must be one object of JSON, of at most 256 levels, to find its model`},
		{"brackets without end", `{"model":"gpt-4o","x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `,"model":"gpt-4"}`, llm.For("alice"), `zlimit: invalid body "": must be one object of JSON, of at most 256 levels, to find its model`},
		{"an object without end", `{"model":"gpt-4o"`, llm.For("alice"), `zlimit: invalid body "": must be one object of JSON, of at most 256 levels, to find its model`},
		{"a model that no rule is for", `{"model":"made-up"}`, llm.For("alice"), `zlimit: invalid model "made-up": must match a rule`},
		{"a model that is no string", `{"model":{"a":1}}`, llm.For("alice"), `zlimit: invalid model "": must be named by the request`},
		{"no key", `{"model":"gpt-4o"}`, noEntity, "no key"},
		{"an entity that is empty", `{"model":"gpt-4o"}`, llm.For(""), `zlimit: invalid entity "": must not be empty`},
		{"no entity in the context", `{"model":"gpt-4o"}`, llm.FromContext, `zlimit: invalid entity "": must be in the context, from ContextWithEntity`},
		{"an entity of a thousand bytes", `{"model":"gpt-4o"}`, llm.For(strings.Repeat("k", 1000)), `zlimit: invalid entity "` + strings.Repeat("k", 60)},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
		transport := check.Call(llm.NewTransport(limiter, test.entity, llm.WithBodies(200, 1000), llm.WithModels(llm.Rule{"gpt-*", ""}),
			llm.WithBase(faulttest.RoundTripper(func(*http.Request) (*http.Response, error) {
				t.Errorf("%s: the request is sent", test.name)
				return nil, errors.New("sent")
			})))).Must(t, "llm.NewTransport()")
		body := &closer{Reader: strings.NewReader(test.body)}
		r := newRequest(t, chatPath, "")
		r.Body = body
		if _, err := transport.RoundTrip(r); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: RoundTrip() = %v, want %s", test.name, err, test.want)
		}
		if !body.closed.Load() {
			t.Errorf("%s: the body is not closed", test.name)
		}
		if stats := limiter.Stats(); stats.Admitted != 0 {
			t.Errorf("%s: %d leases are taken", test.name, stats.Admitted)
		}
	}
}

func TestEntityPanics(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
	transport := check.Call(llm.NewTransport(limiter, func(*http.Request) (string, error) { panic("key") })).Must(t, "llm.NewTransport()")
	body := &closer{Reader: strings.NewReader(`{"model":"m"}`)}
	r := newRequest(t, chatPath, "")
	r.Body = body
	func() {
		defer func() {
			if got := recover(); got != "key" {
				t.Errorf("recover() = %v, want the panic", got)
			}
		}()
		_, _ = transport.RoundTrip(r)
	}()
	if !body.closed.Load() || limiter.Stats().Admitted != 0 {
		t.Error("the body is not closed, or a lease is taken")
	}
}

func TestRequestsThatAreNoCalls(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1), zlimit.PerMinute("tpm", 1))
	sent := 0
	transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}))
	for _, path := range []string{"/v1/files", "/v1/models", "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict", "/v1/messages/count_tokens", "/v1/threads/thread_1/messages", "/v1/chat/completions/x", "/v1/responses/resp_1/cancel", "/v1beta/models/m:countTokens"} {
		r := newRequest(t, path, `{"model":"m"}`)
		if path == "/v1/models" {
			r.Method = http.MethodGet
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_ = response.Body.Close()
	}
	if sent != 8 || transport.Unknown() != 0 || limiter.Stats().Admitted != 0 {
		t.Errorf("%d are sent and %d admitted, want 8 and 0", sent, limiter.Stats().Admitted)
	}
	r := newRequest(t, chatPath, "")
	r.Body = io.NopCloser(brokenReader{})
	if _, err := transport.RoundTrip(r); err == nil || err.Error() != "llm: read the request: connection reset" {
		t.Errorf("RoundTrip() of a body that cannot be read = %v", err)
	}
}

// TestLongRequests sends a body that is longer than its memory: it arrives whole, and its text counts.
func TestLongRequests(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 100_000))
	body := `{"model":"m","max_tokens":1,"messages":[{"content":"` + strings.Repeat("word", 10_000) + `"}]}`
	var taken int64
	transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		taken = 100_000 - left(t, limiter, "m")["tpm"]
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != body || r.ContentLength != int64(len(body)) {
			t.Errorf("the request has %d bytes and says %d, want %d", len(got), r.ContentLength, len(body))
		}
		return nil, errors.New("no answer")
	}), llm.WithBodies(100, 1<<20), llm.WithIncludeUsage())
	_, _ = transport.RoundTrip(newRequest(t, chatPath, body))
	if taken < 10_000 || taken > 10_010 {
		t.Errorf("%d tokens are taken, want 10000 and some", taken)
	}
}

// TestSentAndNotAnswered breaks the connection of a server: what was sent takes its prompt, what was not takes nothing.
func TestSentAndNotAnswered(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	base := &http.Transport{DisableKeepAlives: true}
	transport, reports := newTransport(t, limiter, base)
	const body = `{"model":"m","messages":"12345678","max_tokens":50}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+chatPath, strings.NewReader(body))
	check.Fatal(t, "http.NewRequestWithContext()", err)
	if _, err := transport.RoundTrip(r); err == nil {
		t.Error("RoundTrip() = nil")
	}
	if got := reports.one(t); !maps.Equal(got.Charged, zlimit.Amounts{"rpm": 1, "tpm": 2}) {
		t.Errorf("Charged = %v, want the prompt", got.Charged)
	}
	listener := check.Call(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")).Must(t, "Listen()")
	_ = listener.Close()
	r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+listener.Addr().String()+chatPath, strings.NewReader(body))
	check.Fatal(t, "http.NewRequestWithContext()", err)
	if _, err := transport.RoundTrip(r); err == nil {
		t.Error("RoundTrip() = nil")
	}
	if got := left(t, limiter, "m"); got["rpm"] != 9 || got["tpm"] != 998 {
		t.Errorf("left are %v, want one request and its prompt less than all", got)
	}
}

func TestRefusals(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1), zlimit.PerMinute("tpm", 1000))
	ok := func() faulttest.RoundTripper { return respond(200, http.Header{}, io.NopCloser(strings.NewReader(""))) }
	transport, _ := newTransport(t, limiter, ok())
	send := func(tr http.RoundTripper) (*http.Response, error) {
		return tr.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":5}`))
	}
	response := check.Call(send(transport)).Must(t, "send()")
	_ = response.Body.Close()
	var exceeded *zlimit.ExceededError
	if _, err := send(transport); !errors.As(err, &exceeded) || exceeded.RetryAfter() != time.Minute {
		t.Errorf("RoundTrip() = %v, want a rejection for a minute", err)
	}
	transport, _ = newTransport(t, limiter, ok(), llm.WithResponses())
	response = check.Call(send(transport)).Must(t, "send()")
	defer response.Body.Close()
	var body struct {
		Error struct{ Type, Message string }
	}
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Error.Type != "rate_limit_error" ||
		!strings.Contains(body.Error.Message, "rpm (requested 1, available 0 of 1), retry after 1m0s") || strings.Contains(body.Error.Message, "alice") {
		t.Errorf("the body is %+v, %v", body, err)
	}
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "60" || response.Header.Get("Retry-After-Ms") != "60000" {
		t.Errorf("RoundTrip() = %d %v", response.StatusCode, response.Header)
	}
}

// TestCallsWait checks that calls wait for their tokens before they are sent.
func TestCallsWait(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 1), zlimit.PerMinute("tpm", 1000))
	base := respond(200, http.Header{}, io.NopCloser(strings.NewReader("")))
	transport, _ := newTransport(t, limiter, base, llm.WithMaxWait(time.Minute))
	faulttest.CheckWaits(t, clock, func() error {
		response, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":5}`))
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
}

// In TestCallsHavePriority, a call of a priority asks for more than its limit can give it. The call takes what the floor leaves, and the
// next call is refused.
func TestCallsHavePriority(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000).Floor("batch", 40))
	base := respond(200, http.Header{}, io.NopCloser(strings.NewReader("")))
	send := func(opts ...llm.Option) error {
		transport, _ := newTransport(t, limiter, base, opts...)
		response, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":5000}`))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = response.Body.Close() }) // which settles the call
		return nil
	}
	check.Fatal(t, "send()", send(llm.WithPriority("batch")))
	var exceeded *zlimit.ExceededError
	if err := send(llm.WithPriority("batch")); !errors.As(err, &exceeded) || exceeded.Violations()[0].Available != 400 || exceeded.Violations()[0].Kept != 400 {
		t.Errorf("RoundTrip() = %v, want a rejection that keeps 400 of 400", err)
	}
	if err := send(); !errors.As(err, &exceeded) || exceeded.Violations()[0].Available != 400 {
		t.Errorf("RoundTrip() = %v, want a rejection that has 400 of 1,000", err)
	}
}

func TestIncludeUsage(t *testing.T) {
	stream := string(read(t, "chat.sse"))
	usage := stream[strings.LastIndex(stream, `data: {"id"`):strings.Index(stream, "data: [DONE]")]
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for _, test := range []struct {
			name, body, sent string
			filtered         bool
		}{
			{"a stream that does not ask", `{"stream":true,"model":"m","x":1.50,"user":"<a>"}`, `{"stream_options":{"include_usage":true},"stream":true,"model":"m","x":1.50,"user":"<a>"}`, true},
			{"a stream with other options", `{"stream":true,"model":"m","stream_options":{"include_obfuscation":false}}`, `{"stream":true,"model":"m","stream_options":{"include_obfuscation":false,"include_usage":true}}`, true},
			{"a stream that declines", `{"stream":true,"model":"m","stream_options":{"include_usage":false}}`, `{"stream":true,"model":"m","stream_options":{"include_usage":true}}`, true},
			{"a stream with empty options", ` {"stream_options":{ },"stream":true,"model":"m"}`, ` {"stream_options":{ "include_usage":true},"stream":true,"model":"m"}`, true},
			{"a stream with null options", `{"stream_options":null ,"stream":true,"model":"m"}`, `{"stream_options":{"include_usage":true} ,"stream":true,"model":"m"}`, true},
			{"a stream with two options", `{"stream_options":{"include_usage":true},"stream":true,"model":"m","stream_options":{"x":[]}}`, `{"stream_options":{"include_usage":true},"stream":true,"model":"m","stream_options":{"x":[],"include_usage":true}}`, true},
			{"a stream with an option in a message", `{"stream":true,"messages":[{"stream_options":{}}],"model":"m"}`, `{"stream_options":{"include_usage":true},"stream":true,"messages":[{"stream_options":{}}],"model":"m"}`, true},
			{"a stream that asks", `{"stream":true,"stream_options":{"include_usage":true},"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"m"}`, false},
			{"no stream", `{"model":"m"}`, `{"model":"m"}`, false},
		} {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
			for size := range 20 {
				var sent string
				transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					b, _ := io.ReadAll(r.Body)
					sent = string(b)
					if r.ContentLength != int64(len(b)) {
						t.Errorf("ContentLength = %d, want %d", r.ContentLength, len(b))
					}
					body := &pieces{rest: []byte(strings.ReplaceAll(stream, "\n", end)), lengths: func(int) int { return 1 + 17*size }}
					return respond(200, http.Header{"Content-Type": {"text/event-stream"}}, body)(r)
				}), llm.WithIncludeUsage(), llm.WithModels(llm.Rule{"*", "m" + fmt.Sprint(size)}))
				response := check.Call(transport.RoundTrip(newRequest(t, chatPath, test.body))).Must(t, "RoundTrip()")
				got := check.Call(io.ReadAll(response.Body)).Must(t, "io.ReadAll()")
				_ = response.Body.Close()
				want := stream
				if test.filtered {
					want = strings.Replace(stream, usage, "", 1)
				}
				if plain := strings.ReplaceAll(string(got), end, "\n"); plain != want {
					t.Fatalf("%s: the answer is\n%q\nwant\n%q", test.name, plain, want)
				}
				if sent != test.sent {
					t.Fatalf("%s: the request is %s, want %s", test.name, sent, test.sent)
				}
				if r := reports.one(t); !r.Usage.Complete || r.Usage.Output != 300 {
					t.Errorf("%s: Usage = %+v", test.name, r.Usage)
				}
			}
		}
	}
}

// TestIncludeUsageDoesNotWait reads a stream with a large buffer: events that have come are returned together, and no event waits for the
// rest of the next one.
func TestIncludeUsageDoesNotWait(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		r, w := io.Pipe()
		transport, _ := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {"text/event-stream"}}, r), llm.WithIncludeUsage())
		response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"stream":true,"model":"m"}`))).Must(t, "RoundTrip()")
		event := `data: {"choices":[{"delta":{"content":"a"}}],"usage":null}` + end
		usage := `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}` + end
		go func() {
			_, _ = io.WriteString(w, event+usage+event+event[:20])
			_, _ = io.WriteString(w, event[20:]+event)
		}()
		buffer := make([]byte, 1<<10)
		for _, want := range []string{event + event, event + event} {
			if n, err := response.Body.Read(buffer); err != nil || string(buffer[:n]) != want {
				t.Errorf("Read() = %q, %v, want %q", buffer[:n], err, want)
			}
		}
		_ = w.Close()
		_ = response.Body.Close()
	}
}

// TestIncludeUsageAtTheEnd takes the chunk out of streams that end with it, whole or cut off, and among comments, by whatever type a server
// calls them.
func TestIncludeUsageAtTheEnd(t *testing.T) {
	const (
		content = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\n\n"
		usage   = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":22}}"
	)
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for body, want := range map[string]string{
			content + usage + "\n\n":                        content,
			content + usage:                                 content,
			content + usage + "\n\n: over\n\n":              content + ": over\n\n",
			content + ": wait\n\n" + usage + "\n\n\n: over": content + ": wait\n\n\n: over",
			"\xef\xbb\xbf" + content + usage:                "\xef\xbb\xbf" + content,
			content + "data: {\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":22},\"choices\":[\ndata: ]}\n\n: over\n\n": content + ": over\n\n",
		} {
			body, want = strings.ReplaceAll(body, "\n", end), strings.ReplaceAll(want, "\n", end)
			kinds := []http.Header{{"Content-Type": {"text/event-stream"}}, {"Content-Type": {"application/json"}}, {}}
			for cut := range len(body) {
				limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
				answer := &pieces{rest: []byte(body), lengths: func(left int) int { return left - len(body) + cut }}
				transport, reports := newTransport(t, limiter, respond(200, kinds[cut%len(kinds)], answer), llm.WithIncludeUsage())
				response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"stream":true,"model":"m"}`))).Must(t, "RoundTrip()")
				got, err := io.ReadAll(response.Body)
				if err != nil || string(got) != want {
					t.Fatalf("cut at %d: the answer is %q, %v, want %q", cut, got, err, want)
				}
				_ = response.Body.Close()
				if r := reports.one(t); !r.Usage.Complete || r.Usage.Total() != 33 {
					t.Errorf("cut at %d: Usage = %+v", cut, r.Usage)
				}
			}
		}
	}
}

// endsOnce is a body that returns its end with its last bytes, and must not be read again.
type endsOnce struct {
	rest string
	size int
	end  bool
}

func (e *endsOnce) Read(p []byte) (n int, err error) {
	if e.end {
		return 0, errors.New("read behind its end")
	}
	n = copy(p, e.rest[:min(e.size, len(e.rest))])
	if e.rest = e.rest[n:]; e.rest == "" {
		e.end, err = true, io.EOF
	}
	return n, err
}

// TestIncludeUsageElsewhere passes on answers that are no events, and drops the length of those that may be.
func TestIncludeUsageElsewhere(t *testing.T) {
	const (
		usage = `{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":22}}`
		event = "data: " + usage + "\n\n"
	)
	for _, test := range []struct {
		name, kind, body, want string
		status                 int
		length                 int64
	}{
		{"a whole answer", "application/json", " \n" + usage, " \n" + usage, 200, -1},
		{"a whole answer called events", "text/event-stream", usage, usage, 200, -1},
		{"a list of answers", "application/json", "[" + usage + "]", "[" + usage + "]", 200, -1},
		{"text", "text/plain", "no events", "no events", 200, -1},
		{"nothing", "application/json", "", "", 200, -1},
		{"spaces", "", " \r\n", " \r\n", 200, -1},
		{"events", "application/json", "\n" + event, "\n", 200, -1},
		{"events behind a mark", "", "\xef\xbb\xbf: wait\n\n" + event, "\xef\xbb\xbf: wait\n\n", 200, -1},
		{"events with different ends of lines", "", "data: " + usage + "\r\n\r\n: over\n\n", ": over\n\n", 200, -1},
		{"an error", "application/json", `{"error":{"message":"no"}}`, `{"error":{"message":"no"}}`, 500, 26},
	} {
		for size := range len(test.body) + 1 {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
			header := http.Header{"Content-Length": {strconv.Itoa(len(test.body))}}
			if test.kind != "" {
				header.Set("Content-Type", test.kind)
			}
			body := io.NopCloser(&endsOnce{rest: test.body, size: size + 1})
			transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
				response, err := respond(test.status, header, body)(r)
				response.ContentLength = int64(len(test.body))
				return response, err
			}), llm.WithIncludeUsage())
			response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"stream":true,"model":"m"}`))).Must(t, "RoundTrip()")
			got, err := io.ReadAll(response.Body)
			if err != nil || string(got) != test.want || response.ContentLength != test.length || (response.Header.Get("Content-Length") == "") != (test.length < 0) {
				t.Errorf("%s, %d bytes at a time: the answer is %q, %v, of length %d, want %q of length %d", test.name, size+1, got, err, response.ContentLength, test.want, test.length)
			}
			_ = response.Body.Close()
		}
	}
}

func TestLearning(t *testing.T) {
	date := func(h string) http.Header { return http.Header{"Retry-After": {h}} }
	for _, test := range []struct {
		name   string
		status int
		header http.Header
		body   string
		want   map[string]int64 // left right after
	}{
		{"OpenAI has less", 200, http.Header{"X-Ratelimit-Remaining-Requests": {"4"}, "X-Ratelimit-Remaining-Tokens": {"123"}, "X-Ratelimit-Reset-Tokens": {"6m0s"}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"OpenAI has more", 200, http.Header{"X-Ratelimit-Remaining-Requests": {"4000"}, "X-Ratelimit-Remaining-Tokens": {"99999"}}, "", map[string]int64{"rpm": 9, "tpm": 994}},
		{"Anthropic has less", 200, http.Header{"Anthropic-Ratelimit-Tokens-Remaining": {"50"}, "Anthropic-Ratelimit-Requests-Remaining": {"3"}}, "", map[string]int64{"rpm": 3, "tpm": 50}},
		{"Mistral has less", 200, http.Header{"X-Ratelimit-Remaining-Req-Minute": {"4"}, "X-Ratelimit-Limit-Req-Minute": {"720"}, "X-Ratelimit-Remaining-Tokens-Minute": {"123"}, "X-Ratelimit-Tokens-Query-Cost": {"52"}, "X-Ratelimit-Remaining-Tokens-Month": {"900000"}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"Mistral had less", 200, http.Header{"Ratelimitbysize-Remaining": {"321"}, "Ratelimitbysize-Limit": {"500000"}, "Ratelimitbysize-Reset": {"28"}}, "", map[string]int64{"rpm": 9, "tpm": 321}},
		{"Cerebras has less for the day", 200, http.Header{"X-Ratelimit-Remaining-Requests-Day": {"2"}, "X-Ratelimit-Remaining-Requests-Minute": {"8"}, "X-Ratelimit-Remaining-Tokens-Hour": {"70"}, "X-Ratelimit-Remaining-Tokens-Minute": {"60000"}}, "", map[string]int64{"rpm": 2, "tpm": 70}},
		{"the rest of a second", 200, http.Header{"X-Ratelimit-Remaining-Requests-Second": {"1"}}, "", map[string]int64{"rpm": 9, "tpm": 994}},
		{"the rest of pictures", 200, http.Header{"X-Ratelimit-Remaining-Images": {"1"}, "X-Ratelimit-Remaining-Tokens-Prompt": {"1"}}, "", map[string]int64{"rpm": 9, "tpm": 994}},
		{"a header without a kind", 200, http.Header{"X-Ratelimit-Remaining": {"3"}}, "", map[string]int64{"rpm": 3, "tpm": 994}},
		{"a wait that only a reset says", 429, http.Header{"X-Ratelimit-Remaining-Req-Minute": {"0"}, "X-Ratelimit-Reset-Req-Minute": {"30s"}, "X-Ratelimit-Remaining-Tokens-Minute": {"500"}}, "", map[string]int64{"rpm": -5, "tpm": 500}},
		{"a reset at a time", 429, http.Header{"Anthropic-Ratelimit-Tokens-Remaining": {"0"}, "Anthropic-Ratelimit-Tokens-Reset": {"2026-01-01T00:00:30Z"}}, "", map[string]int64{"rpm": 9, "tpm": -500}},
		{"a reset in seconds", 429, http.Header{"X-Ratelimitbysize-Remaining-Minute": {"0"}, "X-Ratelimitbysize-Reset-Minute": {"30"}}, "", map[string]int64{"rpm": 9, "tpm": -500}},
		{"OpenAI has less of a project", 200, http.Header{"X-Ratelimit-Remaining-Tokens": {"900"}, "X-Ratelimit-Remaining-Project-Tokens": {"120"}}, "", map[string]int64{"rpm": 9, "tpm": 120}},
		{"Together has less", 200, http.Header{"X-Ratelimit-Remaining": {"4"}, "X-Ratelimit-Reset": {"1"}, "X-Tokenlimit-Remaining": {"123"}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"a vendor's name before it", 200, http.Header{"X-Upstage-Ratelimit-Remaining-Requests": {"4"}, "X-Upstage-Ratelimit-Remaining-Tokens": {"123"}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"two words in place of one", 200, http.Header{"X-Rate-Limit-Remaining": {"4"}, "X-Rate-Limit-Remaining-Tokens": {"123"}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"short words", 200, http.Header{"X-Ratelimit-Remaining-Rpm": {"4"}, "X-Ratelimit-Remaining-Tpm": {"123"}, "X-Ratelimit-Remaining-Rps": {"1"}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"floats", 200, http.Header{"X-Ratelimit-Remaining-Requests": {"4.7"}, "X-Ratelimit-Remaining-Tokens": {"1.23e2"}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"two proxies", 200, http.Header{"X-Ratelimit-Remaining-Requests": {"8", "4"}}, "", map[string]int64{"rpm": 4, "tpm": 994}},
		{"the field of the IETF", 200, http.Header{"Ratelimit": {`"api";r=4;t=30, "size";r=123;t=30`}, "Ratelimit-Policy": {`"api";q=10;w=60,"size";q=1000;qu="tokens";w=60`}}, "", map[string]int64{"rpm": 4, "tpm": 123}},
		{"the field of an older draft", 200, http.Header{"Ratelimit": {`limit=10, remaining=4, reset=30`}, "Ratelimit-Policy": {`10;w=60`}}, "", map[string]int64{"rpm": 4, "tpm": 994}},
		{"the field of an older draft, of a second", 200, http.Header{"Ratelimit": {`limit=10, remaining=1`}, "Ratelimit-Policy": {`10;w=1, 100;w=60`}}, "", map[string]int64{"rpm": 9, "tpm": 994}},
		{"the field of the IETF, of a second", 200, http.Header{"Ratelimit": {`"a;b,c";r=1;t=1`}, "Ratelimit-Policy": {`"a;b,c";q=10;w=1`}}, "", map[string]int64{"rpm": 9, "tpm": 994}},
		{"the field of the IETF, of bytes", 200, http.Header{"Ratelimit": {`"d";r=1`}, "Ratelimit-Policy": {`"d";q=10;w=60;qu="content-bytes"`}}, "", map[string]int64{"rpm": 9, "tpm": 994}},
		{"a reset in milliseconds since 1970", 429, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1767225630000"}}, "", map[string]int64{"rpm": -5, "tpm": 1000}},
		{"a reset in seconds since 1970", 429, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1767225630"}}, "", map[string]int64{"rpm": -5, "tpm": 1000}},
		{"a reset at a date", 429, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"Thu, 01 Jan 2026 00:00:30 GMT"}}, "", map[string]int64{"rpm": -5, "tpm": 1000}},
		{"a reset of the field of the IETF", 429, http.Header{"Ratelimit": {`"size";r=0;t=30`}, "Ratelimit-Policy": {`"size";q=1000;qu="tokens";w=60`}}, "", map[string]int64{"rpm": 9, "tpm": -500}},
		{"a wait of Azure", 429, http.Header{"X-Ms-Retry-After-Ms": {"30000"}}, "", map[string]int64{"rpm": -5, "tpm": -500}},
		{"a wait under another name", 429, http.Header{"X-Ratelimit-Retry-After": {"30"}}, "", map[string]int64{"rpm": -5, "tpm": -500}},
		{"a wait as a duration", 429, date("30s"), "", map[string]int64{"rpm": -5, "tpm": -500}},
		{"a wait until seconds since 1970", 429, date("1767225630"), "", map[string]int64{"rpm": -5, "tpm": -500}},
		{"numbers that are none", 200, http.Header{"X-Ratelimit-Remaining-Requests": {"-4"}, "X-Ratelimit-Remaining-Tokens": {"many"}}, "", map[string]int64{"rpm": 9, "tpm": 994}},
		{"a wait of a minute", 429, date("60"), "", map[string]int64{"rpm": -10, "tpm": -1000}},
		{"a wait in milliseconds", 429, http.Header{"Retry-After-Ms": {"30000"}, "Retry-After": {"99"}}, "", map[string]int64{"rpm": -5, "tpm": -500}},
		{"a date", 429, date("Thu, 01 Jan 2026 00:01:00 GMT"), "", map[string]int64{"rpm": -10, "tpm": -1000}},
		{"a wait for one of them", 429, http.Header{"Retry-After": {"60"}, "X-Ratelimit-Remaining-Requests": {"7"}, "X-Ratelimit-Remaining-Tokens": {"0"}}, "", map[string]int64{"rpm": 7, "tpm": -1000}},
		{"a wait in the body of Gemini", 429, http.Header{}, `[{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"30s"}]}}]`, map[string]int64{"rpm": -5, "tpm": -500}},
		{"a wait without end", 429, date("1e300"), "", map[string]int64{"rpm": -600, "tpm": -60_000}},
		{"no wait", 429, http.Header{}, "", map[string]int64{"rpm": 9, "tpm": 1000}},
		{"an overload", 529, date("60"), "", map[string]int64{"rpm": 9, "tpm": 1000}},
	} {
		t.Run(test.name, func(t *testing.T) {
			limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
			test.header.Set("Content-Type", "application/json")
			body := test.body
			if body == "" {
				body = `{"usageMetadata":{"promptTokenCount":2,"candidatesTokenCount":4}}`
			}
			base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
				return respond(test.status, test.header, io.NopCloser(strings.NewReader(body)))(r)
			})
			transport, _ := newTransport(t, limiter, base, llm.WithLearning("alice"), llm.WithClock(clock.Now))
			call := func() {
				response, err := transport.RoundTrip(newRequest(t, "/v1/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":9}}`))
				if err != nil {
					return // while there is debt
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				check.Error(t, "Wait()", transport.Wait(t.Context()))
			}
			call()
			if got := left(t, limiter, "m"); !maps.Equal(got, test.want) {
				t.Fatalf("left are %v, want %v", got, test.want)
			}
			if test.want["tpm"] < 0 || test.want["rpm"] < 0 {
				return
			}
			call() // too soon to learn again: one request less
			if got := left(t, limiter, "m")["rpm"]; got != test.want["rpm"]-1 {
				t.Errorf("%d requests are left after another call, want %d", got, test.want["rpm"]-1)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	for _, test := range []struct {
		name string
		opt  llm.Option
		want string
	}{
		{"no option", nil, `zlimit: invalid option 1 "nil": must not be nil`},
		{"no base", llm.WithBase(nil), `zlimit: invalid base "nil": must not be nil`},
		{"no memory", llm.WithBodies(0, 1), `zlimit: invalid memory of bodies "0": must be at least 1 byte`},
		{"no size", llm.WithBodies(1, 0), `zlimit: invalid size of bodies "0": must be at least 1 byte`},
		{"less than no output", llm.WithDefaultOutput(-1), `zlimit: invalid default output "-1": must be 0 to 1000000000 tokens`},
		{"a negative weight", llm.WithLimit("tpm", llm.Weights{Input: -1}), `zlimit: invalid weights[tpm] "-1": must be 0 to 1000000`},
		{"a heavy weight", llm.WithLimit("tpm", llm.Weights{Output: 1_000_001}), `zlimit: invalid weights[tpm] "1000001": must be 0 to 1000000`},
		{"a rule for nothing", llm.WithModels(llm.Rule{Resource: "m"}), `zlimit: invalid pattern of rule 1 "": must not be empty`},
		{"less than no drain", llm.WithDrain(-1, 0), `zlimit: invalid drain "-1": must not be negative`},
		{"less than no wait", llm.WithMaxWait(-1), `zlimit: invalid max wait "-1ns": must not be negative`},
		{"a priority with spaces", llm.WithPriority("low one"), `zlimit: invalid priority "low one": must start with a letter and hold only ASCII letters, digits and _.-`},
		{"no logger", llm.WithLogger(nil), `zlimit: invalid logger "nil": must not be nil`},
		{"no clock", llm.WithClock(nil), `zlimit: invalid clock "nil": must not be nil`},
		{"no observer", llm.WithObserver(nil), `zlimit: invalid observer "nil": must not be nil`},
	} {
		if _, err := llm.NewTransport(limiter, llm.For("alice"), test.opt); err == nil || err.Error() != test.want {
			t.Errorf("%s: NewTransport() = %v, want %s", test.name, err, test.want)
		}
	}
	if _, err := llm.NewTransport(nil, llm.For("alice")); err == nil {
		t.Error("NewTransport() without a limiter = nil")
	}
	if _, err := llm.NewTransport(limiter, nil); err == nil {
		t.Error("NewTransport() without an entity = nil")
	}
}

func TestRules(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
	transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("no answer")
	}), llm.WithModels(llm.Rule{"gpt-4o-mini", "small"}, llm.Rule{"gpt-4o*", "gpt-4o"}, llm.Rule{"*-latest", "latest"},
		llm.Rule{"*.claude-*-v*", "claude"}, llm.Rule{"o*", ""}, llm.Rule{"aa*aa", "wide"}, llm.Rule{"*", "other"}))
	for model, want := range map[string]string{
		"gpt-4o-mini": "small", "gpt-4o-mini-2024": "gpt-4o", "x-latest": "latest", "o3": "o3",
		"eu.anthropic.claude-sonnet-4-20250514-v1:0": "claude", "anthropic.claude-v2": "other", "aaa": "other", "aaaa": "wide", "gpt-4o": "gpt-4o",
	} {
		reports.all = nil
		_, _ = transport.RoundTrip(newRequest(t, chatPath, `{"model":"`+model+`"}`))
		if got := reports.one(t).Resource; got != want {
			t.Errorf("the resource of %s is %s, want %s", model, got, want)
		}
	}
}
