package otelzlimit

// The names of the metrics and attributes of a limiter. They have the shape of aspnetcore.rate_limiting, the only stable
// conventions for rate limits.
const (
	metricRequests   = "zlimit.requests"
	metricDuration   = "zlimit.request.duration"
	metricTokens     = "zlimit.tokens"
	metricOperations = "zlimit.store.operations"
	metricUnits      = "zlimit.store.units"
	metricShards     = "zlimit.shards"

	attributeResult    = "zlimit.result"
	attributeResource  = "zlimit.resource"
	attributeLimit     = "zlimit.limit"
	attributeOperation = "zlimit.operation"
	attributeEntity    = "zlimit.entity"
	attributeStoreCall = "zlimit.store.operation"
	attributeOutcome   = "zlimit.store.outcome"
	attributeUnit      = "zlimit.store.unit"
)

// The names of open-telemetry/semantic-conventions-genai, which are in development and may change.
const (
	metricTokenUsage = "gen_ai.client.token.usage"

	attributeProvider     = "gen_ai.provider.name"
	attributeOperationAI  = "gen_ai.operation.name"
	attributeRequestModel = "gen_ai.request.model"
	attributeTokenType    = "gen_ai.token.type"
)
