package connectlimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A cause keeps an error of the limiter for errors.As, behind the text that goes over the wire.
type cause struct {
	text string
	err  error
}

// Error returns the text that goes over the wire.
func (c *cause) Error() string { return c.text }

// Unwrap returns the error of the limiter.
func (c *cause) Unwrap() error { return c.err }

// Error returns an error of the limiter as a [*connect.Error]; [errors.As] still finds what it was:
//
//	*zlimit.ExceededError                        resource_exhausted, with RetryInfo and QuotaFailure
//	*zlimit.ValidationError                      invalid_argument
//	zlimit.ErrNoLimits                           permission_denied
//	*zlimit.UnavailableError, zlimit.ErrContended, zlimit.ErrClosed    unavailable
//	the end of a context                         canceled or deadline_exceeded
//	anything else                                internal
//
// An error that is a [*connect.Error] stays as it is, and nil is nil. What goes over the wire names no entity and no cause.
func Error(err error) error {
	var known *connect.Error
	var exceeded *zlimit.ExceededError
	var invalid *zlimit.ValidationError
	var unavailable *zlimit.UnavailableError
	fail := func(code connect.Code, text string) *connect.Error { return connect.NewError(code, &cause{text, err}) }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.As(err, &exceeded):
		failed := fail(connect.CodeResourceExhausted, "quota exceeded")
		describe(failed, exceeded)
		return failed
	case errors.As(err, &invalid):
		return fail(connect.CodeInvalidArgument, "the "+invalid.Field+" "+invalid.Reason)
	case errors.Is(err, zlimit.ErrNoLimits):
		return fail(connect.CodePermissionDenied, "no quota")
	case errors.As(err, &unavailable), errors.Is(err, zlimit.ErrContended), errors.Is(err, zlimit.ErrClosed):
		return fail(connect.CodeUnavailable, "the limits are temporarily unavailable")
	case errors.Is(err, context.Canceled):
		return fail(connect.CodeCanceled, "the call was canceled")
	case errors.Is(err, context.DeadlineExceeded):
		return fail(connect.CodeDeadlineExceeded, "the deadline of the call has passed")
	default:
		return fail(connect.CodeInternal, "the call could not be limited")
	}
}

// describe adds to an error which limits refused a call, and when to try again.
func describe(to *connect.Error, err *zlimit.ExceededError) {
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
	details := []proto.Message{quota}
	if err.Possible() {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(err.RetryAfter())})
		milliseconds := (err.RetryAfter() + time.Millisecond - 1) / time.Millisecond
		to.Meta().Set("Retry-After", err.RetryAfterHeader())
		to.Meta().Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(int64(milliseconds), 10))
	} else {
		to.Meta().Set("Grpc-Retry-Pushback-Ms", "-1")
	}
	for _, d := range details {
		if detail, failed := connect.NewErrorDetail(d); failed == nil {
			to.AddDetail(detail)
		}
	}
}
