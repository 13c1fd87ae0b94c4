package aggregator

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// patterns are the filters of the guide.
var patterns = regexp.MustCompile(`(?m)^\s*- Pattern: '(.*)'$`)

// TestFilters holds the filters of the guide against the keys of a table in use. The filters let through what the
// aggregator works on, and nothing else.
func TestFilters(t *testing.T) {
	page := check.Call(os.ReadFile("../docs/aggregator.md")).Must(t, "os.ReadFile()")
	var filters []any
	for _, match := range patterns.FindAllSubmatch(page, -1) {
		var filter any
		if err := json.Unmarshal(match[1], &filter); err != nil {
			t.Fatalf("%s: %v", match[1], err)
		}
		filters = append(filters, filter)
	}
	s := newMemory(t)
	g := newGarden(t, s)
	l := check.Call(zlimit.New(t.Context(), s)).Must(t, "zlimit.New()")
	t.Cleanup(func() { check.Error(t, "Close()", l.Close()) })
	if _, err := l.Entities.Create(t.Context(), zlimit.Entity{ID: "e"}); err != nil {
		t.Fatalf("Entities.Create() = %v", err)
	}
	if err := l.Limits.Set(t.Context(), zlimit.Level{Entity: "e", Resource: "r"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1)}}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	mustApply(t, g.Aggregator, store.Change{Key: g.shard.Key(), New: g.item(0), Sequence: sequence(1), At: noon})
	kinds := map[string]int{}
	for _, ns := range append(namespaces(t, g.table.Store()), "_") {
		page := check.Call(store.Of(s).Query(t.Context(), store.Query{Index: "GSI4", PK: ns})).Must(t, "Query()")
		for _, it := range page.Items {
			for _, expired := range []bool{false, true} {
				c := store.Change{Key: store.KeyOf(it), Old: it, Expired: expired, At: noon}
				text := check.Call(json.Marshal(record(c))).Must(t, "json.Marshal()")
				var r map[string]any
				check.Fatal(t, "json.Unmarshal()", json.Unmarshal(text, &r))
				if expired {
					r["eventName"] = "REMOVE"
				}
				_, isBucket := layout.ParseBucketKey(c.Key)
				_, isAudit := auditEventOf(it)
				kind, _, _ := strings.Cut(strings.TrimPrefix(c.Key.SK, "#"), "#")
				kinds[kind]++
				got := slices.ContainsFunc(filters, func(filter any) bool { return cfn.Matches(filter, r) })
				if want := isBucket || isAudit && expired; got != want {
					t.Errorf("a change of %v, expired %t, passes the filters: %t, want %t", c.Key, expired, got, want)
				}
			}
		}
	}
	for _, kind := range []string{"STATE", "AUDIT", "USAGE", "META", "CONFIG", "NSID", "VERSION"} {
		if kinds[kind] == 0 {
			t.Errorf("the table has no item of %s: %v", kind, kinds)
		}
	}
}
