package dynamo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// A reply is a server's answer to a request, for answers that no engine gives by itself.
type reply struct {
	status int
	body   string
	dated  bool // with a Date header, of a clock that is ahead of ours
	ahead  time.Duration
	header []string // names and values of other headers
	cut    int      // the connection breaks after that many bytes of the body; -1 for none, 0 for a whole body
}

// content returns the body as the connection delivers it.
func (r *reply) content() io.Reader {
	if r.cut == 0 {
		return strings.NewReader(r.body)
	}
	return io.MultiReader(strings.NewReader(r.body[:max(r.cut, 0)]), iotest.ErrReader(io.ErrUnexpectedEOF))
}

// A script is a transport that gives replies in turn, the last one again and again, and keeps the requests.
type script struct {
	mu       sync.Mutex
	replies  []reply
	requests []string
}

// RoundTrip implements [http.RoundTripper].
func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.replies[min(len(s.requests), len(s.replies)-1)]
	s.requests = append(s.requests, string(body))
	header := http.Header{}
	if answer.dated {
		header.Set("Date", time.Now().Add(answer.ahead).UTC().Format(http.TimeFormat))
	}
	for i := 0; i < len(answer.header); i += 2 {
		header.Set(answer.header[i], answer.header[i+1])
	}
	return &http.Response{
		StatusCode: answer.status, Status: http.StatusText(answer.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(answer.content()), ContentLength: int64(len(answer.body)), Request: r,
	}, nil
}

// scripted returns a store that gets replies from a script.
func scripted(replies ...reply) (*dynamo.Store, *script) {
	s := &script{replies: replies}
	return storeOn(s, aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
	})), s
}

func storeOn(transport http.RoundTripper, credentials aws.CredentialsProvider) *dynamo.Store {
	client := dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://dynamodb.test"), Credentials: credentials,
		HTTPClient: &http.Client{Transport: transport},
	})
	return dynamo.New(client, "table", storetest.Table, enginetest.CreateSuiteTable)
}

// counted7 is the body of a reply to an UpdateItem of the key one.
const counted7 = `{"Attributes":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"7"}}}`

// A servant is a transport that answers each call as DynamoDB does if it has nothing to report.
type servant struct{}

// RoundTrip implements [http.RoundTripper].
func (servant) RoundTrip(r *http.Request) (*http.Response, error) {
	var request struct {
		Key          json.RawMessage
		RequestItems map[string]json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, err
	}
	body := "{}"
	switch target := r.Header.Get("X-Amz-Target"); {
	case strings.HasSuffix(target, ".UpdateItem"):
		body = fmt.Sprintf(`{"Attributes":%s}`, request.Key)
	case strings.HasSuffix(target, ".BatchGetItem"):
		for table := range request.RequestItems {
			body = fmt.Sprintf(`{"Responses":{%q:[]},"UnprocessedKeys":{}}`, table)
		}
	}
	return (&script{replies: []reply{{status: 200, body: body}}}).RoundTrip(r)
}

// exception is the body of an error of DynamoDB.
func exception(code string, more ...string) string {
	return fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"said so"%s}`, code, strings.Join(more, ""))
}

func TestReplies(t *testing.T) {
	const html = "<html>an error page</html>"
	for _, test := range []struct {
		name   string
		reply  reply
		write  verdict
		writes int // requests
		read   verdict
		reads  int
	}{
		{"validation", reply{status: 400, body: exception("ValidationException")}, refusal, 1, refusal, 1},
		{"expired credentials", reply{status: 400, body: exception("ExpiredTokenException")}, refusal, 1, refusal, 1},
		{"unknown credentials", reply{status: 400, body: exception("UnrecognizedClientException")}, refusal, 1, refusal, 1},
		{"wrong signature", reply{status: 400, body: exception("InvalidSignatureException")}, refusal, 1, refusal, 1},
		{"a code that is not known", reply{status: 400, body: exception("SurpriseException")}, refusal, 1, refusal, 1},
		{"account limit", reply{status: 400, body: exception("RequestLimitExceeded")}, unavailable, 3, unavailable, 3},
		{"too many requests, from a gateway", reply{status: 429, body: html}, unavailable, 3, unavailable, 3},
		{"forbidden, by a gateway", reply{status: 403, body: html}, refusal, 1, refusal, 1},
		{"request timeout, of a gateway", reply{status: 408, body: html}, unknown, 1, unavailable, 3},
		{"bad gateway", reply{status: 502, body: html}, unknown, 1, unavailable, 3},
		{"service unavailable", reply{status: 503, body: exception("ServiceUnavailableException")}, unknown, 1, unavailable, 3},
		{"service unavailable, without a word", reply{status: 503}, unknown, 1, unavailable, 3},
		{"redirect", reply{status: 307, body: html}, unknown, 1, unavailable, 3},
		{"success, with an error page", reply{status: 200, body: html}, unknown, 1, unavailable, 3},
		{"conflict with a transaction", reply{status: 400, body: exception("TransactionConflictException")}, conflict, 3, conflict, 3},
		{"conflict with another region", reply{status: 400, body: exception("ReplicatedWriteConflictException")}, conflict, 3, conflict, 3},
		{"a failed condition, cut in its code", reply{status: 400, body: exception("ConditionalCheckFailedException"), cut: 20}, unknown, 1, unavailable, 3},
		{"a failed condition, cut in its item", reply{status: 400, body: exception("ConditionalCheckFailedException", `,"Item":{"PK":{"S":"p"}}`), cut: 100}, unknown, 1, unavailable, 3},
		{"a throttle, cut", reply{status: 400, body: exception("ThrottlingException"), cut: 70}, unknown, 1, unavailable, 3},
		{"a denial, cut before its body", reply{status: 400, body: exception("AccessDeniedException"), cut: -1}, unknown, 1, unavailable, 3},
		{"a page that ends in order, but not as JSON does", reply{status: 400, body: exception("AccessDeniedException")[:30]}, unknown, 1, unavailable, 3},
	} {
		s, sent := scripted(test.reply)
		_, err := s.Write(t.Context(), count(t, one))
		expectVerdict(t, "Write: "+test.name, err, test.write)
		if len(sent.requests) != test.writes {
			t.Errorf("Write: %s made %d requests, want %d", test.name, len(sent.requests), test.writes)
		}
		s, sent = scripted(test.reply)
		_, err = s.Read(t.Context(), []store.Key{one}, true)
		expectVerdict(t, "Read: "+test.name, err, test.read)
		if len(sent.requests) != test.reads {
			t.Errorf("Read: %s made %d requests, want %d", test.name, len(sent.requests), test.reads)
		}
	}
}

// TestThrottleReasons reads DynamoDB's reason for a throttle.
func TestThrottleReasons(t *testing.T) {
	const table, index = "arn:aws:dynamodb:us-east-1:1:table/t", "arn:aws:dynamodb:us-east-1:1:table/t/index/i"
	reason := func(text, resource string) string { return fmt.Sprintf(`{"reason":%q,"resource":%q}`, text, resource) }
	for _, test := range []struct {
		code, reasons string
		want          []store.Throttle
		key           bool
	}{
		{"ThrottlingException", "", nil, false},
		{"ThrottlingException", reason("TableWriteKeyRangeThroughputExceeded", table), []store.Throttle{
			{Limit: store.OfKey, Write: true, Reason: "TableWriteKeyRangeThroughputExceeded", Resource: table},
		}, true},
		{"ProvisionedThroughputExceededException", reason("TableReadProvisionedThroughputExceeded", table), []store.Throttle{
			{Limit: store.OfTable, Reason: "TableReadProvisionedThroughputExceeded", Resource: table},
		}, false},
		{"ThrottlingException", reason("IndexWriteKeyRangeThroughputExceeded", index), []store.Throttle{
			{Limit: store.OfKey, Index: true, Write: true, Reason: "IndexWriteKeyRangeThroughputExceeded", Resource: index},
		}, false},
		{"RequestLimitExceeded", reason("TableWriteAccountLimitExceeded", table) + "," + reason("IndexReadMaxOnDemandThroughputExceeded", index), []store.Throttle{
			{Limit: store.OfAccount, Write: true, Reason: "TableWriteAccountLimitExceeded", Resource: table},
			{Limit: store.OfTable, Index: true, Reason: "IndexReadMaxOnDemandThroughputExceeded", Resource: index},
		}, false},
		{"ThrottlingException", reason("Surprise", table), []store.Throttle{{Reason: "Surprise", Resource: table}}, false},
	} {
		member := "ThrottlingReasons"
		if test.code == "ThrottlingException" { // as the service spells it
			member = "throttlingReasons"
		}
		s, _ := scripted(reply{status: 400, body: exception(test.code, `,"`+member+`":[`, test.reasons, "]")})
		_, err := s.Write(t.Context(), count(t, one))
		var failed *store.Error
		if !errors.As(err, &failed) || store.OutcomeOf(err) != store.Throttled {
			t.Fatalf("%s with %s: %v, want a throttle", test.code, test.reasons, err)
		}
		compare.Equal(t, fmt.Sprintf("%s with %s: throttles", test.code, test.reasons), test.want, failed.Throttles)
		if got := failed.KeyThrottled(); got != test.key {
			t.Errorf("%s with %s: KeyThrottled() = %t, want %t", test.code, test.reasons, got, test.key)
		}
	}
}

// TestCancellationReasons distinguishes why a transaction of two writes was cancelled.
func TestCancellationReasons(t *testing.T) {
	const (
		none      = `{"Code":"None"}`
		condition = `{"Code":"ConditionalCheckFailed","Message":"The conditional request failed","Item":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"-1"}}}`
		gone      = `{"Code":"ConditionalCheckFailed","Message":"The conditional request failed"}`
		busy      = `{"Code":"TransactionConflict","Message":"Transaction is ongoing for the item"}`
		throttle  = `{"Code":"ThrottlingError","Message":"slower"}`
		exceeded  = `{"Code":"ProvisionedThroughputExceeded","Message":"slower"}`
		invalid   = `{"Code":"ValidationError","Message":"wrong type"}`
	)
	failed := store.Result{Item: storetest.Item("PK", "p", "SK", "one", "n", -1)}
	for _, test := range []struct {
		name          string
		first, second string
		want          verdict
		results       []store.Result
		requests      int
	}{
		{"one condition", condition, none, success, []store.Result{failed, {Applied: true}}, 1},
		{"two conditions", condition, gone, success, []store.Result{failed, {}}, 1},
		{"a conflict", none, busy, conflict, nil, 1},
		{"a conflict wins over a condition", condition, busy, conflict, nil, 1},
		{"a conflict wins over a throttle", busy, throttle, conflict, nil, 1},
		{"a throttle", none, throttle, unavailable, nil, 3},
		{"a throttle wins over a condition", exceeded, condition, unavailable, nil, 3},
		{"a validation error", none, invalid, refusal, nil, 1},
		{"a validation error wins over a condition", condition, invalid, refusal, nil, 1},
	} {
		s, sent := scripted(reply{status: 400, body: exception("TransactionCanceledException",
			`,"CancellationReasons":[`, test.first, ",", test.second, "]")})
		got, err := s.Transact(t.Context(), []store.Write{count(t, one), count(t, two)})
		expectVerdict(t, test.name, err, test.want)
		compare.Equal(t, fmt.Sprintf("%s: results", test.name), test.results, got, storetest.Equal)
		if len(sent.requests) != test.requests {
			t.Errorf("%s: %d requests, want %d", test.name, len(sent.requests), test.requests)
		}
	}

	// The answer to a repetition while the first attempt is still at work: the outcome is not known yet.
	s, sent := scripted(reply{status: 500, body: exception("InternalServerError")}, reply{status: 400, body: exception("TransactionInProgressException")})
	_, err := s.Transact(t.Context(), []store.Write{count(t, one), count(t, two)})
	expectVerdict(t, "a transaction in progress", err, unknown)
	tokens := map[string]bool{}
	for _, r := range sent.requests {
		_, token, _ := strings.Cut(r, `"ClientRequestToken":"`)
		token, _, _ = strings.Cut(token, `"`)
		tokens[token] = true
	}
	if len(sent.requests) != 3 || len(tokens) != 1 || tokens[""] {
		t.Errorf("%d requests with tokens %v, want 3 with the same", len(sent.requests), tokens)
	}
}

// In TestClockSkew, DynamoDB refuses a signature for its time. The SDK learns the time from the answer, and makes the
// call again.
func TestClockSkew(t *testing.T) {
	s, sent := scripted(
		reply{status: 400, body: exception("InvalidSignatureException"), dated: true, ahead: time.Hour},
		reply{status: 200, body: `{"Attributes":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"1"}}}`},
	)
	got, err := s.Write(t.Context(), count(t, one))
	if err != nil || !got.Applied || len(sent.requests) != 2 {
		t.Errorf("Write = %v, %v after %d requests; want it applied by the second", got, err, len(sent.requests))
	}
}

// TestUnprocessedKeys leaves keys unprocessed: they are asked for again, and are never taken for missing items.
func TestUnprocessedKeys(t *testing.T) {
	item := func(sk string) string { return fmt.Sprintf(`{"PK":{"S":"p"},"SK":{"S":%q}}`, sk) }
	answer := func(found, left []string) reply {
		for i := range found {
			found[i] = item(found[i])
		}
		for i := range left {
			left[i] = item(left[i])
		}
		unprocessed := ""
		if len(left) > 0 {
			unprocessed = fmt.Sprintf(`"table":{"Keys":[%s],"ConsistentRead":true}`, strings.Join(left, ","))
		}
		return reply{status: 200, body: fmt.Sprintf(`{"Responses":{"table":[%s]},"UnprocessedKeys":{%s}}`, strings.Join(found, ","), unprocessed)}
	}
	keys := []store.Key{{PK: "p", SK: "a"}, {PK: "p", SK: "b"}, {PK: "p", SK: "c"}, {PK: "p", SK: "a"}, {PK: "p", SK: "d"}}
	is := func(k store.Key) expr.Item { return k.Join(nil) }

	s, sent := scripted(answer([]string{"c"}, []string{"a", "d"}), answer([]string{"d"}, []string{"a"}), answer([]string{"a"}, nil))
	got, err := s.Read(t.Context(), keys, true)
	want := []expr.Item{is(keys[0]), nil, is(keys[2]), is(keys[3]), is(keys[4])}
	if diff := cmp.Diff(want, got, storetest.Equal); err != nil || diff != "" {
		t.Errorf("Read = %v (-want +got):\n%s", err, diff)
	}
	if len(sent.requests) != 3 || strings.Count(sent.requests[0], `"PK"`) != 4 || strings.Count(sent.requests[2], `"PK"`) != 1 || !strings.Contains(sent.requests[2], `"ConsistentRead":true`) {
		t.Errorf("requests = %q, want 3 for 4, 2 and 1 keys, consistent", sent.requests)
	}

	s, sent = scripted(answer([]string{"c", "b"}, []string{"a", "d"}), answer(nil, []string{"a", "d"}))
	_, err = s.Read(t.Context(), keys, true)
	expectVerdict(t, "keys that stay unprocessed", err, unavailable)
	if len(sent.requests) != 4 {
		t.Errorf("%d requests, want 4: the first got somewhere, three more did not", len(sent.requests))
	}
}

// told counts the attempts that a store reports.
type reported struct{ attempts int }

// Sent implements [store.Watcher].
func (a *reported) Sent() { a.attempts++ }

// TestStoreTellsOfAttempts counts the attempts that a store adds to a call, by the SDK and by itself.
func TestStoreTellsOfAttempts(t *testing.T) {
	throttle := reply{status: 400, body: exception("ProvisionedThroughputExceededException")}
	left := reply{status: 200, body: `{"Responses":{},"UnprocessedKeys":{"table":{"Keys":[{"PK":{"S":"p"},"SK":{"S":"one"}}]}}}`}
	for name, replies := range map[string][]reply{
		"throttles": {throttle, throttle, {status: 200, body: `{"Responses":{"table":[]},"UnprocessedKeys":{}}`}},
		"keys left": {left, left, {status: 200, body: `{"Responses":{"table":[]},"UnprocessedKeys":{}}`}},
		"gateways":  {{status: 502}, {status: 200, body: `{"Responses":{"table":[]},"UnprocessedKeys":{}}`}},
		"an answer": {{status: 200, body: `{"Responses":{"table":[]},"UnprocessedKeys":{}}`}},
	} {
		s, sent := scripted(replies...)
		var watcher reported
		if _, err := s.Read(store.Watch(t.Context(), &watcher), []store.Key{one, {PK: "p", SK: "two"}}, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(sent.requests) != len(replies) || watcher.attempts != len(replies)-1 {
			t.Errorf("%s: %d requests, and %d attempts more were reported", name, len(sent.requests), watcher.attempts)
		}
	}
}

// TestNoCredentials makes the provider of credentials fail, itself or through a call of its own: nothing was sent.
func TestNoCredentials(t *testing.T) {
	for name, err := range map[string]error{
		"no credentials": errors.New("no credentials"),
		"an outage of STS": &smithy.OperationError{ServiceID: "STS", OperationName: "AssumeRole", Err: &smithy.GenericAPIError{
			Code: "InternalFailure", Message: "sorry", Fault: smithy.FaultServer,
		}},
	} {
		sent := &script{}
		s := storeOn(sent, aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, err }))
		_, got := s.Write(t.Context(), count(t, one))
		expectVerdict(t, name, got, verdict{is: err})
		if len(sent.requests) > 0 {
			t.Errorf("%s: %d requests", name, len(sent.requests))
		}
	}
}

// TestUnknownAttributes reads an item of another program: kinds of value that no zlimit record has are left out.
func TestUnknownAttributes(t *testing.T) {
	s, _ := scripted(reply{status: 200, body: `{"Item":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"1.50"},"b":{"B":"AAEC"},
		"ns":{"NS":["1","2"]},"bs":{"BS":["AAEC"]},"l":{"L":[{"B":"AAEC"},{"S":"x"}]},"m":{"M":{"b":{"B":"AA=="},"k":{"BOOL":true}}}}}`})
	got, err := s.Read(t.Context(), []store.Key{one}, true)
	half, _ := expr.ParseNumber("1.5")
	want := storetest.Item("PK", "p", "SK", "one", "n", half, "l", expr.List(expr.S("x")), "m", expr.Map(storetest.Item("k", true)))
	check.Fatal(t, "Read()", err)
	compare.Equal(t, "item", want, got[0], storetest.Equal)
}

// TestBackoffEndsWithTheContext ends the context while a throttled call waits for its next attempt.
func TestBackoffEndsWithTheContext(t *testing.T) {
	for range 20 { // the pauses are random
		s, sent := scripted(reply{status: 400, body: exception("ThrottlingException")})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := s.Write(ctx, count(t, one))
		cancel()
		if len(sent.requests) < 3 {
			expectVerdict(t, "a throttled call whose context ends", err, verdict{is: context.DeadlineExceeded})
			return
		}
	}
	t.Error("no pause was longer than 5 ms")
}

// TestOffset reads the time from the headers of replies, of items and of failed conditions.
func TestOffset(t *testing.T) {
	const ahead = time.Hour
	item := `{"Item":{"PK":{"S":"p"},"SK":{"S":"one"}},"Attributes":{"PK":{"S":"p"},"SK":{"S":"one"}}}`
	for name, call := range map[string]struct {
		reply reply
		do    func(*dynamo.Store) error
	}{
		"GetItem": {reply{status: 200, body: item}, func(s *dynamo.Store) error {
			_, err := s.Read(t.Context(), []store.Key{one}, true)
			return err
		}},
		"UpdateItem": {reply{status: 200, body: item}, func(s *dynamo.Store) error { _, err := s.Write(t.Context(), count(t, one)); return err }},
		"a failed condition": {reply{status: 400, body: exception("ConditionalCheckFailedException")}, func(s *dynamo.Store) error {
			_, err := s.Write(t.Context(), count(t, one))
			return err
		}},
	} {
		s, _ := scripted(call.reply)
		check.Fatal(t, "do()", call.do(s))
		if offset, known := s.Offset(); known || offset != 0 {
			t.Errorf("%s: Offset() = %v, %t after a reply without a date", name, offset, known)
		}
		call.reply.dated, call.reply.ahead = true, ahead
		s, _ = scripted(call.reply, call.reply)
		check.Fatal(t, "do()", errors.Join(call.do(s), call.do(s)))
		if offset, known := s.Offset(); !known || (offset-ahead).Abs() > 2*time.Second {
			t.Errorf("%s: Offset() = %v, %t; want %v", name, offset, known, ahead)
		}
	}
}
