package dynamo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// verdict is what an error says about a call.
type verdict struct {
	ok                   bool // no error
	unavailable, unknown bool
	is                   error // what the error wraps, or nil
}

var (
	success     = verdict{ok: true}
	refusal     = verdict{}
	unavailable = verdict{unavailable: true}
	unknown     = verdict{unavailable: true, unknown: true}
	conflict    = verdict{is: store.ErrConflict}
	missing     = verdict{is: store.ErrTableNotFound}
)

func expectVerdict(t *testing.T, name string, err error, want verdict) {
	t.Helper()
	got := verdict{ok: err == nil}
	if e := (*store.Error)(nil); errors.As(err, &e) {
		got.unavailable, got.unknown = e.Unavailable, e.Unknown
	} else if err != nil {
		t.Errorf("%s = %v, which is no *store.Error", name, err)
	}
	if want.is != nil && errors.Is(err, want.is) {
		got.is = want.is
	}
	if got != want {
		t.Errorf("%s = %v: %+v, want %+v", name, err, got, want)
	}
	for _, sentinel := range []error{store.ErrConflict, store.ErrTableNotFound, store.ErrClosed} {
		if errors.Is(err, sentinel) && !errors.Is(want.is, sentinel) {
			t.Errorf("%s = %v, which is %v", name, err, sentinel)
		}
	}
}

// faulty returns a store whose calls pass through faults, on a table with two items that count in n. Its client has the
// SDK's own retryer, which would repeat what must not be repeated.
func faulty(t *testing.T, options ...dynamo.Option) (*dynamo.Store, *enginetest.Faults) {
	engine := enginetest.Start(t)
	faults := enginetest.NewFaults(engine.Transport())
	s := dynamo.New(engine.Client(faults.Attach), engine.Table(t), storetest.Table, enginetest.CreateSuiteTable, options...)
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	for _, k := range []store.Key{one, two} {
		if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: k, Item: storetest.Item("n", 0)}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	faults.Reset()
	return s, faults
}

var (
	one   = store.Key{PK: "p", SK: "one"}
	two   = store.Key{PK: "p", SK: "two"}
	three = store.Key{PK: "p", SK: "three"} // has no item
)

func count(t *testing.T, k store.Key) store.Write {
	return store.Write{Key: k, Expr: storetest.Bind(t, []expr.Condition{expr.GE(expr.Attr("n"), 0)}, []expr.Action{expr.Add(expr.Attr("n"), 1)}, 0, 1)}
}

// counted returns n of an item, read without faults.
func counted(t *testing.T, s store.Store, faults *enginetest.Faults, k store.Key) int64 {
	t.Helper()
	faults.Clear()
	items := check.Call(s.Read(t.Context(), []store.Key{k}, true)).Must(t, "Read()")
	n, _ := items[0].Get("n").Int()
	return n
}

// TestFaults hits each kind of call with each fault, once and permanently. It pins what the error says, how many
// requests were made, and how often the write happened.
func TestFaults(t *testing.T) {
	for way, options := range ways {
		t.Run(way, func(t *testing.T) { testFaults(t, options...) })
	}
}

func testFaults(t *testing.T, options ...dynamo.Option) {
	s, faults := faulty(t, options...)
	type outcome struct {
		verdict
		calls int
		n     int64 // by how much a write counted
	}
	write := func(ctx context.Context) error { _, err := s.Write(ctx, count(t, one)); return err }
	transact := func(ctx context.Context) error {
		_, err := s.Transact(ctx, []store.Write{count(t, one), count(t, two)})
		return err
	}
	get := func(ctx context.Context) error { _, err := s.Read(ctx, []store.Key{one}, true); return err }
	batch := func(ctx context.Context) error { _, err := s.Read(ctx, []store.Key{one, two}, false); return err }
	query := func(ctx context.Context) error { _, err := s.Query(ctx, store.Query{PK: "p"}); return err }

	retried, gaveUp := outcome{success, 2, 1}, outcome{unavailable, 3, 0}
	readRetried, readGaveUp := outcome{success, 2, 0}, outcome{unavailable, 3, 0}
	for _, test := range []struct {
		fault                 enginetest.Kind
		write, writeAll       outcome
		transact, transactAll outcome
		read, readAll         outcome
	}{
		// Nothing was written: tried again.
		{enginetest.Refused, retried, gaveUp, retried, gaveUp, readRetried, readGaveUp},
		{enginetest.DialReset, retried, gaveUp, retried, gaveUp, readRetried, readGaveUp},
		{enginetest.Throttled, retried, gaveUp, retried, gaveUp, readRetried, readGaveUp},
		{enginetest.ThroughputExceeded, retried, gaveUp, retried, gaveUp, readRetried, readGaveUp},
		// It may have been: a plain write is not tried again. A transaction is, and is carried out once.
		{enginetest.InternalError, outcome{unknown, 1, 0}, outcome{unknown, 1, 0}, retried, outcome{unknown, 3, 0}, readRetried, readGaveUp},
		{enginetest.LostRequest, outcome{unknown, 1, 0}, outcome{unknown, 1, 0}, retried, outcome{unknown, 3, 0}, readRetried, readGaveUp},
		{enginetest.LostReply, outcome{unknown, 1, 1}, outcome{unknown, 1, 1}, retried, outcome{unknown, 3, 1}, readRetried, readGaveUp},
		{enginetest.ResetReply, outcome{unknown, 1, 1}, outcome{unknown, 1, 1}, retried, outcome{unknown, 3, 1}, readRetried, readGaveUp},
		{enginetest.TruncatedReply, outcome{unknown, 1, 1}, outcome{unknown, 1, 1}, retried, outcome{unknown, 3, 1}, readRetried, readGaveUp},
		// Another transaction was in the way, which is over soon; a transaction's caller is to judge.
		{enginetest.Conflict, retried, outcome{conflict, 3, 0}, outcome{conflict, 1, 0}, outcome{conflict, 1, 0}, readRetried, outcome{conflict, 3, 0}},
		// Answers that another try would not change.
		{enginetest.AccessDenied, outcome{refusal, 1, 0}, outcome{refusal, 1, 0}, outcome{refusal, 1, 0}, outcome{refusal, 1, 0}, outcome{refusal, 1, 0}, outcome{refusal, 1, 0}},
		{enginetest.ResourceNotFound, outcome{missing, 1, 0}, outcome{missing, 1, 0}, outcome{missing, 1, 0}, outcome{missing, 1, 0}, outcome{missing, 1, 0}, outcome{missing, 1, 0}},
	} {
		for _, call := range []struct {
			name      string
			do        func(context.Context) error
			once, all outcome
		}{
			{"UpdateItem", write, test.write, test.writeAll},
			{"TransactWriteItems", transact, test.transact, test.transactAll},
			{"GetItem", get, test.read, test.readAll},
			{"BatchGetItem", batch, test.read, test.readAll},
			{"Query", query, test.read, test.readAll},
		} {
			for times, want := range []outcome{call.all, call.once} { // 0 is permanent
				before := counted(t, s, faults, one)
				faults.Inject(enginetest.Fault{Kind: test.fault, Operation: call.name, Times: times})
				faults.Reset()
				err := call.do(t.Context())
				calls := faults.Calls(call.name)
				name := call.name + " with " + string(test.fault) + []string{" for good", " once"}[times]
				expectVerdict(t, name, err, want.verdict)
				if calls != want.calls {
					t.Errorf("%s made %d requests, want %d", name, calls, want.calls)
				}
				if n := counted(t, s, faults, one) - before; n != want.n {
					t.Errorf("%s was done %d times, want %d", name, n, want.n)
				}
			}
		}
	}
}

// TestTransactionRemembersDoubt pins that a transaction stays unknown when a later attempt fails without answering for
// the earlier one.
func TestTransactionRemembersDoubt(t *testing.T) {
	s, faults := faulty(t)
	for i, later := range []enginetest.Kind{enginetest.Throttled, enginetest.Refused, enginetest.AccessDenied} {
		faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Operation: "TransactWriteItems", Times: 1})
		faults.Inject(enginetest.Fault{Kind: later, Operation: "TransactWriteItems"})
		before := int64(i)
		_, err := s.Transact(t.Context(), []store.Write{count(t, one), count(t, two)})
		if e := (*store.Error)(nil); !errors.As(err, &e) || !e.Unknown {
			t.Errorf("a lost reply, then %s: %v, want an unknown outcome", later, err)
		}
		if n := counted(t, s, faults, one); n != before+1 {
			t.Errorf("a lost reply, then %s: counted from %d to %d", later, before, n)
		}
	}
}

// TestContextEndsMidFlight ends the caller's context while a call waits for its reply, and between two attempts.
func TestContextEndsMidFlight(t *testing.T) {
	for way, options := range ways {
		t.Run(way, func(t *testing.T) { testContextEndsMidFlight(t, options...) })
	}
}

func testContextEndsMidFlight(t *testing.T, options ...dynamo.Option) {
	s, faults := faulty(t, options...)
	for _, test := range []struct {
		name  string
		fault enginetest.Kind
		do    func(context.Context) error
		calls int
		want  verdict
	}{
		{"UpdateItem", enginetest.Hang, func(ctx context.Context) error { _, err := s.Write(ctx, count(t, one)); return err }, 1, verdict{unknown: true}},
		{"TransactWriteItems", enginetest.Hang, func(ctx context.Context) error {
			_, err := s.Transact(ctx, []store.Write{count(t, one), count(t, two)})
			return err
		}, 1, verdict{unknown: true}},
		{"GetItem", enginetest.Hang, func(ctx context.Context) error { _, err := s.Read(ctx, []store.Key{one}, true); return err }, 1, verdict{}},
	} {
		for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
			faults.Clear()
			faults.Reset()
			faults.Inject(enginetest.Fault{Kind: test.fault, Operation: test.name})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if errors.Is(ended, context.Canceled) {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, cancel)
			}
			err := test.do(ctx)
			cancel()
			test.want.is = ended
			expectVerdict(t, test.name+" when its context ends", err, test.want)
			if calls := faults.Calls(test.name); calls != test.calls {
				t.Errorf("%s made %d requests, want %d", test.name, calls, test.calls)
			}
		}
	}
}
