package zlimit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestOptionsValidation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zlimit.db")
	for name, opt := range map[string]zlimit.Option{
		"an empty namespace":      zlimit.WithNamespace(""),
		"the reserved namespace":  zlimit.WithNamespace("_"),
		"a long namespace":        zlimit.WithNamespace(strings.Repeat("x", 65)),
		"a separator":             zlimit.WithNamespace("a#b"),
		"no UTF-8":                zlimit.WithNamespace("a\xff"),
		"no clock":                zlimit.WithClock(nil),
		"no logger":               zlimit.WithLogger(nil),
		"a negative TTL":          zlimit.WithConfigTTL(-1),
		"a negative freshness":    zlimit.WithFreshness(-2),
		"a minimal freshness":     zlimit.WithFreshness(-1),
		"freshness of a fraction": zlimit.WithFreshness(time.Microsecond),
		"an unknown policy":       zlimit.WithFailurePolicy(3),
		"a negative bucket TTL":   zlimit.WithTuning(zlimit.Tuning{BucketTTL: -2}),
		"a negative cache":        zlimit.WithRejectionCache(-1),
		"a negative call timeout": zlimit.WithCallTimeout(-1),
		"no cache":                zlimit.WithTuning(zlimit.Tuning{CacheSize: -1}),
		"three shards":            zlimit.WithTuning(zlimit.Tuning{MaxShards: 3}),
		"a negative clock skew":   zlimit.WithTuning(zlimit.Tuning{ClockSkew: -1}),
		"no call in flight":       zlimit.WithTuning(zlimit.Tuning{MaxInFlight: -1}),
		"few warm writes":         zlimit.WithTable(zlimit.TableSettings{WarmWriteUnits: 3999}),
		"a negative ceiling":      zlimit.WithTable(zlimit.TableSettings{MaxReadUnits: -1}),
	} {
		if _, err := zlimit.Open(context.Background(), "sqlite:"+path, opt); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: Open() = %v, want a ValidationError", name, err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an invalid option created the file")
	}
	if _, err := zlimit.New(context.Background(), zlimit.Store{}); err == nil {
		t.Error("New() took a store that is none")
	}
}

// TestTuning sets some fields, and expects the defaults of the others, also in a limiter for another namespace.
func TestTuning(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithTuning(zlimit.Tuning{CacheSize: 10, MaxShards: 4}), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1, MaxShards: 8}))
	want := zlimit.Tuning{BucketTTL: -1, CacheSize: 10, ClockSkew: 5 * time.Second, MaxInFlight: 256, MaxShards: 8}
	if got := l.Tuning(); got != want {
		t.Errorf("two options make %+v, want %+v", got, want)
	}
	other, err := l.Namespace(context.Background(), "other", zlimit.WithSetup(), zlimit.WithTuning(zlimit.Tuning{ClockSkew: time.Second}))
	check.Fatal(t, "Namespace()", err)
	t.Cleanup(func() { _ = other.Close() })
	want.ClockSkew = time.Second
	if got := other.Tuning(); got != want {
		t.Errorf("the limiter for another namespace has %+v, want %+v", got, want)
	}
}

// TestNamespacesAreApart uses one bucket name in two namespaces.
func TestNamespacesAreApart(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		a, b := newLimiter(t, s, zlimit.WithNamespace("a")), newLimiter(t, s, zlimit.WithNamespace("b"))
		setSystem(t, a, zlimit.PerDay("rpm", 10))
		if c, err := b.Limits.Get(context.Background(), zlimit.Level{}); err != nil || len(c.Limits) > 0 {
			t.Errorf("System() of another namespace = %+v, %v, want none", c, err)
		}
		setSystem(t, b, zlimit.PerDay("rpm", 20))
		if got := burst(t, a, 30) + burst(t, b, 30); got != 30 {
			t.Errorf("admitted %d, want 10 and 20", got)
		}
		again := newLimiter(t, s, zlimit.WithNamespace("a"))
		if again.NS() != a.NS() || a.NS() == b.NS() {
			t.Errorf("namespace ids %q, %q, %q, want the first two alike", again.NS(), a.NS(), b.NS())
		}
	})
}

func TestNamespaceIDs(t *testing.T) {
	for range 1000 {
		id := zlimit.NewNamespaceID()
		if len(id) != 11 || id[0] == '-' || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatalf("newNamespaceID() = %q", id)
		}
	}
}
