package memory_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// TestQueriesAgree changes the same items here and in SQLite, and asks both the same queries: they give the same pages.
func TestQueriesAgree(t *testing.T) {
	s := open(t)
	reference := check.Call(sqlite.OpenMemory(storetest.Table)).Must(t, "sqlite.OpenMemory()")
	defer reference.Close()
	for _, s := range []store.Store{s, reference} {
		check.Fatal(t, "Setup()", s.Setup(t.Context()))
	}
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++ // has partitions of its own
		pk := rapid.SampledFrom([]string{fmt.Sprint(run, "p"), fmt.Sprint(run, "q")})
		sort := rapid.SampledFrom([]string{"a", "ab", "abc", "ac", "b", "c\xff", "ž"})
		draw := func(rt *rapid.T, name string) string {
			if name == "owner" || name == "kind" {
				return fmt.Sprint(run, sort.Draw(rt, name))
			}
			return sort.Draw(rt, name)
		}
		for range rapid.IntRange(1, 40).Draw(rt, "writes") {
			w := store.Write{Key: store.Key{PK: pk.Draw(rt, "pk"), SK: sort.Draw(rt, "sk")}, Kind: store.Put}
			switch rapid.IntRange(0, 4).Draw(rt, "kind") {
			case 0:
				w.Kind = store.Delete
			case 1:
				name := rapid.SampledFrom([]string{"owner", "since", "date", "n"}).Draw(rt, "name")
				action, values := expr.Remove(expr.Attr(name)), []any{}
				if rapid.Bool().Draw(rt, "set") {
					action, values = expr.Set(expr.Attr(name), 0), append(values, draw(rt, name))
				}
				w.Kind, w.Expr = store.Update, storetest.Bind(t, nil, []expr.Action{action}, values...)
			default:
				for _, name := range []string{"owner", "since", "kind", "rank", "date", "name"} {
					if rapid.IntRange(0, 3).Draw(rt, "chance") > 0 {
						w.Item.Set(name, expr.S(draw(rt, name)))
					}
				}
			}
			want, wantErr := reference.Write(t.Context(), w)
			got, gotErr := s.Write(t.Context(), w)
			if diff := cmp.Diff(want, got, storetest.Equal); diff != "" || wantErr != nil || gotErr != nil {
				rt.Fatalf("Write(%+v) = %v, %v (-sqlite +memory):\n%s", w, wantErr, gotErr, diff)
			}
		}
		bound := rapid.SampledFrom([]string{"", "", "", "a", "ab", "abb", "ac", "c", "c\xff", "z"})
		for range 20 {
			q := store.Query{
				Index:  rapid.SampledFrom([]string{"", "ByOwner", "ByKind", "ByDate", "ByName"}).Draw(rt, "index"),
				Prefix: bound.Draw(rt, "prefix"), After: bound.Draw(rt, "after"), UpTo: bound.Draw(rt, "upTo"),
				Reverse: rapid.Bool().Draw(rt, "reverse"), Limit: rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(rt, "limit"),
			}
			q.PK = pk.Draw(rt, "pk")
			if q.Index == "ByOwner" || q.Index == "ByKind" {
				q.PK = draw(rt, "owner")
			}
			for pages := 0; ; pages++ {
				want, wantErr := reference.Query(t.Context(), q)
				got, gotErr := s.Query(t.Context(), q)
				if wantErr != nil || gotErr != nil || pages > 20 {
					rt.Fatalf("Query(%+v) = %v, %v, page %d", q, wantErr, gotErr, pages)
				}
				if diff := cmp.Diff(page(want), page(got)); diff != "" {
					rt.Fatalf("Query(%+v) (-sqlite +memory):\n%s", q, diff)
				}
				if q.Continue = want.Next; q.Continue == nil {
					break
				}
			}
		}
	})
}

// page returns a page as text.
func page(p store.Page) []string {
	lines := []string{fmt.Sprint("next: ", expr.Item(p.Next))}
	for _, item := range p.Items {
		lines = append(lines, item.String())
	}
	return lines
}
