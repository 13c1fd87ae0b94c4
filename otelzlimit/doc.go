// Package otelzlimit reports the work of a limiter as metrics of OpenTelemetry. It reports what calls of language
// models take by the conventions of OpenTelemetry for generative AI.
//
//	observer, err := otelzlimit.New(provider)
//	limiter, err := zlimit.Open(ctx, "dynamodb:limits", zlimit.WithObserver(observer))
//	usage, err := otelzlimit.Usage(provider)
//	transport, err := llm.NewTransport(limiter, llm.For("team-a"), llm.WithObserver(usage))
//
// [Traces] makes spans of decisions and settlements. Entities are no attributes of metrics, unless they are listed. However
// many they are, the number of series is that of the resources, limits and results. The page docs/telemetry.md in the
// repository lists the metrics, with a dashboard and alerts.
package otelzlimit
