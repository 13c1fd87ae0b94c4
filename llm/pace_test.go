package llm_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// paced returns the transports of a fleet whose account has a limit of calls, a pace, and a team with a budget of calls.
func paced(t *testing.T, limiter *zlimit.RateLimiter, base http.RoundTripper) (fleet [2]*llm.Transport) {
	t.Helper()
	set := func(entity string, limits ...zlimit.Limit) {
		t.Helper()
		check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Entity: entity, Resource: "m"}, zlimit.Config{Limits: limits}))
	}
	for _, e := range []zlimit.Entity{{ID: "account"}, {ID: "team", ParentID: "account", Cascade: true}} {
		if _, err := limiter.Entities.Create(t.Context(), e); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
	}
	set("account", zlimit.PerMinute("calls", 600), zlimit.PerMinute("pace", 50, zlimit.Burst(1000)))
	set("team", zlimit.PerDay("budget", 1000))
	for i := range fleet {
		var err error
		fleet[i], err = llm.NewTransport(limiter, llm.For("team"), llm.WithBase(base), llm.WithFields(),
			llm.WithLimit("calls", llm.PerRequest), llm.WithLimit("budget", llm.PerRequest), llm.WithLearnedRate("pace", "calls"))
		check.Fatal(t, "llm.NewTransport()", err)
	}
	return fleet
}

// In TestLearnedRate, a provider refuses calls without a figure. Of all calls that are under way in two processes, one halves the rate
// of the account, for both, and time raises it again. The team's own budget is charged as usual.
func TestLearnedRate(t *testing.T) {
	limiter, clock := zlimittest.New(t)
	var mu sync.Mutex
	status, header, waiting, release := 200, http.Header{}, 0, make(chan struct{})
	together := 1
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		waiting++
		if waiting == together {
			waiting = 0
			close(release)
			release = make(chan struct{})
			mu.Unlock()
		} else {
			wait := release
			mu.Unlock()
			<-wait
		}
		return &http.Response{StatusCode: status, Header: header.Clone(), Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
	})
	fleet := paced(t, limiter, base)
	call := func(process int) http.Header {
		r, err := fleet[process].RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":1}`))
		if err != nil {
			t.Errorf("RoundTrip() = %v", err)
			return nil
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		return r.Header
	}
	of := func(entity, limit string) int64 {
		t.Helper()
		statuses := check.Call(limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: entity, Resource: "m"})).Must(t, "Available()")
		for _, s := range statuses {
			if s.Entity == entity && s.Limit.Name == limit {
				return s.Available
			}
		}
		t.Fatalf("%s has no limit %s", entity, limit)
		return 0
	}
	expect := func(what string, calls, pace int64) {
		t.Helper()
		if c, p := of("account", "calls"), of("account", "pace"); c != calls || p != pace {
			t.Errorf("%s: %d calls and a pace of %d are left, want %d and %d", what, c, p, calls, pace)
		}
	}
	if h := call(0); strings.Contains(h.Get("RateLimit"), "pace") || !strings.Contains(h.Get("RateLimit"), "calls") {
		t.Errorf("clients are told of %s", h.Get("RateLimit"))
	}
	expect("a call at the full rate", 599, 1000)

	status, together = 429, 20
	var group sync.WaitGroup
	for i := range together {
		group.Go(func() { call(i % 2) })
	}
	group.Wait()
	expect("20 refusals of calls under way", 579, 499)
	together = 1

	status = 200
	call(1) // which takes twice as much, also in a process that has not seen it
	call(0)
	expect("two calls at half the rate", 575, 499)

	status, header = 429, http.Header{"X-Ratelimit-Remaining-Requests": {"5"}}
	call(0)
	expect("a refusal with a figure", 573, 499)
	status, header = 503, http.Header{}
	call(0)
	expect("an outage of the provider", 571, 499)
	status, header = 429, http.Header{"Retry-After": {"1"}}
	call(1)
	expect("another refusal without a figure", 569, 249)

	clock.Advance(5 * time.Minute)
	expect("after five minutes", 600, 499)
	clock.Advance(10 * time.Minute)
	status = 200
	call(0)
	call(1)
	expect("when the rate is there again", 598, 999)
	if used := 1000 - of("team", "budget"); used != 28-10 { // ten flow in within a quarter of an hour
		t.Errorf("the team was charged for %d calls, want those that it made", used)
	}
	for range 7 { // down to the least share
		status = 429
		call(0)
	}
	if pace := of("account", "pace"); pace < 0 || pace > 1000/32 {
		t.Errorf("the least pace is %d", pace)
	}
	status = 200
	before := of("account", "calls")
	call(0)
	if took := before - of("account", "calls"); took < 32 || took > 67 {
		t.Errorf("a call at the least pace takes %d", took)
	}
}

// TestLearnedRateIsChecked gives limits that do not fit.
func TestLearnedRateIsChecked(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	for want, option := range map[string]llm.Option{
		`invalid pace "": must not be empty`:                                      llm.WithLearnedRate("", "rpm"),
		`invalid pace "rpm": must not be a limit that calls are charged to`:       llm.WithLearnedRate("rpm", "tpm"),
		`invalid scaled limits "": must be at least one`:                          llm.WithLearnedRate("pace"),
		`invalid scaled limit "calls": must be a limit that calls are charged to`: llm.WithLearnedRate("pace", "rpm", "calls"),
	} {
		if _, err := llm.NewTransport(limiter, llm.For("a"), option); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewTransport() = %v, want %s", err, want)
		}
	}
}

// TestPacesAreExact checks that many small calls at a pace take what one large one takes.
func TestPacesAreExact(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
	})
	fleet := paced(t, limiter, base)
	// A quarter of the pace is gone, so 90 calls take a third more: 120.
	lease, err := limiter.Acquire(t.Context(), zlimit.Request{Entity: "account", Resource: "m", Consume: zlimit.Amounts{"pace": 250}})
	if err == nil {
		err = lease.Commit(t.Context())
	}
	check.Fatal(t, "Acquire() and Commit()", err)
	for range 90 {
		r := check.Call(fleet[0].RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":1}`))).Must(t, "RoundTrip()")
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	statuses := check.Call(limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: "account", Resource: "m"})).Must(t, "Available()")
	if s, _ := statuses.Limit("calls"); s.Available < 600-121 || s.Available > 600-119 {
		t.Errorf("90 calls at three quarters of the rate take %d, want 120", 600-s.Available)
	}
}
