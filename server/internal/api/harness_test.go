package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// A service is a handler with a store in memory, and a clock that tests move.
type service struct {
	http.Handler
	limiter *zlimit.RateLimiter
	options Options
	mu      sync.Mutex
	now     time.Time
}

// The keys of the callers of a service.
const (
	keyOfGateway = "gateway" // acquires for all entities
	keyOfTeam    = "team"    // acquires and reads for team-a/*
	keyOfReader  = "reader"
	keyOfOps     = "ops" // admin
	keyOfOther   = "other"
)

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func testCallers(t testing.TB) *auth.Callers {
	t.Helper()
	callers := check.Call(auth.New([]auth.Caller{
		{Name: "gateway", KeySHA256: hashOf(keyOfGateway), Roles: []string{"acquire"}, Namespaces: []string{"default", "second"}},
		{Name: "team", KeySHA256: hashOf(keyOfTeam), Roles: []string{"acquire", "read", "admin"}, Entities: []string{"team-a/*"}},
		{Name: "reader", KeySHA256: hashOf(keyOfReader), Roles: []string{"read"}},
		{Name: "ops", KeySHA256: hashOf(keyOfOps), Roles: []string{"admin"}},
		{Name: "other", KeySHA256: hashOf(keyOfOther), Roles: []string{"acquire"}},
	}, "default", time.Now)).Must(t, "auth.New()")
	return callers
}

// newService returns a service with limits of some resources.
func newService(t testing.TB, change ...func(*Options)) *service {
	t.Helper()
	s := &service{now: time.Now().Truncate(time.Second)}
	events := NewEvents()
	limiter, err := zlimit.Open(t.Context(), "memory:", zlimit.WithObserver(events.Observer("default")), zlimit.WithClock(s.time), zlimit.WithFreshness(0))
	check.Fatal(t, "zlimit.Open()", err)
	t.Cleanup(func() { _ = limiter.Close() })
	signer, err := leasetoken.NewSigner(leasetoken.Key{ID: "k1", Secret: bytes.Repeat([]byte{1}, leasetoken.MinSecret)})
	check.Fatal(t, "leasetoken.NewSigner()", err)
	callers := testCallers(t)
	s.limiter = limiter
	s.options = Options{Limiter: limiter, Callers: func() *auth.Callers { return callers }, Tokens: signer, Events: events, Now: s.time}
	for _, f := range change {
		f(&s.options)
	}
	s.Handler = New(s.options)
	for resource, limits := range map[string][]zlimit.Limit{
		"gpt-4":  {zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 10_000)},
		"search": {zlimit.PerMinute("rpm", 10)},
		"budget": {zlimit.Monthly("tokens", 1000, "UTC")},
		"cards":  {zlimit.Prepaid("cards", 10)},
		"jobs":   {zlimit.Slots("workers", 2)},
	} {
		check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Resource: resource}, zlimit.Config{Limits: limits}))
	}
	return s
}

func (s *service) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// pass lets time pass.
func (s *service) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// A response is the answer to a request.
type response struct {
	*http.Response
	text []byte
}

// as reads the body into a value.
func as[T any](t testing.TB, r *response) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(r.text, &v); err != nil {
		t.Fatalf("the body %s is no %T: %v", r.text, v, err)
	}
	return v
}

// send sends a request to a handler, with fields as NAME: VALUE, and holds request and answer against the document: an answer is always of
// it, and so is a request that succeeds.
func send(t testing.TB, h http.Handler, method, path, key, body string, headers ...string) *response {
	t.Helper()
	request := func() *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, nil)
		if body != "" {
			r = httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Set(name, value)
		}
		return r
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request())
	got := &response{recorder.Result(), recorder.Body.Bytes()}
	agree(t, request(), body, got)
	return got
}

// ok sends a request that has to succeed.
func ok[T any](t testing.TB, h http.Handler, method, path, key, body string, headers ...string) T {
	t.Helper()
	r := send(t, h, method, path, key, body, headers...)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s %s %s = %d %s, want 200", method, path, body, r.StatusCode, r.text)
	}
	return as[T](t, r)
}

// fails sends a request that has to be refused, and returns the problem.
func fails(t testing.TB, h http.Handler, status int, code, method, path, key, body string, headers ...string) client.Problem {
	t.Helper()
	r := send(t, h, method, path, key, body, headers...)
	p := as[client.Problem](t, r)
	if r.StatusCode != status || p.Code != code || p.Status != status || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s %s = %d %s, want %d, %s", method, path, body, r.StatusCode, r.text, status, code)
	}
	return p
}

// left returns what is left of a limit.
func (s *service) left(t testing.TB, entity, resource, limit string) int64 {
	t.Helper()
	statuses, err := s.limiter.Available(context.WithoutCancel(t.Context()), zlimit.AvailableQuery{Entity: entity, Resource: resource})
	check.Fatal(t, "Available()", err)
	status, _ := statuses.Limit(limit)
	return status.Available
}
