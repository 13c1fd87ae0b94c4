package otelzlimit

// The names of the metrics and attributes of a limiter. They have the shape of aspnetcore.rate_limiting, the only stable
// conventions for rate limits.
const (
	metricRequests   = "zlimit.requests"
	metricDuration   = "zlimit.request.duration"
	metricTokens     = "zlimit.tokens"
	metricReturned   = "zlimit.tokens.returned"
	metricOperations = "zlimit.store.operations"
	metricUnits      = "zlimit.store.units"
	metricShards     = "zlimit.shards"
	metricSlots      = "zlimit.slots"
	metricLost       = "zlimit.slots.lost"
	metricWait       = "zlimit.request.wait"

	attributeResult    = "zlimit.result"
	attributeResource  = "zlimit.resource"
	attributeLimit     = "zlimit.limit"
	attributeLevel     = "zlimit.limit.level"
	attributeOperation = "zlimit.operation"
	attributeEntity    = "zlimit.entity"
	attributeStoreCall = "zlimit.store.operation"
	attributeOutcome   = "zlimit.store.outcome"
	attributeUnit      = "zlimit.store.unit"
)

// The names of open-telemetry/semantic-conventions-genai, which are in development and may change.
const (
	metricInferenceDuration = "gen_ai.client.inference.duration"
	metricFirstChunk        = "gen_ai.client.inference.time_to_first_chunk"
	metricInput             = "gen_ai.client.inference.usage.input_tokens"
	metricOutput            = "gen_ai.client.inference.usage.output_tokens"
	metricCacheRead         = "gen_ai.client.inference.usage.cache_read.input_tokens"
	metricCacheWrite        = "gen_ai.client.inference.usage.cache_write.input_tokens"
	metricReasoning         = "gen_ai.client.inference.usage.reasoning.output_tokens"

	attributeProvider      = "gen_ai.provider.name"
	attributeOperationAI   = "gen_ai.operation.name"
	attributeRequestModel  = "gen_ai.request.model"
	attributeResponseModel = "gen_ai.response.model"
	attributeModality      = "gen_ai.token.modality"
	attributeErrorType     = "error.type"
	attributeServer        = "server.address"
)

// The names outside all conventions.
const (
	metricCalls    = "zlimit.model.calls"
	metricMismatch = "zlimit.model.mismatch"

	attributeUsage = "zlimit.model.usage"
)
