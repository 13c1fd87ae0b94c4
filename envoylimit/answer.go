package envoylimit

import (
	"context"
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/zlimit/zlimit-go/zlimit"
)

// answer returns the answer to a request.
func (s *Service) answer(t *turn) (*pb.RateLimitResponse, error) {
	out := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}
	if t.refused && !t.shadow {
		out.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	now := s.options.now()
	var tightest *pb.RateLimitResponse_DescriptorStatus
	for i := range t.asks {
		status := t.asks[i].status(now)
		out.Statuses = append(out.Statuses, status)
		if status.CurrentLimit == nil {
			continue
		}
		if tightest == nil || status.Code > tightest.Code || status.Code == tightest.Code && status.LimitRemaining < tightest.LimitRemaining {
			tightest = status
		}
	}
	if t.headers && tightest != nil {
		out.ResponseHeadersToAdd = headersOf(tightest)
	}
	var err error
	out.DynamicMetadata, err = t.metadata()
	return out, err
}

// status returns the status of a descriptor.
func (a *ask) status(now time.Time) *pb.RateLimitResponse_DescriptorStatus {
	out := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
	if a.refused {
		out.Code = pb.RateLimitResponse_OVER_LIMIT
	}
	if a.kind == askUnlimited {
		out.LimitRemaining = math.MaxUint32
	}
	if a.kind != askLimit && a.kind != askBlocked {
		return out
	}
	tight := a.tightest()
	if a.limit != nil {
		out.CurrentLimit = &pb.RateLimitResponse_RateLimit{Name: a.limit.name, RequestsPerUnit: a.limit.perUnit, Unit: a.limit.unit}
	}
	if tight == nil {
		return out
	}
	limit := tight.Now()
	if out.CurrentLimit == nil {
		out.CurrentLimit = &pb.RateLimitResponse_RateLimit{Name: limit.Name, Unit: unitOf(&tight.Limit)}
	}
	// The stored limit holds, also where an operator has changed it.
	out.CurrentLimit.RequestsPerUnit = clamp(limit.Capacity)
	if limit.Resets == "" && limit.RefillAmount > 0 && out.CurrentLimit.Unit != pb.RateLimitResponse_RateLimit_UNKNOWN {
		out.CurrentLimit.RequestsPerUnit = clamp(limit.RefillAmount)
	}
	out.LimitRemaining = clamp(tight.Available)
	if wait := resetOf(tight, now); wait > 0 {
		out.DurationUntilReset = durationpb.New(wait)
	}
	return out
}

// tightest returns the status that refuses, or the one with the least left, nil for none.
func (a *ask) tightest() *zlimit.Status {
	var tight *zlimit.Status
	for i := range a.statuses {
		status := &a.statuses[i]
		if _, asked := a.amounts[status.Limit.Name]; !asked {
			continue
		}
		if tight == nil || status.Exceeded && !tight.Exceeded || status.Exceeded == tight.Exceeded && status.Available < tight.Available {
			tight = status
		}
	}
	return tight
}

// resetOf returns the time until a limit has what was asked, or is complete again; 0 where that is unknown.
func resetOf(s *zlimit.Status, now time.Time) time.Duration {
	limit := s.Now()
	switch {
	case !s.ResetsAt.IsZero():
		return max(0, s.ResetsAt.Sub(now))
	case s.RetryAfter == zlimit.Never:
		return 0
	case s.Exceeded && s.RetryAfter > 0:
		return s.RetryAfter
	case limit.RefillAmount <= 0:
		return 0
	}
	missing := float64(max(0, limit.Capacity-s.Available))
	seconds := missing / float64(limit.RefillAmount) * limit.RefillPeriod.Seconds()
	return time.Duration(min(seconds, 1e9) * float64(time.Second))
}

// clamp returns a number of tokens in 32 bits.
func clamp(tokens int64) uint32 { return uint32(min(max(tokens, 0), math.MaxUint32)) }

// headersOf returns the headers of a status.
func headersOf(s *pb.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	reset := math.Ceil(s.GetDurationUntilReset().AsDuration().Seconds())
	return []*core.HeaderValue{
		{Key: "RateLimit-Limit", Value: strconv.FormatUint(uint64(s.GetCurrentLimit().GetRequestsPerUnit()), 10)},
		{Key: "RateLimit-Remaining", Value: strconv.FormatUint(uint64(s.GetLimitRemaining()), 10)},
		{Key: "RateLimit-Reset", Value: strconv.FormatInt(int64(reset), 10)},
	}
}

// metadata returns the metadata of an answer, nil for none.
func (t *turn) metadata() (*structpb.Struct, error) {
	out := map[string]any{}
	if t.lease != "" {
		out[leaseKey] = t.lease
	}
	if t.Metadata {
		out["domain"] = t.request.GetDomain()
		if n := t.request.GetHitsAddend(); n != 0 {
			out["hitsAddend"] = n
		}
		var descriptors []any
		passed := map[string]any{}
		for i, from := range t.request.GetDescriptors() {
			if a := &t.asks[i]; a.kind != askSettlement { // whose token belongs to the caller alone
				descriptors = append(descriptors, described(from))
				if a.limit != nil && !a.refused && a.kind == askLimit {
					merge(passed, a.limit.metadata)
				}
			}
		}
		out["descriptors"] = descriptors
		if len(passed) > 0 {
			out["metadata"] = passed
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return structpb.NewStruct(out)
}

// described is a descriptor in metadata.
func described(from *common.RateLimitDescriptor) map[string]any {
	var entries []any
	for _, e := range from.GetEntries() {
		entries = append(entries, e.GetKey()+"="+e.GetValue())
	}
	out := map[string]any{"entries": entries}
	if from.GetLimit() != nil {
		out["limit"] = from.GetLimit().String()
	}
	if from.GetHitsAddend() != nil {
		out["hitsAddend"] = from.GetHitsAddend().GetValue()
	}
	return out
}

// merge adds fields to others, which keep what they have.
func merge(to, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		has, ok := to[key]
		into, hasMap := has.(map[string]any)
		switch {
		case !ok && isMap: // a copy, since later ones are merged into it
			copied := map[string]any{}
			merge(copied, inner)
			to[key] = copied
		case !ok:
			to[key] = value
		case isMap && hasMap:
			merge(into, inner)
		}
	}
}

// count counts the hits of a request by limit and result.
func (s *Service) count(ctx context.Context, t *turn) {
	if s.counter == nil {
		return
	}
	for i := range t.asks {
		a := &t.asks[i]
		if a.limit == nil || a.kind != askLimit && a.kind != askBlocked || a.hits == 0 {
			continue
		}
		result := "within"
		switch tight := a.tightest(); {
		case a.refused:
			result = "over"
		case tight == nil:
		case tight.Foreseen:
			result = "shadow"
		case float64(tight.Available) < (1-t.near)*float64(tight.Now().Capacity):
			result = "near"
		}
		s.counter.Add(ctx, a.hits, metric.WithAttributes(
			attribute.String("domain", t.name), attribute.String("limit", a.limit.path), attribute.String("result", result)))
	}
}
