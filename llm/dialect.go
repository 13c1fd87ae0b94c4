package llm

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A dialect is how a provider writes its errors.
type dialect uint8

const (
	dialectOpenAI dialect = iota // also of the many servers that are compatible with it
	dialectAnthropic
	dialectGoogle
	dialectAmazon
	dialectOllama
)

// dialects has the known APIs that are not OpenAI's.
var dialects = map[API]dialect{
	APIAnthropicMessages: dialectAnthropic,
	APIGeminiContent:     dialectGoogle, APIGeminiInteractions: dialectGoogle, APIGeminiEmbeddings: dialectGoogle,
	APIVertexRaw: dialectGoogle, APIVertexPredict: dialectGoogle,
	APIBedrockConverse: dialectAmazon, APIBedrockInvoke: dialectAmazon,
	APIOllamaChat: dialectOllama, APIOllamaEmbeddings: dialectOllama,
}

// dialectOf returns the dialect of the provider that a request is for. The headers of a provider's SDKs identify a
// request of no known call.
func dialectOf(r *http.Request) dialect {
	path := r.URL.Path
	if strings.Contains(path, "/publishers/anthropic/") { // Claude on Vertex AI, which Anthropic's SDK asks
		return dialectAnthropic
	}
	if p, _ := known.find(path); p != nil && !p.format.Free && p.format.API != APIBatches {
		return dialects[p.format.API]
	}
	switch {
	case r.Header.Get("Anthropic-Version") != "" || strings.Contains(path, "/messages"):
		return dialectAnthropic
	case r.Header.Get("X-Goog-Api-Key") != "" || strings.Contains(path, "/v1beta"):
		return dialectGoogle
	case r.Header.Get("X-Amz-Date") != "" || strings.Contains(path, "/model/"):
		return dialectAmazon
	case strings.Contains(path, "/api/"):
		return dialectOllama
	default:
		return dialectOpenAI
	}
}

// A kind is the providers' names for the errors of a status.
type kind struct{ openAI, code, anthropic, google, amazon string }

var kinds = map[int]kind{
	http.StatusBadRequest:            {"invalid_request_error", "invalid_request", "invalid_request_error", "INVALID_ARGUMENT", "ValidationException"},
	http.StatusUnauthorized:          {"invalid_request_error", "invalid_api_key", "authentication_error", "UNAUTHENTICATED", "UnrecognizedClientException"},
	http.StatusForbidden:             {"permission_error", "permission_denied", "permission_error", "PERMISSION_DENIED", "AccessDeniedException"},
	http.StatusNotFound:              {"invalid_request_error", "not_found", "not_found_error", "NOT_FOUND", "ResourceNotFoundException"},
	http.StatusRequestTimeout:        {"timeout_error", "timeout", "timeout_error", "DEADLINE_EXCEEDED", "ModelTimeoutException"},
	http.StatusRequestEntityTooLarge: {"invalid_request_error", "request_too_large", "request_too_large", "INVALID_ARGUMENT", "ValidationException"},
	http.StatusTooManyRequests:       {"rate_limit_error", "rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED", "ThrottlingException"},
	http.StatusBadGateway:            {"server_error", "bad_gateway", "api_error", "UNAVAILABLE", "InternalServerException"},
	http.StatusServiceUnavailable:    {"server_error", "unavailable", "overloaded_error", "UNAVAILABLE", "ServiceUnavailableException"},
}

func kindOf(status int) kind {
	if k, ok := kinds[status]; ok {
		return k
	}
	if status < http.StatusInternalServerError {
		return kinds[http.StatusBadRequest]
	}
	return kind{"server_error", "internal_error", "api_error", "INTERNAL", "InternalServerException"}
}

// errorBody returns an error in the form of a request's provider, and sets the header by which SDKs know it. retry is
// the time to wait; 0 for none.
func errorBody(r *http.Request, header http.Header, status int, code, message string, retry time.Duration) []byte {
	k := kindOf(status)
	var body any
	switch dialectOf(r) {
	case dialectAnthropic:
		body = map[string]any{"type": "error", "error": map[string]any{"type": k.anthropic, "message": message}}
	case dialectGoogle:
		e := map[string]any{"code": status, "message": message, "status": k.google}
		if retry > 0 {
			e["details"] = []any{map[string]string{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delayText(retry)}}
		}
		body = map[string]any{"error": e}
	case dialectAmazon:
		header.Set("X-Amzn-Errortype", k.amazon)
		body = map[string]any{"message": message}
	case dialectOllama:
		body = map[string]any{"error": message}
	default:
		if code == "" {
			code = k.code
		}
		body = map[string]any{"error": map[string]any{"message": message, "type": k.openAI, "param": nil, "code": code}}
	}
	header.Set("Content-Type", "application/json")
	text, err := json.Marshal(body)
	if err != nil { // which texts and numbers do not cause
		return nil
	}
	return text
}

// delayText returns a time as the JSON of a protocol buffer has it, in milliseconds that are rounded up.
func delayText(d time.Duration) string {
	d = (d + time.Millisecond - 1).Truncate(time.Millisecond)
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
