package otelzlimit

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
)

// tokenBounds are the bounds of the histogram that the conventions advise.
var tokenBounds = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}

// providers are the values of gen_ai.provider.name.
var providers = map[llm.API]string{
	llm.OpenAIChat: "openai", llm.OpenAIResponses: "openai", llm.AnthropicMessages: "anthropic",
	llm.GeminiContent: "gcp.gemini", llm.BedrockConverse: "aws.bedrock",
}

// Usage returns an observer of calls of language models, for [llm.WithObserver]. It reports their tokens as
// gen_ai.client.token.usage, of type input, with what came from a cache, and output. It does not report calls whose
// usage is an estimate. The model is the resource that is limited, so that models that clients make up are no series.
// It is safe for concurrent use.
func Usage(provider metric.MeterProvider) (func(context.Context, llm.Report), error) {
	if provider == nil {
		return nil, &zlimit.ValidationError{Field: "meter provider", Value: "nil", Reason: "must not be nil"}
	}
	usage, err := provider.Meter(scope).Int64Histogram(metricTokenUsage, metric.WithUnit("{token}"),
		metric.WithDescription("Number of input and output tokens used."), metric.WithExplicitBucketBoundaries(tokenBounds...))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r llm.Report) {
		if !r.Usage.Complete {
			return
		}
		operation := "chat"
		if r.Call.API == llm.GeminiContent {
			operation = "generate_content"
		}
		record := func(kind string, tokens int64) {
			usage.Record(ctx, tokens, metric.WithAttributes(
				attribute.String(attributeProvider, providers[r.Call.API]), attribute.String(attributeOperationAI, operation),
				attribute.String(attributeRequestModel, r.Resource), attribute.String(attributeTokenType, kind),
			))
		}
		record("input", r.Usage.Input+r.Usage.CacheRead+r.Usage.CacheWrite)
		record("output", r.Usage.Output)
	}, nil
}
