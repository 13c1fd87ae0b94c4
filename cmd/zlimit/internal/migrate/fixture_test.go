package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// releases are the fixtures: a table as each layout left it.
var releases = []string{"0.4", "0.6", "0.7", "0.9", "0.10.0"}

// fixture returns the items of a release, which are in DynamoDB's JSON.
func fixture(tb testing.TB, release string) []expr.Item {
	tb.Helper()
	text := check.Call(os.ReadFile(filepath.Join("testdata", release+".json"))).Must(tb, "os.ReadFile()")
	var raw []map[string]map[string]any
	check.Fatal(tb, "json.Unmarshal()", json.Unmarshal(text, &raw))
	var items []expr.Item
	for _, r := range raw {
		items = append(items, itemOf(tb, r))
	}
	return items
}

func itemOf(tb testing.TB, raw map[string]map[string]any) (item expr.Item) {
	tb.Helper()
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		item = append(item, expr.Attribute{Name: name, Value: valueOf(tb, raw[name])})
	}
	return item
}

func valueOf(tb testing.TB, typed map[string]any) expr.Value {
	tb.Helper()
	for kind, v := range typed {
		switch kind {
		case "S":
			return expr.S(v.(string))
		case "N":
			return check.Call(expr.ParseNumber(v.(string))).Must(tb, "expr.ParseNumber()")
		case "BOOL":
			return expr.Bool(v.(bool))
		case "NULL":
			return expr.Null()
		case "SS":
			var texts []string
			for _, t := range v.([]any) {
				texts = append(texts, t.(string))
			}
			return expr.Strings(texts...)
		case "M":
			raw := map[string]map[string]any{}
			for name, v := range v.(map[string]any) {
				raw[name] = v.(map[string]any)
			}
			return expr.Map(itemOf(tb, raw))
		}
	}
	tb.Fatalf("a value of type %v", typed)
	return expr.Value{}
}

// rulesOf are the rules that a fixture is migrated by.
func rulesOf() Rules { return Rules{NS: "ns", Windows: Windows} }

// derive returns the results of all items of a table, the reference for migrations.
func derive(rules Rules, items []expr.Item) (r Result) {
	groups := map[string][]expr.Item{}
	all := map[store.Key]bool{}
	for _, item := range items {
		key := store.KeyOf(item)
		all[key] = true
		q, ok := group(key)
		if !ok && (key.SK > lastOfEntity || !hasGroup(items, key.PK)) {
			one := rules.One(item)
			r.Items, r.Losses = append(r.Items, one.Items...), append(r.Losses, one.Losses...)
			continue
		}
		if ok && q.UpTo != "" && key.SK > q.UpTo {
			panic("an item that its own group does not read")
		}
		groups[key.PK] = append(groups[key.PK], item)
	}
	for _, pk := range slices.Sorted(maps.Keys(groups)) {
		g := rules.Group(groups[pk], func(k layout.BucketKey) bool { return all[k.Key()] })
		r.Items, r.Losses = append(r.Items, g.Items...), append(r.Losses, g.Losses...)
	}
	return r
}

// hasGroup reports whether items of a partition depend on each other. Their group then has all up to its last sort key.
func hasGroup(items []expr.Item, pk string) bool {
	return slices.ContainsFunc(items, func(item expr.Item) bool {
		key := store.KeyOf(item)
		_, ok := group(key)
		return ok && key.PK == pk
	})
}

// shown returns a result as text: items with their attributes by name, then losses.
func (r Result) shown() string {
	var lines []string
	for _, it := range r.Items {
		attributes := it.Attributes.Clone()
		slices.SortFunc(attributes, func(a, b expr.Attribute) int { return strings.Compare(a.Name, b.Name) })
		lines = append(lines, fmt.Sprintf("%s %s\n\t%v\n", it.Key.PK, it.Key.SK, attributes))
	}
	slices.Sort(lines)
	var lost []string
	for _, l := range r.Losses {
		lost = append(lost, l.String()+"\n")
	}
	slices.Sort(lost)
	return strings.Join(lines, "") + strings.Join(lost, "")
}
