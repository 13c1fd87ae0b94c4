package quota_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// respond is a provider that answers with the headers it is given.
func respond(t *testing.T, status int, headers ...string) (url string, client *http.Client) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, srv.Client()
}

func call(t *testing.T, tr *quota.Transport, url, model string) {
	t.Helper()
	req, err := http.NewRequestWithContext(quota.WithModel(t.Context(), model), http.MethodGet, url, nil)
	check.Fatal(t, "http.NewRequestWithContext()", err)
	resp := check.Call((&http.Client{Transport: tr}).Do(req)).Must(t, "request")
	check.Fatal(t, "Body.Close()", resp.Body.Close())
}

func TestTransportLearnsFromHeaders(t *testing.T) {
	now := newClock().Now()
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339Nano) }
	for name, c := range map[string]struct {
		status  int
		headers []string
		want    quota.Learned
		known   bool
		errs    string
	}{
		"OpenAI's": {200, []string{
			"x-ratelimit-limit-requests", "60", "x-ratelimit-remaining-requests", "59", "x-ratelimit-reset-requests", "1s",
			"x-ratelimit-limit-tokens", "150000", "x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-tokens", "6m0s",
		}, quota.Learned{
			Requests: quota.Remaining{Left: 59, Limit: 60, Reset: now.Add(time.Second)},
			Tokens:   quota.Remaining{Left: 149984, Limit: 150000, Reset: now.Add(6 * time.Minute)},
		}, true, ""},
		"Anthropic's": {200, []string{
			"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49", "anthropic-ratelimit-requests-reset", at(time.Second),
			"anthropic-ratelimit-input-tokens-limit", "40000", "anthropic-ratelimit-input-tokens-remaining", "0", "anthropic-ratelimit-input-tokens-reset", at(30 * time.Second),
			"anthropic-ratelimit-output-tokens-remaining", "8000", "anthropic-ratelimit-output-tokens-reset", at(2 * time.Second),
		}, quota.Learned{
			Requests:     quota.Remaining{Left: 49, Limit: 50, Reset: now.Add(time.Second)},
			InputTokens:  quota.Remaining{Left: 0, Limit: 40000, Reset: now.Add(30 * time.Second)},
			OutputTokens: quota.Remaining{Left: 8000, Reset: now.Add(2 * time.Second)},
		}, true, ""},
		"a time beside the provider's own clock": {200, []string{
			"Date", now.Add(-time.Hour).Format(http.TimeFormat),
			"anthropic-ratelimit-tokens-remaining", "5", "anthropic-ratelimit-tokens-reset", at(-time.Hour + 20*time.Second),
		}, quota.Learned{Tokens: quota.Remaining{Left: 5, Reset: now.Add(20 * time.Second)}}, true, ""},
		"seconds":              {200, []string{"x-ratelimit-remaining-requests", "1", "x-ratelimit-reset-requests", "2.5"}, quota.Learned{Requests: quota.Remaining{Left: 1, Reset: now.Add(2500 * time.Millisecond)}}, true, ""},
		"retry after seconds":  {429, []string{"retry-after", "17"}, quota.Learned{RetryAt: now.Add(17 * time.Second)}, true, ""},
		"retry after a date":   {503, []string{"retry-after", now.Add(time.Minute).Format(http.TimeFormat)}, quota.Learned{RetryAt: now.Add(time.Minute)}, true, ""},
		"retry after millis":   {529, []string{"retry-after", "9", "retry-after-ms", "250"}, quota.Learned{RetryAt: now.Add(250 * time.Millisecond)}, true, ""},
		"retry-after on a 200": {200, []string{"retry-after", "17"}, quota.Learned{}, false, ""},
		"no headers":           {200, nil, quota.Learned{}, false, ""},
		"no reset":             {200, []string{"x-ratelimit-remaining-requests", "0"}, quota.Learned{}, false, ""},
		"words for numbers":    {200, []string{"x-ratelimit-remaining-requests", "few", "x-ratelimit-reset-requests", "1s"}, quota.Learned{}, false, "x-ratelimit-remaining-requests"},
		"a reset in a year":    {200, []string{"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "8760h"}, quota.Learned{}, false, "x-ratelimit-reset-tokens"},
		"a reset before now":   {200, []string{"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "-5s"}, quota.Learned{}, false, "x-ratelimit-reset-tokens"},
		"a reset that is NaN":  {200, []string{"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "NaN"}, quota.Learned{}, false, "x-ratelimit-reset-tokens"},
		"one bad, one good": {
			429,
			[]string{"retry-after", "soon", "x-ratelimit-remaining-tokens", "7", "x-ratelimit-reset-tokens", "1s"},
			quota.Learned{Tokens: quota.Remaining{Left: 7, Reset: now.Add(time.Second)}},
			true, "retry-after",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, quota.Config{Clock: newClock().Now})
			url, client := respond(t, c.status, c.headers...)
			var errs []error
			tr := &quota.Transport{Limiter: l, Base: client.Transport, OnError: func(err error) { errs = append(errs, err) }}
			call(t, tr, url, "m")
			got, known := l.Learned("m")
			if diff := cmp.Diff(c.want, got); diff != "" || known != c.known {
				t.Errorf("Learned = %v, want %v, differs (-want +got):\n%s", known, c.known, diff)
			}
			if err := errors.Join(errs...); (err == nil) != (c.errs == "") || err != nil && !strings.Contains(err.Error(), c.errs) {
				t.Errorf("OnError got %v, want one about %q", err, c.errs)
			}
		})
	}
}

// TestLearnedLimitsRefuse follows one model through its provider's answers.
func TestLearnedLimitsRefuse(t *testing.T) {
	ctx := t.Context()
	clk := newClock()
	l := newLimiter(t, quota.Config{Clock: clk.Now, Providers: []quota.Provider{quota.ProviderLocal}})
	learn := func(status int, headers ...string) {
		t.Helper()
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		check.Fatal(t, "Learn", l.Learn("m", status, h))
	}
	reserve := func(tokens int) (quota.Reservation, error) {
		return l.Reserve(ctx, quota.Request{Model: "m", Input: tokens})
	}
	learn(200, "x-ratelimit-remaining-tokens", "100", "x-ratelimit-reset-tokens", "20s",
		"x-ratelimit-remaining-requests", "3", "x-ratelimit-reset-requests", "40s")
	r, err := reserve(60)
	if err != nil {
		t.Fatalf("Reserve(60) = %v, want nil: 100 are left", err)
	}
	var denied *quota.ExceededError
	if _, err := reserve(60); !errors.As(err, &denied) || denied.Limit != quota.LimitProvider {
		t.Errorf("Reserve(60) of 40 left = %v, want refused by the provider's limit", err)
	}
	if d, err := l.TimeUntil(ctx, quota.Request{Model: "m", Input: 60}); err != nil || d != 20*time.Second {
		t.Errorf("TimeUntil = %v, %v, want the reset in 20s", d, err)
	}
	if ok, err := l.CanSend(ctx, "other", 60); !ok || err != nil {
		t.Errorf("CanSend of another model = %v, %v, want true", ok, err)
	}
	check.Fatal(t, "Cancel()", r.Cancel(ctx))
	if _, err := reserve(100); err != nil {
		t.Errorf("Reserve(100) after a cancellation = %v, want nil", err)
	}
	clk.advance(20 * time.Second)
	for i := range 2 {
		if _, err := reserve(1000); err != nil {
			t.Errorf("Reserve %d after the tokens' reset = %v, want nil", i, err)
		}
	}
	if _, err := reserve(0); !errors.As(err, &denied) {
		t.Errorf("fourth request before the requests' reset = %v, want refused", err)
	}
	clk.advance(20 * time.Second)
	learn(429, "retry-after", "5")
	if _, err := reserve(1); !errors.As(err, &denied) {
		t.Errorf("Reserve before the retry time = %v, want refused", err)
	}
	clk.advance(5 * time.Second)
	if _, err := reserve(1); err != nil {
		t.Errorf("Reserve at the retry time = %v, want nil", err)
	}
	if _, known := l.Learned("m"); known {
		t.Error("Learned when all has passed = true, want false")
	}
}

// TestARefusedRequestTakesNothing: a request refused by the limiter's own quota takes nothing of
// the provider's rest.
func TestARefusedRequestTakesNothing(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, quota.Config{Clock: newClock().Now, Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 1}}})
	h := http.Header{}
	h.Set("x-ratelimit-remaining-requests", "5")
	h.Set("x-ratelimit-reset-requests", "30s")
	check.Fatal(t, "Learn()", l.Learn("m", 200, h))
	for i, want := range []int64{4, 4, 4} {
		_, err := l.Reserve(ctx, quota.Request{Model: "m"})
		if got, _ := l.Learned("m"); (err == nil) != (i == 0) || got.Requests.Left != want {
			t.Errorf("after Reserve %d (%v) the provider has %d left, want %d", i, err, got.Requests.Left, want)
		}
	}
	check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, "m", 1, 1))
	if got, _ := l.Learned("m"); got.Requests.Left != 3 {
		t.Errorf("after RecordUsage the provider has %d left, want 3", got.Requests.Left)
	}
}

// In TestOldNewsDoesNotReplaceNew, the response of an earlier request arrives late. It knows less, and replaces
// nothing.
func TestOldNewsDoesNotReplaceNew(t *testing.T) {
	clk := newClock()
	l := newLimiter(t, quota.Config{Clock: clk.Now})
	started, release := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left := "10"
		if r.URL.Path == "/slow" {
			close(started)
			<-release
			left = "90"
		}
		w.Header().Set("x-ratelimit-remaining-requests", left)
		w.Header().Set("x-ratelimit-reset-requests", "60s")
	}))
	defer srv.Close()
	tr := &quota.Transport{Limiter: l, Base: srv.Client().Transport, Model: func(*http.Request) string { return "m" }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/slow", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Errorf("RoundTrip = %v", err)
			return
		}
		_ = resp.Body.Close()
	}()
	<-started // it has its time stamp
	clk.advance(time.Second)
	call(t, tr, srv.URL+"/fast", "m")
	close(release)
	<-done
	// The slow request was under way, and may not be in the 10.
	if got, _ := l.Learned("m"); got.Requests.Left != 9 {
		t.Errorf("Left = %d, want the 10 of the later request less the slow one", got.Requests.Left)
	}
}
