package grpclimit

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/zlimit/zlimit-go/internal/edge/rpc"
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

// Error returns an error of the limiter as one with a status of gRPC; [errors.As] still finds the original:
//
//	*zlimit.ExceededError                        RESOURCE_EXHAUSTED, with RetryInfo and QuotaFailure
//	*zlimit.ValidationError                      INVALID_ARGUMENT
//	zlimit.ErrNoLimits, zlimit.ErrDisabled       PERMISSION_DENIED
//	*zlimit.UnavailableError, zlimit.ErrContended, zlimit.ErrClock, zlimit.ErrClosed    UNAVAILABLE
//	the end of a context                         CANCELLED or DEADLINE_EXCEEDED
//	anything else                                INTERNAL
//
// An error that has a status keeps it, except OK, which becomes INTERNAL: no refusal ends as a success. The status names no entity and no
// cause. RetryInfo is left out of a rejection that no time can cure.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		return err
	}
	return &refusal{err, statusOf(err)}
}

func statusOf(err error) *status.Status {
	code, text := rpc.Classify(err)
	s := status.New(codes.Code(code), text)
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		return s
	}
	quota := &errdetails.QuotaFailure{}
	for _, v := range rpc.Violations(exceeded) {
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
			Subject: v.Subject, Description: v.Description, QuotaMetric: v.QuotaMetric, QuotaId: v.QuotaID, QuotaValue: v.QuotaValue,
		})
	}
	details := []protoadapt.MessageV1{quota}
	if wait := exceeded.SpreadRetryAfter(); wait < zlimit.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	if detailed, failed := s.WithDetails(details...); failed == nil {
		return detailed
	}
	return s
}

// pushback returns the trailer that says when a client's retry policy may retry, by gRFC A6: after a number of milliseconds, or never. It
// returns nil for errors that are no rejections.
func pushback(err error) metadata.MD {
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		return nil
	}
	return metadata.Pairs("grpc-retry-pushback-ms", rpc.Pushback(exceeded))
}
