package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
)

// connection returns a connection to a database in memory with the schema of the suite's table.
func connection(t *testing.T) (*conn, *layout) {
	t.Helper()
	s := check.Call(OpenMemory(storetest.Table)).Must(t, "OpenMemory()")
	t.Cleanup(func() { check.Error(t, "Close()", s.Close()) })
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	c := <-s.writer
	t.Cleanup(func() { s.writer <- c })
	return c, s.layout
}

// explain returns the rows of an EXPLAIN, as text.
func explain(t *testing.T, c *conn, text string, args int) []string {
	t.Helper()
	s, err := c.db.Prepare(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer closing(t, s)
	values := make([]driver.NamedValue, args)
	for i := range values {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: "x"}
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), values)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer closing(t, rows)
	var lines []string
	row := make([]driver.Value, len(rows.Columns()))
	for rows.Next(row) == nil {
		lines = append(lines, strings.Trim(fmt.Sprint(row), "[]"))
	}
	return lines
}

func closing(t *testing.T, c io.Closer) { check.Error(t, "Close()", c.Close()) }

// TestQueriesUseTheirIndex pins the plans: a search in the right index, in its order, without a sort.
func TestQueriesUseTheirIndex(t *testing.T) {
	c, l := connection(t)
	for _, index := range append([]store.Index{{PK: store.PK, SK: store.SK}}, storetest.Table.Indexes...) {
		for _, q := range []store.Query{
			{},
			{Prefix: "a"},
			{After: "a"},
			{Prefix: "a", After: "ab"},
			{UpTo: "b"},
			{Prefix: "a", After: "ab", UpTo: "ac"},
			{Reverse: true},
			{Prefix: "a", Reverse: true},
			{Continue: store.Cursor{}},
			{Continue: store.Cursor{}, Reverse: true},
			{Prefix: "a", Continue: store.Cursor{}},
		} {
			q.Index, q.PK = index.Name, "p"
			text, args := l.query(q, &index)
			plan := strings.Join(explain(t, c, "EXPLAIN QUERY PLAN "+text, len(args)+1), "\n")
			using := "USING INDEX " + index.Name + " "
			if index.KeysOnly {
				using = "USING COVERING INDEX " + index.Name + " "
			}
			if index.Name == "" {
				using = "USING INDEX sqlite_autoindex_items_1 "
			}
			if !strings.Contains(plan, "SEARCH items "+using) || strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("%s\nhas the plan\n%s\nwant a search %swithout a sort", text, plan, using)
			}
		}
	}
}

// TestChangesTouchNoIndex: the statement for updates outside the index keys opens the table for writing and nothing
// else.
func TestChangesTouchNoIndex(t *testing.T) {
	c, l := connection(t)
	opened := func(text string, args int) int {
		return len(slices.DeleteFunc(explain(t, c, "EXPLAIN "+text, args), func(line string) bool { return !strings.Contains(line, "OpenWrite") }))
	}
	if n := opened("UPDATE items SET item = ? WHERE rowid = ?", 2); n != 1 {
		t.Errorf("a change opens %d trees for writing, want the table alone", n)
	}
	if n := opened(l.replace, len(l.columns)+2); n != 1+len(storetest.Table.Indexes) {
		t.Errorf("a replacement opens %d trees for writing, want the table and its indexes", n)
	}
}

func TestPrefixEnd(t *testing.T) {
	for _, test := range []struct{ prefix, want string }{
		{"a", "b"}, {"#USAGE#", "#USAGE$"}, {"a\xff", "b"}, {"\xff", ""}, {"", ""}, {"\U0010FFFF", "\xf4\x8f\xbf\xc0"},
	} {
		if got, ok := prefixEnd(test.prefix); got != test.want || ok != (test.want != "") {
			t.Errorf("prefixEnd(%q) = %q, %t; want %q", test.prefix, got, ok, test.want)
		}
	}
}
