package quota_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// A roundTripper answers a request without a network.
type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is a response with what is left of requests and tokens for an hour.
func answer(status, requests, tokens int, headers ...string) *http.Response {
	h := http.Header{}
	for name, left := range map[string]int{"requests": requests, "tokens": tokens} {
		h.Set("x-ratelimit-remaining-"+name, strconv.Itoa(left))
		h.Set("x-ratelimit-reset-"+name, "1h")
	}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
}

// send makes a request through a transport of the limiter. during runs while the
// request is under way.
func send(ctx context.Context, t *testing.T, l *quota.Limiter, resp *http.Response, during func()) {
	t.Helper()
	tr := &quota.Transport{Limiter: l, Base: roundTripper(func(*http.Request) (*http.Response, error) {
		if during != nil {
			during()
		}
		if resp == nil {
			return nil, errors.New("connection reset")
		}
		return resp, nil
	})}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://provider.test/", http.NoBody)
	check.Fatal(t, "http.NewRequestWithContext()", err)
	got, err := tr.RoundTrip(req)
	if (err != nil) != (resp == nil) {
		t.Fatalf("RoundTrip = %v", err)
	}
	if got != nil {
		_ = got.Body.Close()
	}
}

func wantLeft(t *testing.T, l *quota.Limiter, when string, requests, tokens int64) {
	t.Helper()
	got, _ := l.Learned("m")
	if got.Requests.Left != requests || got.Tokens.Left != tokens {
		t.Errorf("%s the provider has %d requests and %d tokens left, want %d and %d",
			when, got.Requests.Left, got.Tokens.Left, requests, tokens)
	}
}

func reserve(t *testing.T, l *quota.Limiter, tokens int) *quota.Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), quota.Request{Model: "m", Input: tokens})
	if err != nil {
		t.Fatalf("Reserve(%d) = %v, want nil", tokens, err)
	}
	return &r
}

// TestARecordedCallCountsOnce: the rest reported by a response counts the call that is recorded next.
func TestARecordedCallCountsOnce(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		l := open(quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: newClock().Now})
		record := func() {
			t.Helper()
			check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "m", 30, 20))
		}
		ctx := quota.WithModel(t.Context(), "m")
		send(ctx, t, l, answer(200, 59, 1000), nil)
		record()
		wantLeft(t, l, "after a call that was recorded", 59, 1000)
		record()
		wantLeft(t, l, "after a call that the transport did not see", 58, 950)
		send(ctx, t, l, answer(429, 58, 950), nil) // it is not recorded
		record()
		wantLeft(t, l, "after another such call", 57, 900)
	})
}

// TestAReservedCallCountsOnce: a response has its own call in it, also where
// the caller does not settle.
func TestAReservedCallCountsOnce(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		l := open(quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: newClock().Now})
		left := int64(1000)
		for i := range int64(10) {
			r := reserve(t, l, 50)
			left -= 40 // the provider counts in its own way
			send(quota.WithModel(t.Context(), "m"), t, l, answer(200, int(99-i), int(left)), nil)
			wantLeft(t, l, "after a response", 99-i, left)
			if i%2 == 0 {
				check.Fatal(t, "Settle()", r.Settle(t.Context(), 20, 30))
				wantLeft(t, l, "after settling", 99-i, left)
			}
		}
	})
}

// TestCallsInFlightStayCounted: the provider may have answered before it counted
// them.
func TestCallsInFlightStayCounted(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		l := open(quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: newClock().Now})
		ctx := quota.WithModel(t.Context(), "m")
		first, second := reserve(t, l, 100), reserve(t, l, 200)
		var later *quota.Reservation
		send(ctx, t, l, answer(200, 50, 1000), func() { later = reserve(t, l, 10) })
		wantLeft(t, l, "with two calls in flight", 48, 790)
		check.Fatal(t, "Settle()", errors.Join(first.Settle(t.Context(), 1, 1), second.Settle(t.Context(), 1, 1)))
		wantLeft(t, l, "when one of them is settled", 48, 790)
		check.Fatal(t, "Cancel()", later.Cancel(t.Context()))
		wantLeft(t, l, "when the other is cancelled", 49, 800)
		reserve(t, l, 5)
		send(ctx, t, l, answer(200, 40, 700), nil)
		wantLeft(t, l, "after a response to a call that was alone", 40, 700)
	})
}

// TestACallSettledDuringAnotherStaysCounted: it was open when the other was sent.
func TestACallSettledDuringAnotherStaysCounted(t *testing.T) {
	l := newLimiter(t, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: newClock().Now})
	r, other := reserve(t, l, 100), reserve(t, l, 300)
	send(quota.WithReservation(t.Context(), r), t, l, answer(200, 50, 1000), func() {
		check.Fatal(t, "Settle()", other.Settle(t.Context(), 1, 1))
	})
	wantLeft(t, l, "after a response during which another call ended", 49, 700)
}

// TestAReservationIsNamed: requests are sent in another order than reserved.
func TestAReservationIsNamed(t *testing.T) {
	l := newLimiter(t, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: newClock().Now})
	reserve(t, l, 100)
	second := reserve(t, l, 300)
	send(quota.WithReservation(t.Context(), second), t, l, answer(200, 50, 1000), nil)
	wantLeft(t, l, "with the first call in flight", 49, 900)
}

// TestAFailedRoundTripIsTriedAgain: its reservation is still the next to be sent.
func TestAFailedRoundTripIsTriedAgain(t *testing.T) {
	l := newLimiter(t, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: newClock().Now})
	ctx := quota.WithModel(t.Context(), "m")
	send(ctx, t, l, nil, nil) // it has no reservation
	reserve(t, l, 100)
	reserve(t, l, 300)
	send(ctx, t, l, nil, nil)
	send(ctx, t, l, answer(200, 50, 1000), nil)
	wantLeft(t, l, "after a second attempt", 49, 700)
}

// TestLearnKeepsOpenCalls learns of a response without a known call. The response may be that of any open call.
func TestLearnKeepsOpenCalls(t *testing.T) {
	l := newLimiter(t, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: newClock().Now})
	r := reserve(t, l, 60)
	check.Fatal(t, "Learn()", l.Learn("m", 200, answer(200, 10, 100).Header))
	wantLeft(t, l, "with a call in flight", 9, 40)
	var denied *quota.ExceededError
	if _, err := l.Reserve(t.Context(), quota.Request{Model: "m", Input: 50}); !errors.As(err, &denied) || denied.Limit != quota.LimitProvider {
		t.Errorf("Reserve(50) = %v, want refused by what the provider may have left", err)
	}
	check.Fatal(t, "Cancel()", r.Cancel(t.Context()))
	wantLeft(t, l, "when the call was cancelled", 10, 100)
}

func TestTheNextResponseReplacesTheRetryTime(t *testing.T) {
	for name, c := range map[string]struct {
		next   *http.Response
		before bool // the next response is that of an earlier request
		want   time.Duration
	}{
		"a success":                     {&http.Response{StatusCode: 200}, false, 0},
		"a bad request":                 {&http.Response{StatusCode: 400}, false, 0},
		"a shorter time":                {&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"2"}}}, false, 2 * time.Second},
		"a longer time":                 {&http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"7200"}}}, false, 2 * time.Hour},
		"a refusal without a time":      {&http.Response{StatusCode: 429}, false, time.Hour},
		"an outage without a time":      {&http.Response{StatusCode: 500}, false, time.Hour},
		"a success from before":         {&http.Response{StatusCode: 200}, true, time.Hour},
		"a shorter time from before":    {&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"2"}}}, true, time.Hour},
		"a longer time from before":     {&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"7200"}}}, true, 2 * time.Hour},
		"a success that has its limits": {answer(200, 5, 5), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clk := newClock()
			l := newLimiter(t, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: clk.Now})
			ctx := quota.WithModel(t.Context(), "m")
			refused := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"3600"}}, Body: http.NoBody}
			c.next.Body = http.NoBody
			if c.before {
				send(ctx, t, l, c.next, func() {
					clk.advance(1)
					send(ctx, t, l, refused, nil)
				})
			} else {
				send(ctx, t, l, refused, nil)
				send(ctx, t, l, c.next, nil)
			}
			got, err := l.TimeUntil(t.Context(), quota.Request{Model: "m"})
			if err != nil || got != c.want {
				t.Errorf("TimeUntil = %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

// TestTheProvidersLimitIsNamedLast: the quotas come first, as documented.
func TestTheProvidersLimitIsNamedLast(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		l := open(quota.Config{
			Clock:     newClock().Now,
			Quotas:    map[string]quota.ModelQuota{"m": {MaxRPM: 2, MaxTPM: 1000}},
			KeyQuotas: map[string]quota.ModelQuota{"k": {MaxRPM: 1}},
		})
		check.Fatal(t, "Learn()", l.Learn("m", 200, answer(200, 0, 1000).Header))
		for i, c := range []struct {
			r          quota.Request
			scope      quota.Scope
			limit      quota.Limit
			impossible bool
		}{
			{quota.Request{Model: "m", Key: "k"}, quota.ScopeModel, quota.LimitProvider, false},
			{quota.Request{Model: "m", Key: "k"}, quota.ScopeKey, quota.LimitRPM, false},
			{quota.Request{Model: "m", Key: "k"}, quota.ScopeModel, quota.LimitRPM, false},
			{quota.Request{Model: "m", Key: "k", Input: 1001}, quota.ScopeModel, quota.LimitTPM, true},
		} {
			_, err := l.Reserve(t.Context(), c.r)
			for call, err := range map[string]error{"Reserve": err, "Check": l.Check(t.Context(), c.r)} {
				var denied *quota.ExceededError
				if !errors.As(err, &denied) || denied.Scope != c.scope || denied.Limit != c.limit || denied.Impossible != c.impossible {
					t.Errorf("step %d: %s = %v, want refused by %v %v", i, call, err, c.scope, c.limit)
				}
			}
			if i < 2 { // what was sent all the same
				check.Fatal(t, "Record()", l.Record(t.Context(), c.r))
			}
		}
	})
}

// TestLearnedLimitsFollowAClockSetBack: they hold for no longer than was said.
func TestLearnedLimitsFollowAClockSetBack(t *testing.T) {
	clk := newClock()
	l := newLimiter(t, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: clk.Now})
	check.Fatal(t, "Learn()", l.Learn("m", 429, http.Header{"Retry-After": {"30"}}))
	clk.advance(-365 * 24 * time.Hour)
	if d, err := l.TimeUntil(t.Context(), quota.Request{Model: "m"}); err != nil || d != 30*time.Second {
		t.Errorf("TimeUntil after the clock was set back = %v, %v, want 30s", d, err)
	}
}
