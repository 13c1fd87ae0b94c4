package migrate

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestDerive compares what follows from the table of each release with a golden file.
func TestDerive(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			got := derive(rulesOf(), fixture(t, release)).shown()
			path := filepath.Join("testdata", release+".golden")
			if *update {
				check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(got), 0o644))
			}
			want := check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
			compare.Equal(t, "derived items", string(want), got)
		})
	}
}

// TestReleases distinguishes the releases by their keys, two of which recorded one version.
func TestReleases(t *testing.T) {
	want := map[string]string{"0.4": "0.1 to 0.5", "0.6": "0.6", "0.7": "0.7", "0.9": "0.8 or 0.9", "0.10.0": "0.10.0"}
	for _, release := range releases {
		var shapes []Shape
		for _, item := range fixture(t, release) {
			shapes = append(shapes, ShapeOf(item))
		}
		if got := Releases(shapes); got != want[release] {
			t.Errorf("Releases(%s) = %q, want %q", release, got, want[release])
		}
		if release != "0.10.0" && slices.ContainsFunc(shapes, Shape.IsCurrent) && !strings.HasPrefix(want[release], "0.") {
			t.Errorf("%s: has items of this layout", release)
		}
	}
	if got := Releases([]Shape{{Record: currentBucketRecord}, {Record: namespacedBucketRecord}}); got != "0.10.1 or later" {
		t.Errorf("Releases() of buckets with keys of their own = %q", got)
	}
	if got := Releases([]Shape{{Record: unknownRecord}}); got != "" {
		t.Errorf("Releases() of nothing known = %q", got)
	}
}

// find returns a derived item.
func find(t *testing.T, r Result, key store.Key) expr.Item {
	t.Helper()
	i := slices.IndexFunc(r.Items, func(it Item) bool { return it.Key == key })
	if i < 0 {
		t.Fatalf("no item %v", key)
	}
	return key.Join(r.Items[i].Attributes)
}

// TestBuckets asks for balances, debts, counts, ceilings and stamps of buckets, in every layout that differs there.
func TestBuckets(t *testing.T) {
	key := layout.BucketKey{NS: "ns", Entity: "key-1", Resource: "gpt-4"}
	const start = 1767225600000
	for _, release := range []string{"0.4", "0.6", "0.7", "0.9", "0.10.0"} {
		k := key
		if release == "0.10.0" {
			k.NS = "a7x3kq_w-Zs"
		}
		it := check.Call(layout.DecodeBucket(find(t, derive(rulesOf(), fixture(t, release)), k.Key()))).Must(t, "layout.DecodeBucket()")
		// Up to 0.6 the stamp of tpm was 1.5 s older: 250 tokens of 10,000 a minute flow in.
		tpm := int64(-1_500_000)
		if release == "0.4" || release == "0.6" {
			tpm += 250_000
		}
		for _, want := range []struct {
			name                     string
			tokens, capacity, amount int64
		}{
			{"rpm", 57_000, 60_000, 60_000},
			{"tpm", tpm, 15_000_000, 10_000_000}, // the burst is the capacity
		} {
			i := slices.IndexFunc(it.Limits, func(l bucket.Limit) bool { return l.Name == want.name })
			if i < 0 {
				t.Fatalf("%s: no limit %s", release, want.name)
			}
			got := it.Limits[i]
			if got.Tokens != want.tokens || got.Capacity != want.capacity || got.RefillAmount != want.amount || got.Consumed != 0 || got.RefillPeriod != 60_000 {
				t.Errorf("%s: %+v, want %+v", release, got, want)
			}
		}
		if it.RefilledAt != start+2000 {
			t.Errorf("%s: refilled at %d, want %d", release, it.RefilledAt, start+2000)
		}
		if wantParent := release != "0.4"; it.Cascade != wantParent || it.Parent != "acme" {
			t.Errorf("%s: cascade %t to %q", release, it.Cascade, it.Parent)
		}
	}
}

// TestCountsBeginAtZero copies a bucket of this layout. What it has counted is in usage already, and would count once more there.
func TestCountsBeginAtZero(t *testing.T) {
	it := layout.Bucket{Key: layout.BucketKey{NS: "ns", Entity: "a", Resource: "gpt"}, RefilledAt: 1, ShardCount: 1, Limits: []bucket.Limit{
		{Name: "my_limit", Tokens: 5, Capacity: 10, RefillAmount: 1, RefillPeriod: 1, Consumed: 700},
		{Name: "tpm", Tokens: 5, Capacity: 10, RefillAmount: 1, RefillPeriod: 1, Consumed: 30},
	}}
	item := append(it.Encode(), expr.Attribute{Name: "b_my_limit_kc", Value: expr.N(690)}, expr.Attribute{Name: "c_tpm", Value: expr.N(20)}, expr.Attribute{Name: "n_tpm", Value: expr.N(10)})
	rules := rulesOf()
	r := rules.One(it.Key.Key().Join(item))
	if len(r.Items) != 1 || len(r.Losses) > 0 {
		t.Fatalf("One() = %+v", r)
	}
	got := check.Call(layout.DecodeBucket(it.Key.Key().Join(r.Items[0].Attributes))).Must(t, "layout.DecodeBucket()")
	for i, l := range got.Limits {
		want := it.Limits[i]
		if l.Consumed != 0 || l.FromChildren() != 0 || l.Tokens != want.Tokens || l.Capacity != want.Capacity {
			t.Errorf("%s: %+v, want the balance without counts", l.Name, l)
		}
	}
	if n, _ := r.Items[0].Attributes.Get("b_my_limit_kc").Int(); n != -10 {
		t.Errorf("kc = %d, want it as far from tc as before, -10", n)
	}
	if r.Items[0].Attributes.Get("c_tpm").Kind() != expr.KindNone || r.Items[0].Attributes.Get("n_tpm").Kind() != expr.KindNone {
		t.Error("counts of children or of narrower resources are copied")
	}
}

// TestUsageHasNoSequences copies usage of this layout. The changes of the target count on from it, whatever their numbers.
func TestUsageHasNoSequences(t *testing.T) {
	it := layout.Usage{
		Key: layout.UsageKey{NS: "ns", Entity: "a", Resource: "gpt", WindowKey: "2026-01-01"}, Window: "daily", WindowStart: "2026-01-01T00:00:00Z",
		Limits: []layout.UsageCount{{Name: "tpm", Consumed: 5}}, Sources: []layout.UsageSource{{Name: "0", Last: "9"}},
	}
	rules := rulesOf()
	r := rules.One(it.Key.Key().Join(it.Encode()))
	if len(r.Items) != 1 {
		t.Fatalf("One() = %+v", r)
	}
	got, err := layout.DecodeUsage(it.Key.Key().Join(r.Items[0].Attributes))
	if err != nil || len(got.Sources) > 0 || len(got.Limits) != 1 || got.Limits[0].Consumed != 5 {
		t.Errorf("One() = %+v, %v, want the figures without sequences", got, err)
	}
}

// TestCascade asks that the rule is for releases without the flag alone.
func TestCascade(t *testing.T) {
	for release, want := range map[string]bool{"0.4": true, "0.6": true, "0.9": true} {
		rules := rulesOf()
		rules.Cascade = true
		it, err := layout.DecodeEntity(find(t, derive(rules, fixture(t, release)), layout.EntityKey{NS: "ns", Entity: "key-1"}.Key()))
		if err != nil || it.Cascade != want {
			t.Errorf("%s: cascade = %t, %v, want %t", release, it.Cascade, err, want)
		}
		root, err := layout.DecodeEntity(find(t, derive(rules, fixture(t, release)), layout.EntityKey{NS: "ns", Entity: "acme"}.Key()))
		if err != nil || root.Cascade && release != "0.6" {
			t.Errorf("%s: an entity without a parent cascades", release)
		}
	}
}

// TestUsageWindows asks which snapshots are distinguished, by what the aggregator counted.
func TestUsageWindows(t *testing.T) {
	snapshot := func(window, key string) expr.Item {
		return layout.OldUsageKey{Entity: "e", Resource: "r", WindowKey: key}.Key().Join((&layout.OldUsage{
			Key: layout.OldUsageKey{Entity: "e", Resource: "r", WindowKey: key}, Window: window, WindowStart: key,
		}).Encode())
	}
	const hour, day, month = "2026-02-03T04:00:00Z", "2026-02-03T00:00:00Z", "2026-02-01T00:00:00Z"
	for _, test := range []struct {
		windows string
		window  string
		start   string
		want    string // its window key; "" where it mixes two
	}{
		{"hourly,daily", "hourly", hour, hour},
		{"hourly,daily", "hourly", day, ""},
		{"hourly,daily", "daily", day, "2026-02-03"},
		{"hourly,daily", "daily", month, "2026-02-01"},
		{"hourly", "hourly", day, day},
		{"daily", "daily", day, "2026-02-03"},
		{"hourly,daily,monthly", "daily", day, "2026-02-03"},
		{"hourly,daily,monthly", "daily", month, ""},
		{"hourly,daily,monthly", "monthly", month, "2026-02"},
		{"hourly,daily", "monthly", month, ""},
		{"daily,hourly", "hourly", day, day},
		{"daily,hourly", "daily", day, ""},
	} {
		rules := Rules{NS: "ns", Windows: strings.Split(test.windows, ",")}
		r := rules.One(snapshot(test.window, test.start))
		got := ""
		if len(r.Items) == 1 {
			key, ok := layout.ParseUsageKey(r.Items[0].Key)
			if !ok {
				t.Fatalf("key %v", r.Items[0].Key)
			}
			got = key.WindowKey
		}
		if got != test.want || (got == "") != (len(r.Losses) == 1 && r.Losses[0].Reason == lostWindows) {
			t.Errorf("windows %s, first %s at %s: key %q and losses %v, want %q", test.windows, test.window, test.start, got, r.Losses, test.want)
		}
	}
}

// TestSuperseded: a bucket already moved by a later release is left alone.
func TestSuperseded(t *testing.T) {
	items := fixture(t, "0.10.0")
	moved := layout.BucketKey{NS: "a7x3kq_w-Zs", Entity: "key-1", Resource: "gpt-4"}
	live := moved.Key().Join((&layout.Bucket{Key: moved, RefilledAt: 5}).Encode())
	r := derive(rulesOf(), append(items, live))
	var found []Item
	for _, it := range r.Items {
		if it.Key == moved.Key() {
			found = append(found, it)
		}
	}
	if len(found) != 1 || !found[0].Key.Join(found[0].Attributes).Equal(live) {
		t.Errorf("items of the bucket: %v, want the live one alone", found)
	}
	if !slices.ContainsFunc(r.Losses, func(l Loss) bool { return l.Reason == lostSuperseded }) {
		t.Errorf("losses: %v, want one that is superseded", r.Losses)
	}
}

// checkDerive changes attributes of the items of a fixture. What follows from them can be read as items of this layout, no
// item follows twice, and everything else is a loss.
func checkDerive(t *rapid.T, all map[string][]expr.Item) {
	items := slices.Clone(all[rapid.SampledFrom(releases).Draw(t, "release")])
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		i := rapid.IntRange(0, len(items)-1).Draw(t, "item")
		item := items[i].Clone()
		name := rapid.SampledFrom([]string{
			"data", "tokens_milli", "last_refill_ms", "capacity_milli", "refill_period_ms", "ttl", "rf", "b_rpm_tk", "b_x_cp", "l_x_cp",
			"parent_id", "cascade", "resources", "window", "window_start", "config_version", "tpm", "metadata", "capacity", "SK", "PK",
		}).Draw(t, "name")
		value := rapid.SampledFrom([]expr.Value{
			expr.S(""), expr.S("#META"), expr.S("#CONFIG#x"), expr.S("ENTITY#y"), expr.S("hourly"), expr.N(0), expr.N(-1), expr.N(1 << 62),
			expr.Bool(true), expr.Null(), expr.Map(nil), expr.Map(expr.Item{{Name: "name", Value: expr.N(1)}}), expr.List(),
		}).Draw(t, "value")
		if name == "PK" || name == "SK" {
			if value.Text() == "" {
				continue
			}
		} else if rapid.Bool().Draw(t, "remove") {
			item.Remove(name)
			items[i] = item
			continue
		}
		item.Set(name, value)
		items[i] = item
	}
	seen := map[store.Key]bool{}
	sources := map[store.Key]bool{}
	for _, item := range items {
		if sources[store.KeyOf(item)] {
			return // no table has two items of one key
		}
		sources[store.KeyOf(item)] = true
	}
	for _, it := range derive(rulesOf(), items).Items {
		if seen[it.Key] {
			t.Fatalf("%v follows twice", it.Key)
		}
		seen[it.Key] = true
		if err := readable(it); err != nil && !sources[it.Key] {
			t.Fatalf("%v: %v", it.Key, err)
		}
	}
}

// readable returns the error of an item that this layout does not read.
func readable(it Item) error {
	item := it.Key.Join(it.Attributes)
	var first error
	for _, read := range []func() error{
		func() error { _, err := layout.DecodeEntity(item); return err },
		func() error { _, err := layout.DecodeChild(item); return err },
		func() error { _, err := layout.DecodeBucket(item); return err },
		func() error { _, err := layout.DecodeEntityConfig(item); return err },
		func() error { _, err := layout.DecodeResourceConfig(item); return err },
		func() error { _, err := layout.DecodeSystemConfig(item); return err },
		func() error { _, err := layout.DecodeUsage(item); return err },
		func() error { _, err := layout.DecodeAudit(item); return err },
	} {
		err := read()
		if err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "is of another form") {
			first = err
		}
	}
	return first
}

func tables(tb testing.TB) map[string][]expr.Item {
	all := map[string][]expr.Item{}
	for _, release := range releases {
		all[release] = fixture(tb, release)
	}
	return all
}

func TestDeriveAnything(t *testing.T) {
	all := tables(t)
	rapid.Check(t, func(t *rapid.T) { checkDerive(t, all) })
}

func FuzzDerive(f *testing.F) {
	all := tables(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkDerive(t, all) }))
}

// TestFormsOfAllRecords checks that each record of the layout has a form. A record without one is lost, and its table is taken for an
// older one.
func TestFormsOfAllRecords(t *testing.T) {
	keys := check.Call(os.ReadFile("../../../../internal/layout/keys_gen.go")).Must(t, "os.ReadFile()")
	forms := check.Call(os.ReadFile("shape.go")).Must(t, "os.ReadFile()")
	parsers := regexp.MustCompile(`(?m)^func (Parse\w+Key)\(`).FindAllSubmatch(keys, -1)
	if len(parsers) < 15 {
		t.Fatalf("the layout has %d keys", len(parsers))
	}
	for _, p := range parsers {
		if !bytes.Contains(forms, []byte("parses(layout."+string(p[1])+")")) {
			t.Errorf("no form of an item is told by layout.%s", p[1])
		}
	}
	operation := layout.OperationKey{NS: "ns", Entity: "acme", Resource: "gpt", Operation: "ticket-1"}.Key()
	if s := ShapeOf(operation.Join(expr.Item{})); !s.IsCurrent() {
		t.Errorf("an operation is of the form %q, want one of this layout", s)
	}
	rules := rulesOf()
	if r := rules.One(operation.Join(expr.Item{})); len(r.Items) != 1 || r.Items[0].Key != operation || len(r.Losses) != 0 || isOld(operation) {
		t.Errorf("of an operation follows %+v, want itself", r)
	}
}
