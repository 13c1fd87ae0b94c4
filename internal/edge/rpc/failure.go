// Package rpc is shared by the interceptors of gRPC and of Connect. It says how an error of the limiter reads to the
// peer, and how a lease ends.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Code is a status code, which gRPC and Connect number alike.
type Code uint32

// The codes of failures, by https://grpc.io/docs/guides/status-codes/.
const (
	Canceled          Code = 1
	InvalidArgument   Code = 3
	DeadlineExceeded  Code = 4
	PermissionDenied  Code = 7
	ResourceExhausted Code = 8
	Internal          Code = 13
	Unavailable       Code = 14
)

// Classify returns the code and the text with which an error of the limiter goes over the wire. The text names no entity
// and no cause.
func Classify(err error) (Code, string) {
	var invalid *zlimit.ValidationError
	switch {
	case errors.As(err, new(*zlimit.ExceededError)):
		return ResourceExhausted, "quota exceeded"
	case errors.Is(err, zlimit.ErrNoLimits): // before the rules, since its reason names levels
		return PermissionDenied, "no quota"
	case errors.As(err, &invalid):
		return InvalidArgument, "the " + invalid.Field + " " + invalid.Reason
	case errors.Is(err, zlimit.ErrDisabled):
		return PermissionDenied, "disabled"
	case errors.As(err, new(*zlimit.UnavailableError)), errors.Is(err, zlimit.ErrContended), errors.Is(err, zlimit.ErrClock), errors.Is(err, zlimit.ErrClosed):
		return Unavailable, "the limits are temporarily unavailable"
	case errors.Is(err, context.Canceled):
		return Canceled, "the call was canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded, "the deadline of the call has passed"
	default:
		return Internal, "the call could not be limited"
	}
}

// A Violation is a limit that a rejection names, in the members of google.rpc.QuotaFailure.Violation.
type Violation struct {
	Subject, Description, QuotaMetric, QuotaID string
	QuotaValue                                 int64
}

// Violations returns the limits that a rejection names.
func Violations(err *zlimit.ExceededError) []Violation {
	var all []Violation
	for _, s := range err.Violations() {
		text := func(n int64) string { return grammar.AmountText(s.Limit.Name, n) }
		all = append(all, Violation{
			Subject:     "resource:" + s.Resource,
			Description: fmt.Sprintf("%s requested, %s of %s available", text(s.Requested), text(max(0, s.Available)), text(s.Now().Capacity)),
			QuotaMetric: s.Limit.Name,
			QuotaID:     s.Resource + "/" + s.Limit.Name,
			QuotaValue:  s.Now().Capacity,
		})
	}
	return all
}

// Pushback returns the value of grpc-retry-pushback-ms for a rejection, by gRFC A6. It is the milliseconds after which
// a client may try again, or -1 where no time helps.
func Pushback(err *zlimit.ExceededError) string {
	wait := err.SpreadRetryAfter()
	if wait == zlimit.Never {
		return "-1"
	}
	return strconv.FormatInt(int64((wait+time.Millisecond-1)/time.Millisecond), 10)
}
