package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zlimit/zlimit-go/internal/store"
)

// outcome is the result of a write according to a failed attempt.
type outcome uint8

const (
	refused   outcome = iota // an answer, or a failure before anything was sent: nothing was written
	throttled                // nothing was written, and it would have been at another time
	conflict                 // nothing was written, since a transaction or another region holds the item
	unsent                   // no connection: nothing was written
	unknown                  // sent, or perhaps sent, and not answered
	ended                    // the caller's context ended while it was under way
)

// throttles are the codes of DynamoDB, of the transaction's reasons and of the gateways before it that ask to come again.
var throttles = map[string]bool{
	"ProvisionedThroughputExceededException": true,
	"ProvisionedThroughputExceeded":          true,
	"ThrottlingException":                    true,
	"ThrottlingError":                        true,
	"Throttling":                             true,
	"ThrottledException":                     true,
	"RequestThrottled":                       true,
	"RequestThrottledException":              true,
	"RequestLimitExceeded":                   true,
	"TooManyRequestsException":               true,
	"LimitExceededException":                 true, // too many concurrent table operations
}

// classify derives the outcome of an attempt, or of a whole call, from its error.
func classify(err error) outcome {
	var call *smithy.OperationError
	if errors.As(err, &call) && (call.ServiceID == dynamodb.ServiceID || call.ServiceID == dynamodbstreams.ServiceID) {
		err = call.Err
	}
	if errors.As(err, &call) { // of another service, such as STS: there were no credentials to sign with
		return refused
	}
	var api smithy.APIError
	var status interface{ HTTPStatusCode() int }
	switch {
	case errors.As(err, &api):
		switch code := api.ErrorCode(); {
		case isDoubtful(err):
			return unknown
		case throttles[code]:
			return throttled
		case code == "TransactionConflictException", code == "ReplicatedWriteConflictException":
			return conflict
		case code == "TransactionInProgressException": // the attempt before this one, with the same token
			return unknown
		case api.ErrorFault() == smithy.FaultServer:
			return unknown
		}
		if canceled := (*types.TransactionCanceledException)(nil); errors.As(err, &canceled) {
			return classifyReasons(canceled.CancellationReasons)
		}
		if errors.As(err, &status) {
			return classifyStatus(status.HTTPStatusCode())
		}
		return refused
	case isCanceled(err):
		return ended
	case isSend(err):
		return classifySend(err)
	case isCut(err):
		return unknown
	case errors.As(err, &status):
		return classifyStatus(status.HTTPStatusCode())
	case isDeserialization(err):
		return unknown
	default: // serialization, credentials, endpoint, signature: before the request left
		return refused
	}
}

// classifyStatus derives the outcome from the status of a reply whose body says nothing. Such replies come from proxies
// and gateways as well as from DynamoDB.
func classifyStatus(status int) outcome {
	switch {
	case status == http.StatusTooManyRequests:
		return throttled
	case status == http.StatusRequestTimeout || status < 400 || status >= 500:
		return unknown
	default:
		return refused
	}
}

// isDoubtful reports whether the status of a reply leaves the outcome open, under every error code. DynamoDB refuses
// with the status 400.
func isDoubtful(err error) bool {
	var status interface{ HTTPStatusCode() int }
	return errors.As(err, &status) && classifyStatus(status.HTTPStatusCode()) == unknown
}

// classifySend derives the outcome of a request that the HTTP client failed to exchange for a reply.
func classifySend(err error) outcome {
	if errors.As(err, new(*net.DNSError)) {
		return unsent
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		return unsent
	}
	return unknown
}

// classifyReasons derives the outcome of a cancelled transaction; conflicts win over throttles, and both over conditions.
func classifyReasons(reasons []types.CancellationReason) outcome {
	result := refused
	for i := range reasons {
		switch code := value(reasons[i].Code); {
		case code == "TransactionConflict":
			return conflict
		case throttles[code]:
			result = throttled
		}
	}
	return result
}

// isInvalid reports whether DynamoDB found fault with the request itself.
func isInvalid(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode() == "ValidationException" || api.ErrorCode() == "ItemCollectionSizeLimitExceededException")
}

func isSend(err error) bool { return errors.As(err, new(*smithyhttp.RequestSendError)) }

func isCanceled(err error) bool { return errors.As(err, new(*smithy.CanceledError)) }

func isDeserialization(err error) bool { return errors.As(err, new(*smithy.DeserializationError)) }

// isCut reports whether the body of a reply broke off. Its status line then says nothing, since a failed condition and
// a throttle have the same. A body that is not JSON is whole, and comes from a gateway.
func isCut(err error) bool {
	return isDeserialization(err) && !errors.As(err, new(*json.SyntaxError))
}

// failure returns the error of a call as package store defines it. The call may have changed something if write is
// true, and an earlier attempt of it may have if doubt is true.
func failure(ctx context.Context, op string, err error, write, doubt bool) error {
	result := &store.Error{Op: op, Err: err, Unknown: write && doubt}
	how := classify(err)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // also while a reply was being read, or between two attempts
		result.Unknown = result.Unknown || write && (how == ended || how == unknown)
		result.Err = ctx.Err()
		return result
	}
	switch how {
	case throttled, unsent:
		result.Unavailable, result.Throttled = true, how == throttled
		result.Throttles = throttlesIn(err)
	case unknown, ended:
		result.Unavailable = true
		result.Unknown = write
	case conflict:
		result.Err = fmt.Errorf("%w: %w", store.ErrConflict, err)
	case refused:
		if errors.As(err, new(*types.ResourceNotFoundException)) {
			result.Err = fmt.Errorf("%w: %w", store.ErrTableNotFound, err)
		}
		result.Invalid = write && isInvalid(err)
	}
	return result
}

// throttlesIn returns the limits that DynamoDB named for a throttled call. The reasons of a cancelled transaction name none.
func throttlesIn(err error) []store.Throttle {
	var exceeded *types.ProvisionedThroughputExceededException
	var throttling *types.ThrottlingException
	var limit *types.RequestLimitExceeded
	var reasons []types.ThrottlingReason
	switch {
	case errors.As(err, &exceeded):
		reasons = exceeded.ThrottlingReasons
	case errors.As(err, &throttling):
		reasons = throttling.ThrottlingReasons
	case errors.As(err, &limit):
		reasons = limit.ThrottlingReasons
	}
	var throttles []store.Throttle
	for i := range reasons {
		throttles = append(throttles, throttleOf(value(reasons[i].Reason), value(reasons[i].Resource)))
	}
	return throttles
}

// throttleOf reads a reason of DynamoDB: Table or Index, Read or Write, and the limit.
func throttleOf(reason, resource string) store.Throttle {
	t := store.Throttle{Reason: reason, Resource: resource}
	rest, index := strings.CutPrefix(reason, "Index")
	if !index {
		rest, _ = strings.CutPrefix(rest, "Table")
	}
	t.Index = index
	rest, t.Write = strings.CutPrefix(rest, "Write")
	if !t.Write {
		rest = strings.TrimPrefix(rest, "Read")
	}
	switch rest {
	case "KeyRangeThroughputExceeded":
		t.Limit = store.OfKey
	case "ProvisionedThroughputExceeded", "MaxOnDemandThroughputExceeded":
		t.Limit = store.OfTable
	case "AccountLimitExceeded":
		t.Limit = store.OfAccount
	}
	return t
}

// value returns what p points to, "" for nil.
func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
