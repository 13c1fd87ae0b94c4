package otelzlimit

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
)

// The bounds of histograms that the conventions advise, in seconds.
var (
	inferenceBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	chunkBounds     = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
)

// hosts are the values of gen_ai.provider.name, by the ends of the names of hosts.
var hosts = []struct{ end, provider string }{
	{".openai.azure.com", "azure.ai.openai"},
	{".cognitiveservices.azure.com", "azure.ai.openai"},
	{".services.ai.azure.com", "azure.ai.inference"},
	{"aiplatform.googleapis.com", "gcp.vertex_ai"},
	{"generativelanguage.googleapis.com", "gcp.gemini"},
	{".amazonaws.com", "aws.bedrock"},
	{"api.groq.com", "groq"},
	{"api.deepseek.com", "deepseek"},
	{"api.mistral.ai", "mistral_ai"},
	{"api.x.ai", "x_ai"},
	{"api.perplexity.ai", "perplexity"},
	{"api.moonshot.ai", "moonshot_ai"},
	{"api.cohere.com", "cohere"},
	{"openrouter.ai", "openrouter"},
}

// providers has the provider of each API, for hosts that are not known. A server that speaks the protocol of OpenAI is one of
// its format to the conventions.
var providers = map[llm.API]string{
	llm.APIAnthropicMessages: "anthropic",
	llm.APIGeminiContent:     "gcp.gemini", llm.APIGeminiInteractions: "gcp.gemini", llm.APIGeminiEmbeddings: "gcp.gemini",
	llm.APIVertexRaw: "gcp.vertex_ai", llm.APIVertexPredict: "gcp.vertex_ai",
	llm.APIBedrockConverse: "aws.bedrock", llm.APIBedrockInvoke: "aws.bedrock",
	llm.APIOllamaChat: "ollama", llm.APIOllamaEmbeddings: "ollama",
}

func providerOf(r *llm.Report) string {
	host := hostOf(r)
	for _, h := range hosts {
		if strings.HasSuffix(host, h.end) {
			return h.provider
		}
	}
	if provider, ok := providers[r.Call.API]; ok {
		return provider
	}
	return "openai"
}

// hostOf returns the name of the host without a port.
func hostOf(r *llm.Report) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return r.Host
}

// operations are the values of gen_ai.operation.name; others are "chat".
var operations = map[llm.API]string{
	llm.APIGeminiContent: "generate_content", llm.APIGeminiInteractions: "generate_content",
	llm.APIOpenAIImages: "generate_content", llm.APIOpenAIAudio: "generate_content", llm.APIVertexPredict: "generate_content",
	llm.APIOpenAICompletions: "text_completion",
	llm.APIOpenAIEmbeddings:  "embeddings", llm.APIGeminiEmbeddings: "embeddings", llm.APIOllamaEmbeddings: "embeddings",
}

func operationOf(api llm.API) string {
	if operation, ok := operations[api]; ok {
		return operation
	}
	return "chat"
}

// A usage holds the instruments for calls of models.
type usage struct {
	duration, first metric.Float64Histogram
	calls, mismatch metric.Int64Counter
	tokens          map[string]metric.Int64Counter
}

// Usage returns an observer of calls of language models, for [llm.WithObserver]. It reports each admitted call by the
// conventions: its duration, the time of its first byte, and its tokens as the provider reports them. The counter
// zlimit.model.calls counts the calls with a reported usage, and those with an estimate. zlimit.model.mismatch counts the
// tokens by which providers' totals differ from their counts. zlimit.tokens has the amounts taken of limits.
//
// The model and the host of a request are attributes only after success, so models that clients make up are no series.
// It is safe for concurrent use.
func Usage(provider metric.MeterProvider) (func(context.Context, llm.Report), error) {
	if provider == nil {
		return nil, &zlimit.ValidationError{Field: "meter provider", Value: "nil", Reason: "must not be nil"}
	}
	m, u := provider.Meter(scope), &usage{tokens: map[string]metric.Int64Counter{}}
	var errs [9]error
	u.duration, errs[0] = m.Float64Histogram(metricInferenceDuration, metric.WithUnit("s"),
		metric.WithDescription("Time from sending a request to the end of its answer."), metric.WithExplicitBucketBoundaries(inferenceBounds...))
	u.first, errs[1] = m.Float64Histogram(metricFirstChunk, metric.WithUnit("s"),
		metric.WithDescription("Time from sending a request to the first byte of a streamed answer."), metric.WithExplicitBucketBoundaries(chunkBounds...))
	u.calls, errs[2] = m.Int64Counter(metricCalls, metric.WithUnit("{call}"), metric.WithDescription("Calls of models that were admitted."))
	for i, name := range []string{metricInput, metricOutput, metricCacheRead, metricCacheWrite, metricReasoning} {
		u.tokens[name], errs[3+i] = m.Int64Counter(name, metric.WithUnit("{token}"), metric.WithDescription("Tokens that providers report."))
	}
	u.mismatch, errs[8] = m.Int64Counter(metricMismatch, metric.WithUnit("{token}"), metric.WithDescription("Tokens by which the totals of providers differ from their counts."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return u.observe, nil
}

func (u *usage) observe(ctx context.Context, r llm.Report) {
	if r.Status == 0 && r.Err != nil && r.Unknown != "" {
		return // was not sent
	}
	common := []attribute.KeyValue{
		attribute.String(attributeProvider, providerOf(&r)), attribute.String(attributeOperationAI, operationOf(r.Call.API)),
		attribute.String(attributeResource, r.Resource),
	}
	failure := failureOf(&r)
	if failure == "" {
		common = append(common, attribute.String(attributeRequestModel, r.Call.Model),
			attribute.String(attributeResponseModel, r.Usage.Model), attribute.String(attributeServer, hostOf(&r)))
	}
	u.count(ctx, &r, failure, common)
	u.time(ctx, &r, failure, common)
	u.spend(ctx, &r.Usage, common)
	if n := r.Usage.Mismatch; n != 0 {
		u.mismatch.Add(ctx, max(n, -n), metric.WithAttributes(common...))
	}
}

// failureOf returns the class of the error that a call ended with; "" for none.
func failureOf(r *llm.Report) string {
	switch {
	case r.Status == 0:
		return "no_answer"
	case r.Status < 200 || r.Status > 299:
		return strconv.Itoa(r.Status)
	default:
		return ""
	}
}

func (u *usage) count(ctx context.Context, r *llm.Report, failure string, common []attribute.KeyValue) {
	source := "estimated"
	switch {
	case r.Usage.Complete:
		source = "reported"
	case failure != "":
		source = "none"
	}
	u.calls.Add(ctx, 1, metric.WithAttributes(append(common[:len(common):len(common)],
		attribute.String(attributeUsage, source))...), errorType(failure))
}

func (u *usage) time(ctx context.Context, r *llm.Report, failure string, common []attribute.KeyValue) {
	set := metric.WithAttributes(common...)
	u.duration.Record(ctx, r.Duration.Seconds(), set, errorType(failure))
	if r.Call.Stream && r.FirstByte > 0 && failure == "" {
		u.first.Record(ctx, r.FirstByte.Seconds(), set)
	}
}

func errorType(failure string) metric.MeasurementOption {
	if failure == "" {
		return metric.WithAttributes()
	}
	return metric.WithAttributes(attribute.String(attributeErrorType, failure))
}

// spend counts the tokens that a provider reports. An estimate counts as 0 of unknown modality, as the conventions say.
func (u *usage) spend(ctx context.Context, n *llm.Usage, common []attribute.KeyValue) {
	if !n.Complete {
		n = &llm.Usage{}
	}
	add := func(name string, tokens int64, modality string) {
		u.tokens[name].Add(ctx, tokens, metric.WithAttributes(append(common[:len(common):len(common)], attribute.String(attributeModality, modality))...))
	}
	add(metricInput, n.Input+n.CacheRead+n.CacheWrite-n.AudioInput, "unknown")
	add(metricOutput, n.Output-n.AudioOutput, "unknown")
	for _, part := range []struct {
		name, modality string
		tokens         int64
	}{
		{metricInput, "audio", n.AudioInput},
		{metricOutput, "audio", n.AudioOutput},
		{metricCacheRead, "unknown", n.CacheRead},
		{metricCacheWrite, "unknown", n.CacheWrite},
		{metricReasoning, "unknown", n.Reasoning},
	} {
		if part.tokens > 0 {
			add(part.name, part.tokens, part.modality)
		}
	}
}
