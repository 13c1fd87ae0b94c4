// Package difftest compares the two interpreters of a template: package expr's own, as the embedded stores use it, and
// DynamoDB's, on a running engine.
package difftest

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// An embedded store and its name.
type embedded struct {
	store.Store
	name string
}

// stores returns the embedded stores and one on the engine, with the same empty table.
func stores(t *testing.T) (all []embedded, engine store.Store) {
	e := enginetest.Start(t)
	engine = dynamo.New(e.Client(), e.Table(t), storetest.Table, enginetest.CreateSuiteTable)
	inMemory := check.Call(memory.New(storetest.Table)).Must(t, "memory.New()")
	onSQLite := check.Call(sqlite.OpenMemory(storetest.Table)).Must(t, "sqlite.OpenMemory()")
	all = []embedded{{inMemory, "memory"}, {onSQLite, "sqlite"}}
	for _, s := range all {
		t.Cleanup(func() { check.Error(t, "Close()", s.Close()) })
		check.Fatal(t, "Setup()", s.Setup(t.Context()))
	}
	check.Fatal(t, "Setup()", engine.Setup(t.Context()))
	return all, engine
}

// cases is the number of sequences; each has about 25 writes.
const cases = 300

// TestInterpretersAgree does the same random writes on all stores. Each is applied by all, or fails its condition on
// all, or is refused by all, with the same images, and leaves the same items.
func TestInterpretersAgree(t *testing.T) {
	all, engine := stores(t)
	repeat(t, cases)
	var partition, applied, failed, refused atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		keys := make([]store.Key, 3)
		for i := range keys {
			keys[i] = store.Key{PK: fmt.Sprint("p", partition.Add(1)), SK: "s"}
		}
		key := rapid.SampledFrom(keys)
		for range rapid.IntRange(1, 50).Draw(rt, "writes") {
			w, ok := write(rt, key.Draw(rt, "item"))
			if !ok {
				continue
			}
			got, gotErr := engine.Write(t.Context(), w)
			for _, s := range all {
				want, wantErr := s.Write(t.Context(), w)
				if msg := compare(want, wantErr, got, gotErr); msg != "" {
					rt.Fatalf("%s: %s\n%s", s.name, describe(w), msg)
				}
			}
			switch {
			case gotErr != nil:
				refused.Add(1)
			case got.Applied:
				applied.Add(1)
			default:
				failed.Add(1)
			}
		}
		got, gotErr := engine.Read(t.Context(), keys, true)
		for _, s := range all {
			want, wantErr := s.Read(t.Context(), keys, true)
			check.Fatal(rt, "Read()", errors.Join(wantErr, gotErr))
			if diff := cmp.Diff(want, got, storetest.Equal); diff != "" {
				rt.Fatalf("items afterwards (-%s +engine):\n%s", s.name, diff)
			}
		}
	})
	t.Logf("%d writes applied, %d failed their condition, %d were refused", applied.Load(), failed.Load(), refused.Load())
}

// repeat makes rapid draw n times in this test, unless its flag says otherwise.
func repeat(t *testing.T, n int) {
	f := flag.Lookup("rapid.checks")
	if before := f.Value.String(); before == f.DefValue {
		check.Fatal(t, "Value.Set()", f.Value.Set(fmt.Sprint(n)))
		t.Cleanup(func() { check.Error(t, "Value.Set()", f.Value.Set(before)) })
	}
}

// TestTransactionsAgree does the same for transactions.
func TestTransactionsAgree(t *testing.T) {
	all, engine := stores(t)
	repeat(t, cases)
	var partition atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		keys := make([]store.Key, 4)
		for i := range keys {
			keys[i] = store.Key{PK: fmt.Sprint("p", partition.Add(1)), SK: "s"}
		}
		for range rapid.IntRange(1, 8).Draw(rt, "transactions") {
			var writes []store.Write
			for _, k := range keys[:rapid.IntRange(1, len(keys)).Draw(rt, "size")] {
				if w, ok := write(rt, k); ok {
					writes = append(writes, w)
				}
			}
			if len(writes) == 0 {
				continue
			}
			got, gotErr := engine.Transact(t.Context(), writes)
			for _, s := range all {
				want, wantErr := s.Transact(t.Context(), writes)
				if msg := compare(want, wantErr, got, gotErr); msg != "" {
					rt.Fatalf("%s: %s\n%s", s.name, describe(writes...), msg)
				}
			}
		}
		got, gotErr := engine.Read(t.Context(), keys, true)
		for _, s := range all {
			want, wantErr := s.Read(t.Context(), keys, true)
			check.Fatal(rt, "Read()", errors.Join(wantErr, gotErr))
			if diff := cmp.Diff(want, got, storetest.Equal); diff != "" {
				rt.Fatalf("items afterwards (-%s +engine):\n%s", s.name, diff)
			}
		}
	})
}

// TestOperandsAgree tries every kind of value in every place of an expression: Bind refuses what DynamoDB refuses.
func TestOperandsAgree(t *testing.T) {
	_, engine := stores(t)
	n, absent := expr.Attr("n"), expr.Attr("absent")
	values := []expr.Value{
		{},
		expr.S("x"), expr.S(""), expr.N(1), expr.Bool(true), expr.Null(),
		expr.Strings("a"), expr.Strings(), expr.List(), expr.Map(nil),
	}
	type place struct {
		op     *expr.Operation
		orders bool
	}
	places := []place{{op: &expr.Operation{Where: []expr.Condition{expr.EQ(n, 0)}, Update: []expr.Action{expr.Remove(absent)}}}}
	for _, condition := range []func(expr.Path, int) expr.Condition{expr.LT, expr.LE, expr.GT, expr.GE} {
		op := &expr.Operation{Where: []expr.Condition{condition(n, 0)}, Update: []expr.Action{expr.Remove(absent)}}
		places = append(places, place{op, true})
	}
	for _, action := range []func(expr.Path, int) expr.Action{expr.Set, expr.Default, expr.Add, expr.Delete} {
		places = append(places, place{op: &expr.Operation{Update: []expr.Action{action(absent, 0)}}})
	}
	for _, action := range []func(expr.Path, int) expr.Action{expr.Plus, expr.Minus} {
		places = append(places, place{op: &expr.Operation{Update: []expr.Action{action(n, 0)}}})
	}
	for i, p := range places {
		op := p.op
		op.Name, op.Placeholders = "place", 1
		var template *expr.Template
		for _, v := range values {
			if b, err := op.Call(v).Bind(); err == nil {
				template = b.Template
			}
		}
		for j, v := range values {
			k := store.Key{PK: fmt.Sprint("p", i), SK: fmt.Sprint("s", j)}
			if _, err := engine.Write(t.Context(), store.Write{Kind: store.Put, Key: k, Item: storetest.Item("n", 1)}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
			_, refused := op.Call(v).Bind()
			w := store.Write{Key: k, Expr: expr.Bound{Template: template, Values: []expr.Value{v}}}
			if v.Kind() == expr.KindNone {
				if refused == nil {
					t.Errorf("%s: Bind takes no value at all", describe(w))
				}
				continue // there is no way to send none
			}
			if p.orders && refused != nil {
				continue // AWS refuses to order values that have no order; the engine finds that the condition does not hold
			}
			_, err := engine.Write(t.Context(), w)
			if (refused == nil) != (err == nil) {
				t.Errorf("%s: Bind = %v, engine: %v", describe(w), refused, err)
			}
		}
	}
}

// compare says what differs between two outcomes, "" for nothing.
func compare(want any, wantErr error, got any, gotErr error) string {
	switch {
	case (wantErr == nil) != (gotErr == nil):
		return fmt.Sprintf("embedded: %v, %v\nengine:   %v, %v", want, wantErr, got, gotErr)
	case wantErr != nil:
		var e *store.Error
		if !errors.As(gotErr, &e) || e.Unavailable || e.Unknown || !strings.Contains(gotErr.Error(), "Validation") {
			return fmt.Sprintf("engine: %v, want a validation error as the embedded store's, %v", gotErr, wantErr)
		}
		return ""
	default:
		if diff := cmp.Diff(want, got, storetest.Equal); diff != "" {
			return fmt.Sprintf("result (-embedded +engine):\n%s", diff)
		}
		return ""
	}
}

// describe prints writes for a message.
func describe(writes ...store.Write) string {
	var b strings.Builder
	for _, w := range writes {
		fmt.Fprintf(&b, "kind %d of %v", w.Kind, w.Key)
		if w.Kind == store.Put {
			fmt.Fprintf(&b, " %v", w.Item)
		}
		if w.Expr.Template != nil {
			fmt.Fprintf(&b, " %q if %q with %v and", w.Expr.Update(), w.Expr.Condition(), w.Expr.Names())
			for i, v := range w.Expr.Values {
				fmt.Fprintf(&b, " :%d=%v", i, v)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
