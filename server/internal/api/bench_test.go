package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// BenchmarkAddedLatency compares a call of the server on the loopback with one of package zlimit, on a store in memory: a thousand calls of
// each a second, in turn, from one caller. It reports the times of both, their ratios, and what the server adds.
func BenchmarkAddedLatency(b *testing.B) {
	limiter := check.Call(zlimit.Open(b.Context(), "memory:")).Must(b, "zlimit.Open()")
	defer limiter.Close()
	check.Fatal(b, "Limits.Set()", limiter.Limits.Set(b.Context(), zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rps", 1_000_000_000)}}))
	callers := testCallers(b)
	signer := check.Call(leasetoken.NewSigner(leasetoken.Key{ID: "k1", Secret: bytes.Repeat([]byte{1}, leasetoken.MinSecret)})).Must(b, "leasetoken.NewSigner()")
	server := httptest.NewServer(New(Options{Limiter: limiter, Callers: func() *auth.Callers { return callers }, Tokens: signer, Events: NewEvents()}))
	defer server.Close()
	body, _ := json.Marshal(map[string]any{"entity": "alice", "resource": "gpt-4", "consume": map[string]int{"rps": 1}, "lease": "10m"})
	direct := func() error {
		_, err := limiter.Acquire(b.Context(), zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rps": 1}})
		return err
	}
	served := func() error {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+"/v1/acquire", bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+keyOfGateway)
		r.Header.Set("Content-Type", "application/json")
		answer, err := server.Client().Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			b.Fatalf("the status is %d", answer.StatusCode)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	calls := []func() error{direct, served}
	times := make([][]time.Duration, len(calls))
	next := time.Now()
	for b.Loop() {
		for i, call := range calls {
			time.Sleep(time.Until(next))
			began := time.Now()
			check.Fatal(b, "call()", call())
			times[i] = append(times[i], time.Since(began))
		}
		next = next.Add(time.Millisecond)
	}
	at := func(i, percent int) float64 {
		slices.Sort(times[i])
		return float64(times[i][len(times[i])*percent/100]) / float64(time.Millisecond)
	}
	for _, percent := range []int{50, 99} {
		name := map[int]string{50: "p50", 99: "p99"}[percent]
		b.ReportMetric(at(0, percent), name+"-direct-ms")
		b.ReportMetric(at(1, percent), name+"-served-ms")
		b.ReportMetric(at(1, percent)-at(0, percent), name+"-added-ms")
	}
	b.ReportMetric(0, "ns/op")
}
