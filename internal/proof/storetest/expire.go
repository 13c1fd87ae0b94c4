package storetest

import (
	"fmt"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// RunExpire runs the part of the suite for stores that delete expired items on request. The function open is
// as for [Run].
func RunExpire(t *testing.T, open func(t *testing.T) store.Store) {
	for name, test := range map[string]func(*testing.T, store.Store){
		"Expire":  testExpire,
		"Indexes": testExpireIndexes,
		"Times":   testExpireTimes,
	} {
		t.Run(name, ready(open, test))
	}
}

func expirer(s store.Store) store.Expirer { return s.(store.Expirer) }

// expire calls Expire often enough to see n items.
func expire(t *testing.T, s store.Store, n int, now int64) {
	t.Helper()
	for range n/4 + 2 {
		if err := expirer(s).Expire(t.Context(), now); err != nil {
			t.Fatalf("Expire(%d) = %v", now, err)
		}
	}
}

// testExpire stores items with and without an expiry, and calls Expire until it has been through all of them.
func testExpire(t *testing.T, s store.Store) {
	var keys []store.Key
	for i := range 100 {
		k := store.Key{PK: fmt.Sprint(i / 2), SK: fmt.Sprint(i)}
		keys = append(keys, k)
		if i%4 > 0 { // a quarter is kept forever
			put(t, s, k, "n", i, "ttl", 1000+i)
		} else {
			put(t, s, k, "n", i)
		}
	}
	for range 2 { // the second round finds nothing more to delete
		expire(t, s, len(keys), 1050)
		for i, item := range read(t, s, keys...) {
			if want := i%4 == 0 || i > 50; (item != nil) != want {
				t.Errorf("item %d is there: %v, want %v", i, item != nil, want)
			}
		}
	}
	// One call looks at few.
	check.Fatal(t, "Expire()", expirer(s).Expire(t.Context(), 2000))
	left := 0
	for _, item := range read(t, s, keys...) {
		if item != nil {
			left++
		}
	}
	if left < 25+10 {
		t.Errorf("one call of Expire leaves %d items", left)
	}
}

// testExpireIndexes looks for expired items where they were.
func testExpireIndexes(t *testing.T, s store.Store) {
	for i := range 4 {
		put(t, s, store.Key{PK: "p", SK: fmt.Sprint("s", i)}, "owner", "o", "since", "t", "date", fmt.Sprint(i), "ttl", 1000+i)
	}
	expire(t, s, 4, 1001)
	for _, q := range []store.Query{{PK: "p"}, {Index: "ByDate", PK: "p"}, {Index: "ByOwner", PK: "o"}} {
		var left []string
		for _, item := range all(t, s, q) {
			left = append(left, item.Get(store.SK).Text())
		}
		if fmt.Sprint(left) != "[s2 s3]" {
			t.Errorf("Query(%+v) after Expire = %v, want s2 and s3", q, left)
		}
	}
}

// testExpireTimes tries times of expiry at the edge, and values that are no times.
func testExpireTimes(t *testing.T, s store.Store) {
	for name, test := range map[string]struct {
		ttl     any
		expires bool
	}{
		"before": {999, true}, "now": {1000, true}, "after": {1001, false},
		"zero": {0, false}, "negative": {-5, false}, "text": {"900", false}, "null": {expr.Null(), false},
	} {
		put(t, s, key, "ttl", test.ttl)
		expire(t, s, 1, 1000)
		if left := read(t, s, key)[0] != nil; left == test.expires {
			t.Errorf("%s: the item is there: %t", name, left)
		}
	}
}
