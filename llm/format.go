package llm

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
)

// A Format recognises the calls of an API, and names the places of the counts in their answers. A place is the names of
// members, joined by dots; arrays do not appear in it. [WithFormats] adds formats to those of [Formats].
//
// All formats read the same parts of a request: the model, whether to stream, texts, pictures and files. They read the
// bound of the answer under the names of the known APIs.
type Format struct {
	// API names the format in reports.
	API API `json:"api,omitempty"`
	// Paths are the ends of the paths of calls, such as "/v2/chat" or "/models/{model}:predict". {model} stands for the
	// model, and * for one segment; a path has each of them at most once. The body names the model where the path does
	// not.
	Paths []string `json:"paths,omitempty"`
	// Streams are those whose answers always come in pieces.
	Streams []string `json:"streams,omitempty"`
	// Free says that requests to Paths take no tokens. They are sent as they are, unread and uncounted.
	Free bool `json:"free,omitempty"`
	// DefaultModel is the model of requests that name none; "" to refuse them.
	DefaultModel string `json:"default_model,omitempty"`
	// InputOnly says that answers have no tokens, such as vectors: none are estimated, and usage is complete without.
	InputOnly bool `json:"input_only,omitempty"`
	// Usage are the counts of an answer. Each may come more than once, and the last one counts.
	Usage map[string]Count `json:"usage,omitempty"`
	// InputHasCache says that the count of Input includes those of CacheRead and CacheWrite.
	InputHasCache bool `json:"input_has_cache,omitempty"`
	// ReasoningApart says that Output does not include Reasoning.
	ReasoningApart bool `json:"reasoning_apart,omitempty"`
	// Text are strings that the model writes, whose length counts where no usage comes. A place that ends in ".*" stands
	// for everything below it.
	Text []string `json:"text,omitempty"`
	// Model names the model that answered.
	Model []string `json:"model,omitempty"`
	// Service names the class of service that was used.
	Service []string `json:"service,omitempty"`
	// Finish is there, and not null, once the model has ended. The usage may come later.
	Finish []string `json:"finish,omitempty"`

	delay map[string]bool // how long an error asks to wait, where no header says it

	// The name of a response that may be made in the background, and how far the provider is; nil where none is.
	id, stage map[string]bool
}

// A Count is a number of tokens that providers report.
type Count uint8

// The counts of answers.
const (
	CountInput Count = iota
	CountCacheRead
	CountCacheWrite
	CountOutput
	CountReasoning
	CountToolInput      // what tools of the provider add to the prompt
	CountCacheWriteHour // the part of CountCacheWrite that is kept for an hour
	CountAudioInput     // the part of CountInput that is sound
	CountAudioOutput    // the part of CountOutput that is sound
	CountSearches       // searches of the web that a tool of the provider made
	countEnd
)

// A format is a Format that can be looked up.
type format struct {
	Format
	text, model, service, finish map[string]bool
	below                        []string // all values below are text, with a dot at the end
}

func (f *Format) compile() *format {
	c := &format{Format: *f, text: map[string]bool{}, model: set(f.Model...), service: set(f.Service...), finish: set(f.Finish...)}
	for _, place := range f.Text {
		if above, ok := strings.CutSuffix(place, "*"); ok {
			c.below = append(c.below, above)
		} else {
			c.text[place] = true
		}
	}
	return c
}

// validate checks a format, the i-th that is given.
func (f *Format) validate(i int) error {
	field := fmt.Sprintf("format %d", i+1)
	switch {
	case f.API == "":
		return invalid(field+": API", "", "must not be empty")
	case len(f.Paths)+len(f.Streams) == 0:
		return invalid(field+": Paths", "", "must not be empty")
	}
	for _, path := range append(append([]string{}, f.Paths...), f.Streams...) {
		if !strings.HasPrefix(path, "/") || len(path) == 1 || strings.HasSuffix(path, "/") {
			return invalid(field+": path", path, "must begin with a slash and not end with one")
		}
		if strings.Count(path, wildModel)+strings.Count(path, wildSegment) > 1 {
			return invalid(field+": path", path, "must have one {model} or * at most")
		}
	}
	for place, count := range f.Usage {
		if count >= countEnd {
			return invalid(field+": usage["+place+"]", fmt.Sprint(uint8(count)), "must be a Count of this package")
		}
	}
	return nil
}

// Formats returns the built-in formats, in the order of their matching. The caller may change them.
func Formats() []Format {
	chat := map[string]Count{
		"usage.prompt_tokens":                              CountInput,
		"usage.prompt_tokens_details.cached_tokens":        CountCacheRead,
		"usage.prompt_tokens_details.cache_write_tokens":   CountCacheWrite,
		"usage.completion_tokens":                          CountOutput,
		"usage.completion_tokens_details.reasoning_tokens": CountReasoning,
		"usage.prompt_tokens_details.audio_tokens":         CountAudioInput,
		"usage.completion_tokens_details.audio_tokens":     CountAudioOutput,
	}
	chatText := below([]string{"choices.delta.", "choices.message."}, "content", "refusal", "reasoning", "reasoning_content",
		"function_call.arguments", "tool_calls.function.arguments", "tool_calls.custom.input")
	messages := map[string]Count{
		"usage.input_tokens":                             CountInput,
		"usage.cache_read_input_tokens":                  CountCacheRead,
		"usage.cache_creation_input_tokens":              CountCacheWrite,
		"usage.output_tokens":                            CountOutput,
		"usage.cache_creation.ephemeral_1h_input_tokens": CountCacheWriteHour,
		"usage.server_tool_use.web_search_requests":      CountSearches,
	}
	messagesText := []string{"delta.text", "delta.partial_json", "delta.thinking", "content.text", "content.thinking"}
	// Models of several protocols are behind the same paths of clouds.
	raw := both("message.", messages)
	maps.Copy(raw, map[string]Count{
		"usage.prompt_tokens": CountInput, "usage.completion_tokens": CountOutput,
		"amazon-bedrock-invocationMetrics.inputTokenCount":           CountInput,
		"amazon-bedrock-invocationMetrics.cacheReadInputTokenCount":  CountCacheRead,
		"amazon-bedrock-invocationMetrics.cacheWriteInputTokenCount": CountCacheWrite,
		"amazon-bedrock-invocationMetrics.outputTokenCount":          CountOutput,
		"usage.inputTokens": CountInput, "usage.cacheReadInputTokenCount": CountCacheRead,
		"usage.cacheWriteInputTokenCount": CountCacheWrite, "usage.outputTokens": CountOutput,
		"prompt_token_count": CountInput, "generation_token_count": CountOutput, // of Llama
		"inputTextTokenCount": CountInput, "results.tokenCount": CountOutput, "totalOutputTextTokenCount": CountOutput, // of Titan
	})
	rawText := append(append([]string{"generation", "outputText", "results.outputText", "outputs.text", "contentBlockDelta.delta.text"}, chatText...), messagesText...)
	rawService := []string{"usage.service_tier", "message.usage.service_tier"}
	rawFinish := []string{"stop_reason", "delta.stop_reason", "choices.finish_reason", "completionReason", "results.completionReason", "messageStop.stopReason"}
	deployments := func(paths ...string) []string {
		return append(below([]string{"/deployments/{model}"}, paths...), paths...) // of Azure, with any body
	}
	return []Format{
		{API: "free", Free: true, Paths: []string{
			"/messages/count_tokens", "/models/{model}:countTokens", "/models/{model}:computeTokens", "/endpoints/{model}:countTokens", "/model/{model}/count-tokens",
			"/models/count-tokens:rawPredict", // of Anthropic's SDK for Vertex AI
			"/responses/input_tokens", "/responses/*/cancel", "/chat/completions/*", "/interactions/*/cancel", "/moderations",
			"/files", "/uploads", "/uploads/*/parts", "/uploads/*/complete", "/uploads/*/cancel",
			"/batches/*/cancel", "/threads", "/threads/*/messages",
		}},
		{ // the usage is in the body, or in a last chunk of a stream that was asked for it
			API: APIOpenAIChat, Paths: deployments("/chat/completions"),
			Usage: both("x_groq.", chat), InputHasCache: true, Text: chatText, Model: []string{"model"}, Service: []string{"service_tier"}, Finish: []string{"choices.finish_reason"},
		},
		{API: APIOpenAICompletions, Paths: deployments("/completions"), Usage: chat, InputHasCache: true, Text: []string{"choices.text"}, Model: []string{"model"}, Finish: []string{"choices.finish_reason"}},
		{ // the usage is in the body, or in the event that ends a stream: completed, incomplete or failed
			API: APIOpenAIResponses, Paths: []string{"/responses", "/responses/compact"},
			Usage: both("response.", map[string]Count{
				"usage.input_tokens":                            CountInput,
				"usage.input_tokens_details.cached_tokens":      CountCacheRead,
				"usage.input_tokens_details.cache_write_tokens": CountCacheWrite,
				"usage.output_tokens":                           CountOutput,
				"usage.output_tokens_details.reasoning_tokens":  CountReasoning,
			}),
			InputHasCache: true, Text: []string{"delta", "output.content.text", "output.arguments"},
			Model: []string{"model", "response.model"}, Service: []string{"service_tier", "response.service_tier"}, Finish: []string{"usage.output_tokens", "response.usage.output_tokens"},
			id: set("id", "response.id"), stage: set("status", "response.status"),
		},
		{API: APIOpenAIEmbeddings, Paths: deployments("/embeddings"), InputOnly: true, Usage: chat, Model: []string{"model"}},
		{
			API: APIOpenAIImages, Paths: deployments("/images/generations", "/images/edits", "/images/variations"), DefaultModel: "dall-e-2",
			Usage: map[string]Count{"usage.input_tokens": CountInput, "usage.output_tokens": CountOutput},
		},
		{
			API: APIOpenAIAudio, Paths: deployments("/audio/transcriptions", "/audio/translations"),
			Usage: map[string]Count{"usage.input_tokens": CountInput, "usage.output_tokens": CountOutput}, Text: []string{"text", "delta"},
		},
		{API: APIOpenAIAudio, Paths: deployments("/audio/speech"), InputOnly: true},
		{API: APIBatches, Paths: []string{"/batches", "/models/{model}:batchGenerateContent"}, DefaultModel: "batches", InputOnly: true},
		{ // the usage is in the body; in a stream the input comes with the first event, and the output so far with each message_delta
			API: APIAnthropicMessages, Paths: []string{"/messages"}, Usage: both("message.", messages), Text: messagesText,
			Model: []string{"model", "message.model"}, Service: []string{"usage.service_tier", "message.usage.service_tier"}, Finish: []string{"stop_reason", "delta.stop_reason"},
		},
		{ // the usage so far is in the body and in each chunk of a stream
			API:     APIGeminiContent,
			Paths:   below([]string{"/models/{model}", "/tunedModels/{model}", "/endpoints/{model}"}, ":generateContent"),
			Streams: below([]string{"/models/{model}", "/tunedModels/{model}", "/endpoints/{model}"}, ":streamGenerateContent"),
			Usage: map[string]Count{
				"usageMetadata.promptTokenCount":        CountInput,
				"usageMetadata.cachedContentTokenCount": CountCacheRead,
				"usageMetadata.candidatesTokenCount":    CountOutput,
				"usageMetadata.thoughtsTokenCount":      CountReasoning,
				"usageMetadata.toolUsePromptTokenCount": CountToolInput,
			},
			InputHasCache: true, ReasoningApart: true,
			Text:  []string{"candidates.content.parts.text", "candidates.content.parts.functionCall.args.*"},
			Model: []string{"modelVersion"}, Finish: []string{"candidates.finishReason"},
			delay: set("error.details.retryDelay"),
		},
		{ // the usage is in the body, or in the event that completes a stream
			API: APIGeminiInteractions, Paths: []string{"/interactions"},
			Usage: both("interaction.", map[string]Count{
				"usage.total_input_tokens":    CountInput,
				"usage.total_cached_tokens":   CountCacheRead,
				"usage.total_output_tokens":   CountOutput,
				"usage.total_thought_tokens":  CountReasoning,
				"usage.total_tool_use_tokens": CountToolInput,
			}),
			InputHasCache: true, ReasoningApart: true,
			Text:   []string{"delta.text", "delta.content.text", "delta.arguments", "delta.arguments.*", "outputs.text", "steps.content.text"},
			Model:  []string{"model", "interaction.model"},
			Finish: []string{"usage.total_output_tokens", "interaction.usage.total_output_tokens"},
			id:     set("id", "interaction.id"), stage: set("status", "interaction.status"),
			delay: set("error.details.retryDelay"),
		},
		{API: APIGeminiEmbeddings, Paths: []string{"/models/{model}:embedContent", "/models/{model}:batchEmbedContents"}, InputOnly: true},
		{API: APIVertexPredict, Paths: below([]string{"/models/{model}", "/endpoints/{model}"}, ":predict", ":predictLongRunning"), InputOnly: true},
		{
			API: APIOllamaChat, Paths: []string{"/api/chat", "/api/generate"},
			Usage: map[string]Count{"prompt_eval_count": CountInput, "eval_count": CountOutput},
			Text:  []string{"message.content", "message.thinking", "message.tool_calls.function.arguments.*", "response", "thinking"},
			Model: []string{"model"}, Finish: []string{"done_reason"},
		},
		{API: APIOllamaEmbeddings, Paths: []string{"/api/embed", "/api/embeddings"}, InputOnly: true, Usage: map[string]Count{"prompt_eval_count": CountInput}, Model: []string{"model"}},
		{
			API:     APIVertexRaw,
			Paths:   below([]string{"/models/{model}", "/endpoints/{model}"}, ":rawPredict"),
			Streams: below([]string{"/models/{model}", "/endpoints/{model}"}, ":streamRawPredict"),
			Usage:   raw, Text: rawText, Model: []string{"model", "message.model"}, Service: rawService, Finish: rawFinish,
		},
		{ // the usage is in the body, or in the metadata event, the last one of a stream
			API: APIBedrockConverse, Paths: []string{"/model/{model}/converse"}, Streams: []string{"/model/{model}/converse-stream"},
			Usage: map[string]Count{
				"usage.inputTokens":           CountInput,
				"usage.cacheReadInputTokens":  CountCacheRead,
				"usage.cacheWriteInputTokens": CountCacheWrite,
				"usage.outputTokens":          CountOutput,
			},
			Text: []string{
				"delta.text", "delta.toolUse.input", "delta.reasoningContent.text",
				"output.message.content.text", "output.message.content.reasoningContent.reasoningText.text",
			},
			Finish: []string{"stopReason"},
		},
		{ // the usage is in the body as the model's maker has it, in headers, or in the last event of a stream
			API: APIBedrockInvoke, Paths: []string{"/model/{model}/invoke"}, Streams: []string{"/model/{model}/invoke-with-response-stream"},
			Usage: raw, Text: rawText, Model: []string{"model", "message.model"}, Service: rawService, Finish: rawFinish,
		},
	}
}

// failures are there when an answer is an error, also one of status 200.
var failures = set("error", "error.code", "error.type", "error.status", "error.message")

// interest returns the use of a scalar of an answer.
func (f *format) interest(path []byte) interest {
	if f.text[string(path)] {
		return counted
	}
	if _, ok := f.Usage[string(path)]; ok || f.model[string(path)] || f.service[string(path)] || f.finish[string(path)] || f.delay[string(path)] || f.id[string(path)] || f.stage[string(path)] || failures[string(path)] {
		return kept
	}
	for _, above := range f.below {
		if bytes.HasPrefix(path, []byte(above)) {
			return counted
		}
	}
	return ignored
}

func set(paths ...string) map[string]bool {
	s := make(map[string]bool, len(paths))
	for _, p := range paths {
		s[p] = true
	}
	return s
}

// both returns counts as they are, and below an event's object.
func both(prefix string, counts map[string]Count) map[string]Count {
	all := make(map[string]Count, 2*len(counts))
	for path, c := range counts {
		all[path], all[prefix+path] = c, c
	}
	return all
}

// below returns every place behind every prefix.
func below(prefixes []string, places ...string) []string {
	all := make([]string, 0, len(prefixes)*len(places))
	for _, prefix := range prefixes {
		for _, place := range places {
			all = append(all, prefix+place)
		}
	}
	return all
}
