package otelzlimit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/otelzlimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newProvider returns a provider of metrics, and a scrape of them: the lines of series without buckets of histograms.
func newProvider(t testing.TB) (*metric.MeterProvider, func() []string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	e, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		t.Fatal(err)
	}
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return metric.NewMeterProvider(metric.WithReader(e)), func() (series []string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		for line := range strings.Lines(w.Body.String()) {
			if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") {
				series = append(series, scopeLabels.ReplaceAllString(strings.TrimSpace(line), ""))
			}
		}
		return series
	}
}

var scopeLabels = regexp.MustCompile(`otel_scope_\w+="[^"]*",?`)

func TestScrape(t *testing.T) {
	provider, scrape := newProvider(t)
	observe, err := otelzlimit.New(provider, otelzlimit.WithEntities("vip"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []zlimit.Event{
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "alice", Resource: "api", Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "rpm", Tokens: 1}, {Limit: "tpm", Tokens: 500}}, Duration: time.Second},
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "bob", Resource: "api", Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: 100}}, Duration: time.Second},
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "vip", Resource: "api", Result: zlimit.ResultRejected, Limit: "tpm", Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: 100}}, Duration: time.Second},
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "alice", Resource: "made-up", Result: zlimit.ResultNoLimits},
		{Kind: zlimit.EventSettle, Operation: "commit", Entity: "alice", Resource: "api", Result: zlimit.ResultOK, Duration: 2 * time.Second},
		{Kind: zlimit.EventStore, Operation: "write", Result: zlimit.ResultOK, WriteUnits: 1},
		{Kind: zlimit.EventStore, Operation: "read", Result: zlimit.ResultUnavailable, ReadUnits: 0.5},
		{Kind: zlimit.EventShards, Resource: "api", Shards: 1},
		{Kind: zlimit.EventConfig},
	} {
		observe(t.Context(), e)
	}
	got := scrape()
	want := []string{
		`zlimit_request_duration_seconds_count{zlimit_operation="acquire",zlimit_resource="api",zlimit_result="ok"} 2`,
		`zlimit_request_duration_seconds_count{zlimit_entity="vip",zlimit_operation="acquire",zlimit_resource="api",zlimit_result="rejected"} 1`,
		`zlimit_request_duration_seconds_count{zlimit_operation="acquire",zlimit_result="no_limits"} 1`,
		`zlimit_request_duration_seconds_count{zlimit_operation="commit",zlimit_resource="api",zlimit_result="ok"} 1`,
		`zlimit_request_duration_seconds_sum{zlimit_operation="commit",zlimit_resource="api",zlimit_result="ok"} 2`,
		`zlimit_requests_total{zlimit_resource="api",zlimit_result="ok"} 2`,
		`zlimit_requests_total{zlimit_entity="vip",zlimit_limit="tpm",zlimit_resource="api",zlimit_result="rejected"} 1`,
		`zlimit_requests_total{zlimit_result="no_limits"} 1`,
		`zlimit_shards{zlimit_resource="api"} 1`,
		`zlimit_store_operations_total{zlimit_store_operation="read",zlimit_store_outcome="unavailable"} 1`,
		`zlimit_store_operations_total{zlimit_store_operation="write",zlimit_store_outcome="ok"} 1`,
		`zlimit_store_units_total{zlimit_store_operation="read",zlimit_store_unit="read"} 0.5`,
		`zlimit_store_units_total{zlimit_store_operation="write",zlimit_store_unit="write"} 1`,
		`zlimit_tokens_total{zlimit_limit="rpm",zlimit_resource="api"} 1`,
		`zlimit_tokens_total{zlimit_limit="tpm",zlimit_resource="api"} 600`,
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("the scrape has no %s", line)
		}
	}
	if t.Failed() {
		t.Logf("the scrape is\n%s", strings.Join(got, "\n"))
	}
}

// TestSeriesDoNotGrowWithEntities reports a million requests of as many entities.
func TestSeriesDoNotGrowWithEntities(t *testing.T) {
	provider, scrape := newProvider(t)
	observe, err := otelzlimit.New(provider)
	if err != nil {
		t.Fatal(err)
	}
	requests := 1_000_000
	if testing.Short() {
		requests = 10_000
	}
	series := 0
	for i := range requests {
		observe(t.Context(), zlimit.Event{
			Kind: zlimit.EventDecision, Operation: "acquire", Entity: "e" + strconv.Itoa(i), Resource: "api",
			Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "rpm", Tokens: 1}}, Duration: time.Millisecond,
		})
		if i == 0 {
			series = len(scrape())
		}
	}
	if got := len(scrape()); got != series || got == 0 {
		t.Errorf("%d series after %d entities, %d after one", got, requests, series)
	}
}

func TestUsage(t *testing.T) {
	provider, scrape := newProvider(t)
	observe, err := otelzlimit.Usage(provider)
	if err != nil {
		t.Fatal(err)
	}
	observe(t.Context(), llm.Report{
		Call: llm.Call{API: llm.AnthropicMessages, Model: "claude-sonnet-4-5-20250929"}, Entity: "alice", Resource: "claude-sonnet",
		Usage: llm.Usage{Input: 480, CacheRead: 1000, CacheWrite: 200, Output: 120, Complete: true},
	})
	observe(t.Context(), llm.Report{Call: llm.Call{API: llm.OpenAIChat}, Resource: "gpt-4o", Usage: llm.Usage{Output: 99}})
	want := []string{
		`gen_ai_client_token_usage_sum{gen_ai_operation_name="chat",gen_ai_provider_name="anthropic",gen_ai_request_model="claude-sonnet",gen_ai_token_type="input"} 1680`,
		`gen_ai_client_token_usage_sum{gen_ai_operation_name="chat",gen_ai_provider_name="anthropic",gen_ai_request_model="claude-sonnet",gen_ai_token_type="output"} 120`,
	}
	got := scrape()
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("the scrape has no %s:\n%s", line, strings.Join(got, "\n"))
		}
	}
	if len(got) != 4 {
		t.Errorf("%d series, want 4: an estimate is not reported", len(got))
	}
}

func TestWrongUse(t *testing.T) {
	provider, _ := newProvider(t)
	if _, err := otelzlimit.New(nil); err == nil {
		t.Error("New(nil) = nil")
	}
	if _, err := otelzlimit.New(provider, nil); err == nil {
		t.Error("New() with a nil option = nil")
	}
	if _, err := otelzlimit.Usage(nil); err == nil {
		t.Error("Usage(nil) = nil")
	}
}

// TestDashboardAndAlerts reads which metrics the dashboard and the alerts ask for: each is one that is scraped.
func TestDashboardAndAlerts(t *testing.T) {
	provider, scrape := newProvider(t)
	observe, err := otelzlimit.New(provider)
	if err != nil {
		t.Fatal(err)
	}
	usage, err := otelzlimit.Usage(provider)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []zlimit.EventKind{zlimit.EventDecision, zlimit.EventSettle, zlimit.EventStore, zlimit.EventShards} {
		observe(t.Context(), zlimit.Event{Kind: kind, Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "rpm", Tokens: 1}}, WriteUnits: 1, Shards: 1})
	}
	usage(t.Context(), llm.Report{Usage: llm.Usage{Complete: true}})
	known := map[string]bool{}
	for _, line := range scrape() {
		name, _, _ := strings.Cut(line, "{")
		known[name] = true
		if base, ok := strings.CutSuffix(name, "_count"); ok {
			known[base+"_bucket"] = true
		}
	}
	metrics := regexp.MustCompile(`\b(zlimit|gen_ai)_\w+(_total|_bucket|_sum|_count|_shards)\b`)
	for _, name := range []string{"dashboard.json", "alerts.yaml"} {
		text, err := os.ReadFile("../docs/telemetry/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON", name)
		}
		asked := metrics.FindAllString(string(text), -1)
		if len(asked) < 3 {
			t.Errorf("%s asks for %v only", name, asked)
		}
		for _, metric := range asked {
			if !known[metric] {
				t.Errorf("%s asks for %s, which is not reported", name, metric)
			}
		}
	}
}
