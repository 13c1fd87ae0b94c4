package llm

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// The counts of chat completions, below the members that servers have them in. OpenAI's own names come first. The others are from
// Mistral, DeepSeek, Moonshot, OpenRouter, LiteLLM, SGLang, Perplexity, Qwen and xAI, and from servers with names of other APIs.
var chatCounts = map[string]Count{
	"prompt_tokens":                              CountInput,
	"completion_tokens":                          CountOutput,
	"total_tokens":                               CountTotal,
	"prompt_tokens_details.cached_tokens":        CountCacheRead,
	"prompt_tokens_details.cache_write_tokens":   CountCacheWrite,
	"prompt_tokens_details.audio_tokens":         CountAudioInput,
	"prompt_tokens_details.image_tokens":         CountImageInput,
	"completion_tokens_details.reasoning_tokens": CountReasoning,
	"completion_tokens_details.audio_tokens":     CountAudioOutput,
	"completion_tokens_details.image_tokens":     CountImageOutput,
	"prompt_tokens_details.video_tokens":         CountVideoInput,
	"completion_tokens_details.video_tokens":     CountVideoOutput,

	"prompt_tokens_details.cached_tokens_details.audio_tokens":        CountAudioCacheRead,
	"prompt_tokens_details.cached_tokens_details.image_tokens":        CountImageCacheRead,
	"prompt_tokens_details.cache_write_tokens_details.ttl_12h_tokens": CountCacheWrite12Hours,
	"prompt_tokens_details.cache_write_tokens_details.ttl_30m_tokens": countCacheWriteShort,

	"input_tokens":     CountInput,
	"output_tokens":    CountOutput,
	"promptTokens":     CountInput,
	"completionTokens": CountOutput,
	"inputTokens":      CountInput,
	"outputTokens":     CountOutput,
	"totalTokens":      CountTotal,

	"cached_tokens":                                          CountCacheRead,
	"num_cached_tokens":                                      CountCacheRead,
	"prompt_cache_hit_tokens":                                CountCacheRead,
	"cache_read_input_tokens":                                CountCacheRead,
	"prompt_token_details.cached_tokens":                     CountCacheRead,
	"input_tokens_details.cached_tokens":                     CountCacheRead,
	"cache_creation_input_tokens":                            CountCacheWrite,
	"prompt_tokens_details.cache_creation_tokens":            CountCacheWrite,
	"prompt_tokens_details.cache_creation_input_tokens":      CountCacheWrite,
	"cache_creation.ephemeral_1h_input_tokens":               CountCacheWriteHour,
	"cache_creation.ephemeral_5m_input_tokens":               countCacheWriteShort,
	"cache_creation_token_details.ephemeral_1h_input_tokens": CountCacheWriteHour,

	"prompt_tokens_details.cache_creation_token_details.ephemeral_1h_input_tokens": CountCacheWriteHour,

	"reasoning_tokens":                                CountReasoning,
	"output_tokens_details.reasoning_tokens":          CountReasoning,
	"prompt_audio_seconds":                            countSeconds, // of Mistral
	"num_search_queries":                              CountSearches,
	"web_search_requests":                             CountSearches,
	"+citation_tokens":                                CountInput, // what Perplexity's research has read
	"server_tool_use.web_search_requests":             CountSearches,
	"server_side_tool_usage_details.web_search_calls": CountSearches,
}

// serverCounts are those that llama.cpp has beside the usage of others, or in place of it. What it has processed of a prompt does not include
// what its cache had.
var serverCounts = map[string]Count{
	"tokens_evaluated":    CountInput,
	"tokens_predicted":    CountOutput,
	"timings.prompt_n":    countUncached,
	"timings.cache_n":     CountCacheRead,
	"timings.predicted_n": CountOutput,
}

// toolCounts are calls of the tools of xAI, Qwen, Perplexity and Volcengine. Those beside searches of the web are charged like these. Calls of
// an application's own tools cost nothing.
var toolCounts = map[string]Count{
	"tool_calls_details.search_web.invocation": CountSearches,
	"+tool_calls_details.fetch_url.invocation": CountSearches,
	"tool_usage.web_search":                    CountSearches,

	"+server_side_tool_usage_details.x_search_calls":         CountSearches,
	"+server_side_tool_usage_details.code_interpreter_calls": CountSearches,
	"server_side_tool_usage_details.file_search_calls":       countFileSearches,
	"+server_side_tool_usage_details.document_search_calls":  CountSearches,

	"x_tools.web_search.count":        CountSearches,
	"plugins.search.count":            CountSearches,
	"+x_tools.web_search_image.count": CountSearches,
	"+x_tools.image_search.count":     CountSearches,
}

// breakdownCounts are what each of several models took, of which the other counts are the sum. Groq's systems report them.
var breakdownCounts = under(map[string]Count{
	"prompt_tokens":                              CountInput,
	"prompt_tokens_details.cached_tokens":        CountCacheRead,
	"completion_tokens":                          CountOutput,
	"completion_tokens_details.reasoning_tokens": CountReasoning,
	"total_tokens":                               CountTotal,
}, "usage_breakdown.models[].usage.")

// The counts of chat completions of the Llama API.
var llamaCounts = map[string]Count{
	"metrics[metric=num_prompt_tokens].value":     CountInput,
	"metrics[metric=num_completion_tokens].value": CountOutput,
	"metrics[metric=num_total_tokens].value":      CountTotal,
}

// The counts of Anthropic's messages.
var messageCounts = map[string]Count{
	"input_tokens":                             CountInput,
	"cache_read_input_tokens":                  CountCacheRead,
	"cache_creation_input_tokens":              CountCacheWrite,
	"output_tokens":                            CountOutput,
	"output_tokens_details.thinking_tokens":    CountReasoning,
	"cache_creation.ephemeral_1h_input_tokens": CountCacheWriteHour,
	"cache_creation.ephemeral_5m_input_tokens": countCacheWriteShort,
	"server_tool_use.web_search_requests":      CountSearches,
}

// otherSteps are the iterations of a message that its own counts do not include: compactions, and the work of advisors.
const otherSteps = "+iterations[type!=message&type!=fallback_message]."

// The counts of Converse.
var converseCounts = map[string]Count{
	"inputTokens":                       CountInput,
	"cacheReadInputTokens":              CountCacheRead,
	"cacheReadInputTokenCount":          CountCacheRead,
	"cacheWriteInputTokens":             CountCacheWrite,
	"cacheWriteInputTokenCount":         CountCacheWrite,
	"cacheDetails[ttl=12h].inputTokens": CountCacheWrite12Hours,
	"cacheDetails[ttl=1h].inputTokens":  CountCacheWriteHour,
	"cacheDetails[ttl=5m].inputTokens":  countCacheWriteShort,
	"outputTokens":                      CountOutput,
	"totalTokens":                       CountTotal,
}

// The counts of OpenAI's responses.
var responseCounts = map[string]Count{
	"usage.input_tokens":                                     CountInput,
	"usage.input_tokens_details.cached_tokens":               CountCacheRead,
	"usage.input_tokens_details.cache_write_tokens":          CountCacheWrite,
	"usage.input_tokens_details.cache_read_input_tokens":     CountCacheRead,
	"usage.input_tokens_details.cache_creation_input_tokens": CountCacheWrite,
	"usage.input_tokens_details.audio_tokens":                CountAudioInput,
	"usage.output_tokens":                                    CountOutput,
	"usage.output_tokens_details.reasoning_tokens":           CountReasoning,
	"usage.output_tokens_details.audio_tokens":               CountAudioOutput,
	"usage.total_tokens":                                     CountTotal,
	"usage.input_tokens_details.image_tokens":                CountImageInput,
	"usage.output_tokens_details.image_tokens":               CountImageOutput,

	"usage.input_tokens_details.cache_write_tokens_details.ttl_12h_tokens": CountCacheWrite12Hours,
	"usage.input_tokens_details.cache_write_tokens_details.ttl_30m_tokens": countCacheWriteShort,
	"usage.input_tokens_details.cached_tokens_details.audio_tokens":        CountAudioCacheRead,
	"usage.input_tokens_details.cached_tokens_details.image_tokens":        CountImageCacheRead,

	"tool_usage.web_search.num_requests": CountSearches,
	"output[type=web_search_call&action.type!=open_page&action.type!=find_in_page&action.type!=find]": CountSearches,
	"output[type=file_search_call]":                                   countFileSearches,
	"usage.server_side_tool_usage_details.web_search_calls":           CountSearches,
	"+tool_usage.image_gen.input_tokens":                              CountInput,
	"+tool_usage.image_gen.output_tokens":                             CountOutput,
	"+tool_usage.image_gen.input_tokens_details.image_tokens":         CountImageInput,
	"+tool_usage.image_gen.output_tokens_details.image_tokens":        CountImageOutput,
	"+output.svg_usage[].input_tokens":                                CountInput, // of the model that has written a picture
	"+output.svg_usage[].output_tokens":                               CountOutput,
	"+output.svg_usage[].reasoning_tokens":                            CountReasoning,
	"+tool_usage.image_gen.cached_tokens":                             CountCacheRead,
	"+tool_usage.image_gen.cached_tokens_details.cached_image_tokens": CountImageCacheRead,
}

// The counts of Gemini. Thinking and tools are counted beside the candidates and the prompt.
var geminiCounts = map[string]Count{
	"promptTokenCount":                                   CountInput,
	"cachedContentTokenCount":                            CountCacheRead,
	"candidatesTokenCount":                               CountOutput,
	"responseTokenCount":                                 CountOutput,
	"thoughtsTokenCount":                                 CountReasoning,
	"toolUsePromptTokenCount":                            CountToolInput,
	"totalTokenCount":                                    CountTotal,
	"promptTokensDetails[modality=AUDIO].tokenCount":     CountAudioInput,
	"cacheTokensDetails[modality=AUDIO].tokenCount":      CountAudioCacheRead,
	"candidatesTokensDetails[modality=AUDIO].tokenCount": CountAudioOutput,
	"promptTokensDetails[modality=IMAGE].tokenCount":     CountImageInput,
	"cacheTokensDetails[modality=IMAGE].tokenCount":      CountImageCacheRead,
	"candidatesTokensDetails[modality=IMAGE].tokenCount": CountImageOutput,
	"promptTokensDetails[modality=VIDEO].tokenCount":     CountVideoInput,
	"cacheTokensDetails[modality=VIDEO].tokenCount":      countVideoCacheRead,
	"candidatesTokensDetails[modality=VIDEO].tokenCount": CountVideoOutput,
}

// The counts of searches that Gemini lists.
var geminiSearches = map[string]Count{
	"candidates.groundingMetadata.webSearchQueries[]":   CountSearches,
	"candidates.groundingMetadata.imageSearchQueries[]": CountSearches,
}

// The counts of Gemini's interactions.
var interactionCounts = map[string]Count{
	"grounding_tool_count[type=google_search].count":   CountSearches,
	"grounding_tool_count[type=google_maps].count":     CountSearches,
	"total_input_tokens":                               CountInput,
	"total_cached_tokens":                              CountCacheRead,
	"total_output_tokens":                              CountOutput,
	"total_thought_tokens":                             CountReasoning,
	"total_tool_use_tokens":                            CountToolInput,
	"total_tokens":                                     CountTotal,
	"input_tokens_by_modality[modality=audio].tokens":  CountAudioInput,
	"cached_tokens_by_modality[modality=audio].tokens": CountAudioCacheRead,
	"output_tokens_by_modality[modality=audio].tokens": CountAudioOutput,
	"input_tokens_by_modality[modality=image].tokens":  CountImageInput,
	"cached_tokens_by_modality[modality=image].tokens": CountImageCacheRead,
	"output_tokens_by_modality[modality=image].tokens": CountImageOutput,
	"input_tokens_by_modality[modality=video].tokens":  CountVideoInput,
	"cached_tokens_by_modality[modality=video].tokens": countVideoCacheRead,
	"output_tokens_by_modality[modality=video].tokens": CountVideoOutput,
}

// The counts of images and sound.
var mediaCounts = map[string]Count{
	"usage.input_tokens":                       CountInput,
	"usage.input_tokens_details.cached_tokens": CountCacheRead,
	"usage.input_token_details.audio_tokens":   CountAudioInput,
	"usage.input_tokens_details.image_tokens":  CountImageInput,
	"usage.output_tokens_details.image_tokens": CountImageOutput,
	"usage.output_tokens":                      CountOutput,
	"usage.total_tokens":                       CountTotal,

	"usage.input_tokens_details.cached_tokens_details.image_tokens": CountImageCacheRead,

	"+svg_usage[].input_tokens":     CountInput, // of the model that has written a picture
	"+svg_usage[].output_tokens":    CountOutput,
	"+svg_usage[].reasoning_tokens": CountReasoning,
}

// The counts that the makers of models on Bedrock and Vertex AI have of their own.
var makerCounts = map[string]Count{
	"amazon-bedrock-invocationMetrics.inputTokenCount":           CountInput,
	"amazon-bedrock-invocationMetrics.cacheReadInputTokenCount":  CountCacheRead,
	"amazon-bedrock-invocationMetrics.cacheWriteInputTokenCount": CountCacheWrite,
	"amazon-bedrock-invocationMetrics.outputTokenCount":          CountOutput,

	"prompt_token_count": CountInput, "generation_token_count": CountOutput, // of Llama
	"inputTextTokenCount": CountInput, "results[].tokenCount": CountOutput, "totalOutputTextTokenCount": CountOutput, // of Titan
	"meta.billed_units.input_tokens": CountInput, "meta.billed_units.output_tokens": CountOutput, // of Cohere
	"usage.prompt_tokens": CountInput, "usage.completion_tokens": CountOutput, "usage.total_tokens": CountTotal, // of those that speak the chat of OpenAI
	"usage.completion_tokens_details.reasoning_tokens": CountReasoning,
}

// Formats returns the built-in formats, in the order of their matching. The caller may change them.
func Formats() []Format {
	chat := join(under(join(chatCounts, toolCounts), "usage."), breakdownCounts, serverCounts, under(llamaCounts, "", "event."))
	chatText := below([]string{"choices.delta.", "choices.message."}, "content", "refusal", "function_call.arguments", "tool_calls.function.arguments",
		"tool_calls.custom.input", "audio.transcript")
	for _, at := range []string{"choices.delta.", "choices.message."} { // that many servers repeat
		chatText = append(chatText, strings.Join(below([]string{at}, "reasoning", "reasoning_content", "reasoning_text", "thinking", "reasoning_details.*", "thinking_blocks.*"), "|"), at+"*")
	}
	chatText = append(chatText, below([]string{"completion_message.content", "event.delta"}, "", ".text", ".function.arguments")...)
	messages := join(under(messageCounts, "usage."), under(map[string]Count{
		otherSteps + "input_tokens":                             CountInput,
		otherSteps + "cache_read_input_tokens":                  CountCacheRead,
		otherSteps + "cache_creation_input_tokens":              CountCacheWrite,
		otherSteps + "cache_creation.ephemeral_1h_input_tokens": CountCacheWriteHour,
		otherSteps + "output_tokens":                            CountOutput,
	}, "usage."))
	messagesText := []string{
		"delta.text", "delta.partial_json", "delta.thinking", "delta.content", "content.text", "content.thinking", "content.data", "content.input.*",
		"content_block.text", "content_block.thinking", "content_block.data", "content_block.input.*",
	}
	messagesService, messagesSpeed, messagesRegion := at("service_tier"), at("speed"), at("inference_geo")
	// Models of several protocols are behind the same paths of clouds.
	raw := join(under(messages, "", "message."), under(converseCounts, "usage."), makerCounts)
	rawText := append(append([]string{
		"generation", "outputText", "results.outputText", "outputs.text", "completion", "completions.data.text", "generations.text", "text", "choices.text",
		"message.content.text", "contentBlockDelta.delta.text", "contentBlockDelta.delta.toolUse.input", "output.message.content.text", "outputs.message.content",
	}, chatText...), messagesText...)
	rawFinish := []string{
		"stop_reason", "delta.stop_reason", "choices.finish_reason", "completionReason", "results.completionReason", "messageStop.stopReason", "stopReason", "finish_reason",
	}
	raws := Format{
		Usage: raw, Text: rawText, Model: []string{"model", "message.model"}, Finish: rawFinish,
		Service: messagesService, Speed: messagesSpeed, Region: messagesRegion,
	}
	invoked := raws // and a model that has its text where others have an error
	invoked.Text, invoked.Finish = append(slices.Clone(rawText), "message"), append(slices.Clone(rawFinish), "finishReason")
	deployments := func(paths ...string) []string {
		return append(below([]string{"/deployments/{model}"}, paths...), paths...) // of Azure, with any body
	}
	sound := Format{
		API: APIOpenAIAudio, Paths: deployments("/audio/transcriptions", "/audio/translations"),
		Usage:  join(mediaCounts, map[string]Count{"usage.prompt_tokens": CountInput, "usage.completion_tokens": CountOutput, "usage.prompt_audio_seconds": countSeconds}),
		Text:   []string{"text", "delta"},
		again:  []string{"text"},                                           // which events of segments and of the end have
		sounds: []string{"audio", "audio_data", "b64"}, soundFormat: "mp3", // of speech
	}
	speech := sound
	speech.Paths, speech.spoken = deployments("/audio/speech"), true
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
			Usage: chat, InputHasCache: true, Text: chatText, Model: []string{"model"}, Service: []string{"service_tier", "usage.service_tier"}, Finish: []string{"choices.finish_reason", "completion_message.stop_reason", "event.stop_reason"},
			Speed: []string{"usage.speed"}, Region: []string{"usage.inference_geo"},
			pictures: []string{"choices.delta.images.image_url.url", "choices.message.images.image_url.url"},
			sounds:   []string{"choices.delta.audio.data", "choices.message.audio.data"}, soundFormat: "pcm16", // which streams must be
		},
		{
			API: APIOpenAICompletions, Paths: deployments("/completions"), Usage: chat, InputHasCache: true,
			Text: append([]string{"choices.text", "content"}, chatText...), Model: []string{"model"}, Service: []string{"service_tier"}, Finish: []string{"choices.finish_reason", "stop_type"},
		},
		{ // of llama.cpp, whose requests need not name a model
			API: "llama.cpp completion", Paths: []string{"/completion", "/infill"}, DefaultModel: "llama.cpp",
			Usage: serverCounts, InputHasCache: true, Text: []string{"content"}, Model: []string{"model"}, Finish: []string{"stop_type"},
		},
		{ // the usage is in the body, or in the event that ends a stream: completed, incomplete or failed
			API: APIOpenAIResponses, Paths: []string{"/responses", "/responses/compact"},
			Usage: under(join(responseCounts, under(toolCounts, "usage.")), "", "response."), InputHasCache: true,
			Text:  append(below([]string{"output.", "response.output."}, "content.text", "content.refusal", "summary.text", "arguments", "input", "code"), "delta", "delta.text"),
			Model: []string{"model", "response.model"}, Service: []string{"service_tier", "response.service_tier"}, Finish: []string{"usage.output_tokens", "response.usage.output_tokens", "incomplete_details.reason", "response.incomplete_details.reason"},
			Failure: []string{"status=failed", "response.status=failed"},
			id:      []string{"id", "response.id"}, stage: []string{"status", "response.status"},
			pictures: []string{"output.result", "partial_image_b64"}, soundEvents: true, soundFormat: "pcm16",
		},
		{
			API: "openai decisions", Paths: []string{"/decisions"}, Usage: responseCounts, InputHasCache: true, Model: []string{"model"},
			Finish: []string{"usage.output_tokens"}, service: "decisions", // which price lists have
		},
		{API: APIOpenAIEmbeddings, Paths: deployments("/embeddings"), InputOnly: true, Usage: chat, InputHasCache: true, Model: []string{"model"}},
		{
			API: APIOpenAIImages, Paths: deployments("/images/generations", "/images/edits", "/images/variations"), DefaultModel: "dall-e-2",
			Usage: mediaCounts, InputHasCache: true, pictures: []string{"data.b64_json", "data.url", "b64_json"},
		},
		sound, speech,
		{API: APIBatches, Paths: []string{"/batches", "/models/{model}:batchGenerateContent"}, DefaultModel: "batches", InputOnly: true},
		{ // the usage is in the body; in a stream the input comes with the first event, and the output so far with each message_delta
			API: APIAnthropicMessages, Paths: []string{"/messages"}, Usage: under(messages, "", "message."), Text: messagesText,
			Model: []string{"model", "message.model"}, Service: messagesService, Speed: messagesSpeed, Region: messagesRegion, Finish: []string{"stop_reason", "delta.stop_reason"},
		},
		{ // the usage so far is in the body and in each chunk of a stream
			API:           APIGeminiContent,
			Paths:         below([]string{"/models/{model}", "/tunedModels/{model}", "/endpoints/{model}"}, ":generateContent"),
			Streams:       below([]string{"/models/{model}", "/tunedModels/{model}", "/endpoints/{model}"}, ":streamGenerateContent"),
			Usage:         inBothCases(join(under(geminiCounts, "usageMetadata."), geminiSearches)),
			InputHasCache: true, ReasoningApart: true,
			Text: []string{
				"candidates.content.parts.text", "candidates.content.parts.functionCall.args.*", "candidates.content.parts.functionCall.partialArgs.*",
				"candidates.content.parts.executableCode.code", "candidates.content.parts.function_call.args.*", "candidates.content.parts.executable_code.code",
			},
			Model: []string{"modelVersion", "model_version"}, Finish: []string{"candidates.finishReason", "candidates.finish_reason"},
			Service: []string{"usageMetadata.serviceTier", "usageMetadata.trafficType", "serviceTier", "usage_metadata.service_tier", "usage_metadata.traffic_type"},
			Failure: []string{"promptFeedback.blockReason", "prompt_feedback.block_reason"},

			media: []string{"candidates.content.parts.inlineData.data", "candidates.content.parts.inline_data.data"},
		},
		{ // the usage is in the body, or in the event that completes a stream
			API: APIGeminiInteractions, Paths: []string{"/interactions"},
			Usage:         under(interactionCounts, "usage.", "interaction.usage.", "metadata.total_usage."),
			InputHasCache: true, ReasoningApart: true,
			Text:    []string{"delta.text", "delta.content.text", "delta.arguments", "delta.arguments.*", "outputs.text", "steps.content.text", "steps.summary.text", "steps.arguments.*"},
			Model:   []string{"model", "interaction.model"},
			Finish:  []string{"usage.total_output_tokens", "interaction.usage.total_output_tokens"},
			Service: []string{"service_tier", "interaction.service_tier"},
			Failure: []string{"status=failed", "interaction.status=failed"},
			id:      []string{"id", "interaction.id"}, stage: []string{"status", "interaction.status"},
			media: []string{"delta.data", "delta.content.data", "outputs.data", "steps.content.data"},
		},
		{
			API: APIGeminiEmbeddings, Paths: []string{"/models/{model}:embedContent", "/models/{model}:batchEmbedContents"}, InputOnly: true,
			Usage: inBothCases(under(geminiCounts, "usageMetadata.")), InputHasCache: true,
		},
		{
			API: APIVertexPredict, Paths: below([]string{"/models/{model}", "/endpoints/{model}"}, ":predict", ":predictLongRunning"), InputOnly: true,
			Usage: map[string]Count{"predictions[].embeddings.statistics.token_count": CountInput},
		},
		{
			API: APIOllamaChat, Paths: []string{"/api/chat", "/api/generate"},
			Usage: map[string]Count{"prompt_eval_count": CountInput, "eval_count": CountOutput},
			Text:  []string{"message.content", "message.thinking", "message.tool_calls.function.arguments.*", "response", "thinking"},
			Model: []string{"model"}, Finish: []string{"done_reason"}, Failure: []string{"done_reason=load", "done_reason=unload"},
		},
		{API: APIOllamaEmbeddings, Paths: []string{"/api/embed", "/api/embeddings"}, InputOnly: true, Usage: map[string]Count{"prompt_eval_count": CountInput}, Model: []string{"model"}},
		raws.as(APIVertexRaw, below([]string{"/models/{model}", "/endpoints/{model}"}, ":rawPredict"), below([]string{"/models/{model}", "/endpoints/{model}"}, ":streamRawPredict")),
		{ // the usage is in the body, or in the metadata event, the last one of a stream
			API: APIBedrockConverse, Paths: []string{"/model/{model}/converse"}, Streams: []string{"/model/{model}/converse-stream"},
			Usage: under(converseCounts, "usage."),
			Text: []string{
				"delta.text", "delta.toolUse.input", "delta.reasoningContent.text",
				"output.message.content.text", "output.message.content.reasoningContent.reasoningText.text", "output.message.content.toolUse.input.*",
				"output.message.content.citationsContent.content.text",
			},
			Model:  []string{"trace.promptRouter.invokedModelId"},
			Finish: []string{"stopReason"}, Service: []string{"serviceTier.type"}, Speed: []string{"performanceConfig.latency"},
			pictures: []string{"start.image.format", "output.message.content.image.source.bytes"}, // in a stream, its data come in pieces
		},
		// the usage is in the body as the model's maker has it, in headers, or in the last event of a stream
		invoked.as(APIBedrockInvoke, []string{"/model/{model}/invoke"}, []string{"/model/{model}/invoke-with-response-stream"}),
	}
}

// failures are the places of errors that all providers have, and gateways before them. Members whose names begin with err are others, see
// [isError].
var failures = []string{
	"message", "msg", "detail", "code", "title", "reason", "fault", "exception", "Message", "Code", "Fault", "status_msg", "status_message",
	"type=error", "object=error", "success=false", "ok=false", "status=error", "status=failed", "status=fail", "status=failure", "result=error", "result=failed",
	"status_code", "statusCode", "status_text", "base_resp.status_code", "base_resp.status_msg", "header.code",
}

// failing are places below which everything belongs to an error.
var failing = []string{"detail.", "fault.", "exception.", "Fault."}

// written are members of an answer that hold what the model or its tools have written, and those in which an answer repeats its request,
// such as schemas and variables. An error or a usage in there is not one of the answer.
var written = set("text", "format", "response_format", "schema", "properties", "prompt", "variables", "instructions", "result", "executed_tools", "search_results",
	"tool_result", "tool_results", "tool_choice", "reasoning", "reasoning_details", "thinking_blocks", "parsed", "images", "content", "contents", "parts", "steps", "output", "outputs", "item", "items", "tools", "tool_calls", "function_call", "functioncall", "input", "arguments", "args",
	"messages", "metadata", "annotations", "citations", "logprobs", "documents", "results", "content_block", "content_filter_result", "content_filter_results", "prompt_filter_results")

// isError reports whether a path is in an error of the answer, by the names of its members.
func isError(path []byte) bool {
	if first, after, ok := bytes.Cut(path, []byte{'.'}); ok && wrappers[string(first)] {
		path = after
	}
	for rest := path; len(rest) > 0; {
		name, after, _ := bytes.Cut(rest, []byte{'.'})
		if len(name) >= 3 && name[0]|0x20 == 'e' && name[1] == 'r' && name[2] == 'r' {
			return true
		}
		if written[string(name)] {
			return false
		}
		rest = after
	}
	return false
}

// wrappers are members in which some gateways have the whole answer of another server.
var wrappers = set("result", "data", "body", "payload")

// wrapped returns the path that a scalar has in the answer of a server behind a gateway: behind a wrapper, or from the usage on, wherever
// that is. It returns nil for a path that is no such one.
func wrapped(path []byte) []byte {
	first, after, ok := bytes.Cut(path, []byte{'.'})
	if !ok {
		return nil
	}
	if wrappers[string(first)] {
		return after
	}
	at := bytes.Index(path, []byte(".usage"))
	if at < 0 {
		return nil
	}
	for rest := path[:at]; len(rest) > 0; {
		name, after, _ := bytes.Cut(rest, []byte{'.'})
		if written[string(name)] {
			return nil
		}
		rest = after
	}
	return path[at+1:]
}

// as returns the format for an API.
func (f Format) as(api API, paths, streams []string) Format {
	f.API, f.Paths, f.Streams = api, paths, streams
	return f
}

// at returns where messages have a member of their usage.
func at(member string) []string { return []string{"usage." + member, "message.usage." + member} }

// under returns counts below each of several prefixes.
func under(counts map[string]Count, prefixes ...string) map[string]Count {
	all := make(map[string]Count, len(prefixes)*len(counts))
	for place, count := range counts {
		plain, beside := strings.CutPrefix(place, "+")
		for _, prefix := range prefixes {
			if place = prefix + plain; beside {
				place = "+" + place
			}
			all[place] = count
		}
	}
	return all
}

// inBothCases returns counts with the names of their places in camel case, as given, and in snake case.
func inBothCases(counts map[string]Count) map[string]Count {
	all := map[string]Count{}
	for place, count := range counts {
		var snake strings.Builder
		condition := false
		for _, r := range place {
			condition = r == '[' || condition && r != ']'
			if !condition && r >= 'A' && r <= 'Z' {
				snake.WriteByte('_')
				r += 'a' - 'A'
			}
			snake.WriteRune(r)
		}
		all[place], all[snake.String()] = count, count
	}
	return all
}

// join returns the counts of several maps.
func join(counts ...map[string]Count) map[string]Count {
	all := map[string]Count{}
	for _, m := range counts {
		maps.Copy(all, m)
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
