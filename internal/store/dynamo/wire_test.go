package dynamo_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// ways are the two ways in which a store makes its calls.
var ways = map[string][]dynamo.Option{"wire": nil, "SDK": {dynamo.WithoutWire()}}

// A tape keeps what passes a transport.
type tape struct {
	http.RoundTripper
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

// RoundTrip implements [http.RoundTripper].
func (t *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.requests, t.bodies = append(t.requests, r.Clone(context.Background())), append(t.bodies, string(body))
	t.mu.Unlock()
	passed := r.Clone(r.Context())
	passed.Body = io.NopCloser(bytes.NewReader(body))
	return t.RoundTripper.RoundTrip(passed)
}

var staticKey = aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}

// provider provides credentials that may be changed.
type provider struct {
	now   atomic.Pointer[aws.Credentials]
	asked atomic.Int64
}

// Retrieve implements [aws.CredentialsProvider].
func (p *provider) Retrieve(context.Context) (aws.Credentials, error) {
	p.asked.Add(1)
	return *p.now.Load(), nil
}

func provide(c aws.Credentials) *provider {
	p := &provider{}
	p.now.Store(&c)
	return p
}

func with(c aws.Credentials, change func(*aws.Credentials)) aws.Credentials {
	change(&c)
	return c
}

// calls are those of the wire path, with what JSON has to write with care.
func calls(t *testing.T) map[string]func(context.Context, *dynamo.Store) error {
	odd := store.Key{PK: "p\"\\\n\x01<é\u2028", SK: "\xff"}
	item := storetest.Item("n", 1, "s", "a&b", "PK", "not a key")
	item.Set("m", expr.Map(expr.Item{{Name: "l", Value: expr.List(expr.Null(), expr.Bool(true), expr.Decimal(-15, 1))}, {Name: "ss", Value: expr.Strings("b", "a")}}))
	bound := storetest.Bind(t, []expr.Condition{expr.LE(expr.Attr("n"), 0), expr.Absent(expr.Attr("é\""))}, []expr.Action{
		expr.Set(expr.Attr("s"), 1), expr.Set(expr.Attr("m"), 2), expr.Add(expr.Attr("ss"), 3),
	}, 1<<62, "x", item.Get("m"), expr.Strings("c"))
	write := func(w store.Write) func(context.Context, *dynamo.Store) error {
		return func(ctx context.Context, s *dynamo.Store) error { _, err := s.Write(ctx, w); return err }
	}
	return map[string]func(context.Context, *dynamo.Store) error{
		"an update":         write(count(t, one)),
		"an odd update":     write(store.Write{Key: odd, Expr: bound}),
		"a put":             write(store.Write{Kind: store.Put, Key: one, Item: item}),
		"a conditional put": write(store.Write{Kind: store.Put, Key: odd, Item: item, Expr: storetest.Bind(t, []expr.Condition{expr.Absent(expr.Attr("PK"))}, nil)}),
		"a get": func(ctx context.Context, s *dynamo.Store) error {
			_, err := s.Read(ctx, []store.Key{one}, false)
			return err
		},
		"a consistent get": func(ctx context.Context, s *dynamo.Store) error {
			_, err := s.Read(ctx, []store.Key{odd}, true)
			return err
		},
		"a batch": func(ctx context.Context, s *dynamo.Store) error {
			_, err := s.Read(ctx, []store.Key{one, odd, one}, true)
			return err
		},
		"a check": write(store.Write{Kind: store.Check, Key: one, Expr: storetest.Bind(t, []expr.Condition{expr.Exists(expr.Attr("n"))}, nil)}),
	}
}

// TestRequestsAreThoseOfTheSDK compares the requests of both ways, header by header. It compares the signature of the
// wire path with the one that the SDK's signer makes for the same request.
func TestRequestsAreThoseOfTheSDK(t *testing.T) {
	session := with(staticKey, func(c *aws.Credentials) { c.SessionToken = "token/+=" })
	account := with(session, func(c *aws.Credentials) { c.AccountID = "123456789012" })
	for _, test := range []struct {
		name        string
		credentials aws.Credentials
		table       string
		host        string
		option      func(*dynamodb.Options)
	}{
		{"a region", staticKey, "table", "dynamodb.eu-central-1.amazonaws.com", nil},
		{"a session", session, "table", "dynamodb.eu-central-1.amazonaws.com", nil},
		{"an account's endpoint", account, "table", "123456789012.ddb.eu-central-1.amazonaws.com", func(o *dynamodb.Options) { o.AccountIDEndpointMode = aws.AccountIDEndpointModePreferred }},
		{"a table of another account", account, "arn:aws:dynamodb:eu-central-1:210987654321:table/table", "210987654321.ddb.eu-central-1.amazonaws.com", func(o *dynamodb.Options) {
			o.AccountIDEndpointMode = aws.AccountIDEndpointModePreferred
		}},
		{"another endpoint", staticKey, "table", "proxy.example:8443", func(o *dynamodb.Options) { o.BaseEndpoint = aws.String("https://proxy.example:8443") }},
		{"an endpoint with a path", staticKey, "table", "proxy.example", func(o *dynamodb.Options) { o.BaseEndpoint = aws.String("http://proxy.example:80/some/path") }},
		{"an endpoint with a path to escape", staticKey, "table", "proxy.example", func(o *dynamodb.Options) { o.BaseEndpoint = aws.String("http://proxy.example/a%20b/") }},
		{"FIPS", staticKey, "table", "dynamodb-fips.us-east-1.amazonaws.com", func(o *dynamodb.Options) {
			o.Region = "us-east-1"
			o.EndpointOptions.UseFIPSEndpoint = aws.FIPSEndpointStateEnabled
		}},
		{"two stacks", staticKey, "table", "dynamodb.eu-central-1.api.aws", func(o *dynamodb.Options) {
			o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled
		}},
		{"without TLS", staticKey, "table", "dynamodb.eu-central-1.amazonaws.com", func(o *dynamodb.Options) { o.EndpointOptions.DisableHTTPS = true }},
		{"a name of the program", staticKey, "table", "dynamodb.eu-central-1.amazonaws.com", func(o *dynamodb.Options) { o.AppID = "limits" }},
		{"another mode of retrying", staticKey, "table", "dynamodb.eu-central-1.amazonaws.com", func(o *dynamodb.Options) {
			o.RetryMode, o.RetryMaxAttempts = aws.RetryModeAdaptive, 7
		}},
	} {
		for name, call := range calls(t) {
			var got [2]*tape
			for i, options := range [][]dynamo.Option{{dynamo.WithoutWire()}, nil} {
				got[i] = &tape{RoundTripper: servant{}}
				option := func(*dynamodb.Options) {}
				if test.option != nil {
					option = test.option
				}
				client := dynamodb.New(dynamodb.Options{Region: "eu-central-1", Credentials: provide(test.credentials), HTTPClient: &http.Client{Transport: got[i]}}, option)
				s := dynamo.New(client, test.table, storetest.Table, nil, options...)
				if err := call(t.Context(), s); err != nil && name != "an odd update" { // JSON has no word for its key
					t.Fatalf("%s to %s: %v", name, test.name, err)
				}
				if path := s.Path(); path.Own != (i == 1) {
					t.Fatalf("%s: Path() = %+v", test.name, path)
				}
			}
			compareRequests(t, name+" to "+test.name, got[0], got[1])
			if host := got[1].requests[0].URL.Hostname(); host != strings.Split(test.host, ":")[0] {
				t.Errorf("%s to %s went to %s, want %s", name, test.name, host, test.host)
			}
			checkSignature(t, name+" to "+test.name, got[1].requests[0], got[1].bodies[0], test.credentials)
		}
	}
}

// compareRequests compares the requests of both ways except what is never the same twice.
func compareRequests(t *testing.T, name string, sdk, own *tape) {
	t.Helper()
	if len(sdk.requests) != len(own.requests) {
		t.Fatalf("%s: %d requests by the SDK, %d by the wire path", name, len(sdk.requests), len(own.requests))
	}
	for i := range sdk.requests {
		if diff := cmp.Diff(comparable(sdk.requests[i], sdk.bodies[i]), comparable(own.requests[i], own.bodies[i])); diff != "" {
			t.Errorf("%s, request %d (-SDK +wire):\n%s", name, i, diff)
		}
		if diff := cmp.Diff(decoded(t, sdk.bodies[i]), decoded(t, own.bodies[i])); diff != "" {
			t.Errorf("%s, body of request %d (-SDK +wire):\n%s", name, i, diff)
		}
	}
}

// comparable returns what two requests have to have alike.
func comparable(r *http.Request, body string) map[string]any {
	header := r.Header.Clone()
	authorization, _, _ := strings.Cut(header.Get("Authorization"), "Signature=")
	for _, name := range []string{"Amz-Sdk-Invocation-Id", "X-Amz-Date"} {
		header.Set(name, strconv.Itoa(len(header.Get(name))))
	}
	header.Set("Authorization", authorization)
	return map[string]any{"header": header, "method": r.Method, "url": r.URL.String(), "host": r.Host, "length": r.ContentLength - int64(len(body)), "encoding": r.TransferEncoding}
}

func decoded(t *testing.T, body string) (v any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Errorf("body %q: %v", body, err)
	}
	return v
}

// checkSignature signs a request again.
func checkSignature(t *testing.T, name string, r *http.Request, body string, credentials aws.Credentials) {
	t.Helper()
	want := r.Header.Get("Authorization")
	at := check.Call(time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))).Must(t, "time.Parse()")
	_, scope, _ := strings.Cut(want, "/")
	parts := strings.Split(scope, "/")
	hash := sha256.Sum256([]byte(body))
	again := r.Clone(t.Context())
	if err := v4.NewSigner().SignHTTP(t.Context(), credentials, again, hex.EncodeToString(hash[:]), parts[2], parts[1], at); err != nil {
		t.Fatalf("SignHTTP() = %v", err)
	}
	if got := again.Header.Get("Authorization"); got != want {
		t.Errorf("%s: Authorization = %s, the SDK's signer has %s", name, want, got)
	}
}

// TestClientsOfTheSDK pins which clients make the calls themselves, and why.
func TestClientsOfTheSDK(t *testing.T) {
	type wrapper struct{ dynamo.Client }
	plain := func(option func(*dynamodb.Options)) *dynamodb.Client {
		return dynamodb.New(dynamodb.Options{
			Region: "us-east-1", Credentials: provide(staticKey),
			HTTPClient: &http.Client{Transport: servant{}},
		}, option)
	}
	inherited := dynamodb.New(plain(func(o *dynamodb.Options) { o.HTTPSignerV4 = signer{o.HTTPSignerV4} }).Options(), func(o *dynamodb.Options) { o.HTTPSignerV4 = v4.NewSigner() })
	for _, test := range []struct {
		name   string
		client dynamo.Client
		reason string // "" where the store makes the calls
	}{
		{"a plain client", plain(func(*dynamodb.Options) {}), ""},
		{"a client of a client", dynamodb.New(plain(func(*dynamodb.Options) {}).Options()), ""},
		{"a wrapper", wrapper{plain(func(*dynamodb.Options) {})}, "no *dynamodb.Client"},
		{"middleware", plain(func(o *dynamodb.Options) {
			o.APIOptions = append(o.APIOptions, func(*middleware.Stack) error { return nil })
		}), "APIOptions"},
		{"another signing region", plain(dynamodb.WithSigV4SigningRegion("eu-west-1")), "APIOptions"},
		{"an interceptor", plain(func(o *dynamodb.Options) { o.Interceptors.AddBeforeTransmit(interceptor{}) }), "Interceptors"},
		{"request logging", plain(func(o *dynamodb.Options) { o.ClientLogMode = aws.LogRequest }), "ClientLogMode"},
		{"gzip", plain(func(o *dynamodb.Options) { o.EnableAcceptEncodingGzip = true }), "EnableAcceptEncodingGzip"},
		{"discovery", plain(func(o *dynamodb.Options) {
			o.EndpointDiscovery.EnableEndpointDiscovery = aws.EndpointDiscoveryEnabled
		}), "EndpointDiscovery"},
		{"an endpoint resolver", plain(func(o *dynamodb.Options) { o.EndpointResolverV2 = resolver{o.EndpointResolverV2} }), "EndpointResolverV2"},
		{"a signer", plain(func(o *dynamodb.Options) { o.HTTPSignerV4 = signer{o.HTTPSignerV4} }), "HTTPSignerV4"},
		{"a signer that is inherited", inherited, "AuthSchemes"},
		{"no credentials", plain(func(o *dynamodb.Options) { o.Credentials = aws.AnonymousCredentials{} }), "no credentials"},
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := dynamo.New(test.client, "table", storetest.Table, nil, dynamo.Logger(logger))
		_, err := s.Write(t.Context(), count(t, one))
		if err != nil {
			t.Errorf("%s: Write = %v", test.name, err)
		}
		path := s.Path()
		if path.Own != (test.reason == "") || !strings.Contains(path.Reason, test.reason) || path.Own && path.Reason != "" {
			t.Errorf("%s: Path() = %+v, want the reason %q", test.name, path, test.reason)
		}
		if _, wrapped := test.client.(wrapper); !wrapped && strings.Count(log.String(), "\n") != 1 || path.Own != strings.Contains(log.String(), "without the AWS SDK") {
			t.Errorf("%s: the log is %q", test.name, &log)
		}
	}
}

type (
	signer      struct{ dynamodb.HTTPSignerV4 }
	resolver    struct{ dynamodb.EndpointResolverV2 }
	interceptor struct{}
)

// BeforeTransmit implements [smithyhttp.BeforeTransmitInterceptor].
func (interceptor) BeforeTransmit(context.Context, *smithyhttp.InterceptorContext) error { return nil }

// TestRepliesAreReadAlike gives both ways the same replies. Results, errors and the number of requests are to be the same.
func TestRepliesAreReadAlike(t *testing.T) {
	synctest.Test(t, repliesAreReadAlike) // the pauses between attempts take no time
}

func repliesAreReadAlike(t *testing.T) {
	const plain = `{"Attributes":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"7"}},"Item":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"7"}}}`
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(plain))
	_ = zip.Close()
	item := func(v string) string {
		return fmt.Sprintf(`{"Attributes":{"PK":{"S":"p"},"SK":{"S":"one"},"a":%s}}`, v)
	}
	ok := func(body string) reply { return reply{status: 200, body: body} }
	failed := func(code string, more ...string) reply { return reply{status: 400, body: exception(code, more...)} }
	skewed := failed("InvalidSignatureException")
	skewed.dated, skewed.ahead = true, time.Hour
	denied := failed("AccessDeniedException")
	denied.dated = true
	cut := func(at int) reply { r := ok(plain); r.cut = at; return r }
	headed := func(r reply, header ...string) reply { r.header = header; return r }
	for name, replies := range map[string][]reply{
		"no status of DynamoDB":               {{status: 204}},
		"another success":                     {{status: 201, body: plain}},
		"an error with status 200":            {ok(exception("InternalServerError"))},
		"a message of a gateway":              {ok(`{"message":"sorry"}`)},
		"null":                                {ok("null")},
		"an array":                            {ok("[" + plain + "]")},
		"an item, and a page":                 {ok(plain + "}}<html>")},
		"an error, and a page":                {{status: 400, body: exception("ConditionalCheckFailedException") + "<html>"}},
		"the item of another key":             {ok(strings.ReplaceAll(plain, `"one"`, `"two"`))},
		"an item without attributes":          {ok(`{"Item":{},"Attributes":{}}`)},
		"a throttle with status 500":          {{status: 500, body: exception("ThrottlingException")}, ok(plain)},
		"a failed condition with status 502":  {{status: 502, body: exception("ConditionalCheckFailedException")}, ok(plain)},
		"a failed condition on another key":   {failed("ConditionalCheckFailedException", `,"Item":{"PK":{"S":"p"},"SK":{"S":"two"}}`)},
		"a batch of another key":              {ok(`{"Responses":{"table":[{"PK":{"S":"p"},"SK":{"S":"three"}}]},"UnprocessedKeys":{}}`)},
		"a wrong checksum":                    {headed(ok(plain), "X-Amz-Crc32", "1")},
		"no checksum":                         {headed(ok(plain), "X-Amz-Crc32", "one")},
		"a wrong checksum of an error":        {headed(failed("ValidationException"), "X-Amz-Crc32", "1")},
		"an item":                             {ok(plain)},
		"an item with white space":            {ok(strings.ReplaceAll(plain, ":", " :\n\t"))},
		"nothing":                             {ok("{}")},
		"no body":                             {ok("")},
		"an empty item":                       {ok(`{"Attributes":{}}`)},
		"escapes":                             {ok(item(`{"S":"\u00e9\n\"\/"}`))},
		"text that is not UTF-8":              {ok(item("{\"S\":\"a\xffb\"}"))},
		"a kind that no record has":           {ok(item(`{"B":"aGk="}`))},
		"a kind inside of a list":             {ok(item(`{"L":[{"NS":["1"]},{"N":"1.5"}]}`))},
		"a number that is none":               {ok(item(`{"N":"1/2"}`))},
		"a long number":                       {ok(item(`{"N":"123456789012345678901234567890"}`))},
		"an exponent":                         {ok(item(`{"N":"1E+20"}`))},
		"nulls":                               {ok(item(`{"NULL":true}`)), ok(item(`null`))},
		"a value without a kind":              {ok(item(`{}`))},
		"a value of two kinds":                {ok(item(`{"N":"1","S":"x"}`))},
		"a batch":                             {ok(`{"Responses":{"table":[{"PK":{"S":"p"},"SK":{"S":"one"}},{"PK":{"S":"p"},"SK":{"S":"\u0031"}}]},"UnprocessedKeys":{}}`)},
		"a batch with keys that are left":     {ok(`{"Responses":{"table":[{"PK":{"S":"p"},"SK":{"S":"one"}}]},"UnprocessedKeys":{"table":{"ConsistentRead":true,"Keys":[{"PK":{"S":"p"},"SK":{"S":"two"}}]}}}`), ok(`{}`)},
		"a batch of another table":            {ok(`{"Responses":{"chairs":[{"PK":{"S":"p"},"SK":{"S":"one"}}]},"UnprocessedKeys":{}}`)},
		"other members":                       {ok(`{"ConsumedCapacity":{"CapacityUnits":1.0,"TableName":"table"},"Attributes":{"a":{"N":"1"}}}`)},
		"what follows":                        {ok(plain + "{}")},
		"an error page":                       {ok("<html>")},
		"half of it":                          {ok(plain[:40])},
		"cut":                                 {cut(40)},
		"cut at the start":                    {cut(-1)},
		"cut at the end":                      {cut(len(plain))},
		"gzip":                                {headed(ok(packed.String()), "Content-Encoding", "gzip")},
		"a checksum":                          {headed(ok(plain), "X-Amz-Crc32", strconv.Itoa(int(crc32.ChecksumIEEE([]byte(plain)))))},
		"a date":                              {{status: 200, body: plain, dated: true}},
		"a failed condition":                  {failed("ConditionalCheckFailedException", `,"Item":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"3"}}`)},
		"a failed condition on nothing":       {failed("ConditionalCheckFailedException")},
		"a failed condition with a capital":   {{status: 400, body: `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","Message":"The conditional request failed","Item":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"3"}}}`}},
		"an odd item of a failed condition":   {failed("ConditionalCheckFailedException", `,"Item":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"x"}}`)},
		"a request id":                        {headed(failed("ValidationException"), "X-Amzn-Requestid", "ID-1")},
		"an error by its header":              {headed(reply{status: 400, body: `{}`}, "X-Amzn-ErrorType", "ConditionalCheckFailedException:http://")},
		"an error that is not known":          {failed("SurpriseException")},
		"the table is missing":                {failed("ResourceNotFoundException")},
		"a throttle, then an item":            {failed("ThrottlingException"), ok(plain)},
		"throttles":                           {failed("ThrottlingException", `,"throttlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded"}]`)},
		"a conflict, then a failed condition": {failed("TransactionConflictException"), failed("ConditionalCheckFailedException")},
		"a server's fault":                    {{status: 500, body: exception("InternalServerError")}},
		"a gateway":                           {{status: 502, body: "<html>"}},
		"a redirect":                          {{status: 307, body: "<html>"}},
		"a wrong time, then an item":          {skewed, ok(plain)},
		"a wrong time again and again":        {skewed, ok(plain), skewed},
		"a wrong time for good":               {skewed},
		"a denial, and a clock that is right": {denied},
		"a denial, and a reply of a cache":    {headed(reply{status: 400, body: exception("AccessDeniedException"), dated: true, ahead: time.Hour}, "Age", "1"), ok(plain)},
		"a failed condition, cut":             {{status: 400, body: exception("ConditionalCheckFailedException"), cut: 40}},
	} {
		for call, do := range calls(t) {
			type outcome struct {
				Requests []string
				Error    string
				Outcome  store.Outcome
				Offset   bool
			}
			var got [2]outcome
			var tapes [2]*tape
			for i, options := range [][]dynamo.Option{{dynamo.WithoutWire()}, nil} {
				tapes[i] = &tape{RoundTripper: &script{replies: replies}}
				s := dynamo.New(dynamodb.New(dynamodb.Options{
					Region: "us-east-1", BaseEndpoint: aws.String("http://dynamodb.test"), Credentials: provide(staticKey),
					HTTPClient: &http.Client{Transport: tapes[i]},
				}), "table", storetest.Table, nil, options...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				err := do(ctx, s)
				again := do(ctx, s)
				cancel()
				got[i] = outcome{Error: fmt.Sprint(err, "\n", again), Outcome: store.OutcomeOf(err)}
				_, got[i].Offset = s.Offset()
				for _, r := range tapes[i].requests {
					at := check.Call(time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))).Must(t, "time.Parse()")
					attempt, _, _ := strings.Cut(r.Header.Get("Amz-Sdk-Request"), "; ttl")
					got[i].Requests = append(got[i].Requests, fmt.Sprintf("%s, ahead by %v", attempt, time.Until(at).Round(time.Minute)))
				}
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Errorf("%s and %s (-SDK +wire):\n%s", call, name, diff)
			}
		}
	}
}

// TestResultsAreReadAlike compares the results of both ways for replies with items.
func TestResultsAreReadAlike(t *testing.T) {
	value := `{"L":[{"M":{"x":{"S":"\u00e9"},"y":{"BOOL":false}}},{"NULL":true},{"B":"aGk="},{"SS":["b","a"]},{"N":"1.50"},{"N":"-0"}]}`
	item := `{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"1"},"big":{"S":"` + strings.Repeat("x", 20<<10) + `"},"m":{"M":{}},"o":` + value + `}`
	for name, body := range map[string]string{
		"escapes": item, "none": strings.ReplaceAll(strings.ReplaceAll(item, `\u00e9`, "é"), `{"B":"aGk="},`, ""), "an escape alone": `{"PK":{"S":"\u0070"},"SK":{"S":"one"},"s":{"S":"p\u0041\\"}}`, "small": `{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"1"}}`,
	} {
		for _, test := range []reply{
			{status: 200, body: `{"Attributes":` + body + `}`},
			{status: 200, body: `{"Item":` + body + `}`},
			{status: 400, body: exception("ConditionalCheckFailedException", `,"Item":`+body)},
		} {
			var results [2]store.Result
			var items [2][]expr.Item
			for i, options := range [][]dynamo.Option{{dynamo.WithoutWire()}, nil} {
				client := storeClient(&script{replies: []reply{test}}, provide(staticKey))
				s := dynamo.New(client, "table", storetest.Table, nil, options...)
				var err error
				if results[i], err = s.Write(t.Context(), count(t, one)); err != nil && !strings.Contains(test.body, `"Item"`) {
					t.Fatalf("Write() = %v", err)
				}
				items[i], _ = s.Read(t.Context(), []store.Key{one}, true)
			}
			if diff := cmp.Diff(results[0], results[1], storetest.Equal); diff != "" {
				t.Errorf("%s: Write (-SDK +wire):\n%s", name, diff)
			}
			if diff := cmp.Diff(items[0], items[1], storetest.Equal); diff != "" {
				t.Errorf("%s: Read (-SDK +wire):\n%s", name, diff)
			}
		}
	}
}

// In TestRedirects, a proxy redirects calls to another address. The HTTP client follows, whoever makes the call.
func TestRedirects(t *testing.T) {
	proxy := roundTripper(func(r *http.Request) (*http.Response, error) {
		answer := reply{status: 200, body: counted7}
		if r.URL.Path != "/there" {
			answer = reply{status: 302, header: []string{"Location", "/there"}}
		}
		return (&script{replies: []reply{answer}}).RoundTrip(withBody(r))
	})
	for way, options := range ways {
		s := dynamo.New(storeClient(proxy, provide(staticKey)), "table", storetest.Table, nil, options...)
		result, err := s.Write(t.Context(), count(t, one))
		if n, _ := result.Item.Get("n").Int(); err != nil || n != 7 {
			t.Errorf("%s: Write = %v, %v, want what the other address replies", way, result.Item, err)
		}
	}
}

// withBody returns a request that has a body, be it empty.
func withBody(r *http.Request) *http.Request {
	if r.Body != nil {
		return r
	}
	full := *r
	full.Body = http.NoBody
	return &full
}

// In TestWrongChecksum, replies were changed on their way. A write may have happened, and its image is not to be trusted.
// The SDK by itself would take them, with a warning to its logger.
func TestWrongChecksum(t *testing.T) {
	for way, options := range ways {
		for _, test := range []reply{
			{status: 200, body: counted7, header: []string{"X-Amz-Crc32", "1"}},
			{status: 400, body: exception("ConditionalCheckFailedException"), header: []string{"X-Amz-Crc32", "1"}},
			{status: 400, body: exception("ThrottlingException"), header: []string{"X-Amz-Crc32", "1"}},
			{status: 200, body: counted7, header: []string{"X-Amz-Crc32", "one"}},
		} {
			sent := &script{replies: []reply{test}}
			_, err := dynamo.New(storeClient(sent, provide(staticKey)), "table", storetest.Table, nil, options...).Write(t.Context(), count(t, one))
			expectVerdict(t, way+": Write", err, unknown)
			if len(sent.requests) != 1 {
				t.Errorf("%s: %d requests, want 1", way, len(sent.requests))
			}
			sent = &script{replies: []reply{test}}
			_, err = dynamo.New(storeClient(sent, provide(staticKey)), "table", storetest.Table, nil, options...).Read(t.Context(), []store.Key{one}, true)
			expectVerdict(t, way+": Read", err, unavailable)
			client := storeClient(&script{replies: []reply{test}}, provide(staticKey), func(o *dynamodb.Options) { o.DisableValidateResponseChecksum = true })
			_, err = dynamo.New(client, "table", storetest.Table, nil, options...).Write(t.Context(), count(t, one))
			if throttled := strings.Contains(test.body, "Throttling"); (err != nil) != throttled {
				t.Errorf("%s: Write without the check = %v", way, err)
			}
		}
	}
}

// TestClientsCheckReplies makes sure that the clients of this package leave the check of checksums on.
func TestClientsCheckReplies(t *testing.T) {
	client, err := dynamo.NewClient(t.Context(), dynamo.ClientConfig{Endpoint: "http://127.0.0.1:1"})
	if err != nil || client.Options().DisableValidateResponseChecksum {
		t.Errorf("NewClient = %v, which checks no replies", err)
	}
}

// storeClient is a client on a transport.
func storeClient(transport http.RoundTripper, credentials aws.CredentialsProvider, options ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://dynamodb.test"), Credentials: credentials,
		HTTPClient: &http.Client{Transport: transport},
	}, options...)
}

// In TestExpiringCredentials, many callers meet credentials that have expired. They are refreshed once, and every later
// request is signed with the new ones.
func TestExpiringCredentials(t *testing.T) {
	source := provide(with(staticKey, func(c *aws.Credentials) { c.CanExpire, c.Expires = true, time.Now().Add(time.Hour) }))
	cache := aws.NewCredentialsCache(source)
	requests := &tape{RoundTripper: servant{}}
	s := dynamo.New(storeClient(requests, cache), "table", storetest.Table, nil)
	if _, err := s.Write(t.Context(), count(t, one)); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	next := with(*source.now.Load(), func(c *aws.Credentials) { c.AccessKeyID, c.SessionToken, c.AccountID = "NEXT", "next", "2" })
	source.now.Store(&next)
	cache.Invalidate()
	var group errgroup.Group
	for range 64 {
		group.Go(func() error { _, err := s.Write(t.Context(), count(t, one)); return err })
	}
	check.Fatal(t, "Wait()", group.Wait())
	if asked := source.asked.Load(); asked != 2 {
		t.Errorf("the provider was asked %d times, want 2", asked)
	}
	for i, r := range requests.requests[1:] {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=NEXT/") || r.Header.Get("X-Amz-Security-Token") != "next" {
			t.Fatalf("request %d of the new credentials: %v", i, r.Header)
		}
		checkSignature(t, "a request of the new credentials", r, requests.bodies[i+1], next)
	}
	if path := s.Path(); !path.Own {
		t.Errorf("Path() = %+v", path)
	}
}

// In TestAccountChanges, the credentials change to those of another account, whose endpoint is another one.
func TestAccountChanges(t *testing.T) {
	for way, options := range ways {
		source := provide(with(staticKey, func(c *aws.Credentials) { c.AccountID = "111111111111" }))
		requests := &tape{RoundTripper: servant{}}
		client := dynamodb.New(dynamodb.Options{
			Region: "us-east-1", Credentials: source, HTTPClient: &http.Client{Transport: requests}, AccountIDEndpointMode: aws.AccountIDEndpointModePreferred,
		})
		s := dynamo.New(client, "table", storetest.Table, nil, options...)
		var hosts []string
		for _, account := range []string{"111111111111", "222222222222", "111111111111"} {
			next := with(staticKey, func(c *aws.Credentials) { c.AccountID = account })
			source.now.Store(&next)
			if _, err := s.Write(t.Context(), count(t, one)); err != nil {
				t.Fatalf("Write() = %v", err)
			}
			hosts = append(hosts, strings.Split(requests.requests[len(requests.requests)-1].URL.Host, ".")[0])
		}
		if want := []string{"111111111111", "222222222222", "111111111111"}; !slices.Equal(hosts, want) {
			t.Errorf("%s: hosts %v, want %v", way, hosts, want)
		}
	}
}

// TestCredentialsFail compares the errors of both ways when there are no credentials.
func TestCredentialsFail(t *testing.T) {
	var texts []string
	for _, options := range [][]dynamo.Option{{dynamo.WithoutWire()}, nil} {
		fail := false
		s := dynamo.New(storeClient(servant{}, aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			if fail {
				return aws.Credentials{}, fmt.Errorf("no credentials today")
			}
			return staticKey, nil
		})), "table", storetest.Table, nil, options...)
		if _, err := s.Write(t.Context(), count(t, one)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		fail = true
		_, err := s.Write(t.Context(), count(t, one))
		expectVerdict(t, "Write", err, refusal)
		texts = append(texts, fmt.Sprint(err))
	}
	if texts[0] != texts[1] {
		t.Errorf("the SDK's error is %q, that of the wire path %q", texts[0], texts[1])
	}
}

// TestHTTP2 makes calls to a server that speaks HTTP/2, from many callers at the same time. It also makes calls to
// one that answers before it has read the request.
func TestHTTP2(t *testing.T) {
	for way, options := range ways {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 2 {
				t.Errorf("%s: %s, want HTTP/2", way, r.Proto)
			}
			body, _ := io.ReadAll(r.Body)
			var in struct{ Key map[string]map[string]string }
			_ = json.Unmarshal(body, &in)
			fmt.Fprintf(w, `{"Attributes":{"PK":{"S":%q},"SK":{"S":"s"}}}`, in.Key["PK"]["S"])
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: provide(staticKey), HTTPClient: server.Client()})
		s := dynamo.New(client, "table", storetest.Table, nil, options...)
		var group errgroup.Group
		for i := range 32 {
			group.Go(func() error {
				for j := range 8 {
					k := store.Key{PK: fmt.Sprint(i, " ", j), SK: "s"}
					result, err := s.Write(t.Context(), count(t, k))
					if err != nil || result.Item.Get("PK").Text() != k.PK {
						return fmt.Errorf("a write of %v = %v, %w", k, result, err) // err may be nil
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Errorf("%s: %v", way, err)
		}
		server.Client().CloseIdleConnections()
		server.Close()
	}
}

// TestLateReader lets a transport read a request after its reply. It must not see the next one.
func TestLateReader(t *testing.T) {
	var kept []io.Reader
	keys := []store.Key{{PK: "p", SK: "first"}, {PK: "p", SK: "other"}, {PK: "p", SK: "third"}}
	s := dynamo.New(storeClient(roundTripper(func(r *http.Request) (*http.Response, error) {
		kept = append(kept, r.Body)
		body := strings.ReplaceAll(counted7, "one", keys[len(kept)-1].SK)
		return (&script{replies: []reply{{status: 200, body: body}}}).RoundTrip(&http.Request{Body: http.NoBody})
	}), provide(staticKey)), "table", storetest.Table, nil)
	for _, key := range keys {
		if _, err := s.Write(t.Context(), count(t, key)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	for i, body := range kept {
		if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), `"`+keys[i].SK+`"`) {
			t.Errorf("the body of request %d is %q after its call, %v", i, text, err)
		}
	}
}

// In TestTraceOfLambda, a function in AWS Lambda sends the trace that it belongs to, which changes from call to call.
func TestTraceOfLambda(t *testing.T) {
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "limits")
	var heads [2][]string
	for i, options := range [][]dynamo.Option{{dynamo.WithoutWire()}, nil} {
		requests := &tape{RoundTripper: servant{}}
		s := dynamo.New(storeClient(requests, provide(staticKey)), "table", storetest.Table, nil, options...)
		for _, id := range []string{"Root=1-5759e988-bd862e3f;Sampled=1", "Root=2", "with space"} {
			t.Setenv("_X_AMZN_TRACE_ID", id)
			if _, err := s.Write(t.Context(), count(t, one)); err != nil {
				t.Fatalf("Write() = %v", err)
			}
		}
		if path := s.Path(); path.Own != (i == 1) {
			t.Errorf("Path() = %+v", path)
		}
		for _, r := range requests.requests {
			heads[i] = append(heads[i], r.Header.Get("X-Amzn-Trace-Id"))
		}
	}
	if diff := cmp.Diff(heads[0], heads[1]); diff != "" || heads[0][1] != "Root=2" {
		t.Errorf("trace ids (-SDK +wire):\n%s", diff)
	}
}

// TestStoreOfTheSDK runs the store suite on the SDK's calls; TestStore runs it on the wire path.
func TestStoreOfTheSDK(t *testing.T) {
	engine := enginetest.Start(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		return dynamo.New(engine.Client(), engine.Table(t), storetest.Table, enginetest.CreateSuiteTable, dynamo.WithoutWire())
	}, "DELETE from a number", "an attribute without a name")
}
