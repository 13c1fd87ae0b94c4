package otelzlimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/otelzlimit"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestTraces follows two leases of a limiter through their spans.
func TestTraces(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	observe := check.Call(otelzlimit.Traces(provider)).Must(t, "otelzlimit.Traces()")
	limiter, err := zlimit.Open(t.Context(), "memory:", zlimit.WithObserver(observe), zlimit.WithClock(zlimittest.NewClock().Now))
	check.Fatal(t, "zlimit.Open()", err)
	defer limiter.Close()
	check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 100)}}))
	ctx, parent := provider.Tracer("test").Start(t.Context(), "request")
	take := func(n int64) (*zlimit.Lease, error) {
		return limiter.Acquire(ctx, zlimit.Request{Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"tpm": n}})
	}
	first := check.Call(take(40)).Must(t, "take()")
	second := check.Call(take(50)).Must(t, "take()")
	if _, err := take(50); err == nil {
		t.Fatal("150 of 100 are admitted")
	}
	check.Fatal(t, "Adjust() and Commit() and Rollback()", errors.Join(first.Adjust(zlimit.Amounts{"tpm": -15}), first.Commit(ctx), second.Rollback(ctx)))
	parent.End()
	spans := recorder.Ended()
	if len(spans) != 6 {
		t.Fatalf("%d spans, want 5 and that of the request", len(spans))
	}
	for i, want := range []struct {
		name, result string
		tokens       int64
		link         int // the span of the decision; -1 for none
	}{{"zlimit acquire", "ok", 40, -1}, {"zlimit acquire", "ok", 50, -1}, {"zlimit acquire", "rejected", 50, -1}, {"zlimit commit", "ok", -15, 0}, {"zlimit rollback", "ok", -50, 1}} {
		span, has := spans[i], map[attribute.Key]attribute.Value{}
		for _, a := range span.Attributes() {
			has[a.Key] = a.Value
		}
		if span.Name() != want.name || has["zlimit.result"].AsString() != want.result || has["zlimit.tokens.tpm"].AsInt64() != want.tokens || has["zlimit.entity"].AsString() != "alice" {
			t.Errorf("span %d is %s with %v, want %+v", i, span.Name(), span.Attributes(), want)
		}
		if span.Parent().SpanID() != parent.SpanContext().SpanID() || span.Status().Code != codes.Unset {
			t.Errorf("span %d is no child of the request's, or failed", i)
		}
		switch links := span.Links(); {
		case want.link < 0 && len(links) > 0:
			t.Errorf("span %d has links", i)
		case want.link >= 0 && (len(links) != 1 || links[0].SpanContext.SpanID() != spans[want.link].SpanContext().SpanID()):
			t.Errorf("span %d has links %v, want that of span %d", i, links, want.link)
		}
	}
}

// TestTracesOfFailures makes spans of what failed, with the time that it took.
func TestTracesOfFailures(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	observe, err := otelzlimit.Traces(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	check.Fatal(t, "otelzlimit.Traces()", err)
	now := time.Now()
	observe(context.Background(), zlimit.Event{
		Kind: zlimit.EventDecision, Operation: "acquire", Result: zlimit.ResultUnavailable, Err: errors.New("no answer"), Time: now, Duration: time.Second,
	})
	observe(context.Background(), zlimit.Event{Kind: zlimit.EventStore, Operation: "write"})
	spans := recorder.Ended()
	if len(spans) != 1 || spans[0].Status().Code != codes.Error || len(spans[0].Events()) != 1 || spans[0].EndTime().Sub(spans[0].StartTime()) != time.Second {
		t.Errorf("the spans are %+v, want one that failed after a second", spans)
	}
	if _, err := otelzlimit.Traces(nil); err == nil {
		t.Error("Traces(nil) = nil")
	}
}
