package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

var byKey = httplimit.Requests("api", "rpm", httplimit.ByHeader("X-API-Key"))

// get sends a request with a key through a handler.
func get(t testing.TB, h http.Handler, key string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// ok answers with status 200.
var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func TestRequestsAreLimited(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 2), zlimit.PerDay("rpd", 100))
	h := httplimit.New(limiter, byKey)(ok)
	for i, want := range []http.Header{
		{"Ratelimit-Policy": {`"rpd";q=100;w=86400, "rpm";q=2;w=60`}, "Ratelimit": {`"rpd";r=100, "rpm";r=1;t=30`}},
		{"Ratelimit-Policy": {`"rpd";q=100;w=86400, "rpm";q=2;w=60`}, "Ratelimit": {`"rpd";r=100, "rpm";r=0;t=30`}},
	} {
		got := get(t, h, "alice")
		if diff := cmp.Diff(want, got.Header); got.StatusCode != http.StatusOK || diff != "" {
			t.Errorf("response %d = %d (-want +got):\n%s", i, got.StatusCode, diff)
		}
	}
	got := get(t, h, "alice")
	want := http.Header{
		"Ratelimit-Policy": {`"rpd";q=100;w=86400, "rpm";q=2;w=60`}, "Ratelimit": {`"rpd";r=100, "rpm";r=0;t=30`},
		"Retry-After": {"30"}, "Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}, "Content-Length": {"345"},
	}
	if diff := cmp.Diff(want, got.Header); got.StatusCode != http.StatusTooManyRequests || diff != "" {
		t.Errorf("response = %d (-want +got):\n%s", got.StatusCode, diff)
	}
	var problem httplimit.Problem
	check.Fatal(t, "Decode()", json.NewDecoder(got.Body).Decode(&problem))
	if diff := cmp.Diff(httplimit.Problem{
		Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Quota exceeded", Status: 429,
		ViolatedPolicies: []string{"rpm"}, Outcome: httplimit.OutcomeNone,
		Limits: []httplimit.ProblemLimit{
			{Policy: "rpm", Capacity: 2, Requested: 1, Exceeded: true, RetryAfter: 30},
			{Policy: "rpd", Capacity: 100, Available: 100},
		},
	}, problem); diff != "" {
		t.Errorf("problem (-want +got):\n%s", diff)
	}
	if got := get(t, h, "bob"); got.StatusCode != http.StatusOK {
		t.Errorf("response to another entity = %d, want 200", got.StatusCode)
	}
	clock.Advance(29*time.Second + 999*time.Millisecond)
	if got := get(t, h, "alice"); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("response before Retry-After = %d, want 429", got.StatusCode)
	}
	clock.Advance(time.Millisecond)
	if got := get(t, h, "alice"); got.StatusCode != http.StatusOK {
		t.Errorf("response after Retry-After = %d, want 200", got.StatusCode)
	}
}

func TestMoreThanALimitHolds(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
	h := httplimit.New(limiter, func(*http.Request) (zlimit.Request, error) {
		return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 3}}, nil
	})(ok)
	got := get(t, h, "")
	if got.StatusCode != 429 || got.Header.Get("Retry-After") != "" || got.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("response = %d %v, want 429 that says not to retry", got.StatusCode, got.Header)
	}
	if state := got.Header.Get("RateLimit"); state != `"rpm";r=2` {
		t.Errorf("RateLimit = %s, want no time", state)
	}
}

func TestHandlersCorrectTheirLease(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10))
	for _, test := range []struct {
		name    string
		handler func(w http.ResponseWriter, r *http.Request)
		left    int64
	}{
		{"more", func(_ http.ResponseWriter, r *http.Request) {
			check.Error(t, "Adjust()", httplimit.Lease(r.Context()).Adjust(zlimit.Amounts{"rpm": 4}))
		}, 5},
		{"rolled back by the handler", func(_ http.ResponseWriter, r *http.Request) {
			check.Error(t, "Rollback()", httplimit.Lease(r.Context()).Rollback(r.Context()))
		}, 10},
		{"a client that has gone", func(_ http.ResponseWriter, r *http.Request) {
			check.Error(t, "Release()", httplimit.Lease(r.Context()).Release(zlimit.Amounts{"rpm": 1}))
			r.Context().Value(cancelKey{}).(context.CancelFunc)()
		}, 10},
		{"a panic", func(http.ResponseWriter, *http.Request) { panic("broken") }, 9},
		{"a panic that aborts", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 9},
	} {
		h := httplimit.New(limiter, httplimit.Requests(strings.ReplaceAll(test.name, " ", "-"), "rpm", httplimit.ByHeader("X-API-Key")))(http.HandlerFunc(test.handler))
		func() {
			defer func() {
				if got := recover(); (got != nil) != strings.HasPrefix(test.name, "a panic") {
					t.Errorf("%s: recover() = %v", test.name, got)
				}
			}()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := httptest.NewRequestWithContext(context.WithValue(ctx, cancelKey{}, cancel), http.MethodGet, "/", http.NoBody)
			r.Header.Set("X-API-Key", "alice")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		statuses, err := limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: "alice", Resource: strings.ReplaceAll(test.name, " ", "-")})
		if err != nil || statuses[0].Available != test.left {
			t.Errorf("%s: %v, %v left, want %d", test.name, statuses, err, test.left)
		}
	}
	if got := httplimit.Lease(t.Context()); got != nil {
		t.Errorf("Lease() outside = %v, want nil", got)
	}
}

type cancelKey struct{}

// TestAPanicKeepsItsFrames looks at the panic as the server does, which logs the stack of the goroutine.
func TestAPanicKeepsItsFrames(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10))
	h := httplimit.New(limiter, byKey)(http.HandlerFunc(failingHandler))
	defer func() {
		if got := recover(); got != "handler" {
			t.Errorf("recover() = %v, want the panic of the handler", got)
		}
		if got := string(debug.Stack()); !strings.Contains(got, "failingHandler") {
			t.Errorf("the stack is without the handler:\n%s", got)
		}
	}()
	get(t, h, "alice")
}

func failingHandler(http.ResponseWriter, *http.Request) { panic("handler") }

// TestClientsThatLeave reads the beginning of a response through a reverse proxy, and leaves. The request counts.
func TestClientsThatLeave(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for line := []byte("more\n"); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	target, err := url.Parse(endless.URL)
	check.Fatal(t, "url.Parse()", err)
	for _, two := range []bool{false, true} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 10))
		h := httplimit.New(limiter, byKey)(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
		ended := make(chan any, 1)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				got := recover()
				ended <- got
				if got != nil {
					panic(got)
				}
			}()
			h.ServeHTTP(w, r)
		}))
		server.EnableHTTP2 = two
		server.StartTLS()
		ctx, leave := context.WithCancel(t.Context())
		r := keyed(t).WithContext(ctx)
		r.RequestURI = ""
		if r.URL, err = url.Parse(server.URL); err != nil {
			t.Fatalf("url.Parse() = %v", err)
		}
		response := check.Call(server.Client().Do(r)).Must(t, "Do()")
		if _, err := io.ReadFull(response.Body, make([]byte, 100)); err != nil {
			t.Errorf("io.ReadFull() = %v", err)
		}
		leave()
		_ = response.Body.Close()
		if got := <-ended; got != http.ErrAbortHandler { //nolint:errorlint // it is a panic
			t.Errorf("HTTP/2 %v: the proxy ends with %v, want a panic that aborts", two, got)
		}
		if got := faulttest.Left(t, limiter, "alice"); got != 9 {
			t.Errorf("HTTP/2 %v: %d left, want 9", two, got)
		}
		server.Close()
	}
}

func TestPanicOfTheKey(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10))
	h := httplimit.New(limiter, func(*http.Request) (zlimit.Request, error) { panic("key") })(ok)
	func() {
		defer func() {
			if got := recover(); got != "key" {
				t.Errorf("recover() = %v, want the panic", got)
			}
		}()
		get(t, h, "alice")
	}()
	if got := limiter.Stats().Admitted; got != 0 {
		t.Errorf("%d leases are taken", got)
	}
}

// TestTheWriterIsPassedOn looks at the ResponseWriter that the handler gets: it is the server's own.
func TestTheWriterIsPassedOn(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10))
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-API-Key", "alice")
	httplimit.New(limiter, byKey)(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		if got != http.ResponseWriter(w) {
			t.Errorf("the handler gets %T, want the writer of the server", got)
		}
	})).ServeHTTP(w, r)
}

func TestErrors(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	if err := limiter.Limits.Set(t.Context(), zlimit.Level{Entity: "alice", Resource: "api"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	closed := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "zlimit.Open()")
	_ = closed.Close()
	failing := func(err error) func(*http.Request) (zlimit.Request, error) {
		return func(*http.Request) (zlimit.Request, error) { return zlimit.Request{}, err }
	}
	for _, test := range []struct {
		name    string
		h       http.Handler
		key     string
		status  int
		problem string
	}{
		{"no key", httplimit.New(limiter, byKey)(ok), "", 401, `{"title":"No valid key","status":401,"detail":"The key in the header X-Api-Key is missing."}`},
		{"a key of a thousand bytes", httplimit.New(limiter, byKey)(ok), strings.Repeat("k", 1000), 401, `{"title":"No valid key","status":401,"detail":"The key in the header X-Api-Key has 1000 bytes; it must have at most 256."}`},
		{"a key that cannot be an entity", httplimit.New(limiter, byKey)(ok), "a b", 400, `{"title":"Invalid request","status":400,"detail":"The entity must hold only ASCII letters, digits and _.-:@/+|=~%."}`},
		{"an entity without limits", httplimit.New(limiter, byKey)(ok), "globex", 403, `{"title":"No quota","status":403}`},
		{"a limit that no level has", httplimit.New(limiter, httplimit.Requests("api", "usd", httplimit.ByHeader("X-Api-Key")))(ok), "alice", 403, `{"title":"No quota","status":403}`},
		{"a closed limiter", httplimit.New(closed, byKey)(ok), "alice", 503, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily unavailable","status":503,"outcome":"none"}`},
		{"an outage", httplimit.New(limiter, failing(&zlimit.UnavailableError{Op: "acquire", Err: errors.New("secret")}))(ok), "", 503, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily unavailable","status":503,"outcome":"none"}`},
		{"any other error", httplimit.New(limiter, failing(errors.New("secret")))(ok), "", 500, `{"title":"Internal error","status":500}`},
		{"a deadline of the server", httplimit.New(limiter, failing(context.DeadlineExceeded))(ok), "", 503, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Not decided in time","status":503,"outcome":"unknown"}`},
		{"a client that has gone", httplimit.New(limiter, failing(context.Canceled))(ok), "", 503, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Canceled","status":503,"outcome":"unknown"}`},
		{"a handler of one's own", httplimit.New(limiter, byKey, httplimit.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusTeapot)
		}))(ok), "", 418, "httplimit: the key in the header X-Api-Key is missing\n"},
	} {
		got := get(t, test.h, test.key)
		body, err := io.ReadAll(got.Body)
		if got.StatusCode != test.status || string(body) != test.problem || err != nil {
			t.Errorf("%s: response = %d %s, want %d %s", test.name, got.StatusCode, body, test.status, test.problem)
		}
	}
}

func TestOptions(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerDay("rpd", 1000))
	got := get(t, httplimit.New(limiter, byKey, httplimit.WithLegacyHeaders())(ok), "alice").Header
	for name, want := range map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "6"} {
		if got.Get(name) != want {
			t.Errorf("%s = %q, want %s", name, got.Get(name), want)
		}
	}
	if got := get(t, httplimit.New(limiter, byKey, httplimit.WithoutHeaders())(ok), "alice").Header; len(got) != 0 {
		t.Errorf("the header without fields is %v", got)
	}
	tooMuch := func(*http.Request) (zlimit.Request, error) {
		return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 11}}, nil
	}
	for name, test := range map[string]struct {
		opts []httplimit.Option
		want int
	}{"fields": {nil, 2}, "no fields": {[]httplimit.Option{httplimit.WithoutHeaders()}, 0}} {
		var problem httplimit.Problem
		rejected := get(t, httplimit.New(limiter, tooMuch, test.opts...)(ok), "")
		if err := json.NewDecoder(rejected.Body).Decode(&problem); err != nil || problem.Status != 429 || len(problem.Limits) != test.want {
			t.Errorf("the body of a rejection with %s is %+v, %v, want %d limits", name, problem, err, test.want)
		}
	}
	partition := httplimit.WithPartitionKey([]byte("0123456789abcdef"))
	got = get(t, httplimit.New(limiter, byKey, partition)(ok), "alice").Header
	other := get(t, httplimit.New(limiter, byKey, partition)(ok), "bob").Header
	if state := got.Get("RateLimit"); strings.Count(state, ";pk=:") != 2 || state == other.Get("RateLimit") || strings.Contains(state, "alice") {
		t.Errorf("RateLimit = %s and %s", state, other.Get("RateLimit"))
	}
	for name, wrong := range map[string]func(){
		"no limiter":   func() { httplimit.New(nil, byKey) },
		"no function":  func() { httplimit.New(limiter, nil) },
		"no handler":   func() { httplimit.New(limiter, byKey)(nil) },
		"no option":    func() { httplimit.New(limiter, byKey, nil) },
		"no key":       func() { httplimit.Requests("api", "rpm", nil) },
		"short key":    func() { httplimit.New(limiter, byKey, httplimit.WithPartitionKey(nil)) },
		"short bearer": func() { httplimit.ByBearer([]byte("short")) },
		"no error":     func() { httplimit.New(limiter, byKey, httplimit.WithErrorHandler(nil)) },
		"no skip":      func() { httplimit.New(limiter, byKey, httplimit.Skip(nil)) },
		"no unit":      func() { httplimit.New(limiter, byKey, httplimit.WithQuotaUnit("kb", "")) },
		"wrong unit":   func() { httplimit.New(limiter, byKey, httplimit.WithQuotaUnit("kb", `k"b`)) },
		"nil logger":   func() { httplimit.New(limiter, byKey, httplimit.WithLogger(nil)) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "httplimit: ") {
					t.Errorf("%s: recover() = %q, want a panic of this package", name, text)
				}
			}()
			wrong()
		}()
	}
}

// TestRetryAfterIsNeverBeforeTheRoom refuses requests of random limits in random states, waits as long as the response says,
// and asks again. It also holds Retry-After against every t.
func TestRetryAfterIsNeverBeforeTheRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	limiter, clock := zlimittest.New(t)
	refused := 0
	for i := range 300 {
		resource := "r" + strconv.Itoa(i)
		amounts := zlimit.Amounts{}
		var limits []zlimit.Limit
		for j := range 1 + random.IntN(3) {
			name := "l" + strconv.Itoa(j)
			limits = append(limits, zlimit.Limit{
				Name: name, Capacity: 1 + random.Int64N(1000), RefillAmount: 1 + random.Int64N(1000),
				RefillPeriod: time.Duration(1+random.Int64N(100)) * time.Second,
			})
			amounts[name] = 1 + random.Int64N(limits[j].Capacity)
		}
		check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Resource: resource}, zlimit.Config{Limits: limits}))
		h := httplimit.New(limiter, func(*http.Request) (zlimit.Request, error) {
			return zlimit.Request{Entity: "alice", Resource: resource, Consume: amounts}, nil
		})(ok)
		got := get(t, h, "")
		for got.StatusCode == http.StatusOK {
			clock.Advance(time.Duration(random.IntN(2000)) * time.Millisecond)
			got = get(t, h, "")
			if random.IntN(20) == 0 {
				break
			}
		}
		if got.StatusCode == http.StatusOK {
			continue
		}
		refused++
		after, err := strconv.ParseInt(got.Header.Get("Retry-After"), 10, 64)
		if err != nil || after < 1 {
			t.Fatalf("Retry-After = %q", got.Header.Get("Retry-After"))
		}
		for _, item := range strings.Split(got.Header.Get("RateLimit"), ", ") {
			_, wait, there := strings.Cut(item, ";t=")
			if n, _ := strconv.ParseInt(wait, 10, 64); there && n > after {
				t.Errorf("Retry-After = %d, before the time of %s", after, item)
			}
		}
		clock.Advance(time.Duration(after) * time.Second)
		if got := get(t, h, ""); got.StatusCode != http.StatusOK {
			t.Errorf("%v of %v: response %d seconds later = %d, want 200", amounts, limits, after, got.StatusCode)
		}
	}
	if refused < 100 {
		t.Errorf("only %d requests were refused", refused)
	}
}

func TestTransport(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 3))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer server.Close()
	transport := &httplimit.Transport{Limiter: limiter, Request: httplimit.Requests("api", "rpm", httplimit.ByHeader("X-API-Key"))}
	client := &http.Client{Transport: transport}
	send := func(url string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("body"))
		check.Fatal(t, "http.NewRequestWithContext()", err)
		r.Header.Set("X-API-Key", "alice")
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		lease := httplimit.Lease(response.Request.Context())
		check.Error(t, "Adjust()", lease.Adjust(zlimit.Amounts{"rpm": 1}))
		_, err = io.Copy(io.Discard, response.Body)
		if again := lease.Adjust(zlimit.Amounts{"rpm": 1}); !errors.Is(again, zlimit.ErrLeaseClosed) {
			t.Errorf("Adjust() after the end = %v, want that the lease is closed", again)
		}
		return err
	}
	if err := send(server.URL); err != nil { // two of three
		t.Fatalf("send() = %v", err)
	}
	if err := send("http://127.0.0.1:1"); err == nil { // given back
		t.Error("a request to nobody has no error")
	}
	if err := send(server.URL); err != nil { // one, and one in debt
		t.Fatalf("send() = %v", err)
	}
	if err := send(server.URL); !errors.As(err, new(*zlimit.ExceededError)) {
		t.Errorf("Do() = %v, want a rejection", err)
	}
	client.Transport = &httplimit.Transport{}
	if err := send(server.URL); !errors.As(err, new(*zlimit.ValidationError)) {
		t.Errorf("Do() of a transport without a limiter = %v", err)
	}
}

// TestTransportSwitchesProtocols talks over a connection that a response of status 101 has opened, directly and through a
// reverse proxy. The lease stays open until the connection is closed.
func TestTransportSwitchesProtocols(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10))
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("Hijack() = %v", err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, both)
	}))
	defer echo.Close()
	target := check.Call(url.Parse(echo.URL)).Must(t, "url.Parse()")
	request := func(*http.Request) (zlimit.Request, error) {
		return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 1}}, nil
	}
	limited := &httplimit.Transport{Limiter: limiter, Request: request}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: limited})
	defer proxy.Close()
	for address, transport := range map[string]http.RoundTripper{echo.URL: limited, proxy.URL: http.DefaultTransport} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		check.Fatal(t, "http.NewRequestWithContext()", err)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "echo")
		response := check.Call(transport.RoundTrip(r)).Must(t, "RoundTrip()")
		conn, ok := response.Body.(io.ReadWriteCloser)
		if !ok || response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("the answer of status %d has a body %T, want one to write to", response.StatusCode, response.Body)
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Errorf("io.WriteString() = %v", err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
			t.Errorf("the echo is %q, %v", got, err)
		}
		lease := httplimit.Lease(response.Request.Context())
		if lease != nil {
			check.Error(t, "Adjust() of an open connection", lease.Adjust(zlimit.Amounts{"rpm": 1}))
		}
		check.Error(t, "Close()", conn.Close())
		if lease != nil {
			if err := lease.Adjust(zlimit.Amounts{"rpm": 1}); !errors.Is(err, zlimit.ErrLeaseClosed) {
				t.Errorf("Adjust() of a closed connection = %v, want that the lease is closed", err)
			}
		}
	}
}

// TestAllocations bounds what the middleware allocates for a request more than Acquire alone, the fields included. What the
// garbage collector takes out of pools during a run is allowed for by the rounding of AllocsPerRun.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 1_000_000_000), zlimit.PerDay("tpm", 1_000_000_000))
	zlimittest.IgnoreLeases(limiter) // whose notes allocate
	request := check.Call(byKey(keyed(t))).Must(t, "byKey()")
	bare := testing.AllocsPerRun(1000, func() {
		if _, err := limiter.Acquire(t.Context(), request); err != nil {
			t.Fatalf("Acquire() = %v", err)
		}
	})
	r, w := keyed(t), httptest.NewRecorder()
	h := httplimit.New(limiter, byKey)(ok)
	through := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) })
	t.Logf("%v allocations of Acquire, %v through the middleware", bare, through)
	if through > bare+3 {
		t.Errorf("%v allocations through the middleware, %v without, want 3 more at most", through, bare)
	}
}

func keyed(t testing.TB) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-API-Key", "alice")
	return r
}

// BenchmarkMiddleware makes the same request with and without the middleware, in turns. It reports the medians of a
// bare Acquire, and of what the middleware and the end of the lease add to it.
func BenchmarkMiddleware(b *testing.B) {
	limiter, _ := zlimittest.New(b, zlimit.PerDay("rpm", 1_000_000_000))
	zlimittest.IgnoreLeases(limiter)
	r, w := keyed(b), httptest.NewRecorder()
	request := check.Call(byKey(r)).Must(b, "byKey()")
	const turn = 20
	run := func(call func()) float64 {
		start := time.Now()
		for range turn {
			call()
		}
		return float64(time.Since(start).Nanoseconds()) / turn
	}
	acquire := func() {
		if _, err := limiter.Acquire(b.Context(), request); err != nil {
			b.Fatalf("Acquire() = %v", err)
		}
	}
	for name, opts := range map[string][]httplimit.Option{"fields": nil, "no fields": {httplimit.WithoutHeaders()}} {
		b.Run(name, func(b *testing.B) {
			h := httplimit.New(limiter, byKey, opts...)(ok)
			serve := func() { h.ServeHTTP(w, r) }
			var bare, added []float64
			for b.Loop() {
				t := run(acquire)
				bare, added = append(bare, t), append(added, run(serve)-t)
			}
			slices.Sort(bare)
			slices.Sort(added)
			b.ReportMetric(0, "ns/op") // of all together: means nothing
			b.ReportMetric(bare[len(bare)/2], "acquire-ns")
			b.ReportMetric(added[len(added)/2], "added-ns")
			b.ReportMetric(testing.AllocsPerRun(1000, serve)-testing.AllocsPerRun(1000, acquire), "added-allocs")
		})
	}
}

func ExampleNew() {
	limiter, err := zlimit.Open(context.Background(), "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 1)}
	if err := limiter.Limits.Set(context.Background(), zlimit.Level{Resource: "api"}, zlimit.Config{Limits: limits}); err != nil {
		panic(err)
	}

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	limit := httplimit.New(limiter, httplimit.Requests("api", "rpm", httplimit.ByHeader("X-API-Key")))
	server := httptest.NewServer(limit(hello))
	defer server.Close()

	for range 2 {
		r, _ := http.NewRequest(http.MethodGet, server.URL, http.NoBody)
		r.Header.Set("X-API-Key", "alice")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		_ = response.Body.Close()
		fmt.Println(response.Status)
		for _, name := range slices.Sorted(maps.Keys(response.Header)) {
			if strings.Contains(name, "Ratelimit") || name == "Retry-After" {
				fmt.Println(name, response.Header.Get(name))
			}
		}
	}

	// Output:
	// 200 OK
	// Ratelimit "rpm";r=0;t=60
	// Ratelimit-Policy "rpm";q=1;w=60
	// 429 Too Many Requests
	// Ratelimit "rpm";r=0;t=60
	// Ratelimit-Policy "rpm";q=1;w=60
	// Retry-After 60
}
