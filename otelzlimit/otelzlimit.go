package otelzlimit

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/zlimit/zlimit-go/zlimit"
)

// scope is the name of the instrumentation.
const scope = "github.com/zlimit/zlimit-go/otelzlimit"

// An Option changes what [New] reports.
type Option func(*observer)

// WithEntities adds the attribute zlimit.entity to what these entities do. Each entity adds as many series as a limiter
// has without it, so list few.
func WithEntities(entities ...string) Option {
	return func(o *observer) {
		for _, e := range entities {
			o.entities[e] = true
		}
	}
}

type observer struct {
	entities   map[string]bool
	requests   metric.Int64Counter
	duration   metric.Float64Histogram
	tokens     metric.Int64Counter
	returned   metric.Int64Counter
	operations metric.Int64Counter
	units      metric.Float64Counter
	shards     metric.Int64UpDownCounter
	slots      metric.Int64UpDownCounter
	lost       metric.Int64Counter
	wait       metric.Float64Histogram
}

// durations are the bounds of the histogram, in seconds: a call of DynamoDB takes milliseconds, one in memory microseconds.
var durations = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// waits are the bounds of the histogram of waits, in seconds: callers wait for anything from moments to hours.
var waits = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

// New returns an observer that reports events as metrics of a provider, for [zlimit.WithObserver]. It is safe for concurrent
// use.
func New(provider metric.MeterProvider, opts ...Option) (zlimit.Observer, error) {
	if provider == nil {
		return nil, &zlimit.ValidationError{Field: "meter provider", Value: "nil", Reason: "must not be nil"}
	}
	o := &observer{entities: map[string]bool{}}
	for _, opt := range opts {
		if opt == nil {
			return nil, &zlimit.ValidationError{Field: "option", Value: "nil", Reason: "must not be nil"}
		}
		opt(o)
	}
	m := provider.Meter(scope)
	var errs [10]error
	o.requests, errs[0] = m.Int64Counter(metricRequests, metric.WithUnit("{request}"),
		metric.WithDescription("Requests that were decided."))
	o.duration, errs[1] = m.Float64Histogram(metricDuration, metric.WithUnit("s"),
		metric.WithDescription("How long a decision or a settlement took."), metric.WithExplicitBucketBoundaries(durations...))
	o.tokens, errs[2] = m.Int64Counter(metricTokens, metric.WithUnit("{token}"),
		metric.WithDescription("Tokens taken: by requests when they were admitted, and by corrections afterwards."))
	o.returned, errs[6] = m.Int64Counter(metricReturned, metric.WithUnit("{token}"),
		metric.WithDescription("Tokens given back by corrections: less was used than taken, or nothing."))
	o.operations, errs[3] = m.Int64Counter(metricOperations, metric.WithUnit("{call}"),
		metric.WithDescription("Calls of the store."))
	o.units, errs[4] = m.Float64Counter(metricUnits, metric.WithUnit("{unit}"),
		metric.WithDescription("Read and write units that the store reports."))
	o.shards, errs[5] = m.Int64UpDownCounter(metricShards, metric.WithUnit("{item}"),
		metric.WithDescription("Items that this process has added to buckets by splitting them, less those that it has merged."))
	o.slots, errs[7] = m.Int64UpDownCounter(metricSlots, metric.WithUnit("{slot}"),
		metric.WithDescription("Slots that this process holds."))
	o.lost, errs[8] = m.Int64Counter(metricLost, metric.WithUnit("{slot}"),
		metric.WithDescription("Slots that this process has lost: the store was not reached in time, or the limiter was closed."))
	o.wait, errs[9] = m.Float64Histogram(metricWait, metric.WithUnit("s"),
		metric.WithDescription("How long requests that wait have to wait for their tokens, and of refused ones the queue that they met."),
		metric.WithExplicitBucketBoundaries(waits...))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return o.observe, nil
}

func (o *observer) observe(ctx context.Context, e zlimit.Event) {
	switch e.Kind {
	case zlimit.EventDecision:
		o.decision(ctx, &e)
	case zlimit.EventSettle:
		o.settlement(ctx, &e)
	case zlimit.EventStore:
		call := attribute.String(attributeStoreCall, e.Operation)
		o.operations.Add(ctx, 1, metric.WithAttributes(call, attribute.String(attributeOutcome, string(e.Result))))
		if e.ReadUnits > 0 {
			o.units.Add(ctx, e.ReadUnits, metric.WithAttributes(call, attribute.String(attributeUnit, "read")))
		}
		if e.WriteUnits > 0 {
			o.units.Add(ctx, e.WriteUnits, metric.WithAttributes(call, attribute.String(attributeUnit, "write")))
		}
	case zlimit.EventShards:
		o.shards.Add(ctx, int64(e.Shards), metric.WithAttributes(attribute.String(attributeResource, e.Resource)))
	case zlimit.EventSlots:
		o.held(ctx, &e)
	case zlimit.EventConfig, zlimit.EventOutage, zlimit.EventManual, zlimit.EventAlert: // for logs
	}
}

func (o *observer) decision(ctx context.Context, e *zlimit.Event) {
	refusedBy := ""
	if e.Limit != "" {
		refusedBy = zlimit.Status{Ancestor: e.Ancestor}.Level()
	}
	o.requests.Add(ctx, 1, o.attributes(e, attribute.String(attributeLimit, e.Limit), attribute.String(attributeLevel, refusedBy)))
	o.duration.Record(ctx, e.Duration.Seconds(), o.attributes(e, attribute.String(attributeOperation, e.Operation)))
	o.waited(ctx, e)
	if e.Result != zlimit.ResultOK {
		return
	}
	for _, a := range e.Amounts {
		if s, ok := e.Statuses.Limit(a.Limit); ok && s.Limit.Term > 0 { // slots have their own events
			continue
		}
		o.tokens.Add(ctx, a.Tokens, metric.WithAttributeSet(o.set(e, attribute.String(attributeLimit, a.Limit))))
	}
}

// waited records the wait of a request that waits. That of a refused one is the longest queue of its limits.
func (o *observer) waited(ctx context.Context, e *zlimit.Event) {
	if e.Operation != zlimit.OpWait && e.Operation != zlimit.OpReserve {
		return
	}
	wait := e.Wait
	switch e.Result {
	case zlimit.ResultOK:
	case zlimit.ResultRejected:
		for _, s := range e.Statuses {
			wait = max(wait, s.Queue)
		}
	default:
		return
	}
	o.wait.Record(ctx, wait.Seconds(), o.attributes(e))
}

// held counts the slots that this process holds.
func (o *observer) held(ctx context.Context, e *zlimit.Event) {
	for _, a := range e.Amounts {
		set := metric.WithAttributeSet(o.set(e, attribute.String(attributeLimit, a.Limit)))
		switch e.Operation {
		case zlimit.OpTakeSlots:
			o.slots.Add(ctx, a.Tokens, set)
		case zlimit.OpLoseSlots:
			o.lost.Add(ctx, a.Tokens, set)
			o.slots.Add(ctx, -a.Tokens, set)
		default:
			o.slots.Add(ctx, -a.Tokens, set)
		}
	}
}

// settlement counts the tokens that corrections took and gave back.
func (o *observer) settlement(ctx context.Context, e *zlimit.Event) {
	o.duration.Record(ctx, e.Duration.Seconds(), o.attributes(e, attribute.String(attributeOperation, e.Operation)))
	if e.Result != zlimit.ResultOK {
		return
	}
	for _, a := range e.Amounts {
		set := metric.WithAttributeSet(o.set(e, attribute.String(attributeLimit, a.Limit)))
		if a.Tokens > 0 {
			o.tokens.Add(ctx, a.Tokens, set)
		} else if a.Tokens < 0 {
			o.returned.Add(ctx, -a.Tokens, set)
		}
	}
}

// attributes returns the attributes of an event, and more. They leave out a resource without limits, since clients may make up
// such resources.
func (o *observer) attributes(e *zlimit.Event, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(o.set(e, append(more, attribute.String(attributeResult, string(e.Result)))...))
}

func (o *observer) set(e *zlimit.Event, more ...attribute.KeyValue) attribute.Set {
	all := make([]attribute.KeyValue, 0, 4)
	if e.Result != zlimit.ResultNoLimits && e.Result != zlimit.ResultInvalid {
		all = append(all, attribute.String(attributeResource, e.Resource))
	}
	if o.entities[e.Entity] {
		all = append(all, attribute.String(attributeEntity, e.Entity))
	}
	for _, a := range more {
		if a.Value.AsString() != "" {
			all = append(all, a)
		}
	}
	return attribute.NewSet(all...)
}
