package llm

// A format says where the answers of an API have what counts. It is data: paths as a scanner has them.
type format struct {
	fields map[string]field
	// text are strings that the model writes.
	text map[string]bool
	// model names the model that answered.
	model map[string]bool
	// finish is there, and not null, once the model has ended. The usage may come later.
	finish map[string]bool
	// delay is how long an error asks to wait, where no header says it.
	delay map[string]bool
}

// A field is a count that providers report.
type field uint8

const (
	fieldInput field = iota
	fieldCacheRead
	fieldCacheWrite
	fieldOutput
	fieldReasoning
	fieldToolInput // what tools of the provider add to the prompt
	fieldCount
)

// openAIChat has the usage in the body, or in a last chunk of a stream that was asked for it.
var openAIChat = format{
	fields: map[string]field{
		"usage.prompt_tokens":                              fieldInput,
		"usage.prompt_tokens_details.cached_tokens":        fieldCacheRead,
		"usage.prompt_tokens_details.cache_write_tokens":   fieldCacheWrite,
		"usage.completion_tokens":                          fieldOutput,
		"usage.completion_tokens_details.reasoning_tokens": fieldReasoning,
	},
	text: set(
		"choices.delta.content", "choices.delta.refusal", "choices.delta.reasoning_content",
		"choices.delta.tool_calls.function.arguments",
		"choices.message.content", "choices.message.refusal", "choices.message.reasoning_content",
		"choices.message.tool_calls.function.arguments",
	),
	model:  set("model"),
	finish: set("choices.finish_reason"),
}

// openAIResponses has the usage in the body, or in the event that ends a stream: completed, incomplete or failed.
var openAIResponses = format{
	fields: both("response.", map[string]field{
		"usage.input_tokens":                            fieldInput,
		"usage.input_tokens_details.cached_tokens":      fieldCacheRead,
		"usage.input_tokens_details.cache_write_tokens": fieldCacheWrite,
		"usage.output_tokens":                           fieldOutput,
		"usage.output_tokens_details.reasoning_tokens":  fieldReasoning,
	}),
	text:   set("delta", "output.content.text", "output.arguments"),
	model:  set("model", "response.model"),
	finish: set("usage.output_tokens", "response.usage.output_tokens"),
}

// anthropicMessages has the usage in the body. In a stream the input comes with the first event, and the output so far
// with each message_delta.
var anthropicMessages = format{
	fields: both("message.", map[string]field{
		"usage.input_tokens":                fieldInput,
		"usage.cache_read_input_tokens":     fieldCacheRead,
		"usage.cache_creation_input_tokens": fieldCacheWrite,
		"usage.output_tokens":               fieldOutput,
	}),
	text:   set("delta.text", "delta.partial_json", "delta.thinking", "content.text", "content.thinking"),
	model:  set("model", "message.model"),
	finish: set("stop_reason", "delta.stop_reason"),
}

// geminiContent has the usage so far in the body and in each chunk of a stream; thoughts are not in candidates.
var geminiContent = format{
	fields: map[string]field{
		"usageMetadata.promptTokenCount":        fieldInput,
		"usageMetadata.cachedContentTokenCount": fieldCacheRead,
		"usageMetadata.candidatesTokenCount":    fieldOutput,
		"usageMetadata.thoughtsTokenCount":      fieldReasoning,
		"usageMetadata.toolUsePromptTokenCount": fieldToolInput,
	},
	text:   set("candidates.content.parts.text"),
	model:  set("modelVersion"),
	finish: set("candidates.finishReason"),
	delay:  set("error.details.retryDelay"),
}

// bedrockConverse has the usage in the body, or in the metadata event, the last one of a stream.
var bedrockConverse = format{
	fields: map[string]field{
		"usage.inputTokens":           fieldInput,
		"usage.cacheReadInputTokens":  fieldCacheRead,
		"usage.cacheWriteInputTokens": fieldCacheWrite,
		"usage.outputTokens":          fieldOutput,
	},
	text: set(
		"delta.text", "delta.toolUse.input", "delta.reasoningContent.text",
		"output.message.content.text", "output.message.content.reasoningContent.reasoningText.text",
	),
	finish: set("stopReason"),
}

// formats are those of the APIs.
var formats = [...]*format{
	OpenAIChat: &openAIChat, OpenAIResponses: &openAIResponses, AnthropicMessages: &anthropicMessages,
	GeminiContent: &geminiContent, BedrockConverse: &bedrockConverse,
}

// interest says what a scalar of an answer is for.
func (f *format) interest(path []byte) interest {
	if f.text[string(path)] {
		return counted
	}
	if _, ok := f.fields[string(path)]; ok || f.model[string(path)] || f.finish[string(path)] || f.delay[string(path)] {
		return kept
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

// both returns fields as they are, and below an event's object.
func both(prefix string, fields map[string]field) map[string]field {
	all := make(map[string]field, 2*len(fields))
	for path, f := range fields {
		all[path], all[prefix+path] = f, f
	}
	return all
}
