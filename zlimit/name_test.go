package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// real are names of entities and resources as they are met.
var real = []string{
	"publishers/google/models/gemini-1.5-pro@001",
	"arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3",
	"auth0|5f7c8ec7c33c6c004bbafe82",
	"+491701234567",
	"/v1/chat/completions",
	"01-ai/yi-34b",
	"a/BUCKET",
	"user+tag@example.com",
	"~me",
	"-x",
	"=1",
	"50%",
	strings.Repeat("x", 65),
	strings.Repeat("y", 256),
}

// TestNamesOfTheRealWorld goes through everything that is done with an entity and a resource.
func TestNamesOfTheRealWorld(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		limits := []zlimit.Limit{zlimit.PerDay("rpd", 100)}
		create(t, l, zlimit.Entity{ID: "org/1"})
		for _, name := range real {
			create(t, l, zlimit.Entity{ID: name, ParentID: "org/1", Cascade: true})
			setLimits(t, l, zlimit.Level{Resource: name}, limits...)
			setLimits(t, l, zlimit.Level{Entity: name, Resource: name}, zlimit.PerDay("rpd", 50))
			acquire(t, l, zlimit.Request{Entity: name, Resource: name, Consume: zlimit.Amounts{"rpd": 3}})
		}
		sorted := slices.Sorted(slices.Values(real))
		var levels []string
		for _, name := range sorted {
			levels = append(levels, "resource "+name)
		}
		checkLevels(t, l, zlimit.LevelQuery{Source: zlimit.SourceResource}, levels...)
		var children []string
		for _, e := range collect(t, "Children()", l.Entities.Children(ctx, "org/1")) {
			children = append(children, e.ID)
		}
		compare.Equal(t, "Children()", sorted, children)
		fresh := newLimiter(t, s) // which knows nothing from memory
		for _, name := range real {
			statuses, err := fresh.Available(ctx, zlimit.AvailableQuery{Entity: name, Resource: name})
			if err != nil || len(statuses) != 1 || statuses[0].Available != 47 || statuses[0].Entity != name || statuses[0].Resource != name {
				t.Errorf("Available(%s) = %+v, %v, want 47 of 50", name, statuses, err)
			}
			if parent, err := fresh.Available(ctx, zlimit.AvailableQuery{Entity: "org/1", Resource: name}); err != nil || len(parent) != 1 || parent[0].Available != 97 {
				t.Errorf("Available(org/1, %s) = %+v, %v, want 97 of 100", name, parent, err)
			}
			checkLevels(t, l, zlimit.LevelQuery{Source: zlimit.SourceEntity, Resource: name}, "entity "+name+", resource "+name)
			checkLevels(t, l, zlimit.LevelQuery{Entity: name}, "entity "+name+", resource "+name)
			buckets := collect(t, "Buckets()", fresh.Entities.Buckets(ctx, name))
			if len(buckets) != 1 || buckets[0].Entity != name || buckets[0].Resource != name {
				t.Errorf("Buckets(%s) = %+v, want one", name, buckets)
			}
			if got := actions(t, l, name); !slices.Equal(got, []zlimit.AuditAction{zlimit.ActionEntityCreated, zlimit.ActionLimitsSet}) {
				t.Errorf("events of %s: %v", name, got)
			}
			if got := actions(t, l, zlimit.AuditResource(name)); !slices.Equal(got, []zlimit.AuditAction{zlimit.ActionLimitsSet}) {
				t.Errorf("events of resource %s: %v", name, got)
			}
		}
		for _, name := range real {
			if err := errors.Join(fresh.Entities.Delete(ctx, name), fresh.Limits.Delete(ctx, zlimit.Level{Resource: name})); err != nil {
				t.Errorf("deletion of %s = %v", name, err)
			}
			if buckets := collect(t, "Buckets()", fresh.Entities.Buckets(ctx, name)); len(buckets) > 0 {
				t.Errorf("after the deletion of %s: %+v", name, buckets)
			}
		}
	})
}

func TestNamesThatAreRefused(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	rule := "must hold only ASCII letters, digits and _.-:@/+|=~%"
	for name, reason := range map[string]string{
		"":                       "must not be empty",
		"a#b":                    rule,
		"a b":                    rule,
		"é":                      rule,
		"a\x00":                  rule,
		"a\\b":                   rule,
		"$SYSTEM":                rule,
		strings.Repeat("x", 257): "must have at most 256 characters",
	} {
		var invalid *zlimit.ValidationError
		_, err := l.Available(ctx, zlimit.AvailableQuery{Entity: name, Resource: "gpt-4"})
		if !errors.As(err, &invalid) || invalid.Field != "entity" || invalid.Reason != reason {
			t.Errorf("entity %q: %v, want %q", name, err, reason)
		}
		if name == "" { // Resource may be empty, and the consumption says it
			continue
		}
		_, err = l.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: name})
		if !errors.As(err, &invalid) || invalid.Field != "resource" || invalid.Reason != reason {
			t.Errorf("resource %q: %v, want %q", name, err, reason)
		}
	}
	for _, name := range []string{"PK", "ttl", "GSI1PK", zlimit.DefaultResource} {
		if _, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "alice", Resource: name}); invalid(err).Reason != "is reserved" {
			t.Errorf("resource %s: %v, want it reserved", name, err)
		}
		if _, err := l.Available(ctx, zlimit.AvailableQuery{Entity: name, Resource: zlimit.Name(name)}); !errors.Is(err, zlimit.ErrNoLimits) { // entities are not attributes
			t.Errorf("entity %s: %v, want none but ErrNoLimits", name, err)
		}
	}
}

// FuzzName asks of two texts that their names are valid, and differ when the texts do. Every kind of key gives the
// names back as they were written.
func FuzzName(f *testing.F) {
	for _, name := range real {
		f.Add(name, name, 1)
	}
	f.Add("", "PK", 0)
	f.Add("a#b/ENTITY#", zlimit.DefaultResource, 31)
	f.Add("%", "%25", 7)
	f.Add(strings.Repeat("é", 200), strings.Repeat("é", 200)+"x", 3)
	f.Fuzz(func(t *testing.T, a, b string, shard int) {
		x, y := zlimit.Name(a), zlimit.Name(b)
		for text, name := range map[string]string{a: x, b: y} {
			if text == "" {
				if name != "" {
					t.Fatalf("Name(%q) = %q", text, name)
				}
				return
			}
			if err := errors.Join(zlimit.ValidateEntity("entity", name), zlimit.ValidateResource(name)); err != nil {
				t.Fatalf("Name(%q) = %q: %v", text, name, err)
			}
			back, ok := zlimit.OriginalName(name)
			if ok && back != text || !ok && !strings.Contains(name, "%~") {
				t.Fatalf("OriginalName(%q) = %q, %t, want %q", name, back, ok, text)
			}
			if !strings.Contains(text, "%") && zlimit.ValidateResource(text) == nil && name != text {
				t.Fatalf("Name(%q) = %q, want it as it is", text, name)
			}
		}
		if (a == b) != (x == y) {
			t.Fatalf("the names of %q and %q are %q and %q", a, b, x, y)
		}
		shard &= 31
		checkKeys(t, x, y, shard)
	})
}

// checkKeys asks of every key that has an entity or a resource that it is read as it was written, and by no other parser.
func checkKeys(t *testing.T, entity, resource string, shard int) {
	t.Helper()
	parsers := map[string]func(store.Key) (any, bool){
		"entity":   func(k store.Key) (any, bool) { p, ok := layout.ParseEntityKey(k); return p, ok },
		"bucket":   func(k store.Key) (any, bool) { p, ok := layout.ParseBucketKey(k); return p, ok },
		"config":   func(k store.Key) (any, bool) { p, ok := layout.ParseEntityConfigKey(k); return p, ok },
		"resource": func(k store.Key) (any, bool) { p, ok := layout.ParseResourceConfigKey(k); return p, ok },
		"usage":    func(k store.Key) (any, bool) { p, ok := layout.ParseUsageKey(k); return p, ok },
		"audit":    func(k store.Key) (any, bool) { p, ok := layout.ParseAuditKey(k); return p, ok },
		"system":   func(k store.Key) (any, bool) { p, ok := layout.ParseSystemConfigKey(k); return p, ok },
	}
	const ns = "n"
	keys := map[string]interface{ Key() store.Key }{
		"entity":   layout.EntityKey{NS: ns, Entity: entity},
		"bucket":   layout.BucketKey{NS: ns, Entity: entity, Resource: resource, Shard: shard},
		"config":   layout.EntityConfigKey{NS: ns, Entity: entity, Resource: resource},
		"resource": layout.ResourceConfigKey{NS: ns, Resource: resource},
		"usage":    layout.UsageKey{NS: ns, Entity: entity, Resource: resource, WindowKey: "2026-01-02T15:00:00Z"},
		"audit":    layout.AuditKey{NS: ns, Entity: zlimit.AuditResource(resource), EventID: "01J"},
	}
	for _, kind := range slices.Sorted(maps.Keys(keys)) {
		key := keys[kind].Key()
		if len(key.PK) > 2048 || len(key.SK) > 1024 {
			t.Fatalf("%s: %q is longer than DynamoDB allows", kind, key)
		}
		for other, parse := range parsers {
			got, ok := parse(key)
			if ok != (other == kind) || ok && fmt.Sprint(got) != fmt.Sprint(keys[kind]) {
				t.Fatalf("%s: parse %q as %s = %+v, %t, want %+v", kind, key, other, got, ok, keys[kind])
			}
		}
	}
}

// TestNameInKeys does it for names as they are met.
func TestNameInKeys(t *testing.T) {
	for _, name := range real {
		checkKeys(t, name, name, 3)
	}
}
