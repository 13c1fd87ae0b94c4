package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// testCursor goes on with queries after keys, whether their items are still there or not.
func testCursor(t *testing.T, s store.Store) {
	sorted := []string{"#A#1", "#A#3", "#A#5", "#B#1"}
	for i, sk := range sorted {
		put(t, s, store.Key{PK: "p", SK: sk}, "n", i)
	}
	at := func(sk string) store.Cursor { return store.Cursor(store.Key{PK: "p", SK: sk}.Join(nil)) }
	for _, test := range []struct {
		at      string
		reverse bool
		want    []string
	}{
		{"#A#3", false, []string{"#A#5"}},
		{"#A#2", false, []string{"#A#3", "#A#5"}},
		{"#A#9", false, nil},
		{"#A#3", true, []string{"#A#1"}},
		{"#A#4", true, []string{"#A#3", "#A#1"}},
		{"#A#0", true, nil},
	} {
		q := store.Query{PK: "p", Prefix: "#A#", Limit: 1, Reverse: test.reverse, Continue: at(test.at)}
		got := all(t, s, q)
		if test.reverse {
			slices.Reverse(test.want)
		}
		expectOrder(t, got, q, test.want)
	}
	// Together with a bound from below.
	q := store.Query{PK: "p", Prefix: "#A#", After: "#A#1", Reverse: true, Continue: at("#A#5")}
	expectOrder(t, all(t, s, q), q, []string{"#A#3"})
}

// testConsistent reads the item just written; a global index refuses to.
func testConsistent(t *testing.T, s store.Store) {
	for i := range 20 {
		k := store.Key{PK: "p", SK: fmt.Sprintf("s%02d", i)}
		put(t, s, k, "date", fmt.Sprintf("d%02d", i), "owner", "o", "since", k.SK)
		for _, index := range []string{"", "ByDate"} {
			got := all(t, s, store.Query{Index: index, PK: "p", Consistent: true, Limit: 7})
			if len(got) != i+1 {
				t.Errorf("Query of index %q yields %d items after %d puts", index, len(got), i+1)
			}
		}
	}
	_, err := s.Query(t.Context(), store.Query{Index: "ByOwner", PK: "o", Consistent: true})
	refused(t, "consistent Query of a global index", err)
}

func testDeleteKeys(t *testing.T, s store.Store) {
	at := func(i int) store.Key { return store.Key{PK: fmt.Sprint("p", i%3), SK: fmt.Sprintf("s%02d", i)} }
	var keys []store.Key
	for i := range 2 * store.MaxDelete {
		put(t, s, at(i), "n", i, "owner", "o", "since", at(i).SK)
		keys = append(keys, at(i))
	}
	left := func() (sks []string) {
		for _, item := range all(t, s, store.Query{Index: "ByOwner", PK: "o"}) {
			sks = append(sks, item.Get(store.SK).Text())
		}
		return sks
	}
	names := func(keys []store.Key) (sks []string) {
		for _, k := range keys {
			sks = append(sks, k.SK)
		}
		return sks
	}

	if err := s.Delete(t.Context(), nil); err != nil {
		t.Errorf("Delete of no keys = %v", err)
	}
	refused(t, "Delete of too many keys", s.Delete(t.Context(), keys[:store.MaxDelete+1]))
	refused(t, "Delete of an empty key", s.Delete(t.Context(), []store.Key{keys[0], {}}))
	if diff := cmp.Diff(names(keys), left()); diff != "" {
		t.Errorf("items after refused deletions (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		name string
		keys []store.Key
		left []store.Key
	}{
		{"one", keys[:1], keys[1:]},
		{"some that are gone, and one twice", []store.Key{keys[0], keys[2], keys[2], {PK: "none", SK: "s"}}, append([]store.Key{keys[1]}, keys[3:]...)},
		{"as many as there may be", keys[:store.MaxDelete], keys[store.MaxDelete:]},
		{"the rest", keys[store.MaxDelete:], nil},
	} {
		if err := s.Delete(t.Context(), test.keys); err != nil {
			t.Errorf("Delete of %s = %v", test.name, err)
		}
		if diff := cmp.Diff(names(test.left), left()); diff != "" {
			t.Errorf("items left by Delete of %s (-want +got):\n%s", test.name, diff)
		}
	}
	if got := read(t, s, keys[:10]...); slices.ContainsFunc(got, func(item expr.Item) bool { return item != nil }) {
		t.Errorf("items after their deletion = %v", got)
	}
}
