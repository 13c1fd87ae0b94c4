package connectlimit

import (
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/zlimit/zlimit-go/internal/edge/rpc"
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

// Error returns an error of the limiter as a [*connect.Error]; [errors.As] still finds the original:
//
//	*zlimit.ExceededError                        resource_exhausted, with RetryInfo and QuotaFailure
//	*zlimit.ValidationError                      invalid_argument
//	zlimit.ErrNoLimits, zlimit.ErrDisabled       permission_denied
//	*zlimit.UnavailableError, zlimit.ErrContended, zlimit.ErrClock, zlimit.ErrClosed    unavailable
//	the end of a context                         canceled or deadline_exceeded
//	anything else                                internal
//
// An error that is a [*connect.Error] stays as it is, except one of code 0, which becomes internal: gRPC would take it for a success. Nil is
// nil. The error on the wire names no entity and no
// cause.
func Error(err error) error {
	var known *connect.Error
	if err == nil || errors.As(err, &known) && known.Code() != 0 {
		return err
	}
	code, text := rpc.Classify(err)
	failed := connect.NewError(connect.Code(code), &cause{text, err})
	if exceeded, ok := errors.AsType[*zlimit.ExceededError](err); ok {
		describe(failed, exceeded)
	}
	return failed
}

// describe adds to an error which limits refused a call, and when to try again.
func describe(to *connect.Error, err *zlimit.ExceededError) {
	quota := &errdetails.QuotaFailure{}
	for _, v := range rpc.Violations(err) {
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
			Subject: v.Subject, Description: v.Description, QuotaMetric: v.QuotaMetric, QuotaId: v.QuotaID, QuotaValue: v.QuotaValue,
		})
	}
	details := []proto.Message{quota}
	to.Meta().Set("Grpc-Retry-Pushback-Ms", rpc.Pushback(err))
	if wait := err.SpreadRetryAfter(); wait < zlimit.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		to.Meta().Set("Retry-After", err.RetryAfterHeader())
	}
	for _, d := range details {
		if detail, failed := connect.NewErrorDetail(d); failed == nil {
			to.AddDetail(detail)
		}
	}
}
