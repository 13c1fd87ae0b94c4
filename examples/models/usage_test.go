package models_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"
	"google.golang.org/genai/interactions/models/interactions"

	"github.com/zlimit/zlimit-go/llm"
)

// A reported type is one in which an SDK has the usage of an answer.
type reported struct {
	api  llm.API
	at   string // its place in the answer
	kind any
	// excused are members that no format names, with the reason.
	excused map[string]string
}

// The reasons for which a number of a usage is not read.
const (
	partOf  = "is a part of a count that is read, and has the same price"
	sumOf   = "is the rest of counts that are read"
	noToken = "counts no tokens, and costs nothing"
)

var reports = []reported{
	{llm.APIOpenAIChat, "usage", openai.CompletionUsage{}, map[string]string{
		"completion_tokens_details.accepted_prediction_tokens": partOf, "completion_tokens_details.rejected_prediction_tokens": partOf,
		"completion_tokens_details.text_tokens": sumOf, "prompt_tokens_details.text_tokens": sumOf,
	}},
	{llm.APIOpenAICompletions, "usage", openai.CompletionUsage{}, map[string]string{
		"completion_tokens_details.accepted_prediction_tokens": partOf, "completion_tokens_details.rejected_prediction_tokens": partOf,
		"completion_tokens_details.text_tokens": sumOf, "prompt_tokens_details.text_tokens": sumOf,
	}},
	{llm.APIOpenAIEmbeddings, "usage", openai.CreateEmbeddingResponseUsage{}, nil},
	{llm.APIOpenAIResponses, "usage", responses.ResponseUsage{}, nil},
	{llm.APIOpenAIResponses, "tool_usage", responses.ResponseToolUsage{}, map[string]string{
		"image_gen.total_tokens": sumOf, "image_gen.cached_tokens_details.cached_text_tokens": partOf, "image_gen.input_tokens_details.text_tokens": partOf,
		"image_gen.output_tokens_details.text_tokens": partOf,
	}},
	{llm.APIOpenAIImages, "usage", openai.ImagesResponseUsage{}, map[string]string{
		"input_tokens_details.text_tokens": sumOf, "output_tokens_details.text_tokens": sumOf,
	}},
	{llm.APIOpenAIImages, "usage", openai.ImageGenCompletedEventUsage{}, map[string]string{"input_tokens_details.text_tokens": sumOf}},
	{llm.APIOpenAIImages, "svg_usage", openai.ImagesResponseSvgUsage{}, map[string]string{"total_tokens": sumOf}},
	{llm.APIOpenAIResponses, "output.svg_usage", responses.ResponseOutputItemImageGenerationCallSvgUsage{}, map[string]string{"total_tokens": sumOf}},
	{"openai decisions", "usage", openai.DecisionUsage{}, nil},
	{llm.APIOpenAIAudio, "usage", openai.TranscriptionTextDoneEventUsage{}, map[string]string{"input_token_details.text_tokens": sumOf}},
	{llm.APIOpenAIAudio, "usage", openai.TranscriptionUsageUnion{}, map[string]string{
		"input_token_details.text_tokens": sumOf, "seconds": "is the usage of models that count no tokens; their calls are charged an estimate",
	}},
	{llm.APIAnthropicMessages, "usage", anthropic.Usage{}, map[string]string{"server_tool_use.web_fetch_requests": noToken}},
	{llm.APIAnthropicMessages, "usage", anthropic.MessageDeltaUsage{}, map[string]string{"server_tool_use.web_fetch_requests": noToken}},
	{llm.APIAnthropicMessages, "message.usage", anthropic.BetaUsage{}, map[string]string{
		"server_tool_use.web_fetch_requests": noToken, "iterations.cache_creation.ephemeral_5m_input_tokens": sumOf,
	}},
	{llm.APIAnthropicMessages, "usage", anthropic.BetaMessageDeltaUsage{}, map[string]string{
		"server_tool_use.web_fetch_requests": noToken, "iterations.cache_creation.ephemeral_5m_input_tokens": sumOf,
	}},
	{llm.APIGeminiContent, "usageMetadata", genai.GenerateContentResponseUsageMetadata{}, map[string]string{"toolUsePromptTokensDetails.tokenCount": partOf}},
	{llm.APIGeminiInteractions, "usage", interactions.Usage{}, map[string]string{
		"initial_input_tokens": partOf, "tool_use_tokens_by_modality.tokens": partOf,
	}},
	{llm.APIGeminiInteractions, "metadata", interactions.StepDeltaMetadata{}, map[string]string{
		"total_usage.initial_input_tokens": partOf, "total_usage.tool_use_tokens_by_modality.tokens": partOf,
	}},
	{llm.APIBedrockConverse, "usage", types.TokenUsage{}, nil},
}

var brackets = regexp.MustCompile(`\[[^\]]*\]|^\+`)

// TestSDKsKnowNoOtherCounts reads the types in which the official SDKs have the usage of an answer. Each number there is one that a format
// of package llm names, or one that is excused here. A new version of an SDK with a new count fails the test.
func TestSDKsKnowNoOtherCounts(t *testing.T) {
	for _, r := range reports {
		named := map[string]bool{}
		for _, f := range llm.Formats() {
			for place := range f.Usage {
				if f.API == r.api {
					named[brackets.ReplaceAllString(place, "")] = true
				}
			}
		}
		members := numbers(reflect.TypeOf(r.kind), "", nil)
		if len(members) < 2 {
			t.Errorf("%T has the numbers %q, want more", r.kind, members)
		}
		for _, member := range members {
			_, excused := r.excused[member]
			switch place := r.at + "." + member; {
			case named[place] && excused:
				t.Errorf("%s of %T is read, and excused all the same", place, r.kind)
			case !named[place] && !excused:
				t.Errorf("%s of %T is not read: name it in the format of %s, or excuse it here", place, r.kind, r.api)
			}
		}
		for member := range r.excused {
			if !slices.Contains(members, member) {
				t.Errorf("%s of %T is excused, and is not there", member, r.kind)
			}
		}
	}
}

// numbers returns the members of a type and of the types of its members that are numbers.
func numbers(kind reflect.Type, at string, above []reflect.Type) (all []string) {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	switch {
	case kind.Kind() >= reflect.Int && kind.Kind() <= reflect.Float64:
		return []string{at}
	case kind.Kind() != reflect.Struct || slices.Contains(above, kind):
		return nil
	}
	for i := range kind.NumField() {
		field := kind.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() && !field.Anonymous {
			continue
		}
		if name == "" { // Amazon's
			first := []rune(field.Name)
			first[0] = unicode.ToLower(first[0])
			name = string(first)
		}
		place := strings.TrimPrefix(at+"."+name, ".")
		if field.Tag.Get("json") == "" && strings.HasPrefix(field.Name, "Of") { // a form that a union has
			place = at
		}
		all = append(all, numbers(field.Type, place, append(above, kind))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
