package llm

import (
	"fmt"
	"net/url"
	"strings"
)

// An API is a way to ask a model, of one provider or of those that speak the same protocol.
type API uint8

// The APIs whose usage a [Meter] finds. The zero value is none of them.
const (
	OpenAIChat        API = iota + 1 // chat completions, of OpenAI and of the many servers that are compatible with it
	OpenAIResponses                  // responses
	AnthropicMessages                // messages
	GeminiContent                    // generateContent and streamGenerateContent, of the Gemini API and Vertex AI
	BedrockConverse                  // Converse and ConverseStream of Amazon Bedrock
)

// apiNames are the values of gen_ai.provider.name for each API, with the name of the operation.
var apiNames = [...]string{
	OpenAIChat: "openai chat", OpenAIResponses: "openai responses", AnthropicMessages: "anthropic messages",
	GeminiContent: "gemini content", BedrockConverse: "bedrock converse",
}

// String returns the name of the API, such as "openai chat".
func (a API) String() string {
	if a > 0 && int(a) < len(apiNames) {
		return apiNames[a]
	}
	return fmt.Sprintf("API(%d)", uint8(a))
}

// route returns the API that a path belongs to, with the model and whether the answer is streamed where the path says it.
// It goes by the end of the path, so that base paths of gateways do not matter. Anything else is no model's call.
func route(u *url.URL) (api API, model string, stream bool) {
	path := strings.TrimSuffix(u.Path, "/")
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return OpenAIChat, "", false
	case strings.HasSuffix(path, "/responses"):
		return OpenAIResponses, "", false
	case strings.HasSuffix(path, "/messages") && !strings.Contains(path, "/threads/"): // which hold messages of OpenAI's assistants
		return AnthropicMessages, "", false
	}
	if _, rest, ok := cutLast(path, "/models/"); ok {
		if model, ok := strings.CutSuffix(rest, ":generateContent"); ok {
			return GeminiContent, model, false
		}
		if model, ok := strings.CutSuffix(rest, ":streamGenerateContent"); ok {
			return GeminiContent, model, true
		}
	}
	if _, rest, ok := strings.Cut(path, "/model/"); ok {
		if model, ok := strings.CutSuffix(rest, "/converse"); ok {
			return BedrockConverse, model, false
		}
		if model, ok := strings.CutSuffix(rest, "/converse-stream"); ok {
			return BedrockConverse, model, true
		}
	}
	return 0, "", false
}

// cutLast is strings.Cut around the last occurrence.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
