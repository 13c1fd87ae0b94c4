package zlimit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A verdict is what a reply means for a call.
type verdict uint8

const (
	doubtful   verdict = iota // the reply is not DynamoDB's, or not all of it: an outage, and the outcome of a write is unknown
	believed                  // the call was done, or found what it found
	unreadable                // as believed, with an item that cannot be read
	declined                  // nothing was written, and the call would fail again: no outage
	again                     // nothing was written, and the next attempt succeeds
	empty                     // DynamoDB says the same for an item that is not there, and for one that was put
)

// A wireReply is what a server says to a call. A body that is nil stands for the reply of the engine.
type wireReply struct {
	name   string
	status int
	body   func(table string, real []byte) []byte
	header []string // a name and a value
	done   bool     // the engine does the call first

	update, put, get, batch verdict
}

// repliesOf returns the corpus.
func repliesOf() (rows []wireReply) {
	const html = "<html>an error page</html>"
	code := func(code string, more ...string) string {
		return fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"said so"%s}`, code, strings.Join(more, ""))
	}
	text := func(text string) func(string, []byte) []byte {
		return func(table string, _ []byte) []byte { return []byte(strings.ReplaceAll(text, "$TABLE", table)) }
	}
	const reasons = `,"ThrottlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded"}]`
	// Replies that are made up, whether the call was done before or not.
	for _, r := range []wireReply{
		{name: "no content", status: 204},
		{name: "accepted", status: 202},
		{name: "created", status: 201, body: text("{}")},
		{name: "a part", status: 206, body: text("{}")},
		{name: "no body", status: 200},
		{name: "no body, and a long header", status: 200, header: []string{"X-Long", strings.Repeat("x", 200<<10)}},
		{name: "white space", status: 200, body: text(" \n")},
		{name: "nothing", status: 200, body: text("{}"), put: empty, get: empty},
		{name: "units alone", status: 200, body: text(`{"ConsumedCapacity":{"TableName":"$TABLE","CapacityUnits":1.0}}`), put: empty, get: empty},
		{name: "null", status: 200, body: text("null")},
		{name: "an array", status: 200, body: text("[]")},
		{name: "a string", status: 200, body: text(`"ok"`)},
		{name: "true", status: 200, body: text("true")},
		{name: "an error page", status: 200, body: text(html)},
		{name: "an open object", status: 200, body: text("{")},
		{name: "nothing, and a page", status: 200, body: text("{}}}<html>")},
		{name: "nothing twice", status: 200, body: text("{}{}")},
		{name: "an internal error with status 200", status: 200, body: text(code("InternalServerError"))},
		{name: "a throttle with status 200", status: 200, body: text(code("ThrottlingException"))},
		{name: "a failed condition with status 200", status: 200, body: text(code("ConditionalCheckFailedException"))},
		{name: "a message of a gateway", status: 200, body: text(`{"message":"upstream is gone"}`)},
		{name: "an error of a gateway", status: 200, body: text(`{"error":{"code":14}}`)},
		{name: "nothing, with a wrong checksum", status: 200, body: text("{}"), header: []string{"X-Amz-Crc32", "1"}},
		{name: "nothing, with a word as checksum", status: 200, body: text("{}"), header: []string{"X-Amz-Crc32", "one"}},
		{name: "nothing, with a negative checksum", status: 200, body: text("{}"), header: []string{"X-Amz-Crc32", "-1"}},
		{name: "an image without attributes", status: 200, body: text(`{"Attributes":{}}`), put: empty},
		{name: "no image", status: 200, body: text(`{"Attributes":null}`), put: empty},
		{name: "a number as image", status: 200, body: text(`{"Attributes":7}`)},
		{name: "the image of another key", status: 200, body: text(`{"Attributes":{"PK":{"S":"other"},"SK":{"S":"#STATE"}}}`), put: empty},
		{name: "an item without attributes", status: 200, body: text(`{"Item":{}}`)},
		{name: "a number as item", status: 200, body: text(`{"Item":7}`)},
		{name: "the item of another key", status: 200, body: text(`{"Item":{"PK":{"S":"other"},"SK":{"S":"#STATE"}}}`)},
		{name: "a batch of nothing", status: 200, body: text(`{"Responses":{},"UnprocessedKeys":{}}`)},
		{name: "a batch without responses", status: 200, body: text(`{"UnprocessedKeys":{}}`)},
		{name: "a batch of another table", status: 200, body: text(`{"Responses":{"other":[]},"UnprocessedKeys":{}}`)},
		{name: "a batch of another key", status: 200, body: text(`{"Responses":{"$TABLE":[{"PK":{"S":"other"},"SK":{"S":"#STATE"}}]},"UnprocessedKeys":{}}`)},
		{name: "null as batch", status: 200, body: text(`{"Responses":null,"UnprocessedKeys":null}`)},
		{name: "a page of a query", status: 200, body: text(`{"Items":[],"Count":0,"ScannedCount":0}`)},
		{name: "moved", status: 301, body: text(html)},
		{name: "a throttle with status 302", status: 302, body: text(code("ThrottlingException"))},
		{name: "not modified", status: 304},
		{name: "a redirect", status: 307, body: text(html)},
		{name: "request timeout", status: 408, body: text(html)},
		{name: "a throttle with status 408", status: 408, body: text(code("ThrottlingException"))},
		{name: "a throttle, cut", status: 400, body: text(code("ThrottlingException")[:60])},
		{name: "a throttle, and a page", status: 400, body: text(code("ThrottlingException") + html)},
		{name: "a throttle with a wrong checksum", status: 400, body: text(code("ThrottlingException")), header: []string{"X-Amz-Crc32", "1"}},
		{name: "a failed condition with a wrong checksum", status: 400, body: text(code("ConditionalCheckFailedException")), header: []string{"X-Amz-Crc32", "1"}},
		{name: "a denial with a word as checksum", status: 400, body: text(code("AccessDeniedException")), header: []string{"X-Amz-Crc32", "one"}},
		{name: "status 500", status: 500},
		{name: "a page with status 500", status: 500, body: text(html)},
		{name: "an internal error", status: 500, body: text(code("InternalServerError"))},
		{name: "a throttle with status 500", status: 500, body: text(code("ThrottlingException"))},
		{name: "a throttle of the key with status 500", status: 500, body: text(code("ThrottlingException", reasons))},
		{name: "exceeded throughput with status 500", status: 500, body: text(code("ProvisionedThroughputExceededException", reasons))},
		{name: "a limit of the account with status 500", status: 500, body: text(code("RequestLimitExceeded"))},
		{name: "a failed condition with status 500", status: 500, body: text(code("ConditionalCheckFailedException"))},
		{name: "a conflict with status 500", status: 500, body: text(code("TransactionConflictException"))},
		{name: "a missing table with status 500", status: 500, body: text(code("ResourceNotFoundException"))},
		{name: "a denial with status 500", status: 500, body: text(code("AccessDeniedException"))},
		{name: "bad input with status 500", status: 500, body: text(code("ValidationException"))},
		{name: "a bad gateway", status: 502, body: text(html)},
		{name: "a throttle with status 502", status: 502, body: text(code("ThrottlingException"))},
		{name: "service unavailable", status: 503, body: text(code("ServiceUnavailable"))},
		{name: "a throttle with status 503", status: 503, body: text(code("ThrottlingException"))},
		{name: "status 503", status: 503},
		{name: "a gateway's timeout", status: 504, body: text(html)},
	} {
		if r.body == nil {
			r.body = text("")
		}
		rows = append(rows, r)
		r.done, r.name = true, r.name+", after the call"
		rows = append(rows, r)
	}
	// Replies of the engine that were changed on their way.
	alter := func(change func(string) string) func(string, []byte) []byte {
		return func(_ string, real []byte) []byte { return []byte(change(string(real))) }
	}
	within := func(old, next string) func(string, []byte) []byte {
		return alter(func(s string) string { return strings.ReplaceAll(s, old, next) })
	}
	number := func(name, next string) func(string, []byte) []byte {
		return alter(func(s string) string {
			before, after, ok := strings.Cut(s, `"`+name+`":{`)
			if !ok {
				return s
			}
			_, after, _ = strings.Cut(after, "}")
			return before + `"` + name + `":{` + next + "}" + after
		})
	}
	yes := wireReply{update: believed, put: believed, get: believed, batch: believed}
	odd := wireReply{update: believed, put: believed, get: unreadable, batch: believed} // a batch of keys without items
	other := wireReply{put: believed, batch: believed}
	for _, r := range []struct {
		name     string
		body     func(string, []byte) []byte
		verdicts wireReply
	}{
		{"as it is", alter(func(s string) string { return s }), yes},
		{"with white space", alter(func(s string) string { return " \n" + strings.ReplaceAll(s, `":`, "\" :\t") + "\r\n" }), yes},
		{"with a page after it", alter(func(s string) string { return s + "}}<html>" }), wireReply{}},
		{"with null after it", alter(func(s string) string { return s + "null" }), wireReply{}},
		{"twice", alter(func(s string) string { return s + s }), wireReply{}},
		{"without its last byte", alter(func(s string) string { return s[:len(s)-1] }), wireReply{}},
		{"half of it", alter(func(s string) string { return s[:len(s)/2] }), wireReply{}},
		{"in an array", alter(func(s string) string { return "[" + s + "]" }), wireReply{}},
		{"in an object", alter(func(s string) string { return `{"reply":` + s + "}" }), wireReply{}},
		{"after a mark of byte order", alter(func(s string) string { return "\ufeff" + s }), wireReply{}},
		{"compressed, unasked", alter(func(s string) string {
			var packed bytes.Buffer
			zip := gzip.NewWriter(&packed)
			_, _ = zip.Write([]byte(s))
			_ = zip.Close()
			return packed.String()
		}), wireReply{header: []string{"Content-Encoding", "gzip"}}},
		{"with a member that is not known", alter(func(s string) string { return strings.Replace(s, `{"`, `{"New":1,"`, 1) }), yes},
		{"as an error", alter(func(s string) string {
			return strings.Replace(s, "{", `{"__type":"x"`+map[bool]string{true: ","}[s != "{}"], 1)
		}), wireReply{}},
		{"with a wrong checksum", alter(func(s string) string { return s }), wireReply{header: []string{"X-Amz-Crc32", "1"}}},
		{"with a checksum that is too large", alter(func(s string) string { return s }), wireReply{header: []string{"X-Amz-Crc32", "99999999999"}}},
		{"with another sort key", within("#STATE", "#STATF"), other},
		{"with another partition key", within("/BUCKET#", "/BOCKET#"), other},
		{"with an attribute set by hand", within(`"PK":`, `"b_zz_tk":{"N":"7"},"PK":`), odd},
		{"without a capacity", within(`"b_rpm_cp"`, `"b_rpm_xx"`), odd},
		{"with a balance that is text", number("b_rpm_tk", `"S":"7"`), odd},
		{"with a balance of a fraction", number("b_rpm_tk", `"N":"1.5"`), odd},
		{"with a balance that is NULL", number("b_rpm_tk", `"NULL":true`), odd},
		{"with a stamp that is text", number("rf", `"S":"1"`), odd},
		{"with a stamp of 30 digits", number("rf", `"N":"123456789012345678901234567890"`), odd},
		{"with a stamp of 210 digits", number("rf", `"N":"`+strings.Repeat("9", 210)+`"`), odd},
		{"with a huge exponent", number("rf", `"N":"1E400"`), odd},
		{"with a number that is none", number("rf", `"N":"1/2"`), odd},
	} {
		row := r.verdicts
		row.name, row.status, row.body, row.done = "the reply "+r.name, 200, r.body, true
		rows = append(rows, row)
		if r.name == "as it is" {
			row.name, row.status, row.update, row.put, row.get, row.batch = "the reply with status 201", 201, doubtful, doubtful, doubtful, doubtful
			rows = append(rows, row)
		}
	}
	// Refusals, which prove that nothing was written.
	refuse := func(v verdict, status int, body string) {
		rows = append(rows, wireReply{name: fmt.Sprintf("%d %.90s", status, body), status: status, body: text(body), update: v, put: v, get: v, batch: v})
	}
	for _, c := range []string{"ValidationException", "AccessDeniedException", "UnrecognizedClientException", "ResourceNotFoundException", "SurpriseException"} {
		refuse(declined, 400, code(c))
	}
	for _, status := range []int{400, 401, 403, 404, 413} {
		refuse(declined, status, html)
	}
	for _, c := range []string{"ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "TransactionConflictException"} {
		refuse(again, 400, code(c))
	}
	refuse(again, 429, html)
	refuse(again, 429, "")
	refuse(again, 429, code("ThrottlingException"))
	return rows
}

// An impostor is a transport that answers calls of one operation by a reply of the corpus, and passes on the others.
type impostor struct {
	base  http.RoundTripper
	reply *wireReply
	table string

	mu        sync.Mutex
	operation string // "" for none
}

func (i *impostor) answer(operation string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.operation = operation
}

// hits reports whether a request is to be answered. A reply after which the call is tried again is given once.
func (i *impostor) hits(r *http.Request) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	hit := i.operation != "" && strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+i.operation)
	if hit && i.reply.update == again {
		i.operation = ""
	}
	return hit
}

// RoundTrip implements [http.RoundTripper].
func (i *impostor) RoundTrip(r *http.Request) (*http.Response, error) {
	if !i.hits(r) {
		return i.base.RoundTrip(r)
	}
	var real []byte
	if i.reply.done {
		reply, err := i.base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		real, err = io.ReadAll(reply.Body)
		if err = errors.Join(err, reply.Body.Close()); err != nil {
			return nil, err
		}
	} else if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	body := i.reply.body(i.table, real)
	reply := &http.Response{
		StatusCode: i.reply.status, Status: http.StatusText(i.reply.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
	if len(i.reply.header) > 0 {
		reply.Header.Set(i.reply.header[0], i.reply.header[1])
	}
	return reply, nil
}

// A wireCall is a call of a limiter that one reply decides.
type wireCall struct {
	name, operation string
	taken           int64 // by the lease before the call; 0 for a bucket that this limiter has not seen
	takes           int64 // by the call
	policy          bool  // the failure policy decides in an outage
}

var wireCalls = []wireCall{
	{"acquire", "UpdateItem", 10, 100, true},
	{"create", "PutItem", 0, 100, true},
	{"commit of more", "UpdateItem", 10, 50, false},
	{"commit of less", "UpdateItem", 100, -50, false},
	{"rollback", "UpdateItem", 100, -100, false},
	{"limits", "BatchGetItem", 0, 100, true},
	{"look", "GetItem", 10, 0, false},
}

// TestReplyCorpus answers each kind of call by each reply, and compares what the caller hears with what the table says
// after it. An applied write is applied, and a reply that says too little admits nothing.
func TestReplyCorpus(t *testing.T) {
	if enginetest.IsMean() {
		t.Skip("it knows what becomes of every call")
	}
	paths := map[string][]dynamo.Option{"wire": nil, "SDK": {dynamo.WithoutWire()}}
	for which, way := range []struct {
		policy zlimit.FailurePolicy
		path   string
	}{
		{zlimit.PolicyBlock, "wire"}, {zlimit.PolicyAllow, "SDK"}, {zlimit.PolicyAllow, "wire"}, {zlimit.PolicyBlock, "SDK"},
	} {
		t.Run(fmt.Sprintf("%v, %s", way.policy, way.path), func(t *testing.T) {
			t.Parallel()
			engine := enginetest.Start(t)
			table := engine.Table(t)
			open := func(transport http.RoundTripper, opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
				client := engine.Client(func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: transport} })
				s := zlimit.StoreOn(dynamo.New(client, table, layout.Table, withoutStream, paths[way.path]...))
				opts = append(opts, zlimit.WithListing(false), zlimit.WithFailurePolicy(way.policy), zlimit.WithClock(newClock().now),
					zlimit.WithCallTimeout(time.Minute), zlimit.WithDecisionTimeout(time.Minute))
				return zlimit.New(context.Background(), s, opts...)
			}
			l := check.Call(open(engine.Transport(), zlimit.WithSetup())).Must(t, "open()")
			setSystem(t, l, zlimit.PerDay("rpm", 1000))
			defer closeLimiters(t, l)
			rows := repliesOf()
			if len(rows) < 100 {
				t.Errorf("%d replies", len(rows))
			}
			var group errgroup.Group
			group.SetLimit(16) // most of them wait between two attempts
			for n := range rows {
				if !soak.Runs() && n%4 != which {
					continue // another way has it
				}
				group.Go(func() error {
					liar := &impostor{base: engine.Transport(), reply: &rows[n], table: table}
					l, err := open(liar)
					if err != nil {
						return err
					}
					defer closeLimiters(t, l)
					for k := range wireCalls {
						if which > 1 && !wireCalls[k].policy {
							continue // the ways before have it on this path, and no policy has a say
						}
						c := corpusCase{limiter: l, liar: liar, call: &wireCalls[k], policy: way.policy, entity: fmt.Sprintf("row-%d-%d", n, k)}
						if err := c.run(); err != nil {
							t.Errorf("%s, answered by %q: %v", c.call.name, rows[n].name, err)
						}
					}
					return nil
				})
			}
			check.Error(t, "Wait()", group.Wait())
		})
	}
}

// A corpusCase is one call that is answered by one reply.
type corpusCase struct {
	limiter *zlimit.RateLimiter
	liar    *impostor
	call    *wireCall
	policy  zlimit.FailurePolicy
	entity  string
}

func (c *corpusCase) verdict() verdict {
	return map[string]verdict{
		"UpdateItem": c.liar.reply.update, "PutItem": c.liar.reply.put, "GetItem": c.liar.reply.get, "BatchGetItem": c.liar.reply.batch,
	}[c.call.operation]
}

// consumed returns what the table has counted for the entity, in tokens.
func (c *corpusCase) consumed() (int64, error) {
	key := layout.BucketKey{NS: c.limiter.NS(), Entity: c.entity, Resource: "gpt-4"}.Key()
	items, err := c.limiter.Calls().Read(context.Background(), []store.Key{key}, true)
	if err != nil || items[0] == nil {
		return 0, err
	}
	decoded, err := layout.DecodeBucket(items[0])
	for _, l := range decoded.Limits {
		if l.Name == "rpm" {
			return l.Consumed / 1000, err
		}
	}
	return 0, err
}

func (c *corpusCase) acquire(tokens int64) (*zlimit.Lease, error) {
	return c.limiter.Acquire(context.Background(), zlimit.Request{Entity: c.entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": tokens}})
}

// do makes the call. The function settle repeats it, where it settles a lease.
func (c *corpusCase) do(before *zlimit.Lease) (lease *zlimit.Lease, settle func() error, err error) {
	ctx := context.Background()
	switch c.call.name {
	case "commit of more", "commit of less":
		if err := before.Adjust(zlimit.Amounts{"rpm": c.call.takes}); err != nil {
			return nil, nil, err
		}
		settle = func() error { return before.Commit(ctx) }
	case "rollback":
		settle = func() error { return before.Rollback(ctx) }
	case "look":
		_, err := c.limiter.Available(ctx, zlimit.AvailableQuery{Entity: c.entity, Resource: "gpt-4"})
		return nil, nil, err
	default:
		lease, err := c.acquire(c.call.takes)
		return lease, nil, err
	}
	return nil, settle, settle()
}

func (c *corpusCase) run() error {
	ctx := context.Background()
	var before *zlimit.Lease
	if c.call.taken > 0 {
		var err error
		if before, err = c.acquire(c.call.taken); err != nil {
			return fmt.Errorf("the call before = %w", err)
		}
	}
	unknown := c.limiter.Stats().UnknownOutcomes
	c.liar.answer(c.call.operation)
	lease, settle, err := c.do(before)
	c.liar.answer("")

	reply, verdict := c.liar.reply, c.verdict()
	writes := c.call.operation == "UpdateItem" || c.call.operation == "PutItem"
	want := c.call.taken
	if verdict == believed || verdict == unreadable && writes || verdict == again || reply.done && writes {
		want += c.call.takes
	}
	var outage *zlimit.UnavailableError
	var item *zlimit.ItemError
	isOutage, isItem := errors.As(err, &outage), errors.As(err, &item)
	switch {
	case verdict == doubtful && c.call.policy && c.policy == zlimit.PolicyAllow:
		if err != nil || !lease.Degraded() {
			return fmt.Errorf("= %w, want a degraded lease", err)
		}
		if err := errors.Join(lease.Adjust(zlimit.Amounts{"rpm": 5}), lease.Commit(ctx)); err != nil {
			return fmt.Errorf("settling a degraded lease = %w", err)
		}
	case verdict == doubtful:
		if !isOutage || outage.Unknown != writes || errors.Is(err, zlimit.ErrNoLimits) {
			return fmt.Errorf("= %w, want an UnavailableError with Unknown = %t", err, writes)
		}
	case verdict == declined:
		if err == nil || isOutage || isItem || errors.Is(err, zlimit.ErrNoLimits) {
			return fmt.Errorf("= %w, want an error that is no outage", err)
		}
	case verdict == unreadable:
		if !isItem || isOutage || item.PK == "" || item.SK == "" || item.Attribute == "" || !strings.Contains(err.Error(), item.PK) {
			return fmt.Errorf("= %w, want an ItemError that names key and attribute", err)
		}
	case err != nil || lease != nil && lease.Degraded():
		return fmt.Errorf("= %w, want no error, and no outage", err)
	}
	wantUnknown := unknown
	if verdict == doubtful && writes {
		wantUnknown++
	}
	if got := c.limiter.Stats().UnknownOutcomes; got != wantUnknown {
		return fmt.Errorf("%d unknown outcomes, want %d", got, wantUnknown)
	}
	if got, err := c.consumed(); err != nil || got != want {
		return fmt.Errorf("the table counts %d, %w; want %d", got, err, want) // err may be nil
	}
	if settle != nil { // once more: what was done, or may have been, is not done twice
		switch err := settle(); {
		case verdict == declined && err == nil:
			want += c.call.takes
		case verdict == declined || !errors.Is(err, zlimit.ErrLeaseClosed):
			return fmt.Errorf("once more = %w", err)
		}
	}
	if _, err := c.acquire(1); err != nil {
		return fmt.Errorf("the next call = %w", err)
	}
	if got, err := c.consumed(); err != nil || got != want+1 {
		return fmt.Errorf("after the next call the table counts %d, %w; want %d", got, err, want+1) // err may be nil
	}
	return nil
}
