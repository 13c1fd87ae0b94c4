package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// conflictReason is the text DynamoDB gives for a transaction conflict.
const conflictReason = "Transaction is ongoing for the item"

// answers holds the errors that DynamoDB answers by itself, with the types and
// texts of the service.
var answers = map[Kind]struct {
	status   int
	typeName string
	message  string
}{
	ThroughputExceeded: {
		http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
		"The level of configured provisioned throughput for the table was exceeded. " +
			"Consider increasing your provisioning level with the UpdateTable API.",
	},
	Throttled: {
		http.StatusBadRequest, "com.amazon.coral.availability#ThrottlingException",
		"Throughput exceeds the current capacity of your table or index.",
	},
	InternalError: {
		http.StatusInternalServerError, "com.amazonaws.dynamodb.v20120810#InternalServerError",
		"Internal server error",
	},
	Conflict: {
		http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
		conflictReason,
	},
	AccessDenied: {
		http.StatusBadRequest, "com.amazon.coral.service#AccessDeniedException",
		"User is not authorized to perform this operation because no identity-based policy allows it",
	},
	LimitExceeded: {
		http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#LimitExceededException",
		"Too many operations for a given subscriber.",
	},
	ExpiredIterator: {
		http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#ExpiredIteratorException",
		"Iterator expired. The iterator was created at a time that is too long ago.",
	},
	TrimmedData: {
		http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#TrimmedDataAccessException",
		"The operation attempted to read past the oldest stream record in a shard.",
	},
	refusedFilter: {
		http.StatusBadRequest, "com.amazon.coral.validate#ValidationException",
		"Value at 'shardFilter' failed to satisfy constraint: Member must not be given",
	},
	ResourceNotFound: {
		http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException",
		"Requested resource not found",
	},
}

// refusal returns a reply in which DynamoDB declines a call, in its JSON form.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
func refusal(request *http.Request, kind Kind, call Call) (*http.Response, error) {
	known, ok := answers[kind]
	if !ok {
		return nil, fmt.Errorf("enginetest: unknown kind of fault %q", kind)
	}
	if kind == Conflict && strings.HasPrefix(call.Operation, "Transact") {
		return cancelled(request, call, "TransactionConflict", conflictReason, 0)
	}
	content := map[string]any{"__type": known.typeName, "message": known.message}
	if kind == ThroughputExceeded {
		reason := "TableWriteKeyRangeThroughputExceeded"
		if isRead(call.Operation) {
			reason = "TableReadKeyRangeThroughputExceeded"
		}
		content["ThrottlingReasons"] = []map[string]string{{"reason": reason, "resource": "arn:aws:dynamodb:" + Region + ":000000000000:table/t"}}
	}
	return declined(request, call, known.status, content)
}

func declined(request *http.Request, call Call, status int, content any) (*http.Response, error) {
	return reply(request, status, content, fmt.Sprintf("INJECTED-%s-%d", call.Operation, call.N))
}

// reply returns a reply in the form of DynamoDB's.
func reply(request *http.Request, status int, content any, id string) (*http.Response, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status:     strconv.Itoa(status) + " " + http.StatusText(status),
		StatusCode: status,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":     {"application/x-amz-json-1.0"},
			"X-Amzn-Requestid": {id},
			"X-Amz-Crc32":      {strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)},
		},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       request,
	}, nil
}

// cancelled returns a reply in which DynamoDB declines a transaction because of some of its items. Each item has a
// reason, in order: the code and the text for those, and None for the others.
func cancelled(request *http.Request, call Call, code, message string, items ...int) (*http.Response, error) {
	var transaction struct{ TransactItems []json.RawMessage }
	if err := json.Unmarshal(call.Body, &transaction); err != nil {
		return nil, fmt.Errorf("enginetest: %s: %w", call.Operation, err)
	}
	codes := slices.Repeat([]string{"None"}, len(transaction.TransactItems))
	reasons := make([]map[string]string, len(codes))
	for i := range codes {
		reasons[i] = map[string]string{"Code": "None"}
	}
	for _, i := range items {
		codes[i], reasons[i] = code, map[string]string{"Code": code, "Message": message}
	}
	return declined(request, call, http.StatusBadRequest, map[string]any{
		"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
		"Message": fmt.Sprintf("Transaction cancelled, please refer cancellation reasons for specific reasons [%s]",
			strings.Join(codes, ", ")),
		"CancellationReasons": reasons,
	})
}

// truncate returns a reply that breaks off in the middle of its body, as package
// net/http reports it.
func truncate(reply *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	reply.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), brokenOff{}))
	return reply, nil
}

// brokenOff is the end of a body whose connection has closed too early.
type brokenOff struct{}

// Read implements io.Reader.
func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
