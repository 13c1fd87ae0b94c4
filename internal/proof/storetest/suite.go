package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Run runs the suite. open returns a store on a new table before [store.Store.Setup], and closes it with the test. An
// engine may take some invalid writes that AWS refuses: lenient names them.
func Run(t *testing.T, open func(t *testing.T) store.Store, lenient ...string) {
	run := func(name string, test func(*testing.T, store.Store)) { t.Run(name, ready(open, test)) }
	t.Run("Setup", func(t *testing.T) { testSetup(t, open(t)) })
	run("Update", testUpdate)
	run("Put", testPut)
	run("Delete", testDelete)
	run("Check", testCheck)
	run("Values", testValues)
	run("Invalid", func(t *testing.T, s store.Store) { testInvalid(t, s, lenient) })
	run("Size", testSize)
	run("Read", testRead)
	run("Query", testQuery)
	run("Index", testIndex)
	run("IndexFollows", testIndexFollows)
	run("Cursor", testCursor)
	run("Scan", testScan)
	run("Consistent", testConsistent)
	run("DeleteKeys", testDeleteKeys)
	run("Transact", testTransact)
	run("Counter", testCounter)
	run("Transfer", testTransfer)
	run("Context", testContext)
	run("Close", testClose)
}

// ready returns a test of a store whose table is set up.
func ready(open func(*testing.T) store.Store, test func(*testing.T, store.Store)) func(*testing.T) {
	return func(t *testing.T) {
		s := open(t)
		check.Fatal(t, "Setup()", s.Setup(t.Context()))
		test(t, s)
	}
}

var (
	n     = expr.Attr("n")
	state = expr.Attr("state")
	key   = store.Key{PK: "p", SK: "s"}
)

// write does a write and fails the test when it fails.
func write(t *testing.T, s store.Store, w store.Write) store.Result {
	t.Helper()
	r, err := s.Write(t.Context(), w)
	if err != nil {
		t.Fatalf("Write(%v %v) = %v", w.Kind, w.Key, err)
	}
	return r
}

// put stores an item without a condition.
func put(t *testing.T, s store.Store, k store.Key, pairs ...any) {
	t.Helper()
	if r := write(t, s, store.Write{Kind: store.Put, Key: k, Item: Item(pairs...)}); !r.Applied {
		t.Fatalf("Write(Put %v) was not applied", k)
	}
}

func read(t *testing.T, s store.Store, keys ...store.Key) []expr.Item {
	t.Helper()
	items, err := s.Read(t.Context(), keys, true)
	if err != nil {
		t.Fatalf("Read(%v) = %v", keys, err)
	}
	return items
}

func expect(t *testing.T, what string, got store.Result, applied bool, item expr.Item) {
	t.Helper()
	if diff := cmp.Diff(store.Result{Applied: applied, Item: item}, got, Equal); diff != "" {
		t.Errorf("%s: result (-want +got):\n%s", what, diff)
	}
}

// refused asks for an error that is neither an outage nor a doubt.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	var e *store.Error
	if !errors.As(err, &e) {
		t.Errorf("%s = %v, want a *store.Error", what, err)
	} else if e.Unavailable || e.Unknown {
		t.Errorf("%s = %v with Unavailable %t, Unknown %t; want neither", what, err, e.Unavailable, e.Unknown)
	}
}

// calls returns each method of the store with a context, as a call that would succeed.
func calls(t *testing.T, s store.Store) map[string]func(context.Context) error {
	w := store.Write{Key: store.Key{PK: "calls", SK: "s"}, Expr: Bind(t, nil, []expr.Action{expr.Add(n, 0)}, 1)}
	other := w
	other.Key.SK = "t"
	return map[string]func(context.Context) error{
		"Read":     func(ctx context.Context) error { _, err := s.Read(ctx, []store.Key{key}, false); return err },
		"Read 2":   func(ctx context.Context) error { _, err := s.Read(ctx, []store.Key{key, w.Key}, false); return err },
		"Write":    func(ctx context.Context) error { _, err := s.Write(ctx, w); return err },
		"Transact": func(ctx context.Context) error { _, err := s.Transact(ctx, []store.Write{w, other}); return err },
		"Delete":   func(ctx context.Context) error { return s.Delete(ctx, []store.Key{w.Key}) },
		"Query":    func(ctx context.Context) error { _, err := s.Query(ctx, store.Query{PK: "p"}); return err },
		"Ping":     s.Ping,
	}
}

func testSetup(t *testing.T, s store.Store) {
	for name, call := range calls(t, s) {
		err := call(t.Context())
		if !errors.Is(err, store.ErrTableNotFound) {
			t.Errorf("%s without a table = %v, want %v", name, err, store.ErrTableNotFound)
		}
		refused(t, name+" without a table", err)
	}
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	put(t, s, key, "n", 1)
	if err := s.Setup(t.Context()); err != nil {
		t.Fatalf("Setup() a second time = %v", err)
	}
	if got := read(t, s, key)[0]; got == nil {
		t.Error("Setup() a second time lost an item")
	}
	for name, call := range calls(t, s) {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func testUpdate(t *testing.T, s store.Store) {
	create := Bind(t, []expr.Condition{expr.Absent(n)}, []expr.Action{expr.Add(n, 0), expr.Set(state, 1)}, 5, "new")
	spend := Bind(t, []expr.Condition{expr.GE(n, 0)}, []expr.Action{expr.Add(n, 1), expr.Remove(state)}, 3, -3)
	full := Item("PK", "p", "SK", "s", "n", 5, "state", "new")
	rest := Item("PK", "p", "SK", "s", "n", 2)

	expect(t, "condition on an item that does not exist", write(t, s, store.Write{Key: key, Expr: spend}), false, nil)
	if got := read(t, s, key)[0]; got != nil {
		t.Errorf("item after a failed condition = %v, want none", got)
	}
	expect(t, "create", write(t, s, store.Write{Key: key, Expr: create}), true, full)
	expect(t, "create again", write(t, s, store.Write{Key: key, Expr: create}), false, full)
	expect(t, "spend", write(t, s, store.Write{Key: key, Expr: spend}), true, rest)
	expect(t, "spend too much", write(t, s, store.Write{Key: key, Expr: spend}), false, rest)
	if got := read(t, s, key)[0]; !got.Equal(rest) {
		t.Errorf("item = %v, want %v", got, rest)
	}
	remove := Bind(t, nil, []expr.Action{expr.Remove(state)})
	other := store.Key{PK: "p", SK: "other"}
	expect(t, "an update that only removes creates the item", write(t, s, store.Write{Key: other, Expr: remove}), true, Item("PK", "p", "SK", "other"))
	onKey := Bind(t, []expr.Condition{expr.EQ(expr.Attr(store.PK), 0), expr.Exists(expr.Attr(store.SK))}, []expr.Action{expr.Set(n, 1)}, "p", 9)
	expect(t, "a condition on the key", write(t, s, store.Write{Key: other, Expr: onKey}), true, Item("PK", "p", "SK", "other", "n", 9))
}

func testPut(t *testing.T, s store.Store) {
	first := Item("PK", "p", "SK", "s", "n", 1, "state", "old")
	expect(t, "put", write(t, s, store.Write{Kind: store.Put, Key: key, Item: Item("n", 1, "state", "old")}), true, first)
	absent := Bind(t, []expr.Condition{expr.Absent(n)}, nil)
	expect(t, "put if absent", write(t, s, store.Write{Kind: store.Put, Key: key, Item: Item("n", 2), Expr: absent}), false, first)
	same := Bind(t, []expr.Condition{expr.EQ(n, 0)}, nil, 1)
	second := Item("PK", "p", "SK", "s", "n", 2)
	expect(t, "put if equal", write(t, s, store.Write{Kind: store.Put, Key: key, Item: Item("n", 2), Expr: same}), true, second)
	if got := read(t, s, key)[0]; !got.Equal(second) {
		t.Errorf("item = %v, want %v: a put replaces all of it", got, second)
	}
	third := Item("PK", "p", "SK", "s", "n", 3)
	expect(t, "put of another item's image", write(t, s, store.Write{Kind: store.Put, Key: key, Item: Item("PK", "q", "SK", "z", "n", 3)}), true, third)
	if got := read(t, s, key)[0]; !got.Equal(third) {
		t.Errorf("item = %v, want %v: the key of a write counts", got, third)
	}
}

func testDelete(t *testing.T, s store.Store) {
	put(t, s, key, "n", 1)
	other := Bind(t, []expr.Condition{expr.EQ(n, 0)}, nil, 2)
	expect(t, "delete if equal", write(t, s, store.Write{Kind: store.Delete, Key: key, Expr: other}), false, Item("PK", "p", "SK", "s", "n", 1))
	expect(t, "delete", write(t, s, store.Write{Kind: store.Delete, Key: key}), true, nil)
	if got := read(t, s, key)[0]; got != nil {
		t.Errorf("item after its deletion = %v, want none", got)
	}
	expect(t, "delete again", write(t, s, store.Write{Kind: store.Delete, Key: key}), true, nil)
	expect(t, "delete if equal, of nothing", write(t, s, store.Write{Kind: store.Delete, Key: key, Expr: other}), false, nil)
}

func testCheck(t *testing.T, s store.Store) {
	put(t, s, key, "n", 1)
	for want := range 3 {
		is := Bind(t, []expr.Condition{expr.EQ(n, 0)}, nil, want)
		got := write(t, s, store.Write{Kind: store.Check, Key: key, Expr: is})
		if want == 1 {
			expect(t, "check that holds", got, true, nil)
		} else {
			expect(t, "check that fails", got, false, Item("PK", "p", "SK", "s", "n", 1))
		}
	}
}

func testValues(t *testing.T, s store.Store) {
	number := func(text string) expr.Value {
		v, err := expr.ParseNumber(text)
		if err != nil {
			t.Fatalf("ParseNumber(%q) = %v", text, err)
		}
		return v
	}
	item := Item(
		"int", 42, "negative", -7, "zero", 0,
		"max", number("9223372036854775807"), "min", number("-9223372036854775808"),
		"beyond", number("-12345678901234567890123456789012345678"), "tiny", number("0.00000000000000000012345"),
		"fraction", number("3.14"), "huge", number("1E+100"),
		"text", "a \"quoted\"\tline\n", "unicode", "žluťoučký 🐎", "nul", "a\x00b", "empty", "",
		"true", true, "false", false, "null", expr.Null(),
		"set", expr.Strings("b", "a", "ž"),
		"list", expr.List(expr.S("x"), expr.N(1), expr.List(), expr.Null()),
		"map", expr.Map(Item("k.1", "v", "m", expr.Map(Item("deep", true)), "none", expr.Map(expr.Item{}))),
		"b_my_limit_tk", 1, "b_my-limit.v2_tk", 2, "long", strings.Repeat("x", 10_000),
	)
	want := key.Join(item)
	r := write(t, s, store.Write{Kind: store.Put, Key: key, Item: item})
	expect(t, "put of every kind of value", r, true, want)
	if diff := cmp.Diff(want, read(t, s, key)[0], Equal); diff != "" {
		t.Errorf("item read back (-want +got):\n%s", diff)
	}
	// Every value as an operand, compared with itself and set on another item.
	copied := store.Key{PK: "p", SK: "copy"}
	for _, a := range item {
		b := Bind(t, []expr.Condition{expr.EQ(expr.Attr(a.Name), 0)}, []expr.Action{expr.Set(state, 1)}, a.Value, "same")
		if r := write(t, s, store.Write{Key: key, Expr: b}); !r.Applied {
			t.Errorf("%s = %v does not hold for itself", a.Name, a.Value)
		}
		write(t, s, store.Write{Key: copied, Expr: Bind(t, nil, []expr.Action{expr.Set(expr.Attr(a.Name), 0)}, a.Value)})
	}
	if diff := cmp.Diff(copied.Join(item), read(t, s, copied)[0], Equal); diff != "" {
		t.Errorf("item set attribute by attribute (-want +got):\n%s", diff)
	}
}

func testInvalid(t *testing.T, s store.Store, lenient []string) {
	put(t, s, key, "n", 1, "state", "on", "set", expr.Strings("a"))
	before := read(t, s, key)[0]
	big := strings.Repeat("x", 100_000)
	set := expr.Attr("set")
	update := func(a expr.Action, values ...any) store.Write {
		return store.Write{Key: key, Expr: Bind(t, nil, []expr.Action{a}, values...)}
	}
	putting := func(pairs ...any) store.Write { return store.Write{Kind: store.Put, Key: key, Item: Item(pairs...)} }
	condition := Bind(t, []expr.Condition{expr.EQ(n, 0)}, nil, 1)
	changing := Bind(t, nil, []expr.Action{expr.Set(n, 0)}, 1)
	for name, w := range map[string]store.Write{
		"an Update without an update":      {Key: key, Expr: condition},
		"a Put with an update":             {Kind: store.Put, Key: key, Expr: changing},
		"a Delete with an update":          {Kind: store.Delete, Key: key, Expr: changing},
		"a Check without a condition":      {Kind: store.Check, Key: key},
		"an unknown kind":                  {Kind: 9, Key: key},
		"an empty partition key":           {Key: store.Key{SK: "s"}, Expr: changing},
		"an empty sort key":                {Key: store.Key{PK: "p"}, Expr: changing},
		"a partition key that is too long": {Key: store.Key{PK: strings.Repeat("p", 2049), SK: "s"}, Expr: changing},
		"a sort key that is too long":      {Key: store.Key{PK: "p", SK: strings.Repeat("s", 1025)}, Expr: changing},
		"an update of the key":             update(expr.Set(expr.Attr(store.SK), 0), "t"),
		"ADD to a string":                  update(expr.Add(state, 0), 1),
		"arithmetic on a string":           update(expr.Plus(state, 0), 1),
		"arithmetic on nothing":            update(expr.Minus(expr.Attr("none"), 0), 1),
		"ADD of a set to a number":         update(expr.Add(n, 0), expr.Strings("a")),
		"DELETE from a number":             update(expr.Delete(n, 0), expr.Strings("a")),
		"an empty set":                     putting("set", expr.Strings()),
		"an empty set in a list":           putting("list", expr.List(expr.Strings())),
		"SET of an empty set in a list":    update(expr.Set(set, 0), expr.List(expr.Strings())),
		"an index key of a wrong type":     putting("owner", 1),
		"an empty index key":               putting("rank", ""),
		"SET of an index key to a number":  update(expr.Set(expr.Attr("since"), 0), 1),
		"an item that is too large":        putting("a", big, "b", big, "c", big, "d", big, "e", big),
		"an attribute without a name":      putting("", 1),
	} {
		if slices.Contains(lenient, name) {
			continue
		}
		_, err := s.Write(t.Context(), w)
		refused(t, "Write of "+name, err)
		if e := (*store.Error)(nil); errors.As(err, &e) && !e.Invalid {
			t.Errorf("Write of %s = %v, which does not say that it is invalid", name, err)
		}
	}
	if got := read(t, s, key)[0]; !got.Equal(before) {
		t.Errorf("item after refused writes = %v, want %v", got, before)
	}
	_, err := s.Read(t.Context(), []store.Key{{}}, false)
	refused(t, "Read of an empty key", err)
	_, err = s.Read(t.Context(), []store.Key{key, {}}, false)
	refused(t, "Read of two keys, one of them empty", err)
	_, err = s.Query(t.Context(), store.Query{Index: "ByNothing", PK: "p"})
	refused(t, "Query of an index that does not exist", err)
	_, err = s.Query(t.Context(), store.Query{})
	refused(t, "Query of no partition", err)
}

// testSize makes an item larger by updates, until it is too large, and smaller again.
func testSize(t *testing.T, s store.Store) {
	put(t, s, key, "text", strings.Repeat("x", 300_000), "n", 1)
	set := func(name string, size int) store.Write {
		return store.Write{Key: key, Expr: Bind(t, nil, []expr.Action{expr.Set(expr.Attr(name), 0)}, strings.Repeat("y", size))}
	}
	write(t, s, set("more", 100_000))
	for range 2 {
		before := read(t, s, key)[0]
		_, err := s.Write(t.Context(), set("most", 20_000))
		refused(t, "Write of what makes an item too large", err)
		if e := (*store.Error)(nil); errors.As(err, &e) && !e.Invalid {
			t.Errorf("Write of what makes an item too large = %v, which does not say that it is invalid", err)
		}
		other := store.Write{Kind: store.Put, Key: store.Key{PK: "q", SK: "s"}}
		_, err = s.Transact(t.Context(), []store.Write{other, set("most", 20_000)})
		refused(t, "Transact of what makes an item too large", err)
		if got := read(t, s, key, other.Key); !got[0].Equal(before) || got[1] != nil {
			t.Errorf("refused writes changed an item, or left %v", got[1])
		}
		for range 20 { // the same size time and again does not add up
			write(t, s, set("more", 100_000))
		}
	}
	write(t, s, set("more", 10))
	if r := write(t, s, set("most", 20_000)); !r.Applied {
		t.Error("an item that has shrunk does not grow again")
	}
}
