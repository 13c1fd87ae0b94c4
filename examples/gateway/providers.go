package main

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/llm"
)

// A provider is where calls of models go, by the first segment of the gateway's paths.
type provider struct {
	name   string
	base   string
	header string // of the key
	key    string // of the organization
	// calls are the paths that are passed on; others are not there. Where a segment names a model, verbs are what may follow its name.
	calls []string
	polls []string // as calls, of GET: responses that are made in the background
	verbs []string
	// catalogs are the paths that list models, and offered the names in it. rules group the models that are limited
	// together; a model without a rule is refused.
	catalogs []string
	offered  []string
	rules    []llm.Rule
	// betas are the features that a request may turn on by the header Anthropic-Beta. Others are refused: they may make a
	// model work that is not counted.
	betas []string
}

// providers are those that are known. Their keys come from the environment.
func providers(env func(string) string) []provider {
	return []provider{
		{
			name: "openai", base: "https://api.openai.com", header: "Authorization", key: "Bearer " + env("OPENAI_API_KEY"),
			calls: []string{"/v1/chat/completions", "/v1/responses", "/v1/responses/{call}/cancel", "/v1/embeddings"},
			polls: []string{"/v1/responses/{call}"}, verbs: []string{""},
			catalogs: []string{"/v1/models"}, offered: []string{"gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-4.1", "gpt-4.1-mini", "o3", "o4-mini", "text-embedding-3-small"},
			rules: append(
				rules("openai-small", "gpt-*-mini*", "gpt-*-nano*", "gpt-3.5-*", "o*-mini*", "text-embedding-*"),
				rules("openai-large", "gpt-*", "chatgpt-*", "codex-*", "o1*", "o3*", "o4*")...),
		},
		{
			name: "anthropic", base: "https://api.anthropic.com", header: "X-Api-Key", key: env("ANTHROPIC_API_KEY"),
			calls:    []string{"/v1/messages", "/v1/messages/count_tokens"},
			catalogs: []string{"/v1/models"}, offered: []string{"claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"},
			rules: append(rules("claude-small", "claude-*haiku*"), rules("claude-large", "claude-*")...),
			betas: claudeBetas,
		},
		{
			name: "gemini", base: "https://generativelanguage.googleapis.com", header: "X-Goog-Api-Key", key: env("GEMINI_API_KEY"),
			calls: []string{"/v1beta/models/{call}", "/v1/models/{call}"}, verbs: []string{":generateContent", ":streamGenerateContent", ":countTokens", ":embedContent", ":batchEmbedContents"},
			catalogs: []string{"/v1beta/models", "/v1/models"}, offered: []string{"gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-embedding-001"},
			rules: append(rules("gemini-small", "gemini-*flash*", "gemini-embedding-*", "gemma-*"), rules("gemini-large", "gemini-*")...),
		},
		{ // by an API key of Amazon Bedrock, which its SDKs send as a bearer token
			name: "bedrock", base: "https://bedrock-runtime." + cmp.Or(env("AWS_REGION"), "us-east-1") + ".amazonaws.com", header: "Authorization", key: "Bearer " + env("AWS_BEARER_TOKEN_BEDROCK"),
			calls: []string{"/model/{call}/converse", "/model/{call}/converse-stream", "/model/{call}/invoke", "/model/{call}/invoke-with-response-stream"}, verbs: []string{"", ":0"},
			catalogs: []string{"/foundation-models"}, offered: []string{"us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "amazon.nova-lite-v1:0"},
			rules: append(rules("bedrock-small", "*claude-*haiku*", "*nova-lite*", "*nova-micro*"), rules("bedrock-large", "*claude-*", "*nova-*")...),
		},
	}
}

// claudeBetas are the features of Claude that pass: all of their tokens are in the answers, also of other models that a request names.
var claudeBetas = []string{
	"prompt-caching-2024-07-31", "extended-cache-ttl-2025-04-11", "token-counting-2024-11-01", "pdfs-2024-09-25", "output-128k-2025-02-19",
	"interleaved-thinking-2025-05-14", "thinking-token-count-2026-05-13", "context-1m-2025-08-07", "context-management-2025-06-27", "compact-2026-01-12",
	"token-efficient-tools-2025-02-19", "fine-grained-tool-streaming-2025-05-14", "structured-outputs-2025-11-13", "computer-use-2024-10-22",
	"computer-use-2025-01-24", "computer-use-2025-11-24", "advisor-tool-2026-03-01", "server-side-fallback-2026-06-01", "server-side-fallback-2026-07-01",
}

// rules returns rules that limit the models with these names together.
func rules(resource string, patterns ...string) (all []llm.Rule) {
	for _, p := range patterns {
		all = append(all, llm.Rule{Pattern: p, Resource: resource})
	}
	return all
}

// passes reports whether a request that the routes have let through is one to pass on.
func (p *provider) passes(r *http.Request) bool {
	call := r.PathValue("call")
	if call == "" {
		return true
	}
	model, _, _ := strings.Cut(call, ":")
	return model != "" && !strings.ContainsFunc(model, isOdd) && slices.Contains(p.verbs, strings.TrimPrefix(call, model))
}

// beta returns a feature that a request turns on and that does not pass; "" for none.
func (p *provider) beta(r *http.Request) string {
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Anthropic-Beta"), ","), ",") {
		if name = strings.TrimSpace(name); name != "" && p.betas != nil && !slices.Contains(p.betas, name) {
			return name
		}
	}
	return ""
}

// isOdd reports whether a letter is not of the names of models, such as a separator of paths.
func isOdd(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
}

// listing returns the models that a key may ask, in the form of the provider's own list.
func (p *provider) listing(k virtualKey) any {
	list := []map[string]string{}
	for _, id := range p.offered {
		if k.allows(id) { // OpenAI has objects, Anthropic types, Gemini names, Bedrock model IDs
			list = append(list, map[string]string{"id": id, "object": "model", "type": "model", "name": "models/" + id, "modelId": id})
		}
	}
	name := cmp.Or(map[string]string{"gemini": "models", "bedrock": "modelSummaries"}[p.name], "data")
	return map[string]any{"object": "list", name: list, "has_more": false}
}
