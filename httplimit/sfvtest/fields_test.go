package sfvtest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestFieldsAreStructured asks for random amounts of random limits, and reads what the responses say: it is what the limiter
// says of the same limits.
func TestFieldsAreStructured(t *testing.T) {
	secret := []byte("0123456789abcdef")
	limiter, clock := zlimittest.New(t)
	resources := 0
	rapid.Check(t, func(t *rapid.T) {
		resources++
		resource := "r" + strconv.Itoa(resources)
		limits := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) zlimit.Limit {
			return zlimit.Limit{
				Name:         rapid.StringMatching(`[a-z][A-Za-z0-9._-]{0,20}`).Filter(func(s string) bool { return s != "wcu" }).Draw(t, "name"),
				Capacity:     rapid.Int64Range(1, 1_000_000_000).Draw(t, "capacity"),
				RefillAmount: rapid.Int64Range(1, 1_000_000_000).Draw(t, "refill"),
				RefillPeriod: time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "period")) * time.Second,
			}
		}), 1, 4, func(l zlimit.Limit) string { return l.Name }).Draw(t, "limits")
		if err := limiter.Limits.Set(t.Context(), zlimit.Level{Resource: resource}, zlimit.Config{Limits: limits}); err != nil {
			t.Skip(err) // a name that is reserved
		}
		var amounts zlimit.Amounts
		var statuses zlimit.Statuses
		h := httplimit.New(limiter, func(*http.Request) (zlimit.Request, error) {
			return zlimit.Request{Entity: "alice", Resource: resource, Consume: amounts}, nil
		}, httplimit.WithPartitionKey(secret))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			statuses = httplimit.Lease(r.Context()).Statuses()
		}))
		for range rapid.IntRange(1, 5).Draw(t, "requests") {
			amounts, statuses = zlimit.Amounts{}, nil
			for _, l := range limits {
				amounts[l.Name] = rapid.Int64Range(0, l.Capacity).Draw(t, "amount")
			}
			clock.Advance(time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "pause")) * time.Millisecond)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
			check(t, w.Result(), limits, statuses, secret)
		}
	})
}

func check(t *rapid.T, r *http.Response, limits []zlimit.Limit, statuses zlimit.Statuses, secret []byte) {
	after := int64(-1)
	if text := r.Header.Get("Retry-After"); text != "" {
		after, _ = strconv.ParseInt(text, 10, 64)
	}
	policies, states := items(t, r.Header["Ratelimit-Policy"]), items(t, r.Header["Ratelimit"])
	if len(policies) != len(limits) || len(states) != len(limits) {
		t.Fatalf("%d policies and %d states of %d limits", len(policies), len(states), len(limits))
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("alice"))
	for _, l := range limits {
		policy, state := policies[l.Name], states[l.Name]
		if q, w := policy["q"].(int64), policy["w"].(int64); q != l.Capacity || w < 1 || !fills(l, w) || w > 1 && fills(l, w-1) {
			t.Errorf("the policy of %v is q=%d, w=%d", l, q, w)
		}
		for _, p := range []map[string]any{policy, state} {
			if pk, ok := p["pk"].([]byte); !ok || !bytes.Equal(pk, mac.Sum(nil)[:12]) {
				t.Errorf("the partition key is %v", p["pk"])
			}
		}
		remaining := state["r"].(int64)
		wait, waits := state["t"].(int64)
		if s, ok := statuses.Limit(l.Name); ok && (remaining != max(0, s.Available) || waits != (s.Available < l.Capacity)) {
			t.Errorf("the state of %v is r=%d, t=%d, %v", s, remaining, wait, waits)
		}
		if r.StatusCode == http.StatusTooManyRequests && waits && wait > after {
			t.Errorf("t=%d is behind Retry-After: %d", wait, after)
		}
	}
}

// fills reports whether a limit fills up in so many seconds.
func fills(l zlimit.Limit, seconds int64) bool {
	return float64(seconds)*float64(l.RefillAmount) >= float64(l.Capacity)*l.RefillPeriod.Seconds()
}

// items reads a field, and returns the parameters of its items by their names.
func items(t *rapid.T, values []string) map[string]map[string]any {
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		t.Fatalf("UnmarshalList(%q) = %v", values, err)
	}
	all := map[string]map[string]any{}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		name, isString := item.Value.(string)
		if !ok || !isString {
			t.Fatalf("%q has the member %v, want an item that is a string", values, member)
		}
		all[name] = map[string]any{}
		for _, key := range item.Params.Names() {
			all[name][key], _ = item.Params.Get(key)
		}
	}
	return all
}
