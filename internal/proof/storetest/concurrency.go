package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

func testTransact(t *testing.T, s store.Store) {
	a, b, c := store.Key{PK: "a", SK: "s"}, store.Key{PK: "b", SK: "s"}, store.Key{PK: "c", SK: "s"}
	spend := func(k store.Key, amount int) store.Write {
		return store.Write{Key: k, Expr: Bind(t, []expr.Condition{expr.GE(n, 0)}, []expr.Action{expr.Add(n, 1)}, amount, -amount)}
	}
	expect := func(k store.Key, least int) store.Write {
		return store.Write{Kind: store.Check, Key: k, Expr: Bind(t, []expr.Condition{expr.GE(n, 0)}, nil, least)}
	}
	fill := func() {
		put(t, s, a, "n", 10)
		put(t, s, b, "n", 20)
		write(t, s, store.Write{Kind: store.Delete, Key: c})
	}
	image := func(k store.Key, n int) expr.Item { return Item("PK", k.PK, "SK", k.SK, "n", n) }
	applied := store.Result{Applied: true}
	failed := func(item expr.Item) store.Result { return store.Result{Item: item} }
	absent := Bind(t, []expr.Condition{expr.Absent(n)}, nil)
	for _, test := range []struct {
		name       string
		writes     []store.Write
		want       []store.Result
		na, nb, nc int // afterwards; 0 for none
	}{
		{"all hold", []store.Write{spend(a, 3), spend(b, 4)}, []store.Result{applied, applied}, 7, 16, 0},
		{"the second fails", []store.Write{spend(a, 3), spend(b, 21)}, []store.Result{applied, failed(image(b, 20))}, 10, 20, 0},
		{"both fail", []store.Write{spend(a, 11), spend(b, 21)}, []store.Result{failed(image(a, 10)), failed(image(b, 20))}, 10, 20, 0},
		{"one without an item fails", []store.Write{spend(a, 1), spend(c, 1)}, []store.Result{applied, failed(nil)}, 10, 20, 0},
		{"of every kind", []store.Write{
			expect(a, 10), {Kind: store.Delete, Key: b}, {Kind: store.Put, Key: c, Item: Item("n", 5), Expr: absent},
		}, []store.Result{applied, applied, applied}, 10, 0, 5},
		{"a check fails", []store.Write{expect(a, 11), {Kind: store.Delete, Key: b}}, []store.Result{failed(image(a, 10)), applied}, 10, 20, 0},
		{"one write", []store.Write{spend(a, 3)}, []store.Result{applied}, 7, 20, 0},
		{"one write that fails", []store.Write{spend(a, 30)}, []store.Result{failed(image(a, 10))}, 10, 20, 0},
		{"one check", []store.Write{expect(a, 3)}, []store.Result{applied}, 10, 20, 0},
		{"one put", []store.Write{{Kind: store.Put, Key: c, Item: Item("n", 5)}}, []store.Result{applied}, 10, 20, 5},
		{"none", nil, []store.Result{}, 10, 20, 0},
	} {
		fill()
		got, err := s.Transact(t.Context(), test.writes)
		if err != nil {
			t.Errorf("Transact: %s = %v", test.name, err)
			continue
		}
		if len(got)+len(test.want) > 0 {
			if diff := cmp.Diff(test.want, got, Equal); diff != "" {
				t.Errorf("Transact: %s (-want +got):\n%s", test.name, diff)
			}
		}
		var left [3]int64
		for i, item := range read(t, s, a, b, c) {
			left[i], _ = item.Get("n").Int()
		}
		if want := [3]int64{int64(test.na), int64(test.nb), int64(test.nc)}; left != want {
			t.Errorf("Transact: %s leaves %v, want %v", test.name, left, want)
		}
	}

	fill()
	var many []store.Write
	for i := range 101 {
		many = append(many, store.Write{Kind: store.Put, Key: store.Key{PK: "many", SK: fmt.Sprint(i)}})
	}
	for name, writes := range map[string][]store.Write{
		"one item twice":             {spend(a, 1), expect(a, 1)},
		"101 writes":                 many,
		"an operand of a wrong type": {spend(a, 1), {Key: b, Expr: Bind(t, nil, []expr.Action{expr.Add(n, 0)}, expr.Strings("x"))}},
		"an empty set":               {spend(a, 1), {Kind: store.Put, Key: c, Item: Item("set", expr.Strings())}},
		"an item that is too large":  {spend(a, 1), {Kind: store.Put, Key: c, Item: Item("text", strings.Repeat("x", 410_000))}},
		"a write without meaning":    {spend(a, 1), {Kind: store.Check, Key: b}},
	} {
		_, err := s.Transact(t.Context(), writes)
		refused(t, "Transact of "+name, err)
	}
	if diff := cmp.Diff([]expr.Item{image(a, 10), image(b, 20), nil}, read(t, s, a, b, c), Equal); diff != "" {
		t.Errorf("items after refused transactions (-want +got):\n%s", diff)
	}
	if _, err := s.Transact(t.Context(), many[:100]); err != nil {
		t.Errorf("Transact of 100 writes = %v", err)
	}
	if got := len(all(t, s, store.Query{PK: "many"})); got != 100 {
		t.Errorf("Transact of 100 writes left %d items", got)
	}
}

// testCounter lets goroutines count one item up, each step under the condition that no other has since.
func testCounter(t *testing.T, s store.Store) {
	const callers, steps = 8, 25
	put(t, s, key, "n", 0, "all", 0)
	group, ctx := errgroup.WithContext(t.Context())
	step := func() func(seen int64) expr.Bound {
		op := &expr.Operation{Placeholders: 2, Where: []expr.Condition{expr.EQ(n, 0)}, Update: []expr.Action{expr.Add(n, 1)}}
		return func(seen int64) expr.Bound {
			b, err := op.Call(expr.N(seen), expr.N(1)).Bind()
			check.Error(t, "Bind()", err)
			return b
		}
	}()
	count := Bind(t, nil, []expr.Action{expr.Add(expr.Attr("all"), 0)}, 1)
	for range callers {
		group.Go(func() error {
			seen := int64(0)
			for done := 0; done < steps; {
				r, err := s.Write(ctx, store.Write{Key: key, Expr: step(seen)})
				if err != nil {
					return err
				}
				now, _ := r.Item.Get("n").Int()
				if r.Applied {
					done++
					if now != seen+1 {
						return fmt.Errorf("counted from %d to %d", seen, now)
					}
				} else if now == seen {
					return fmt.Errorf("the condition failed at %d, and the image says the same", now)
				}
				seen = now
				if _, err := s.Write(ctx, store.Write{Key: key, Expr: count}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	check.Fatal(t, "Wait()", group.Wait())
	item := read(t, s, key)[0]
	if got, _ := item.Get("n").Int(); got != callers*steps {
		t.Errorf("counter = %d, want %d", got, callers*steps)
	}
	if got, _ := item.Get("all").Int(); got < callers*steps {
		t.Errorf("tries = %d, want at least %d", got, callers*steps)
	}
}

// testTransfer runs goroutines that move amounts between items in transactions, beside a watching reader.
func testTransfer(t *testing.T, s store.Store) {
	const accounts, each, callers, steps = 4, 50, 6, 15
	at := func(i int) store.Key { return store.Key{PK: fmt.Sprint("account", i), SK: "s"} }
	var keys []store.Key
	for i := range accounts {
		put(t, s, at(i), "n", each)
		keys = append(keys, at(i))
	}
	group, ctx := errgroup.WithContext(t.Context())
	for caller := range callers {
		random := rand.New(rand.NewPCG(1, uint64(caller)))
		group.Go(func() error {
			for range steps {
				from := random.IntN(accounts)
				to := (from + 1 + random.IntN(accounts-1)) % accounts
				amount := 1 + random.IntN(40)
				if err := transfer(ctx, t, s, at(from), at(to), amount); err != nil {
					return err
				}
			}
			return nil
		})
	}
	check.Fatal(t, "Wait()", group.Wait())
	sum := int64(0)
	for i, item := range read(t, s, keys...) {
		have, _ := item.Get("n").Int()
		if have < 0 {
			t.Errorf("account %d = %d, want no debt", i, have)
		}
		sum += have
	}
	if sum != accounts*each {
		t.Errorf("sum = %d, want %d", sum, accounts*each)
	}
}

func transfer(ctx context.Context, t *testing.T, s store.Store, from, to store.Key, amount int) error {
	writes := []store.Write{
		{Key: from, Expr: Bind(t, []expr.Condition{expr.GE(n, 0)}, []expr.Action{expr.Add(n, 1)}, amount, -amount)},
		{Key: to, Expr: Bind(t, nil, []expr.Action{expr.Add(n, 0)}, amount)},
	}
	for {
		_, err := s.Transact(ctx, writes)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func testContext(t *testing.T, s store.Store) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	for _, ctx := range []context.Context{canceled, late} {
		for name, call := range calls(t, s) {
			err := call(ctx)
			if !errors.Is(err, ctx.Err()) {
				t.Errorf("%s with an ended context = %v, want %v", name, err, ctx.Err())
			}
			if e := (*store.Error)(nil); errors.As(err, &e) && (e.Unavailable || e.Unknown) {
				t.Errorf("%s with an ended context = %v with Unavailable %t, Unknown %t; want neither", name, err, e.Unavailable, e.Unknown)
			}
		}
	}
	if got := read(t, s, store.Key{PK: "calls", SK: "s"})[0]; got != nil {
		t.Errorf("a write with an ended context left %v", got)
	}
	for name, call := range calls(t, s) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := call(ctx); err != nil {
			t.Errorf("%s after calls with ended contexts = %v", name, err)
		}
		cancel()
	}
}

func testClose(t *testing.T, s store.Store) {
	for range 2 {
		check.Fatal(t, "Close()", s.Close())
	}
	all := calls(t, s)
	all["Setup"] = s.Setup
	for name, call := range all {
		err := call(t.Context())
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a closed store = %v, want %v", name, err, store.ErrClosed)
		}
		refused(t, name+" of a closed store", err)
	}
}
