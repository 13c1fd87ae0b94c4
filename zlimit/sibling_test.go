package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// mark adds attributes to an item, as zae-limiter does: it leaves the refill stamp alone.
func mark(tb testing.TB, l *zlimit.RateLimiter, key store.Key, attributes ...expr.Attribute) {
	tb.Helper()
	item := stored(tb, l, key)
	item = slices.DeleteFunc(slices.Clone(item), func(a expr.Attribute) bool {
		return slices.ContainsFunc(attributes, func(b expr.Attribute) bool { return a.Name == b.Name })
	})
	put(tb, l, key, append(item, attributes...))
}

// integer, text and yes are attributes.
func integer(name string, n int64) expr.Attribute {
	return expr.Attribute{Name: name, Value: expr.N(n)}
}
func text(name, s string) expr.Attribute { return expr.Attribute{Name: name, Value: expr.S(s)} }
func yes(name string) expr.Attribute     { return expr.Attribute{Name: name, Value: expr.Bool(true)} }

// wantUnsupported checks that an error is an UnsupportedError that names a feature.
func wantUnsupported(tb testing.TB, err error, feature string) *zlimit.UnsupportedError {
	tb.Helper()
	var e *zlimit.UnsupportedError
	if !errors.As(err, &e) || !slices.ContainsFunc(e.Features, func(f zlimit.UnsupportedFeature) bool { return f.Name == feature }) {
		tb.Fatalf("error %v, want an UnsupportedError for a %s", err, feature)
	}
	return e
}

// TestUnsupportedLevels marks the limits of a resource. No request of it is admitted, also not by its own limits or the failure
// policy, and no bucket comes into being.
func TestUnsupportedLevels(t *testing.T) {
	for _, test := range []struct {
		feature    string
		attributes []expr.Attribute
	}{
		{"session quota", []expr.Attribute{integer("l_rpm_rsa", 6)}},
	} {
		t.Run(test.feature, func(t *testing.T) {
			ctx := context.Background()
			l := newLimiter(t, newMemory(t), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
			at, config := zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
			check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, at, config))
			level := layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}.Key()
			mark(t, l, level, test.attributes...)
			l.Limits.InvalidateAll()
			before := stored(t, l, level)
			own := ask(zlimit.Amounts{"rpm": 1})
			own.Limits = []zlimit.Limit{zlimit.PerMinute("rpm", 5)}
			for _, r := range []zlimit.Request{ask(zlimit.Amounts{"rpm": 1}), own, ask(zlimit.Amounts{"rpm": 1})} {
				_, err := l.Acquire(ctx, r)
				if e := wantUnsupported(t, err, test.feature); e.Source != zlimit.SourceResource || e.Resource != "gpt-4" || !strings.Contains(e.Error(), test.feature) {
					t.Errorf("%+v is not of the level: %v", e, e)
				}
			}
			wantUnsupported(t, l.Limits.Set(ctx, at, config), test.feature)
			wantUnsupported(t, l.Limits.Update(ctx, at, func(*zlimit.Config) error {
				t.Error("a change sees the level")
				return nil
			}), test.feature)
			wantUnsupported(t, l.Limits.Delete(ctx, at), test.feature)
			_, err := l.Limits.Apply(ctx, zlimit.Declaration{Resource: "gpt-4", Limits: config.Limits})
			wantUnsupported(t, err, test.feature)
			_, err = l.Limits.Get(ctx, at)
			if e := wantUnsupported(t, err, test.feature); e.Source != zlimit.SourceResource || e.Resource != "gpt-4" {
				t.Errorf("%+v is not of the level: %v", e, e)
			}
			if got := item(t, l); got != nil {
				t.Errorf("a bucket came into being: %v", got)
			}
			if diff := cmp.Diff(before, stored(t, l, level)); diff != "" {
				t.Errorf("the level was written:\n%s", diff)
			}
			configs, err := l.Managed.Read(ctx, zlimit.Level{}, at)
			if err != nil || len(configs[0].Unsupported) != 0 || len(configs[1].Unsupported) == 0 || configs[1].Unsupported[0].Name != test.feature {
				t.Fatalf("a listing of levels has %+v, %v", configs, err)
			}
			lock := check.Call(l.Managed.Lock(ctx, time.Minute)).Must(t, "Managed.Lock()")
			for _, want := range []zlimit.Stored{configs[1], {Level: at}, {Level: at, Config: config}} {
				_, err := l.Managed.Replace(ctx, lock, configs[1], want)
				wantUnsupported(t, err, test.feature)
			}
			none := zlimit.Level{Resource: "gpt-5"}
			_, err = l.Managed.Replace(ctx, lock, zlimit.Stored{Level: none}, zlimit.Stored{Level: none, Config: config, Unsupported: configs[1].Unsupported})
			wantUnsupported(t, err, test.feature)
			if diff := cmp.Diff(before, stored(t, l, level)); diff != "" {
				t.Errorf("the level was replaced:\n%s", diff)
			}
		})
	}
}

// TestUnsupportedLevelsThatDoNotHold covers levels that do not matter to a request. They lie behind the first level with limits, have
// values without effect, or were enabled again by an operator.
func TestUnsupportedLevelsThatDoNotHold(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	config := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
	setSystem(t, l, config.Limits...)
	if err := errors.Join(l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, config), l.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, config)); err != nil {
		t.Fatalf("Limits.Set() and Limits.Set() = %v", err)
	}
	system := layout.SystemConfigKey{NS: l.NS()}.Key()
	resource := layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}.Key()
	entity := layout.EntityConfigKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
	mark(t, l, system, integer("l_rpm_rsa", 6))
	mark(t, l, resource, integer("l_rpm_rsa", 6), text("disabled", "bypass"), expr.Attribute{Name: "cascade", Value: expr.Bool(false)})
	mark(t, l, entity, expr.Attribute{Name: "disabled", Value: expr.Bool(false)}, yes("l_rpm_soft"))
	l.Limits.InvalidateAll()
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	mark(t, l, resource, yes("disabled"))
	l.Limits.InvalidateAll()
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1})) // the entity says otherwise
	mark(t, l, resource, expr.Attribute{Name: "disabled", Value: expr.Bool(false)})
	l.Limits.InvalidateAll()
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
}

// TestUnsupportedBuckets marks a bucket that a limiter has an image of. What the limiter then writes asks for the marks: a
// spend, an advance, and what leases have to settle. None of it reaches the item, and the corrections stay due.
func TestUnsupportedBuckets(t *testing.T) {
	marks := []struct {
		feature    string
		attributes []expr.Attribute
	}{
		{"later schedule", []expr.Attribute{text("sched", "2h9x500"), integer("vu", 1<<50)}},
	}
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		for _, m := range marks {
			for _, how := range []string{"spend", "advance", "commit", "rollback"} {
				t.Run(m.feature+"/"+how, func(t *testing.T) {
					ctx := context.Background()
					c := newClock()
					l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
					setSystem(t, l, zlimit.PerMinute("rpm", 60))
					key := keyOfBucket(l)
					write(t, l, store.Write{Kind: store.Delete, Key: key})
					lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 2}))
					mark(t, l, key, m.attributes...)
					before := stored(t, l, key)
					unmarked := slices.DeleteFunc(slices.Clone(before), func(a expr.Attribute) bool {
						return slices.ContainsFunc(m.attributes, func(b expr.Attribute) bool { return a.Name == b.Name })
					})
					settle := func() error { return lease.Rollback(ctx) }
					var err error
					switch how {
					case "advance":
						c.sleep(10 * time.Second)
						fallthrough
					case "spend":
						_, err = l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1}))
						settle = nil
					case "commit":
						check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"rpm": 3}))
						settle = func() error { return lease.Commit(ctx) }
						fallthrough
					default:
						err = settle()
					}
					if e := wantUnsupported(t, err, m.feature); e.Source != "" || e.Entity != "key-1" || e.Resource != "gpt-4" {
						t.Errorf("%+v is not of the bucket", e)
					}
					_, err = l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1}))
					wantUnsupported(t, err, m.feature)
					if diff := cmp.Diff(before, stored(t, l, key)); diff != "" {
						t.Errorf("the bucket was written:\n%s", diff)
					}
					if settle == nil {
						return
					}
					put(t, l, key, unmarked)
					if err := settle(); err != nil {
						t.Errorf("settling the lease once the bucket is free again: %v", err)
					}
					want := map[string]int64{"commit": 55_000, "rollback": 60_000}[how]
					if got, err := layout.ReadState(stored(t, l, key)); err != nil || got.Limits[0].Tokens != want {
						t.Errorf("the bucket has %d, %v, want %d", got.Limits[0].Tokens, err, want)
					}
				})
			}
		}
	})
}

// In TestLoweredLimits, zae-limiter lowers two limits. It leaves their balances to the next write with a refill, which it asks for by a
// mark. The lower limits hold immediately for a process that sees the mark. The write takes the mark away, and no balance is above its
// capacity then.
func TestLoweredLimits(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	setSystem(t, l, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 20))
	key := keyOfBucket(l)
	mark(t, l, key, integer("vu", 0), integer("b_rpm_cp", 10_000), integer("b_rpm_ra", 10_000), integer("b_tpm_cp", 20_000), integer("b_tpm_ra", 20_000))
	if got := burst(t, l, 50); got != 10 {
		t.Errorf("burst(50) = %d, want 10", got)
	}
	if v, ok := stored(t, l, key).Lookup("vu"); ok || stored(t, l, key).Get("b_tpm_tk").Number() != "20000" {
		t.Errorf("the mark is %v, %t, and the limit that nobody asked for has %v", v, ok, stored(t, l, key).Get("b_tpm_tk"))
	}
	c.sleep(6 * time.Second)
	if got := burst(t, l, 50); got != 1 {
		t.Errorf("burst(50) after 6 s = %d, want 1", got)
	}
}

// TestLevelListingsGoOn marks a level of each kind. Listings name them among the others, those of an entity included, and also
// one that zae-limiter wrote without a version.
func TestLevelListingsGoOn(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	levels := []zlimit.Level{{}, {Resource: "a"}, {Resource: "b"}, {Entity: "key-1"}, {Entity: "key-1", Resource: "a"}, {Entity: "key-1", Resource: "b"}}
	for _, at := range levels {
		setLimits(t, l, at, zlimit.PerMinute("rpm", 60))
	}
	mark(t, l, layout.SystemConfigKey{NS: l.NS()}.Key(), integer("l_rpm_rsa", 6))
	mark(t, l, layout.ResourceConfigKey{NS: l.NS(), Resource: "a"}.Key(), integer("l_rpm_rsa", 6))
	mark(t, l, layout.EntityConfigKey{NS: l.NS(), Entity: "key-1", Resource: zlimit.DefaultResource}.Key(), integer("l_rpm_rsa", 6))
	mark(t, l, layout.EntityConfigKey{NS: l.NS(), Entity: "key-1", Resource: "b"}.Key(), integer("l_rpm_rsa", 6), integer("config_version", 0))
	refused := map[zlimit.Level]string{
		{}: "the limits of the system", {Resource: "a"}: `the limits of resource "a"`,
		{Entity: "key-1"}: `the limits of entity "key-1"`, {Entity: "key-1", Resource: "b"}: `the limits of entity "key-1" for resource "b"`,
	}
	listed := 0
	for _, q := range []zlimit.LevelQuery{{}, {Entity: "key-1"}, {NamesOnly: true}, {Entity: "key-1", NamesOnly: true}} {
		var want, got []zlimit.Level
		for _, at := range levels {
			if q.Entity == "" || at.Entity == q.Entity {
				want = append(want, at)
			}
		}
		for _, s := range collect(t, "Limits.List()", l.Limits.List(ctx, q)) {
			got = append(got, s.Level)
			if isRefused := refused[s.Level] != ""; !q.NamesOnly && (isRefused != (len(s.Unsupported) == 1) || isRefused != s.Config.IsZero()) {
				t.Errorf("%+v lists %+v", q, s)
			}
		}
		compare.Equal(t, fmt.Sprintf("levels of %+v", q), want, got)
	}
	b := layout.ResourceConfigKey{NS: l.NS(), Resource: "b"}.Key()
	mark(t, l, b, integer("config_version", 0))
	for s, err := range l.Limits.List(ctx, zlimit.LevelQuery{Source: zlimit.SourceResource, Resource: "b"}) {
		if err != nil || s.Config.IsZero() {
			t.Errorf("a level without a version is %+v, %v", s, err)
		}
		listed++
	}
	if listed != 1 {
		t.Errorf("%d levels are listed of a resource that has one without a version", listed)
	}
	for at, place := range refused {
		if _, err := l.Limits.Get(ctx, at); err == nil || !strings.HasPrefix(err.Error(), "zlimit: "+place+" cannot") {
			t.Errorf("Get(%v) = %v, want an error about %s", at, err, place)
		}
	}
	l.Limits.InvalidateAll()
	r := ask(zlimit.Amounts{"rpm": 1})
	r.Resource = "c"
	_, err := l.Acquire(ctx, r)
	if e := wantUnsupported(t, err, "session quota"); e.Source != zlimit.SourceEntityDefault || e.Entity != "key-1" || e.Resource != "" {
		t.Errorf("%+v is not of the entity's default", e)
	}
}

// In TestUnreadableLevels, levels have values that their records do not allow. Reads name the item, and its attribute.
func TestUnreadableLevels(t *testing.T) {
	for _, test := range []struct {
		odd       expr.Attribute
		attribute string
	}{
		{text("on_unavailable", "perhaps"), "on_unavailable"},
		{text("config_version", "odd"), "config_version"},
		{integer("l_rpm_rp", 0), ""},
	} {
		t.Run(test.odd.Name, func(t *testing.T) {
			ctx := context.Background()
			l := newLimiter(t, newMemory(t))
			setSystem(t, l, zlimit.PerMinute("rpm", 60))
			key := layout.SystemConfigKey{NS: l.NS()}.Key()
			mark(t, l, key, test.odd)
			before := stored(t, l, key)
			l.Limits.InvalidateAll()
			_, get := l.Limits.Get(ctx, zlimit.Level{})
			_, read := l.Managed.Read(ctx, zlimit.Level{})
			_, acquire := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1}))
			update := l.Limits.Update(ctx, zlimit.Level{}, func(*zlimit.Config) error {
				t.Error("a change sees the level")
				return nil
			})
			for call, err := range map[string]error{"Get()": get, "Read()": read, "Acquire()": acquire, "Update()": update} {
				var e *zlimit.ItemError
				if !errors.As(err, &e) || e.PK != key.PK || e.SK != key.SK || e.Attribute != test.attribute {
					t.Errorf("%s = %v, want an ItemError of %v, %q", call, err, key, test.attribute)
				}
			}
			if diff := cmp.Diff(before, stored(t, l, key)); diff != "" {
				t.Errorf("the level was written:\n%s", diff)
			}
		})
	}
}

// In TestListingsGoOn, a bucket that is refused is beside others.
func TestListingsGoOn(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerMinute("rpm", 100))
	for _, entity := range []string{"a", "key-1", "z"} {
		r := ask(zlimit.Amounts{"rpm": 1})
		r.Entity = entity
		acquire(t, l, r)
	}
	mark(t, l, keyOfBucket(l), text("b_rpm_rsched", "12m0"))
	var got []string
	for _, b := range collect(t, "Usage.Buckets()", l.Usage.Buckets(ctx, "gpt-4")) {
		name := b.Entity
		for _, f := range b.Unsupported {
			name += ": " + f.Name
		}
		if (len(b.Unsupported) > 0) != (len(b.Statuses) == 0) || b.Consumed["rpm"] != 1000 {
			t.Errorf("bucket %+v", b)
		}
		got = append(got, name)
	}
	compare.Equal(t, "buckets", []string{"a", "key-1: later schedule", "z"}, got)
	sum, err := l.Usage.Capacity(ctx, "gpt-4")
	if err != nil || sum.Entities != 3 || sum.Unsupported != 1 || sum.Limits[0].Entities != 2 {
		t.Errorf("capacity %+v, %v", sum, err)
	}
}

// vectors are items that zae-limiter 0.17.0 wrote, before and after each call.
const vectors = "../../shared/data/zae-017-vectors.json"

type vector struct {
	Call   string
	AtMS   int64 `json:"at_ms"`
	Result string
	Items  []struct{ Before, After map[string]map[string]any }
}

func loadVectors(tb testing.TB) map[string][]vector {
	tb.Helper()
	content, err := os.ReadFile(vectors)
	if errors.Is(err, fs.ErrNotExist) {
		tb.Skipf("no vectors at %s", vectors)
	}
	var file struct{ Groups map[string][]vector }
	check.Fatal(tb, "json.Unmarshal()", errors.Join(err, json.Unmarshal(content, &file)))
	return file.Groups
}

// itemOf returns an item from its form in JSON.
func itemOf(tb testing.TB, attributes map[string]map[string]any) (item expr.Item) {
	for name, typed := range attributes {
		for kind, v := range typed {
			var value expr.Value
			switch kind {
			case "S":
				value = expr.S(v.(string))
			case "N":
				n := check.Call(expr.ParseNumber(v.(string))).Must(tb, "expr.ParseNumber()")
				value = n
			case "BOOL":
				value = expr.Bool(v.(bool))
			case "NULL":
				value = expr.Null()
			default:
				value = expr.Map(nil) // of no interest here
			}
			item = append(item, expr.Attribute{Name: name, Value: value})
		}
	}
	return item
}

// In TestVectors, a limiter asks for each bucket after each call of zae-limiter 0.17.0, on the items as they were then. It knows
// whatever these buckets and their levels hold, and refuses none of them by name. If there is no bucket yet, it asks at each level.
func TestVectors(t *testing.T) {
	served, asked := 0, map[string]int{}
	var unlimited []string
	for name, calls := range loadVectors(t) {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			items, now := map[string]map[string]map[string]any{}, int64(0)
			for _, call := range calls {
				before := served
				now = max(now, call.AtMS) // a call without a time comes right after the one before
				for _, it := range call.Items {
					if it.Before != nil {
						delete(items, it.Before["PK"]["S"].(string)+"|"+it.Before["SK"]["S"].(string))
					}
					if it.After != nil {
						items[it.After["PK"]["S"].(string)+"|"+it.After["SK"]["S"].(string)] = it.After
					}
				}
				open := func() *zlimit.RateLimiter {
					l := newLimiter(t, newMemory(t), zlimit.WithClock(func() time.Time { return time.UnixMilli(now) }))
					for _, item := range items {
						pk, sk := item["PK"]["S"].(string), item["SK"]["S"].(string)
						if strings.HasPrefix(pk, "_/") || !strings.HasPrefix(sk, "#STATE") && !strings.HasPrefix(sk, "#CONFIG") && sk != "#META" {
							continue // registries, the version and usage
						}
						_, rest, _ := strings.Cut(pk, "/")
						put(t, l, store.Key{PK: l.NS() + "/" + rest, SK: sk}, itemOf(t, item))
					}
					return l
				}
				for _, bucket := range items {
					if bucket["SK"]["S"] != "#STATE" || strings.Contains(bucket["b_wcu_tk"]["N"].(string), "-") {
						continue
					}
					entity, resource := bucket["entity_id"]["S"].(string), bucket["resource"]["S"].(string)
					l := open()
					limit := ""
					for _, name := range slices.Sorted(maps.Keys(bucket)) {
						if rest, ok := strings.CutPrefix(name, "b_"); ok && strings.HasSuffix(rest, "_tk") && rest != "wcu_tk" {
							limit = strings.TrimSuffix(rest, "_tk")
						}
					}
					mode, amount := modeOf(items, bucket, limit), int64(1)
					if mode == "soft" || mode == "bypass" {
						amount = 100_000 // more than any of the limits
					}
					lease, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{limit: amount}})
					switch {
					case errors.As(err, new(*zlimit.UnsupportedError)):
						t.Errorf("after %q the bucket of %s and %s is refused: %v", call.Call, entity, resource, err)
					case mode == "disabled" && !errors.Is(err, zlimit.ErrDisabled), amount > 1 && err != nil, errors.As(err, new(*zlimit.ItemError)):
						t.Errorf("after %q the %s bucket of %s and %s has %v", call.Call, mode, entity, resource, err)
					case mode != "disabled" && bucket["cascade"]["BOOL"] == true:
						mode = "cascade"
						if err == nil && !slices.ContainsFunc(lease.Statuses(), func(s zlimit.Status) bool { return s.Entity == bucket["parent_id"]["S"] }) {
							t.Errorf("after %q the parent of %s is not charged for %s", call.Call, entity, resource)
						}
					case err == nil && bucket["parent_id"] != nil:
						mode = "no cascade"
						if slices.ContainsFunc(lease.Statuses(), func(s zlimit.Status) bool { return s.Entity != entity }) {
							t.Errorf("after %q the parent of %s is charged for %s", call.Call, entity, resource)
						}
					}
					asked[mode]++
					served++
				}
				for _, level := range items {
					if served > before || !strings.HasPrefix(level["SK"]["S"].(string), "#CONFIG") {
						continue // no bucket is as the call has left it
					}
					limit, entity := "", "new"
					for _, name := range slices.Sorted(maps.Keys(level)) {
						if of, ok := strings.CutSuffix(name, "_cp"); ok {
							limit = of[len("l_"):]
						}
					}
					if level["entity_id"] != nil {
						entity = level["entity_id"]["S"].(string)
					}
					lease, err := open().Acquire(ctx, zlimit.Request{Entity: entity, Resource: level["resource"]["S"].(string), Consume: zlimit.Amounts{limit: 1}})
					if err != nil || len(lease.Statuses()) == 0 {
						t.Errorf("after %q a request for the level %v has %v", call.Call, level, err)
					}
					asked["level"]++
					served++
				}
				if served == before {
					unlimited = append(unlimited, call.Call)
				}
			}
		})
	}
	slices.Sort(unlimited)
	if diff := cmp.Diff([]string{"create alice child", "create bob", "create org", "start", "start"}, unlimited); diff != "" {
		t.Errorf("calls that leave neither a bucket nor a level, (-want +got):\n%s", diff)
	}
	t.Logf("asked for: %v", asked)
	for _, mode := range []string{"level", "enforced", "soft", "bypass", "disabled", "cascade", "no cascade"} {
		if asked[mode] == 0 {
			t.Errorf("no bucket was asked for that is %s", mode)
		}
	}
}

// modeOf returns how a limit of a bucket holds by the stored levels: disabled, bypass, soft, or enforced.
func modeOf(items map[string]map[string]map[string]any, bucket map[string]map[string]any, limit string) string {
	ns, _, _ := strings.Cut(bucket["PK"]["S"].(string), "/")
	entity, resource := bucket["entity_id"]["S"].(string), bucket["resource"]["S"].(string)
	levels := []map[string]map[string]any{
		items[ns+"/ENTITY#"+entity+"|#CONFIG#"+resource], items[ns+"/ENTITY#"+entity+"|#CONFIG#_default_"],
		items[ns+"/RESOURCE#"+resource+"|#CONFIG"], items[ns+"/SYSTEM#|#CONFIG"],
	}
	for _, level := range levels {
		switch said := level["disabled"]; {
		case said["S"] == "bypass":
			return "bypass"
		case said["BOOL"] == true:
			return "disabled"
		}
		if level["disabled"] != nil {
			break
		}
	}
	for _, level := range levels {
		limits := false
		for name := range level {
			limits = limits || strings.HasPrefix(name, "l_") || strings.HasPrefix(name, "w_")
		}
		if limits && (level["l_"+limit+"_soft"] != nil || level["w_"+limit+"_soft"] != nil) {
			return "soft"
		}
		if limits {
			break
		}
	}
	return "enforced"
}
