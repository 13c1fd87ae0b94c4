package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

func testRead(t *testing.T, s store.Store) {
	if got, err := s.Read(t.Context(), nil, false); err != nil || len(got) != 0 {
		t.Errorf("Read of no keys = %v, %v; want nothing", got, err)
	}
	at := func(i int) store.Key { return store.Key{PK: fmt.Sprint("p", i%7), SK: fmt.Sprint("s", i)} }
	for i := range 99 {
		if i%3 != 0 {
			put(t, s, at(i), "n", i)
		}
	}
	item := func(i int) expr.Item {
		if i%3 == 0 {
			return nil
		}
		k := at(i)
		return Item("PK", k.PK, "SK", k.SK, "n", i)
	}
	for _, test := range []struct {
		name    string
		indexes []int
	}{
		{"one", []int{1}},
		{"one that does not exist", []int{3}},
		{"several, some missing", []int{5, 3, 4, 0, 1}},
		{"one twice", []int{4, 4}},
		{"several more than once, one of them missing", []int{5, 3, 5, 4, 3, 5}},
		{"as many as there may be", append(slices.Collect(count(99)), 1000)},
	} {
		for _, consistent := range []bool{false, true} {
			var keys []store.Key
			var want []expr.Item
			for _, i := range test.indexes {
				keys = append(keys, at(i))
				want = append(want, item(i))
			}
			if len(keys) == 100 {
				want[99] = nil
			}
			got, err := s.Read(t.Context(), keys, consistent)
			if err != nil {
				t.Errorf("Read of %s = %v", test.name, err)
			} else if diff := cmp.Diff(want, got, Equal); diff != "" {
				t.Errorf("Read of %s (-want +got):\n%s", test.name, diff)
			}
		}
	}
	var keys []store.Key
	for i := range 101 {
		keys = append(keys, at(i))
	}
	_, err := s.Read(t.Context(), keys, false)
	refused(t, "Read of 101 keys", err)
}

// count yields the numbers below n.
func count(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// all reads all pages of a query.
func all(t *testing.T, s store.Store, q store.Query) []expr.Item {
	t.Helper()
	var items []expr.Item
	for range 1000 {
		page, err := s.Query(t.Context(), q)
		if err != nil {
			t.Fatalf("Query(%+v) = %v", q, err)
		}
		if q.Limit > 0 && len(page.Items) > q.Limit {
			t.Fatalf("Query(%+v) = %d items in a page", q, len(page.Items))
		}
		items = append(items, page.Items...)
		if page.Next == nil {
			return items
		}
		q.Continue = page.Next
	}
	t.Fatalf("Query(%+v) does not end", q)
	return nil
}

func testQuery(t *testing.T, s store.Store) {
	// In the order of their bytes, not in that of UTF-16 code units, nor of any language.
	sorted := []string{
		"#A", "#META", "#USAGE#", "#USAGE#2024", "#USAGE#2024-01", "#USAGE#2024-01\x00", "#USAGE#2024-02", "#USAGE#2025",
		"#USAGE$", "#Z", "A", "AB", "ABC", "Z", "aB", "ab", "abc", "ab\U0010FFFF", "ab\U0010FFFFz", "b", "é", "\uFFFD", "\U0001F40E",
	}
	if !slices.IsSorted(sorted) {
		t.Fatal("the keys are not sorted")
	}
	for i, sk := range sorted {
		put(t, s, store.Key{PK: "p", SK: sk}, "n", i)
	}
	put(t, s, store.Key{PK: "p2", SK: "#A"}, "n", 0)
	put(t, s, store.Key{PK: "o", SK: "#A"}, "n", 0)

	bounds := []string{"", "#", "#USAGE#", "#USAGE#2024", "#USAGE#2024-01", "#USAGE#3", "#USAGE$", "AB", "Z", "ab", "ab\U0010FFFF", "zz", "\U0001F40E"}
	for _, prefix := range bounds {
		for _, after := range bounds {
			for _, upTo := range bounds {
				var want []string
				for _, sk := range sorted {
					if strings.HasPrefix(sk, prefix) && sk > after && (upTo == "" || sk <= upTo) {
						want = append(want, sk)
					}
				}
				limits := []int{3}
				if upTo == "" {
					limits = []int{0, 1, 3, 100}
				}
				for _, limit := range limits {
					for _, reverse := range []bool{false, true} {
						q := store.Query{PK: "p", Prefix: prefix, After: after, UpTo: upTo, Limit: limit, Reverse: reverse}
						expectOrder(t, all(t, s, q), q, want)
					}
				}
			}
		}
	}
	if got := all(t, s, store.Query{PK: "none"}); got != nil {
		t.Errorf("Query of a partition that does not exist = %v", got)
	}
	got := all(t, s, store.Query{PK: "p", Prefix: "#META"})
	if diff := cmp.Diff([]expr.Item{Item("PK", "p", "SK", "#META", "n", 1)}, got, Equal); diff != "" {
		t.Errorf("Query returns whole items (-want +got):\n%s", diff)
	}
}

// expectOrder compares the sort keys of items with want, or with its reverse.
func expectOrder(t *testing.T, items []expr.Item, q store.Query, want []string) {
	t.Helper()
	got := make([]string, len(items))
	for i := range items {
		got[i] = items[i].Get(store.SK).Text()
	}
	if q.Reverse {
		slices.Reverse(got)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Query(%+v) = %q, want %q in this direction", q, got, want)
	}
}

// indexed returns an item with the keys of all indexes.
func indexed(i int) expr.Item {
	return Item("PK", "p", "SK", fmt.Sprint("s", i), "n", i,
		"owner", fmt.Sprint("o", i%2), "since", fmt.Sprint("day", i/2),
		"kind", "k", "rank", "same", "date", fmt.Sprint("d", 9-i), "name", fmt.Sprint("name", i))
}

// putIndexed writes eight such items, and two that lack the whole key of an index and so are not in it.
func putIndexed(t *testing.T, s store.Store) {
	for i := range 8 {
		write(t, s, store.Write{Kind: store.Put, Key: store.KeyOf(indexed(i)), Item: indexed(i)})
	}
	put(t, s, store.Key{PK: "p", SK: "t1"}, "owner", "o0")
	put(t, s, store.Key{PK: "q", SK: "t2"}, "since", "day0", "date", "d1")
}

func testIndex(t *testing.T, s store.Store) {
	putIndexed(t, s)
	wholes := func(indexes ...int) (items []expr.Item) {
		for _, i := range indexes {
			items = append(items, indexed(i))
		}
		return items
	}
	keys := func(attributes []string, indexes ...int) (items []expr.Item) {
		for _, i := range indexes {
			var item expr.Item
			for _, name := range attributes {
				item.Set(name, indexed(i).Get(name))
			}
			items = append(items, item)
		}
		return items
	}
	byKind, byName := []string{"PK", "SK", "kind", "rank"}, []string{"PK", "SK", "name"}
	for _, limit := range []int{0, 1, 3} {
		for _, test := range []struct {
			name  string
			query store.Query
			want  []expr.Item
		}{
			{"global", store.Query{Index: "ByOwner", PK: "o0"}, wholes(0, 2, 4, 6)},
			{"global, reverse", store.Query{Index: "ByOwner", PK: "o1", Reverse: true}, wholes(7, 5, 3, 1)},
			{"global, prefix", store.Query{Index: "ByOwner", PK: "o1", Prefix: "day2"}, wholes(5)},
			{"global, after", store.Query{Index: "ByOwner", PK: "o1", After: "day1"}, wholes(5, 7)},
			{"global, up to", store.Query{Index: "ByOwner", PK: "o1", UpTo: "day2"}, wholes(1, 3, 5)},
			{"global, between", store.Query{Index: "ByOwner", PK: "o1", After: "day0", UpTo: "day2"}, wholes(3, 5)},
			{"local", store.Query{Index: "ByDate", PK: "p"}, wholes(7, 6, 5, 4, 3, 2, 1, 0)},
			{"local, keys alone", store.Query{Index: "ByName", PK: "p", Prefix: "name", Reverse: true}, keys(byName, 7, 6, 5, 4, 3, 2, 1, 0)},
			{"nothing", store.Query{Index: "ByOwner", PK: "o2"}, nil},
		} {
			test.query.Limit = limit
			if diff := cmp.Diff(test.want, all(t, s, test.query), Equal); diff != "" {
				t.Errorf("%s index, limit %d (-want +got):\n%s", test.name, limit, diff)
			}
		}
		// Where sort keys are equal the order is open, but each item comes once.
		got := all(t, s, store.Query{Index: "ByKind", PK: "k", Limit: limit})
		slices.SortFunc(got, func(a, b expr.Item) int { return strings.Compare(a.String(), b.String()) })
		if diff := cmp.Diff(keys(byKind, 0, 1, 2, 3, 4, 5, 6, 7), got, Equal); diff != "" {
			t.Errorf("equal sort keys, keys alone, limit %d (-want +got):\n%s", limit, diff)
		}
	}
}

// testIndexFollows: an index follows the writes to its keys, and to its projected attributes.
func testIndexFollows(t *testing.T, s store.Store) {
	putIndexed(t, s)
	owner, since := expr.Attr("owner"), expr.Attr("since")
	expectIndex := func(after, pk string, want ...string) {
		t.Helper()
		var got []string
		for _, item := range all(t, s, store.Query{Index: "ByOwner", PK: pk}) {
			got = append(got, item.Get(store.SK).Text()+"="+item.Get("n").Number())
		}
		if !slices.Equal(got, want) {
			t.Errorf("owner %s after %s = %q, want %q", pk, after, got, want)
		}
	}
	update := func(sk string, b expr.Bound) {
		t.Helper()
		write(t, s, store.Write{Key: store.Key{PK: "p", SK: sk}, Expr: b})
	}
	update("s0", Bind(t, nil, []expr.Action{expr.Add(n, 0)}, 100))
	expectIndex("a count", "o0", "s0=100", "s2=2", "s4=4", "s6=6")
	update("s2", Bind(t, nil, []expr.Action{expr.Set(since, 0)}, "day9"))
	expectIndex("a new sort key", "o0", "s0=100", "s4=4", "s6=6", "s2=2")
	update("s4", Bind(t, nil, []expr.Action{expr.Set(owner, 0)}, "o9"))
	expectIndex("a new partition key", "o0", "s0=100", "s6=6", "s2=2")
	expectIndex("a new partition key", "o9", "s4=4")
	update("s6", Bind(t, nil, []expr.Action{expr.Remove(owner), expr.Set(n, 0)}, 66))
	expectIndex("a removed key", "o0", "s0=100", "s2=2")
	update("t1", Bind(t, nil, []expr.Action{expr.Set(since, 0), expr.Set(n, 1)}, "day5", 1))
	expectIndex("a completed key", "o0", "s0=100", "t1=1", "s2=2")
	put(t, s, store.Key{PK: "p", SK: "s0"}, "n", 7)
	expectIndex("a put without keys", "o0", "t1=1", "s2=2")
	write(t, s, store.Write{Kind: store.Delete, Key: store.Key{PK: "p", SK: "t1"}})
	expectIndex("a delete", "o0", "s2=2")
}
