package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A refusal is an error of the limiter with its status.
type refusal struct {
	err    error
	status *status.Status
}

// Error returns the text of the status.
func (r *refusal) Error() string { return r.status.Err().Error() }

// Unwrap returns the error of the limiter.
func (r *refusal) Unwrap() error { return r.err }

// GRPCStatus returns the status that goes over the wire.
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// Error returns an error of the limiter as one with a status of gRPC; [errors.As] still finds what it was:
//
//	*zlimit.ExceededError                        RESOURCE_EXHAUSTED, with RetryInfo and QuotaFailure
//	*zlimit.ValidationError                      INVALID_ARGUMENT
//	zlimit.ErrNoLimits                           PERMISSION_DENIED
//	*zlimit.UnavailableError, zlimit.ErrContended, zlimit.ErrClosed    UNAVAILABLE
//	the end of a context                         CANCELLED or DEADLINE_EXCEEDED
//	anything else                                INTERNAL
//
// An error that has a status keeps it. The status names no entity and no cause. RetryInfo is left out of a rejection that
// no time can cure.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return &refusal{err, statusOf(err)}
}

func statusOf(err error) *status.Status {
	var exceeded *zlimit.ExceededError
	var invalid *zlimit.ValidationError
	var unavailable *zlimit.UnavailableError
	switch {
	case errors.As(err, &exceeded):
		return exhausted(exceeded)
	case errors.As(err, &invalid):
		return status.New(codes.InvalidArgument, "the "+invalid.Field+" "+invalid.Reason)
	case errors.Is(err, zlimit.ErrNoLimits):
		return status.New(codes.PermissionDenied, "no quota")
	case errors.As(err, &unavailable), errors.Is(err, zlimit.ErrContended), errors.Is(err, zlimit.ErrClosed):
		return status.New(codes.Unavailable, "the limits are temporarily unavailable")
	case errors.Is(err, context.Canceled):
		return status.New(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.New(codes.DeadlineExceeded, "the deadline of the call has passed")
	default:
		return status.New(codes.Internal, "the call could not be limited")
	}
}

// exhausted returns the status of a rejection.
func exhausted(err *zlimit.ExceededError) *status.Status {
	quota := &errdetails.QuotaFailure{}
	for _, s := range err.Violations() {
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
			Subject:     "resource:" + s.Resource,
			Description: fmt.Sprintf("%d requested, %d of %d available", s.Requested, max(0, s.Available), s.Limit.Capacity),
			QuotaMetric: s.Limit.Name,
			QuotaId:     s.Resource + "/" + s.Limit.Name,
			QuotaValue:  s.Limit.Capacity,
		})
	}
	details := []protoadapt.MessageV1{quota}
	if err.Possible() {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(err.RetryAfter())})
	}
	s := status.New(codes.ResourceExhausted, "quota exceeded")
	if detailed, failed := s.WithDetails(details...); failed == nil {
		return detailed
	}
	return s
}

// pushback returns the trailer that tells the retry policy of a client when to try again, by gRFC A6: after so many
// milliseconds, or never; nil for errors that are no rejections.
func pushback(err error) metadata.MD {
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		return nil
	}
	wait := "-1"
	if exceeded.Possible() {
		milliseconds := (exceeded.RetryAfter() + time.Millisecond - 1) / time.Millisecond
		wait = strconv.FormatInt(int64(milliseconds), 10)
	}
	return metadata.Pairs("grpc-retry-pushback-ms", wait)
}
