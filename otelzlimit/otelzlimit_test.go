package otelzlimit_test

import (
	"encoding/json"
	"errors"
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

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/otelzlimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newProvider returns a provider of metrics, and a scrape of them: the lines of series without buckets of histograms.
func newProvider(t testing.TB) (*metric.MeterProvider, func() []string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	e, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	check.Fatal(t, "exporter.New()", err)
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
	observe := check.Call(otelzlimit.New(provider, otelzlimit.WithEntities("vip"))).Must(t, "otelzlimit.New()")
	for _, e := range []zlimit.Event{
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "alice", Resource: "api", Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "rpm", Tokens: 1}, {Limit: "tpm", Tokens: 500}}, Duration: time.Second},
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "bob", Resource: "api", Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: 100}}, Duration: time.Second},
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "vip", Resource: "api", Result: zlimit.ResultRejected, Limit: "tpm", Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: 100}}, Duration: time.Second},
		{Kind: zlimit.EventDecision, Operation: "acquire", Entity: "alice", Resource: "made-up", Result: zlimit.ResultNoLimits},
		{Kind: zlimit.EventSettle, Operation: "commit", Entity: "alice", Resource: "api", Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: 90}, {Limit: "rpm"}}, Duration: 2 * time.Second},
		{Kind: zlimit.EventSettle, Operation: "rollback", Entity: "bob", Resource: "api", Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: -100}}},
		{Kind: zlimit.EventSettle, Operation: "commit", Entity: "bob", Resource: "api", Result: zlimit.ResultUnavailable, Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: -7}}},
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
		`zlimit_requests_total{zlimit_entity="vip",zlimit_limit="tpm",zlimit_limit_level="entity",zlimit_resource="api",zlimit_result="rejected"} 1`,
		`zlimit_requests_total{zlimit_result="no_limits"} 1`,
		`zlimit_shards{zlimit_resource="api"} 1`,
		`zlimit_store_operations_total{zlimit_store_operation="read",zlimit_store_outcome="unavailable"} 1`,
		`zlimit_store_operations_total{zlimit_store_operation="write",zlimit_store_outcome="ok"} 1`,
		`zlimit_store_units_total{zlimit_store_operation="read",zlimit_store_unit="read"} 0.5`,
		`zlimit_store_units_total{zlimit_store_operation="write",zlimit_store_unit="write"} 1`,
		`zlimit_tokens_total{zlimit_limit="rpm",zlimit_resource="api"} 1`,
		`zlimit_tokens_total{zlimit_limit="tpm",zlimit_resource="api"} 690`,
		`zlimit_tokens_returned_total{zlimit_limit="tpm",zlimit_resource="api"} 100`,
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

// TestSlotsAndWaits holds slots, gives them back and loses some, by a limiter, and waits for tokens. Slots are no tokens.
func TestSlotsAndWaits(t *testing.T) {
	provider, scrape := newProvider(t)
	observe := check.Call(otelzlimit.New(provider)).Must(t, "otelzlimit.New()")
	now := time.Now()
	observed, err := zlimit.Open(t.Context(), "memory:", zlimit.WithObserver(observe), zlimit.WithClock(func() time.Time { return now }),
		zlimit.WithDefaultLimits(zlimit.Slots("calls", 3), zlimit.PerSecond("rps", 1, zlimit.Burst(1))))
	check.Fatal(t, "zlimit.Open()", err)
	request := func(consume zlimit.Amounts) zlimit.Request {
		return zlimit.Request{Entity: "alice", Resource: "api", Consume: consume}
	}
	var leases []*zlimit.Lease
	for _, consume := range []zlimit.Amounts{{"calls": 1, "rps": 1}, {"calls": 1}, {"calls": 1}} {
		lease := check.Call(observed.Acquire(t.Context(), request(consume))).Must(t, "Acquire()")
		leases = append(leases, lease)
	}
	check.Fatal(t, "Rollback() and Commit()", errors.Join(leases[0].Rollback(t.Context()), leases[1].Commit(t.Context())))
	for range 3 {
		if _, err := observed.Reserve(t.Context(), request(zlimit.Amounts{"rps": 1}), zlimit.MaxWait(1500*time.Millisecond)); err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
			t.Fatalf("Reserve() = %v", err)
		}
	}
	verify := func(want ...string) {
		t.Helper()
		got := scrape()
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("the scrape has no %s", line)
			}
		}
		for _, line := range got {
			if strings.HasPrefix(line, "zlimit_tokens") && strings.Contains(line, `zlimit_limit="calls"`) {
				t.Errorf("slots are counted as tokens: %s", line)
			}
		}
		if t.Failed() {
			t.Logf("the scrape is\n%s", strings.Join(got, "\n"))
		}
	}
	verify(
		`zlimit_slots{zlimit_limit="calls",zlimit_resource="api"} 1`,
		`zlimit_request_wait_seconds_count{zlimit_resource="api",zlimit_result="ok"} 2`,
		`zlimit_request_wait_seconds_count{zlimit_resource="api",zlimit_result="rejected"} 1`,
		`zlimit_request_wait_seconds_sum{zlimit_resource="api",zlimit_result="rejected"} 1`,
		`zlimit_tokens_total{zlimit_limit="rps",zlimit_resource="api"} 3`,
		`zlimit_tokens_returned_total{zlimit_limit="rps",zlimit_resource="api"} 1`,
	)
	sum := `zlimit_request_wait_seconds_sum{zlimit_resource="api",zlimit_result="ok"} `
	for _, line := range scrape() {
		if waited, ok := strings.CutPrefix(line, sum); ok {
			if seconds, err := strconv.ParseFloat(waited, 64); err != nil || seconds < 0.9 || seconds > 1 {
				t.Errorf("the requests that waited did so for %s seconds, want one", waited)
			}
		}
	}
	check.Fatal(t, "Close()", observed.Close())
	verify(
		`zlimit_slots{zlimit_limit="calls",zlimit_resource="api"} 0`,
		`zlimit_slots_lost_total{zlimit_limit="calls",zlimit_resource="api"} 1`,
	)
}

// TestSeriesDoNotGrowWithEntities reports a million requests of as many entities.
func TestSeriesDoNotGrowWithEntities(t *testing.T) {
	provider, scrape := newProvider(t)
	observe := check.Call(otelzlimit.New(provider)).Must(t, "otelzlimit.New()")
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

// TestUsage reports calls that were answered, cut off, refused by the provider and not answered.
func TestUsage(t *testing.T) {
	provider, scrape := newProvider(t)
	observe := check.Call(otelzlimit.Usage(provider)).Must(t, "otelzlimit.Usage()")
	for _, r := range []llm.Report{
		{
			Call: llm.Call{API: llm.APIAnthropicMessages, Model: "claude-x", Stream: true}, Entity: "alice", Resource: "claude", Status: 200, Host: "api.anthropic.com:443",
			Duration: 3 * time.Second, FirstByte: time.Second, Usage: llm.Usage{Model: "claude-x-1", Input: 480, CacheRead: 1000, CacheWrite: 200, Output: 120, Reasoning: 20, Complete: true},
		},
		{
			Call: llm.Call{API: llm.APIOpenAIChat, Model: "gpt"}, Resource: "gpt", Status: 200, Host: "own.openai.azure.com",
			Usage: llm.Usage{Model: "gpt", Input: 10, AudioInput: 4, Output: 9, AudioOutput: 2, Complete: true},
		},
		{Call: llm.Call{API: llm.APIOpenAIChat, Model: "gpt"}, Resource: "gpt", Status: 200, Host: "localhost", Usage: llm.Usage{Model: "gpt", Output: 99, Mismatch: -7}},
		{Call: llm.Call{API: llm.APIGeminiContent, Model: "made up"}, Resource: "gemini", Status: 404, Host: "generativelanguage.googleapis.com", Usage: llm.Usage{Model: "made up"}},
		{Call: llm.Call{API: llm.APIBedrockConverse, Model: "m"}, Resource: "m", Host: "bedrock-runtime.eu-west-1.amazonaws.com"},
	} {
		observe(t.Context(), r)
	}
	claude := `gen_ai_operation_name="chat",gen_ai_provider_name="anthropic",gen_ai_request_model="claude-x",gen_ai_response_model="claude-x-1"`
	claudeEnd := `server_address="api.anthropic.com",zlimit_resource="claude"`
	azure := `gen_ai_operation_name="chat",gen_ai_provider_name="azure.ai.openai",gen_ai_request_model="gpt",gen_ai_response_model="gpt",gen_ai_token_modality=`
	azureEnd := `,server_address="own.openai.azure.com",zlimit_resource="gpt"} `
	own := `gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt",gen_ai_response_model="gpt",`
	for _, line := range []string{
		`gen_ai_client_inference_usage_input_tokens_total{` + claude + `,gen_ai_token_modality="unknown",` + claudeEnd + `} 1680`,
		`gen_ai_client_inference_usage_output_tokens_total{` + claude + `,gen_ai_token_modality="unknown",` + claudeEnd + `} 120`,
		`gen_ai_client_inference_usage_cache_read_input_tokens_total{` + claude + `,gen_ai_token_modality="unknown",` + claudeEnd + `} 1000`,
		`gen_ai_client_inference_usage_cache_write_input_tokens_total{` + claude + `,gen_ai_token_modality="unknown",` + claudeEnd + `} 200`,
		`gen_ai_client_inference_usage_reasoning_output_tokens_total{` + claude + `,gen_ai_token_modality="unknown",` + claudeEnd + `} 20`,
		`gen_ai_client_inference_duration_seconds_sum{` + claude + `,` + claudeEnd + `} 3`,
		`gen_ai_client_inference_time_to_first_chunk_seconds_sum{` + claude + `,` + claudeEnd + `} 1`,
		`gen_ai_client_inference_usage_input_tokens_total{` + azure + `"audio"` + azureEnd + `4`,
		`gen_ai_client_inference_usage_input_tokens_total{` + azure + `"unknown"` + azureEnd + `6`,
		`gen_ai_client_inference_usage_output_tokens_total{` + azure + `"audio"` + azureEnd + `2`,
		`gen_ai_client_inference_usage_output_tokens_total{` + azure + `"unknown"` + azureEnd + `7`,
		`gen_ai_client_inference_usage_output_tokens_total{` + own + `gen_ai_token_modality="unknown",server_address="localhost",zlimit_resource="gpt"} 0`,
		`zlimit_model_calls_total{` + claude + `,server_address="api.anthropic.com",zlimit_model_usage="reported",zlimit_resource="claude"} 1`,
		`zlimit_model_calls_total{` + own + `server_address="localhost",zlimit_model_usage="estimated",zlimit_resource="gpt"} 1`,
		`zlimit_model_mismatch_total{` + own + `server_address="localhost",zlimit_resource="gpt"} 7`,
		`zlimit_model_calls_total{error_type="404",gen_ai_operation_name="generate_content",gen_ai_provider_name="gcp.gemini",zlimit_model_usage="none",zlimit_resource="gemini"} 1`,
		`zlimit_model_calls_total{error_type="no_answer",gen_ai_operation_name="chat",gen_ai_provider_name="aws.bedrock",zlimit_model_usage="none",zlimit_resource="m"} 1`,
	} {
		if !slices.Contains(scrape(), line) {
			t.Errorf("the scrape has no %s", line)
		}
	}
	if t.Failed() {
		t.Logf("the scrape is\n%s", strings.Join(scrape(), "\n"))
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
	observe := check.Call(otelzlimit.New(provider)).Must(t, "otelzlimit.New()")
	usage := check.Call(otelzlimit.Usage(provider)).Must(t, "otelzlimit.Usage()")
	for _, kind := range []zlimit.EventKind{zlimit.EventDecision, zlimit.EventSettle, zlimit.EventStore, zlimit.EventShards} {
		observe(t.Context(), zlimit.Event{Kind: kind, Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "rpm", Tokens: 1}}, WriteUnits: 1, Shards: 1})
	}
	observe(t.Context(), zlimit.Event{Kind: zlimit.EventSettle, Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "rpm", Tokens: -1}}})
	observe(t.Context(), zlimit.Event{Kind: zlimit.EventSlots, Operation: zlimit.OpTakeSlots, Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{Limit: "slots", Tokens: 1}}})
	usage(t.Context(), llm.Report{Status: 200, FirstByte: 1, Call: llm.Call{Stream: true}, Usage: llm.Usage{Complete: true}})
	known := map[string]bool{}
	for _, line := range scrape() {
		name, _, _ := strings.Cut(line, "{")
		known[name] = true
		if base, ok := strings.CutSuffix(name, "_count"); ok {
			known[base+"_bucket"] = true
		}
	}
	metrics := regexp.MustCompile(`\b(zlimit|gen_ai)_\w+(_total|_bucket|_sum|_count|_shards|_slots)\b`)
	for _, name := range []string{"dashboard.json", "alerts.yaml"} {
		text := check.Call(os.ReadFile("../docs/telemetry/"+name)).Must(t, "os.ReadFile()")
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
