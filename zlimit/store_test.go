package zlimit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOptionsValidation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zlimit.db")
	for name, opt := range map[string]Option{
		"an empty namespace":      WithNamespace(""),
		"the reserved namespace":  WithNamespace("_"),
		"a long namespace":        WithNamespace(strings.Repeat("x", 65)),
		"a separator":             WithNamespace("a#b"),
		"no UTF-8":                WithNamespace("a\xff"),
		"no clock":                WithClock(nil),
		"no logger":               WithLogger(nil),
		"a negative TTL":          WithConfigTTL(-1),
		"a negative freshness":    WithFreshness(-2),
		"a minimal freshness":     WithFreshness(-1),
		"freshness of a fraction": WithFreshness(time.Microsecond),
		"an unknown policy":       WithFailurePolicy(3),
		"a negative bucket TTL":   WithBucketTTL(-1),
		"a negative cache":        WithRejectionCache(-1),
		"a negative call timeout": WithCallTimeout(-1),
		"no cache":                WithCacheSize(0),
		"no call in flight":       WithMaxInFlight(0),
	} {
		var invalid *ValidationError
		if _, err := Open(context.Background(), "sqlite:"+path, opt); !errors.As(err, &invalid) {
			t.Errorf("%s: Open() = %v, want a ValidationError", name, err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an invalid option created the file")
	}
	if _, err := New(context.Background(), Store{}); err == nil {
		t.Error("New() took a store that is none")
	}
}

// TestNamespacesAreApart uses one bucket name in two namespaces.
func TestNamespacesAreApart(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		a, b := newLimiter(t, s, WithNamespace("a")), newLimiter(t, s, WithNamespace("b"))
		setSystem(t, a, PerDay("rpm", 10))
		if c, err := b.Limits.System(context.Background()); err != nil || len(c.Limits) > 0 {
			t.Errorf("System() of another namespace = %+v, %v, want none", c, err)
		}
		setSystem(t, b, PerDay("rpm", 20))
		if got := burst(t, a, 30) + burst(t, b, 30); got != 30 {
			t.Errorf("admitted %d, want 10 and 20", got)
		}
		again := newLimiter(t, s, WithNamespace("a"))
		if again.ns != a.ns || a.ns == b.ns {
			t.Errorf("namespace ids %q, %q, %q, want the first two alike", again.ns, a.ns, b.ns)
		}
	})
}

func TestNamespaceIDs(t *testing.T) {
	for range 1000 {
		id := newNamespaceID()
		if len(id) != 11 || id[0] == '-' || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatalf("newNamespaceID() = %q", id)
		}
	}
}
