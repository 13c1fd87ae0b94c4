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

func TestDSN(t *testing.T) {
	for text, want := range map[string]dsn{
		"memory:":              {scheme: "memory"},
		"sqlite:/var/lib/z.db": {scheme: "sqlite", path: "/var/lib/z.db"},
		"sqlite:a?b.db":        {scheme: "sqlite", path: "a?b.db"},
		"dynamodb:limits":      {scheme: "dynamodb", table: "limits"},
		"dynamodb:limits?region=eu-west-1&endpoint=http://127.0.0.1:8000&profile=dev": func() dsn {
			d := dsn{scheme: "dynamodb", table: "limits"}
			d.client.Region, d.client.Endpoint, d.client.Profile = "eu-west-1", "http://127.0.0.1:8000", "dev"
			return d
		}(),
	} {
		if got, err := parseDSN(text); err != nil || got != want {
			t.Errorf("parseDSN(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, rule := range map[string]string{
		"":                                    "must be memory:",
		"memory":                              "must be memory:",
		"memory:x":                            "nothing after the colon",
		"sqlite:":                             "path of a file",
		"redis:x":                             "must be memory:",
		"dynamodb:":                           "from 3 to 255",
		"dynamodb:a/b/c":                      "letters, digits",
		"dynamodb:limits?zone=a":              `not "zone"`,
		"dynamodb:limits?region=":             "with a value",
		"dynamodb:limits?region=a&region=b":   "once",
		"dynamodb:limits?endpoint=localhost":  "http or https URL",
		"dynamodb:limits?endpoint=ftp://host": "http or https URL",
		"dynamodb:limits?%zz":                 "URL query",
	} {
		_, err := Open(context.Background(), text)
		var invalid *ValidationError
		if !errors.As(err, &invalid) || invalid.Field != "store" || !strings.Contains(invalid.Reason, rule) {
			t.Errorf("Open(%q) = %v, want a ValidationError that says %q", text, err, rule)
		}
	}
}

func FuzzDSN(f *testing.F) {
	for _, seed := range []string{"memory:", "sqlite:x", "dynamodb:limits?region=a&endpoint=http://h", "dynamodb:%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDSN(text)
		var invalid *ValidationError
		if err != nil && !errors.As(err, &invalid) {
			t.Fatalf("parseDSN(%q) = %v, want a ValidationError", text, err)
		}
		if err == nil && d.scheme != "memory" && d.path == "" && checkTable(d.table) != "" {
			t.Fatalf("parseDSN(%q) = %+v", text, d)
		}
	})
}

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
