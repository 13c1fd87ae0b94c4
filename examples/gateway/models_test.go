package main

import (
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/llm"
)

// TestOtherModelsAndFeatures asks for models beside the first one, and for features of Anthropic that are not listed, by a
// key that is bound to small models.
func TestOtherModelsAndFeatures(t *testing.T) {
	const small = `{"model":"claude-haiku-4-5","max_tokens":9,"stream":true`
	var w *testbed
	for i, test := range []struct {
		name, beta, body string
		status           int
	}{
		{"a small model", "", small + `}`, 200},
		{"a listed feature", "interleaved-thinking-2025-05-14, compact-2026-01-12", small + `}`, 200},
		{"a compaction", "compact-2026-01-12", small + `,"context_management":{"edits":[{"type":"compact_20260112"}]}}`, 200},
		{"a feature that is not listed", "pdfs-2024-09-25,inline-tools-2026-09-15", small + `}`, 403},
		{"a large model", "", `{"model":"claude-opus-4-5","max_tokens":9}`, 403},
		{"a large advisor", "advisor-tool-2026-03-01", small + `,"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-opus-4-5"}]}`, 403},
		{"a small advisor", "advisor-tool-2026-03-01", small + `,"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-haiku-4-5"}]}`, 200},
		{"a large model that stands in", "server-side-fallback-2026-07-01", small + `,"fallbacks":[{"model":"claude-opus-4-5"}]}`, 403},
		{"a large model as the only fallback", "", small + `,"fallback":"claude-opus-4-5"}`, 403},
		{"a large model of a list by name", "", small + `,"models":{"first":"claude-haiku-4-5","second":"claude-opus-4-5"}}`, 403},
		{"a large model as an object", "", small + `,"agent":{"model":{"name":"claude-opus-4-5"}}}`, 403},
		{"a large model as an engine", "", small + `,"engine":"claude-opus-4-5"}`, 403},
		{"a large model of the application's own", "", small + `,"metadata":{"model":"claude-opus-4-5"}}`, 200},
		{"a large model of a future member", "", small + `,"critic":{"judgeModel":"claude-opus-4-5"}}`, 403},
	} {
		if i%8 == 0 { // the key has ten requests a minute
			w = newTestbed(t, "memory:")
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/anthropic/v1/messages?beta=true", strings.NewReader(test.body))
		if err != nil {
			t.Fatalf("http.NewRequestWithContext() = %v", err)
		}
		r.Header.Set("X-Api-Key", "batch-key")
		if test.beta != "" {
			r.Header.Set("Anthropic-Beta", test.beta)
		}
		asked := len(w.paths)
		response, err := w.client.Do(r)
		if err != nil {
			t.Fatalf("Do() = %v", err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != test.status || (len(w.paths) > asked) != (test.status == 200) {
			t.Errorf("%s: %d %s, and %d requests upstream, want %d", test.name, response.StatusCode, body, len(w.paths)-asked, test.status)
		}
	}
}

// TestFeaturesOfBodies turns beta features on in bodies, as Bedrock has them. Those that the gateway lists pass.
func TestFeaturesOfBodies(t *testing.T) {
	w := newTestbed(t, "memory:")
	for body, status := range map[string]int{
		`{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[]}`:                                                                          200,
		`{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[],"anthropic_beta":["interleaved-thinking-2025-05-14"]}`:                     200,
		`{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[],"anthropic_beta":["interleaved-thinking-2025-05-14","inline-tools-2026"]}`: 403,
		`{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[],"anthropic_beta":"inline-tools-2026"}`:                                     403,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/bedrock/model/us.anthropic.claude-haiku-4-5-20251001-v1:0/invoke", strings.NewReader(body))
		if err != nil {
			t.Fatalf("http.NewRequestWithContext() = %v", err)
		}
		r.Header.Set("Authorization", "Bearer batch-key")
		asked := len(w.paths)
		response, err := w.client.Do(r)
		if err != nil {
			t.Fatalf("Do() = %v", err)
		}
		answer, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != status || (len(w.paths) > asked) != (status == 200) {
			t.Errorf("%s: %d %s, and %d requests upstream, want %d", body, response.StatusCode, answer, len(w.paths)-asked, status)
		}
	}
}

// TestModelsAreSorted holds the rules against names that providers have: each is limited with models of its size.
func TestModelsAreSorted(t *testing.T) {
	for provider, names := range map[string]map[string]string{
		"openai": {
			"small": "gpt-4o-mini gpt-4o-mini-2024-07-18 gpt-4.1-mini gpt-4.1-nano gpt-5-mini gpt-5-nano gpt-5-nano-2025-08-07 o1-mini o3-mini o4-mini o4-mini-2025-04-16 gpt-3.5-turbo text-embedding-3-small text-embedding-3-large text-embedding-ada-002 gpt-4o-mini-audio-preview",
			"large": "gpt-4 gpt-4-turbo gpt-4o gpt-4o-2024-08-06 gpt-4.1 gpt-5 gpt-5-pro gpt-5-chat-latest gpt-5.1 gpt-5-codex chatgpt-4o-latest o1 o1-pro o3 o3-pro o3-deep-research codex-latest",
		},
		"anthropic": {
			"small": "claude-3-haiku-20240307 claude-3-5-haiku-latest claude-haiku-4-5 claude-haiku-4-5-20251001",
			"large": "claude-3-opus-20240229 claude-3-7-sonnet-latest claude-sonnet-4-0 claude-sonnet-4-5-20250929 claude-opus-4-1 claude-opus-4-5",
		},
		"gemini": {
			"small": "gemini-1.5-flash gemini-2.0-flash gemini-2.0-flash-lite gemini-2.5-flash gemini-2.5-flash-lite gemini-2.5-flash-preview-09-2025 gemini-embedding-001 gemma-3-27b-it",
			"large": "gemini-1.5-pro gemini-2.5-pro gemini-2.5-pro-preview-06-05 gemini-3-pro-preview",
		},
		"bedrock": {
			"small": "anthropic.claude-3-haiku-20240307-v1:0 us.anthropic.claude-haiku-4-5-20251001-v1:0 amazon.nova-lite-v1:0 eu.amazon.nova-micro-v1:0",
			"large": "eu.anthropic.claude-sonnet-4-20250514-v1:0 global.anthropic.claude-opus-4-5-20251101-v1:0 amazon.nova-pro-v1:0",
		},
	} {
		for _, p := range providers(func(string) string { return "" }) {
			for size, list := range names {
				for _, model := range strings.Fields(list) {
					if got := resourceOf(p.rules, model); p.name == provider && !strings.HasSuffix(got, "-"+size) {
						t.Errorf("%s is limited as %q, want one of the %s ones", model, got, size)
					}
				}
			}
		}
	}
	for _, p := range providers(func(string) string { return "" }) {
		for _, model := range p.offered {
			if resourceOf(p.rules, model) == "" {
				t.Errorf("%s is offered, and no rule is for it", model)
			}
		}
	}
}

// resourceOf returns what the first rule for a model says.
func resourceOf(rules []llm.Rule, model string) string {
	for _, r := range rules {
		if ok, _ := path.Match(r.Pattern, model); ok {
			return r.Resource
		}
	}
	return ""
}

// TestModels lists models in the form of each provider: those that the key may ask.
func TestModels(t *testing.T) {
	w := newTestbed(t, "memory:")
	for path, want := range map[string]string{
		"/openai/v1/models":          `"id":"gpt-5-mini"`,
		"/anthropic/v1/models":       `{"data":[{"id":"claude-haiku-4-5",`,
		"/gemini/v1beta/models":      `"name":"models/gemini-2.5-flash"`,
		"/gemini/v1/models":          `"name":"models/gemini-2.5-flash"`,
		"/bedrock/foundation-models": `"modelId":"us.anthropic.claude-haiku-4-5-20251001-v1:0"`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+path, http.NoBody)
		if err != nil {
			t.Fatalf("http.NewRequestWithContext() = %v", err)
		}
		r.Header.Set("Authorization", "Bearer batch-key")
		response, err := w.client.Do(r)
		if err != nil {
			t.Fatalf("Do() = %v", err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) || strings.Contains(string(body), "opus") {
			t.Errorf("GET %s = %d %s, want %s", path, response.StatusCode, body, want)
		}
	}
}
