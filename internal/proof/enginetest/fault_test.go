package enginetest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
)

// bench is a table with the item "a" and a client that does not retry, behind a
// fault transport.
type bench struct {
	faults *Faults
	client *dynamodb.Client
	table  string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	engine := Start(t)
	b := &bench{faults: NewFaults(engine.Transport()), table: engine.Table(t)}
	b.client = engine.Client(b.faults.Attach, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	plain := engine.Client()
	createTable(t, plain, b.table)
	if _, err := plain.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &b.table, Item: item("a", 0)}); err != nil {
		t.Fatalf("PutItem() = %v", err)
	}
	return b
}

// increment adds one to an item's counter.
func (b *bench) increment(ctx context.Context, id string) (*dynamodb.UpdateItemOutput, error) {
	return b.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &b.table,
		Key:                       map[string]types.AttributeValue{"id": item(id, 0)["id"]},
		UpdateExpression:          aws.String("ADD n :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityIndexes,
	})
}

// read returns an item's counter.
func (b *bench) read(t *testing.T, id string) string {
	t.Helper()
	got := check.Call(b.client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName:              &b.table,
		Key:                    map[string]types.AttributeValue{"id": item(id, 0)["id"]},
		ConsistentRead:         aws.Bool(true),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})).Must(t, "GetItem()")
	n, ok := got.Item["n"].(*types.AttributeValueMemberN)
	if !ok {
		return ""
	}
	return n.Value
}

// isType reports whether an error is, or wraps, one of type E.
func isType[E error](err error) bool { return errors.As(err, new(E)) }

// isCode returns a test for an API error by its code.
func isCode(code string) func(error) bool {
	return func(err error) bool {
		var api smithy.APIError
		return errors.As(err, &api) && api.ErrorCode() == code
	}
}

// isDial reports whether an error says that no connection was made.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isTimeout reports whether an error is a network timeout.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout() && !isDial(err)
}

func TestFaultsAreSeenByTheClientAsTheRealOnes(t *testing.T) {
	b := newBench(t)
	for _, test := range []struct {
		kind       Kind
		is         func(error) bool
		carriedOut bool
	}{
		{kind: Refused, is: func(err error) bool { return isDial(err) && errors.Is(err, syscall.ECONNREFUSED) }},
		{kind: DialReset, is: func(err error) bool { return isDial(err) && errors.Is(err, syscall.ECONNRESET) }},
		{kind: LostRequest, is: isTimeout},
		{kind: LostReply, is: isTimeout, carriedOut: true},
		{kind: ResetReply, is: func(err error) bool { return !isDial(err) && errors.Is(err, syscall.ECONNRESET) }, carriedOut: true},
		{kind: TruncatedReply, is: func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }, carriedOut: true},
		{kind: ThroughputExceeded, is: isType[*types.ProvisionedThroughputExceededException]},
		{kind: Throttled, is: isType[*types.ThrottlingException]},
		{kind: InternalError, is: isType[*types.InternalServerError]},
		{kind: Conflict, is: isType[*types.TransactionConflictException]},
		{kind: AccessDenied, is: isCode("AccessDeniedException")},
		{kind: ResourceNotFound, is: isType[*types.ResourceNotFoundException]},
		{kind: "no such kind", is: func(err error) bool { return strings.Contains(err.Error(), "no such kind") }},
	} {
		t.Run(string(test.kind), func(t *testing.T) {
			id := string(test.kind)
			b.faults.Clear()
			b.faults.Reset()
			b.faults.Inject(Fault{Kind: test.kind, Operation: "UpdateItem", Times: 1})
			if _, err := b.increment(t.Context(), id); err == nil || !test.is(err) {
				t.Errorf("UpdateItem = %v, want %s", err, test.kind)
			}
			wantForwarded, wantValue := 0, ""
			if test.carriedOut {
				wantForwarded, wantValue = 1, "1"
			}
			if got := b.faults.Forwarded("UpdateItem"); got != wantForwarded {
				t.Errorf("forwarded = %d, want %d", got, wantForwarded)
			}
			if got := b.read(t, id); got != wantValue {
				t.Errorf("counter = %q, want %q", got, wantValue)
			}
			if got := b.faults.Injected(test.kind); got != 1 {
				t.Errorf("injected = %d, want 1", got)
			}
		})
	}
}

func TestConflictCancelsATransactionWithReasons(t *testing.T) {
	b := newBench(t)
	b.faults.Inject(Fault{Kind: Conflict})
	put := func(id string) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: &b.table, Item: item(id, 1)}}
	}
	_, err := b.client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{put("x"), put("y")},
	})
	var canceled *types.TransactionCanceledException
	if !errors.As(err, &canceled) {
		t.Fatalf("TransactWriteItems = %v, want TransactionCanceledException", err)
	}
	var codes []string
	for _, reason := range canceled.CancellationReasons {
		codes = append(codes, aws.ToString(reason.Code))
	}
	compare.Equal(t, "reasons", []string{"TransactionConflict", "None"}, codes)
}

func TestHangHoldsTheReplyUntilTheDeadline(t *testing.T) {
	b := newBench(t)
	b.faults.Inject(Fault{Kind: Hang, Operation: "UpdateItem"})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := b.increment(ctx, "a")
		failed <- err
	}()
	for b.faults.Forwarded("UpdateItem") == 0 {
		time.Sleep(time.Millisecond)
	}
	for b.faults.Capacity("UpdateItem").Write == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-failed:
		t.Fatalf("UpdateItem returned %v before its context was done", err)
	default:
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("UpdateItem = %v, want %v", err, context.Canceled)
	}
	if got := b.read(t, "a"); got != "1" {
		t.Errorf("counter = %q, want 1: the call was carried out", got)
	}
}

func TestSlowWaitsForItsGate(t *testing.T) {
	b := newBench(t)
	gate := make(chan struct{})
	b.faults.Inject(Fault{Kind: Slow, Operation: "UpdateItem", Delay: time.Millisecond, Until: gate})
	done := make(chan error)
	go func() {
		_, err := b.increment(t.Context(), "a")
		done <- err
	}()
	for b.faults.Injected(Slow) == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := b.read(t, "a"); got != "0" {
		t.Errorf("counter before the gate opens = %q, want 0", got)
	}
	close(gate)
	check.Error(t, "UpdateItem", <-done)
	if got := b.read(t, "a"); got != "1" {
		t.Errorf("counter = %q, want 1", got)
	}
}

func TestSlowEndsWithTheContext(t *testing.T) {
	b := newBench(t)
	for name, fault := range map[string]Fault{
		"in its delay": {Kind: Slow, Operation: "UpdateItem", Delay: time.Hour},
		"at its gate":  {Kind: Slow, Operation: "UpdateItem", Until: make(chan struct{})},
	} {
		b.faults.Clear()
		b.faults.Inject(fault)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := b.increment(ctx, "a")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("UpdateItem %s = %v, want %v", name, err, context.DeadlineExceeded)
		}
	}
	if got := b.faults.Forwarded("UpdateItem"); got != 0 {
		t.Errorf("forwarded = %d, want 0", got)
	}
}

func TestFaultsHitTheChosenCalls(t *testing.T) {
	for name, test := range map[string]struct {
		faults []Fault
		want   string // One letter per call: f for a fault, c for a conflict, . for none.
	}{
		"none":                        {nil, "......"},
		"all":                         {[]Fault{{Kind: Throttled}}, "ffffff"},
		"another operation":           {[]Fault{{Kind: Throttled, Operation: "PutItem"}}, "......"},
		"the first two":               {[]Fault{{Kind: Throttled, Times: 2}}, "ff...."},
		"after the first two":         {[]Fault{{Kind: Throttled, Skip: 2}}, "..ffff"},
		"the third":                   {[]Fault{{Kind: Throttled, Skip: 2, Times: 1}}, "..f..."},
		"by number":                   {[]Fault{{Kind: Throttled, When: func(c Call) bool { return c.N%2 == 0 }}}, ".f.f.f"},
		"by body":                     {[]Fault{{Kind: Throttled, When: func(c Call) bool { return strings.Contains(string(c.Body), `"odd"`) }}}, "f.f.f."},
		"one fault after another":     {[]Fault{{Kind: Throttled, Times: 2}, {Kind: Conflict, Times: 1}}, "ffc..."},
		"skips count matches alone":   {[]Fault{{Kind: Throttled, When: func(c Call) bool { return c.N > 2 }, Skip: 1, Times: 1}}, "...f.."},
		"the first injected has sway": {[]Fault{{Kind: Conflict}, {Kind: Throttled}}, "cccccc"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			for _, fault := range test.faults {
				b.faults.Inject(fault)
			}
			got := ""
			for n := range 6 {
				_, err := b.increment(t.Context(), []string{"odd", "even"}[n%2])
				switch {
				case err == nil:
					got += "."
				case isType[*types.TransactionConflictException](err):
					got += "c"
				default:
					got += "f"
				}
			}
			if got != test.want {
				t.Errorf("calls = %s, want %s", got, test.want)
			}
		})
	}
}

func TestCallsAndCapacityAreCounted(t *testing.T) {
	b := newBench(t)
	b.faults.Inject(Fault{Kind: Throttled, Operation: "UpdateItem", Times: 1})
	if _, err := b.increment(t.Context(), "a"); err == nil {
		t.Error("the first UpdateItem = nil, want a throttle")
	}
	const callers = 16
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			if _, err := b.increment(t.Context(), "a"); err != nil {
				t.Errorf("increment() = %v", err)
			}
		})
	}
	group.Wait()
	b.read(t, "a")

	type counts struct{ Updates, Gets, All, Forwarded, Throttled int }
	want := counts{Updates: callers + 1, Gets: 1, All: callers + 2, Forwarded: callers + 1, Throttled: 1}
	got := counts{b.faults.Calls("UpdateItem"), b.faults.Calls("GetItem"), b.faults.Calls(""), b.faults.Forwarded(""), b.faults.Injected(Throttled)}
	compare.Equal(t, "counts", want, got)
	wantUsed := Capacity{Units: Units{Read: 1, Write: callers}, Table: Units{Write: callers}}
	compare.Equal(t, "capacity", wantUsed, b.faults.Capacity(""))
	b.faults.Reset()
	if got := b.faults.Calls(""); got != 0 {
		t.Errorf("calls after Reset = %d, want 0", got)
	}
}

func TestConsumedReadsEveryShape(t *testing.T) {
	for name, test := range map[string]struct {
		operation, body string
		want            Capacity
		ok              bool
	}{
		"not asked for": {operation: "GetItem", body: `{"Item":{}}`},
		"no JSON":       {operation: "GetItem", body: `"ConsumedCapacity"`},
		"a read": {
			operation: "GetItem", body: `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":0.5}}`,
			want: Capacity{Units: Units{Read: 0.5}}, ok: true,
		},
		"a write with indexes": {
			operation: "UpdateItem",
			body: `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":4,"Table":{"CapacityUnits":1},
				"GlobalSecondaryIndexes":{"GSI1":{"CapacityUnits":2}},"LocalSecondaryIndexes":{"LSI1":{"CapacityUnits":1}}}}`,
			want: Capacity{
				Units: Units{Write: 4}, Table: Units{Write: 1},
				Indexes: map[string]Units{"GSI1": {Write: 2}, "LSI1": {Write: 1}},
			},
			ok: true,
		},
		"a transaction on two tables": {
			operation: "TransactWriteItems",
			body: `{"ConsumedCapacity":[
				{"TableName":"t","CapacityUnits":4,"WriteCapacityUnits":4,"Table":{"CapacityUnits":4,"WriteCapacityUnits":4}},
				{"TableName":"u","CapacityUnits":2,"ReadCapacityUnits":2,"WriteCapacityUnits":0,"Table":{"CapacityUnits":2,"ReadCapacityUnits":2}}]}`,
			want: Capacity{Units: Units{Read: 2, Write: 4}, Table: Units{Read: 2, Write: 4}}, ok: true,
		},
	} {
		got, ok := consumed(test.operation, []byte(test.body))
		if diff := cmp.Diff(test.want, got); diff != "" || ok != test.ok {
			t.Errorf("%s: consumed = …, %v, want %v (-want +got):\n%s", name, ok, test.ok, diff)
		}
	}
}
