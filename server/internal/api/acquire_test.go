package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestAcquireAndSettle(t *testing.T) {
	s := newService(t)
	got := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"rpm":1,"tpm":500},"lease":"10m"}`)
	want := client.Acquired{
		ExpiresAt: s.now.Add(10 * time.Minute).UTC(), LastUntil: s.now.Add(24 * time.Hour).UTC(), Lease: got.Lease,
		Limits: []client.Limit{
			{Policy: "rpm", Entity: "alice", Resource: "gpt-4", Capacity: 60, Available: 59, Requested: 1},
			{Policy: "tpm", Entity: "alice", Resource: "gpt-4", Capacity: 10_000, Available: 9500, Requested: 500},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(got.Lease, "zl1.k1.") {
		t.Errorf("acquire (-want +got):\n%s", diff)
	}
	body := fmt.Sprintf(`{"lease":%q,"actual":{"tpm":120}}`, got.Lease)
	for range 2 { // the second one changes nothing
		settled := ok[client.Settled](t, s, "POST", "/v1/settle", keyOfGateway, body)
		if diff := cmp.Diff([]client.Charge{{Entity: "alice", Resource: "gpt-4", Consume: map[string]int64{"rpm": 1, "tpm": 120}}}, settled.Settled); diff != "" {
			t.Errorf("settle (-want +got):\n%s", diff)
		}
		if left := s.left(t, "alice", "gpt-4", "tpm"); left != 9880 {
			t.Errorf("after settle tpm has %d, want 9880", left)
		}
	}
	p := fails(t, s, http.StatusConflict, "settled", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tpm":0}}`, got.Lease))
	if p.Amounts["tpm"] != 120 {
		t.Errorf("the amounts that stand = %v, want tpm 120", p.Amounts)
	}
	fails(t, s, http.StatusConflict, "settled", "POST", "/v1/rollback", keyOfGateway, fmt.Sprintf(`{"lease":%q}`, got.Lease))
}

func TestSettleForms(t *testing.T) {
	for _, c := range []struct {
		name, path, fields string
		rpm, tpm           int64 // left
	}{
		{"nothing is said", "settle", ``, 59, 9500},
		{"actual", "settle", `,"actual":{"tpm":200}`, 59, 9800},
		{"actual of all", "settle", `,"actual":{"tpm":0,"rpm":0}`, 60, 10_000},
		{"more than was taken", "settle", `,"actual":{"tpm":20000}`, 59, -10_000},
		{"adjust down", "settle", `,"adjust":{"tpm":-500}`, 59, 10_000},
		{"adjust up", "settle", `,"adjust":{"tpm":7}`, 59, 9493},
		{"adjust one and actual of the other", "settle", `,"adjust":{"tpm":-1},"actual":{"rpm":0}`, 60, 9501},
		{"rollback", "rollback", ``, 60, 10_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t)
			lease := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"rpm":1,"tpm":500},"lease":"1m"}`).Lease
			ok[client.Settled](t, s, "POST", "/v1/"+c.path, keyOfGateway, fmt.Sprintf(`{"lease":%q%s}`, lease, c.fields))
			if rpm, tpm := s.left(t, "alice", "gpt-4", "rpm"), s.left(t, "alice", "gpt-4", "tpm"); rpm != c.rpm || tpm != c.tpm {
				t.Errorf("left are %d rpm and %d tpm, want %d and %d", rpm, tpm, c.rpm, c.tpm)
			}
		})
	}
}

func TestAlsoAllOrNone(t *testing.T) {
	s := newService(t)
	body := func(rpm int) string {
		return fmt.Sprintf(`{"entity":"alice","resource":"gpt-4","consume":{"tpm":500},"also":[{"entity":"bob","resource":"search","consume":{"rpm":%d}}],"lease":"1m"}`, rpm)
	}
	got := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, body(7))
	if len(got.Limits) != 3 {
		t.Errorf("acquire reports %d limits, want 3: %+v", len(got.Limits), got.Limits)
	}
	p := fails(t, s, http.StatusTooManyRequests, "exceeded", "POST", "/v1/acquire", keyOfGateway, body(4))
	if !slices.Equal(p.ViolatedPolicies, []string{"rpm"}) {
		t.Errorf("violated-policies = %v, want rpm", p.ViolatedPolicies)
	}
	if left := s.left(t, "alice", "gpt-4", "tpm"); left != 9500 {
		t.Errorf("a rejection leaves %d tpm, want 9500", left)
	}
	settled := ok[client.Settled](t, s, "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tpm":100},"also":[{"adjust":{"rpm":-6}}]}`, got.Lease))
	if settled.Settled[1].Consume["rpm"] != 1 || s.left(t, "alice", "gpt-4", "tpm") != 9900 || s.left(t, "bob", "search", "rpm") != 9 {
		t.Errorf("settle = %+v, want 100 and 1", settled)
	}
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"also":[{},{}]}`, got.Lease))
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/acquire", keyOfGateway, body(1), "Idempotency-Key: k")
}

func TestRefusals(t *testing.T) {
	s := newService(t)
	if _, err := s.limiter.Limits.Disable(t.Context(), zlimit.Level{Entity: "mallory"}, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	for range 10 {
		ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"search","consume":{"rpm":1}}`)
	}
	r := send(t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"search","consume":{"rpm":1}}`)
	p := as[client.Problem](t, r)
	want := client.Problem{
		Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Quota exceeded", Status: 429, Code: "exceeded", Outcome: "none",
		ViolatedPolicies: []string{"rpm"},
		Limits:           []client.Limit{{Policy: "rpm", Entity: "alice", Resource: "search", Capacity: 10, Requested: 1, Exceeded: true, RetryAfter: 6}},
	}
	if diff := cmp.Diff(want, p); diff != "" || r.Header.Get("Retry-After") != "6" {
		t.Errorf("Retry-After %q (-want +got):\n%s", r.Header.Get("Retry-After"), diff)
	}
	for _, c := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"more than fits", `{"entity":"alice","resource":"search","consume":{"rpm":11}}`, 422, "never_fits"},
		{"no limits", `{"entity":"alice","resource":"unknown","consume":{"rpm":1}}`, 422, "no_limits"},
		{"a limit that is not there", `{"entity":"alice","resource":"search","consume":{"tpm":1}}`, 422, "no_limits"},
		{"disabled", `{"entity":"mallory","resource":"search","consume":{"rpm":1}}`, 403, "disabled"},
		{"more than a prepaid limit begins with", `{"entity":"alice","resource":"cards","consume":{"cards":11}}`, 429, "used_up"},
		{"slots without a lease", `{"entity":"alice","resource":"jobs","consume":{"workers":1}}`, 400, "invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fails(t, s, c.status, c.code, "POST", "/v1/acquire", keyOfGateway, c.body)
		})
	}
	ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"cards","consume":{"cards":8}}`)
	fails(t, s, http.StatusTooManyRequests, "used_up", "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"cards","consume":{"cards":8}}`)
	if left := s.left(t, "alice", "jobs", "workers"); left != 2 {
		t.Errorf("after slots that were refused %d workers are free, want 2", left)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := newService(t)
	const body = `{"entity":"alice","resource":"gpt-4","consume":{"tpm":500},"lease":"10m"}`
	first := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, body, "Idempotency-Key: job 17")
	again := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, body, "Idempotency-Key: job 17")
	if first.Repeated || !again.Repeated || s.left(t, "alice", "gpt-4", "tpm") != 9500 {
		t.Errorf("repeated = %v, %v, left %d, want false, true, 9500", first.Repeated, again.Repeated, s.left(t, "alice", "gpt-4", "tpm"))
	}
	for _, change := range [][2]string{{"500", "501"}, {"500", "50"}, {"500}", `500,"rpm":1}`}, {"gpt-4", "search"}, {`"lease"`, `"priority":"batch","lease"`}} {
		fails(t, s, http.StatusConflict, "reused_key", "POST", "/v1/acquire", keyOfGateway, strings.Replace(body, change[0], change[1], 1), "Idempotency-Key: job 17")
	}
	if again := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, strings.Replace(body, "10m", "1h", 1), "Idempotency-Key: job 17"); !again.Repeated {
		t.Error("another time of the lease makes another request")
	}
	ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfOther, body, "Idempotency-Key: job 17") // another caller's key
	if left := s.left(t, "alice", "gpt-4", "tpm"); left != 9000 {
		t.Errorf("after another caller %d are left, want 9000", left)
	}
	// Of both tokens the first settlement holds.
	ok[client.Settled](t, s, "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tpm":0}}`, again.Lease))
	fails(t, s, http.StatusConflict, "settled", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tpm":1}}`, first.Lease))
	if left := s.left(t, "alice", "gpt-4", "tpm"); left != 9500 {
		t.Errorf("after settling %d are left, want 9500", left)
	}
	for _, key := range []string{"\x80", strings.Repeat("k", 256), "ü"} {
		fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/acquire", keyOfGateway, body, "Idempotency-Key: "+key)
	}
}

// TestRepeatedAtOnce sends one request many times at the same time.
func TestRepeatedAtOnce(t *testing.T) {
	s := newService(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"tpm":500},"lease":"10m"}`, "Idempotency-Key: k")
		})
	}
	wg.Wait()
	if left := s.left(t, "alice", "gpt-4", "tpm"); left != 9500 {
		t.Errorf("20 calls with one key leave %d, want 9500", left)
	}
}

func TestLeases(t *testing.T) {
	s := newService(t)
	lease := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"tpm":500},"lease":"1m"}`).Lease
	body := func(lease string) string { return fmt.Sprintf(`{"lease":%q,"actual":{"tpm":0}}`, lease) }
	details := map[string]string{"nothing": "Must not be empty.", "long": "Must have at most 4096 characters.", "a token of a lease": "Must be a token of this service, which begins with zl1."}
	for name, altered := range map[string]string{
		"nothing": "", "no token": "x", "a token of a lease": "zl1.AAAA", "another key": strings.Replace(lease, ".k1.", ".k2.", 1),
		"cut": lease[:len(lease)-1], "longer": lease + "A", "a changed byte": lease[:20] + string(lease[20]^1) + lease[21:], "long": strings.Repeat("a", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			p := fails(t, s, http.StatusBadRequest, "invalid_lease", "POST", "/v1/settle", keyOfGateway, body(altered))
			if len(altered) > 10 && strings.Contains(p.Detail, altered) {
				t.Errorf("the detail %q has the token", p.Detail)
			}
			if strings.Contains(strings.ToLower(p.Detail), "leasetoken") || !strings.Contains(p.Detail, " ") {
				t.Errorf("the detail is %q, want what is wrong with the lease, and no package", p.Detail)
			}
			if want := details[name]; want != "" && p.Detail != want {
				t.Errorf("the detail is %q, want %q", p.Detail, want)
			}
		})
	}
	for _, path := range []string{"settle", "rollback"} {
		fails(t, s, http.StatusForbidden, "foreign_lease", "POST", "/v1/"+path, keyOfOther, fmt.Sprintf(`{"lease":%q}`, lease))
	}
	fails(t, s, http.StatusForbidden, "foreign_lease", "POST", "/v1/heartbeat", keyOfOther, fmt.Sprintf(`{"lease":%q,"for":"1m"}`, lease))
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"rpm":0}}`, lease))
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"adjust":{"rpm":1}}`, lease))
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"adjust":{"tpm":-501}}`, lease))
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"adjust":{"tpm":%d}}`, lease, int64(maxInteger)))
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"adjust":{"tpm":-1},"actual":{"tpm":1}}`, lease))
	if left := s.left(t, "alice", "gpt-4", "tpm"); left != 9500 {
		t.Errorf("after refused settlements %d are left, want 9500", left)
	}
	s.pass(time.Minute)
	fails(t, s, http.StatusGone, "expired", "POST", "/v1/settle", keyOfGateway, body(lease))
	fails(t, s, http.StatusGone, "expired", "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"1m"}`, lease))
}

// TestHeartbeat extends a lease again and again. All of its tokens are settled once together, also long after the first one ended.
func TestHeartbeat(t *testing.T) {
	s := newService(t)
	acquired := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"budget","consume":{"tokens":500},"lease":"10m"}`)
	began, leases := s.now, []string{acquired.Lease}
	for range 14 { // for more than a day
		s.pass(9 * time.Minute)
		got := ok[client.Extended](t, s, "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"2h"}`, leases[len(leases)-1]))
		leases = append(leases, got.Lease)
		s.pass(100 * time.Minute)
		if want := began.Add(24 * time.Hour); got.ExpiresAt.After(want) || !got.LastUntil.Equal(want.UTC()) {
			t.Fatalf("heartbeat = until %v, at most %v, want %v at most", got.ExpiresAt, got.LastUntil, want)
		}
		if s.time().Sub(began) > 22*time.Hour {
			break
		}
	}
	last := ok[client.Extended](t, s, "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"24h"}`, leases[len(leases)-1]))
	leases = append(leases, ok[client.Extended](t, s, "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"23h"}`, last.Lease)).Lease)
	s.pass(23*time.Hour + 59*time.Minute - s.time().Sub(began))
	ok[client.Settled](t, s, "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tokens":100}}`, last.Lease))
	fails(t, s, http.StatusConflict, "settled", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tokens":0}}`, leases[len(leases)-1]))
	s.pass(time.Minute)
	fails(t, s, http.StatusGone, "expired", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tokens":0}}`, last.Lease))
}

func TestWait(t *testing.T) {
	s := newService(t, func(o *Options) { o.MaxWaiting = 1 })
	limiter, err := zlimit.Open(t.Context(), "memory:") // by the clock of the machine
	check.Fatal(t, "zlimit.Open()", err)
	defer limiter.Close()
	check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "fast"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rps", 5)}}))
	s.options.Limiter = limiter
	s.Handler = New(s.options)
	for _, c := range []struct{ name, body, key string }{
		{"one request", `{"entity":"a","resource":"fast","consume":{"rps":5},"max_wait_ms":5000}`, ""},
		{"with a key", `{"entity":"b","resource":"fast","consume":{"rps":5},"max_wait_ms":5000}`, "k"},
		{"several", `{"entity":"c","resource":"fast","consume":{"rps":5},"max_wait_ms":5000,"also":[{"entity":"d","resource":"fast","consume":{"rps":5}}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			headers := [][]string{nil, nil}
			if c.key != "" {
				headers = [][]string{{"Idempotency-Key: 1"}, {"Idempotency-Key: 2"}}
			}
			ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, c.body, headers[0]...)
			ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, c.body, headers[1]...)
			fails(t, s, http.StatusTooManyRequests, "exceeded", "POST", "/v1/acquire", keyOfGateway, strings.Replace(c.body, "5000", "10", 1))
		})
	}
}

// TestWaitersAreBounded fills the places of waiters, and drains the server.
func TestWaitersAreBounded(t *testing.T) {
	draining := make(chan struct{})
	s := newService(t, func(o *Options) { o.MaxWaiting, o.Draining = 1, draining })
	h := s.Handler
	ok[client.Acquired](t, h, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"search","consume":{"rpm":10}}`)
	const body = `{"entity":"alice","resource":"search","consume":{"rpm":1},"max_wait_ms":60000}`
	done := make(chan client.Problem)
	go func() {
		done <- fails(t, h, http.StatusServiceUnavailable, "draining", "POST", "/v1/acquire", keyOfGateway, body)
	}()
	for s.limiter.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	fails(t, h, http.StatusServiceUnavailable, "too_many_waiting", "POST", "/v1/acquire", keyOfGateway, body)
	close(draining)
	if p := <-done; p.Outcome != "none" {
		t.Errorf("outcome = %q, want none", p.Outcome)
	}
}

// TestAClientThatLeaves ends a wait, whose tokens come back.
func TestAClientThatLeaves(t *testing.T) {
	s := newService(t)
	lease, err := s.limiter.Acquire(t.Context(), zlimit.Request{Entity: "alice", Resource: "search", Consume: zlimit.Amounts{"rpm": 10}})
	check.Fatal(t, "Acquire()", err)
	ctx, leave := context.WithCancel(t.Context())
	c := &call{r: (&http.Request{}).WithContext(ctx), limiter: s.limiter}
	a := &acquisition{requests: []zlimit.Request{{Entity: "alice", Resource: "search", Consume: zlimit.Amounts{"rpm": 1}, ID: "x"}}, wait: time.Minute, key: "x"}
	done := make(chan error)
	go func() {
		_, err := acquireRepeatedly(c.r.Context(), c.limiter, a)
		done <- err
	}()
	leave()
	if err := <-done; err == nil {
		t.Error("a request whose client has left is admitted")
	}
	check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
	if left := s.left(t, "alice", "search", "rpm"); left != 10 {
		t.Errorf("%d are left, want 10", left)
	}
}
