package otelzlimit

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/zlimit/zlimit-go/zlimit"
)

// leasesKept bounds for how many open leases the span of their decision is remembered.
const leasesKept = 10_000

// Traces returns an observer that makes a span of each decision and each settlement, within the span of the context of
// the limiter's caller. The span of a settlement has a link to that of its lease's decision. A rejection is no error of
// the span. Entity and resource are attributes. It is safe for concurrent use; [zlimit.Observers] adds it to others.
func Traces(provider trace.TracerProvider) (zlimit.Observer, error) {
	if provider == nil {
		return nil, &zlimit.ValidationError{Field: "tracer provider", Value: "nil", Reason: "must not be nil"}
	}
	t := &tracer{tracer: provider.Tracer(scope), leases: map[uint64]trace.SpanContext{}}
	return t.observe, nil
}

type tracer struct {
	tracer trace.Tracer

	mu     sync.Mutex
	leases map[uint64]trace.SpanContext // of the decisions about open leases
}

func (t *tracer) observe(ctx context.Context, e zlimit.Event) {
	switch e.Kind {
	case zlimit.EventDecision:
		t.remember(e.Lease, t.span(ctx, &e))
	case zlimit.EventSettle:
		var links []trace.Link
		if decision, ok := t.forget(e.Lease); ok {
			links = append(links, trace.Link{SpanContext: decision})
		}
		t.span(ctx, &e, trace.WithLinks(links...))
	default: // the client's own spans show the calls of the store
	}
}

func (t *tracer) span(ctx context.Context, e *zlimit.Event, opts ...trace.SpanStartOption) trace.SpanContext {
	attributes := []attribute.KeyValue{
		attribute.String(attributeEntity, e.Entity), attribute.String(attributeResource, e.Resource), attribute.String(attributeResult, string(e.Result)),
	}
	if e.Limit != "" {
		attributes = append(attributes, attribute.String(attributeLimit, e.Limit))
	}
	for _, a := range e.Amounts {
		attributes = append(attributes, attribute.Int64(metricTokens+"."+a.Limit, a.Tokens))
	}
	opts = append(opts, trace.WithTimestamp(e.Time.Add(-e.Duration)), trace.WithAttributes(attributes...))
	_, span := t.tracer.Start(ctx, "zlimit "+e.Operation, opts...)
	if e.Err != nil {
		span.RecordError(e.Err, trace.WithTimestamp(e.Time))
		span.SetStatus(codes.Error, string(e.Result))
	}
	span.End(trace.WithTimestamp(e.Time))
	return span.SpanContext()
}

func (t *tracer) remember(lease uint64, span trace.SpanContext) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.leases[lease]; ok || lease == 0 {
		return // of a later decision about the lease
	}
	for other := range t.leases {
		if len(t.leases) < leasesKept {
			break
		}
		delete(t.leases, other) // any one: most leases here were never settled
	}
	t.leases[lease] = span
}

func (t *tracer) forget(lease uint64) (trace.SpanContext, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	span, ok := t.leases[lease]
	delete(t.leases, lease)
	return span, ok
}
