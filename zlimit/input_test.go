package zlimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestCredentialsInEndpoints, data source names contain passwords, well-formed and not. No error may show them.
func TestCredentialsInEndpoints(t *testing.T) {
	for _, name := range []string{
		"dynamodb:table?endpoint=http://key:hunter2@127.0.0.1:8000",
		"dynamodb:table?endpoint=http%3A%2F%2Fkey%3Ahunter2%40127.0.0.1%3A8000",
		"dynamodb:table?endpoint=key:hunter2@127.0.0.1:8000",
		"dynamodb:table?endpoint=http://key:hunter2@127.0.0.1:8000&endpoint=x",
		"dynamodb:table?endpoint=http://key:hunter2@127.0.0.1:8000&odd=1",
		"dynamodb:table?endpoint=http://key:hunter2@%zz",
		"dynamodb:t?endpoint=http://key:hunter2@127.0.0.1:8000",
	} {
		_, err := zlimit.Open(context.Background(), name)
		if invalid(err).Field != "store" {
			t.Fatalf("Open(%q) = %v, want a ValidationError of the store", name, err)
		}
		if text := fmt.Sprintf("%v %+v", err, invalid(err)); strings.Contains(text, "hunter2") {
			t.Errorf("Open(%q) tells the password: %s", name, text)
		}
	}
}

func TestStoreNamesThatAreMistakes(t *testing.T) {
	for name, want := range map[string]string{
		"sqlite::memory:":          "memory:",
		"sqlite:" + t.TempDir():    "must be the path of a file",
		"sqlite:" + os.DevNull:     "must be the path of a file",
		"sqlite:limits.db\x00.txt": "must be followed by the path of a file",
	} {
		_, err := zlimit.Open(context.Background(), name)
		var invalid *zlimit.ValidationError
		if !errors.As(err, &invalid) || !strings.Contains(invalid.Reason, want) {
			t.Errorf("Open(%q) = %v, want a ValidationError with %q", name, err, want)
		}
	}
}

func TestErrorsCutLongValues(t *testing.T) {
	for name, value := range map[string]string{
		"ASCII": strings.Repeat("x", 1<<20), "letters of two bytes": "x" + strings.Repeat("é", 1<<10), "no UTF-8": strings.Repeat("\xff", 300),
	} {
		err := error(&zlimit.ValidationError{Field: "entity", Value: value, Reason: "must have at most 256 characters"})
		text := err.Error()
		if len(text) > 600 || !strings.HasSuffix(text, fmt.Sprintf("… (%d bytes): must have at most 256 characters", len(value))) {
			t.Errorf("%s: the error has %d bytes: %.200s", name, len(text), text)
		}
		if name == "letters of two bytes" && strings.Contains(text, `\x`) {
			t.Errorf("%s: the error cuts a letter in two: %s", name, text)
		}
	}
}

// TestNamespacesOfEmbeddedStores opens namespaces that were registered, and others.
func TestNamespacesOfEmbeddedStores(t *testing.T) {
	ctx := context.Background()
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "zlimit.db")
	closed := func(l *zlimit.RateLimiter, err error) error {
		if err == nil {
			err = l.Close()
		}
		return err
	}
	for range 2 {
		if err := closed(zlimit.Open(ctx, dsn, zlimit.WithNamespace("typo"))); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
			t.Errorf("Open() of a namespace that was not registered = %v, want %v", err, zlimit.ErrNamespaceNotFound)
		}
	}
	l := check.Call(zlimit.Open(ctx, dsn)).Must(t, "zlimit.Open()")
	var names []string
	for _, ns := range collect(t, "Namespaces.List()", l.Namespaces.List(ctx)) {
		names = append(names, ns.Name)
	}
	if fmt.Sprint(names) != "[default]" {
		t.Errorf("namespaces %v, want the default one alone", names)
	}
	if _, err := l.Namespaces.Register(ctx, "registered"); err != nil {
		t.Fatalf("Namespaces.Register() = %v", err)
	}
	check.Fatal(t, "Close()", l.Close())
	check.Error(t, "closed()", closed(zlimit.Open(ctx, dsn, zlimit.WithNamespace("set up"), zlimit.WithSetup())))
	for _, name := range []string{"registered", "set up", zlimit.DefaultNamespace} {
		if err := closed(zlimit.Open(ctx, dsn, zlimit.WithNamespace(name))); err != nil {
			t.Errorf("Open() of namespace %q = %v", name, err)
		}
	}
}

// TestFailedSetUp opens a store that cannot be set up: the error names that, and no namespace, which is not at fault.
func TestFailedSetUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "zlimit.db")
	want := "zlimit: set up: sqlite setup: open " + path + ": "
	for name, opts := range map[string][]zlimit.Option{
		"by default": nil, "with setup": {zlimit.WithSetup()}, "with setup, unlimited in outages": {zlimit.WithSetup(), zlimit.WithFailurePolicy(zlimit.PolicyAllow)},
	} {
		l, err := zlimit.Open(t.Context(), "sqlite:"+path, opts...)
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open() %s = %v, want %s…", name, err, want)
		}
	}
}

// In TestWarningsOfTheSDK, the AWS SDK complains about a reply.
func TestWarningsOfTheSDK(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", "yesterday")
		body := "{}"
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".BatchGetItem") {
			body = `{"Responses":{"table":[]},"UnprocessedKeys":{}}`
		}
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_NEW_RETRIES_2026", "true") // with which the SDK makes all calls
	var logged bytes.Buffer
	_, err := zlimit.Open(context.Background(), "dynamodb:table?region=us-east-1&endpoint="+server.URL, zlimit.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	if !errors.Is(err, zlimit.ErrNamespaceNotFound) {
		t.Fatalf("Open() = %v, want %v", err, zlimit.ErrNamespaceNotFound)
	}
	if !strings.Contains(logged.String(), "level=WARN") || !strings.Contains(logged.String(), "yesterday") {
		t.Errorf("logged %q, want the warning of the SDK", logged.String())
	}
}
