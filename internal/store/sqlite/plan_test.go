package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestContinuedQueriesSeek looks at SQLite's plans of queries that continue. The search must begin where the last page
// ended, or each page reads again what the pages before it returned.
func TestContinuedQueriesSeek(t *testing.T) {
	global := store.Index{Name: "global", PK: "gpk", SK: "gsk"}
	keys := store.Index{Name: "keys", PK: "kpk", SK: "ksk", KeysOnly: true}
	local := store.Index{Name: "local", PK: store.PK, SK: "lsk", Local: true}
	s := check.Call(OpenMemory(store.Table{Indexes: []store.Index{global, keys, local}})).Must(t, "OpenMemory()")
	t.Cleanup(func() { check.Error(t, "Close()", s.Close()) })
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	bounds := []struct {
		name     string
		query    store.Query
		from, to string // the bound of the other side, as a plan has it
	}{
		{"no bound", store.Query{}, "", ""},
		{"a prefix", store.Query{Prefix: "a"}, "%s>? AND ", " AND %s<?"},
		{"a prefix and a lower bound", store.Query{Prefix: "a", After: "aa"}, "%s>? AND ", " AND %s<?"},
		{"a prefix and an upper bound", store.Query{Prefix: "a", UpTo: "ay"}, "%s>? AND ", " AND %s<?"},
	}
	for _, index := range []struct {
		x                      *store.Index
		pk, sk, order, operand string
	}{
		{&store.Index{PK: store.PK, SK: store.SK}, "pk", "sk", "sk", "?"},
		{&global, "gpk", "gsk", "(gsk,pk,sk)", "(?,?,?)"},
		{&keys, "kpk", "ksk", "(ksk,pk,sk)", "(?,?,?)"},
		{&local, "pk", "lsk", "(lsk,sk)", "(?,?)"},
	} {
		for _, b := range bounds {
			for _, reverse := range []bool{false, true} {
				q := b.query
				q.Index, q.PK, q.Reverse = index.x.Name, "p", reverse
				q.Continue = store.Cursor(index.x.KeyItem(store.Key{PK: "p", SK: "ab"}, "p", "ab"))
				want := "(" + index.pk + "=? AND "
				replace := func(text string) string { return strings.ReplaceAll(text, "%s", index.sk) }
				switch {
				case !reverse:
					want += index.order + ">" + index.operand + replace(b.to)
				case b.from == "" && index.x.Name != "": // of a partial index: what is there is not NULL
					want += index.sk + ">? AND " + index.order + "<" + index.operand
				default:
					want += replace(b.from) + index.order + "<" + index.operand
				}
				if got := planOf(t, s, q, index.x); !slices.ContainsFunc(got, func(line string) bool { return strings.HasSuffix(line, want+")") }) {
					t.Errorf("a query of index %q with %s, reverse %t: plan %q, want it to search by %s)", q.Index, b.name, reverse, got, want)
				}
			}
		}
	}
}

// planOf returns SQLite's plan of a query.
func planOf(t *testing.T, s *Store, q store.Query, x *store.Index) (plan []string) {
	t.Helper()
	c := <-s.writer
	defer func() { s.writer <- c }()
	text, args := s.layout.query(q, x)
	explain := check.Call(c.prepare("EXPLAIN QUERY PLAN "+text)).Must(t, "prepare()")
	err := explain.rows(context.Background(), 4, func(row []driver.Value) error {
		line, _ := row[3].(string)
		plan = append(plan, line)
		return nil
	}, append(args, int64(1))...)
	check.Fatal(t, "rows()", err)
	check.Fatal(t, "Close()", explain.Close())
	return plan
}
