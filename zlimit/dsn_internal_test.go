package zlimit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

func TestDSN(t *testing.T) {
	for text, want := range map[string]dsn{
		"memory:":              {scheme: "memory"},
		"sqlite:/var/lib/z.db": {scheme: "sqlite", path: "/var/lib/z.db"},
		"sqlite:a?b.db":        {scheme: "sqlite", path: "a?b.db"},
		"dynamodb:limits":      {scheme: "dynamodb", table: "limits"},
		"dynamodb:limits?region=eu-west-1&endpoint=http://127.0.0.1:8000&profile=dev&idle=20s&timeout=10s": func() dsn {
			d := dsn{scheme: "dynamodb", table: "limits"}
			d.client.Region, d.client.Endpoint, d.client.Profile = "eu-west-1", "http://127.0.0.1:8000", "dev"
			d.client.Idle, d.client.CallTimeout = 20*time.Second, 10*time.Second
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
		"sqlite:x?mode=ro":                    `no parameter such as "mode"`,
		"sqlite:a?b.db?_pragma=":              `no parameter such as "_pragma"`,
		"redis:x":                             "must be memory:",
		"dynamodb:":                           "from 3 to 255",
		"dynamodb:a/b/c":                      "letters, digits",
		"dynamodb:limits?zone=a":              `not "zone"`,
		"dynamodb:limits?region=":             "with a value",
		"dynamodb:limits?region=a&region=b":   "once",
		"dynamodb:limits?timeout=10":          "from 10ms to 5m",
		"dynamodb:limits?timeout=9ms":         "from 10ms to 5m",
		"dynamodb:limits?timeout=6m":          "from 10ms to 5m",
		"dynamodb:limits?timeout=":            "with a value",
		"dynamodb:limits?idle=20":             "a second or more",
		"dynamodb:limits?idle=-1s":            "a second or more",
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

// TestTimeoutOfDSN checks that a data source name bounds the calls of a limiter if no option does.
func TestTimeoutOfDSN(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"dynamodb:limits?endpoint=http://127.0.0.1:1":             2 * time.Second,
		"dynamodb:limits?endpoint=http://127.0.0.1:1&timeout=10s": 10 * time.Second,
	} {
		s := check.Call(OpenStore(t.Context(), text)).Must(t, "OpenStore()")
		if got := defaultCallTimeout(store.Of(s)); got != want {
			t.Errorf("calls of %q take %v at most, want %v", text, got, want)
		}
		check.Error(t, "Close()", s.Close())
	}
}

func FuzzDSN(f *testing.F) {
	for _, seed := range []string{"memory:", "sqlite:x", "dynamodb:limits?region=a&endpoint=http://h", "dynamodb:%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDSN(text)
		if err != nil && !errors.As(err, new(*ValidationError)) {
			t.Fatalf("parseDSN(%q) = %v, want a ValidationError", text, err)
		}
		if err == nil && d.scheme != "memory" && d.path == "" && checkTable(d.table) != "" {
			t.Fatalf("parseDSN(%q) = %+v", text, d)
		}
	})
}
