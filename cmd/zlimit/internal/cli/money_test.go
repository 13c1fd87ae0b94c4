package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

var updateMoney = flag.Bool("update.money", false, "write testdata/money.golden")

// TestMoneyIsShown runs every command that shows amounts over a limit in money, and compares what it prints with
// testdata/money.golden. No form but JSON may have an amount in billionths of a dollar.
func TestMoneyIsShown(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.db")
	now := time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := check.Call(zlimit.SQLite(path)).Must(t, "zlimit.SQLite()")
	defer s.Close()
	l := check.Call(zlimit.New(t.Context(), s, zlimit.WithClock(clock))).Must(t, "zlimit.New()")
	defer l.Close()
	ns := check.Call(l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
	for day, nanos := range []int64{6_592_500, 8_092_500, 4_652_000_000, -1_500_000} { // what an aggregator would have summed up
		u := layout.UsageDelta{
			NS: ns.ID, Entity: "acme", Resource: "models", Window: "daily", Start: now.Truncate(24*time.Hour).AddDate(0, 0, day-4), Events: 1,
			Consumed: []bucket.Amount{{Limit: "usd", Tokens: 1000 * nanos}, {Limit: "rpm", Tokens: 1000}},
		}
		w, err := u.Write()
		if err == nil {
			_, err = store.Of(s).Write(t.Context(), w)
		}
		check.Fatal(t, "Write()", err)
	}
	spend := func() {
		t.Helper()
		r := zlimit.Request{Entity: "acme", Resource: "models", Consume: zlimit.Amounts{"usd": 1_250_000_000}}
		if _, err := l.Acquire(t.Context(), r); err != nil {
			t.Fatalf("Acquire() = %v", err)
		}
	}
	var golden strings.Builder
	run := func(args ...string) {
		t.Helper()
		now = now.Add(time.Second)
		var out bytes.Buffer
		sh := &shell.Shell{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Env: noEnv, Now: clock}
		sh.Sleep = func(_ context.Context, d time.Duration) error {
			spend()
			now = now.Add(d)
			return nil
		}
		code := Run(t.Context(), sh, append(args, "--store", "sqlite:"+path, "--principal", "olga"))
		if code != shell.ExitOK && code != shell.ExitRejected {
			t.Fatalf("%v: code %d, %s", args, code, &out)
		}
		if got := billionths(out.String()); len(got) > 0 {
			t.Errorf("%v shows billionths of a dollar: %v", args, got)
		}
		golden.WriteString("> zlimit " + strings.ReplaceAll(strings.Join(args, " "), dir, "") + "\n" + out.String())
	}
	trace := filepath.Join(dir, "trace.csv")
	if err := os.WriteFile(trace, []byte("TIMESTAMP,usd\n2026-02-20T12:00:00Z,1.25\n2026-02-20T12:00:01Z,$1.25\n"), 0o600); err != nil {
		t.Fatalf("os.WriteFile() = %v", err)
	}
	run("limits", "set", "--resource", "models", "--limit", "usd=1250/month@UTC", "--limit", "rpm=60/min")
	run("limits", "set", "--resource", "models", "--limit", "usd=25/month@UTC", "--limit", "rpm=60/min")
	run("limits", "list", "--details")
	run("limits", "resolve", "acme", "models")
	run("acquire", "acme", "models", "--consume", "usd=1.25")
	run("acquire", "acme", "models", "--consume", "usd=23.750000001")
	run("acquire", "acme", "models", "--consume", "usd=30")
	run("available", "acme", "models")
	run("bucket", "top-up", "acme", "models", "--add", "usd=20.5", "--until", "2026-02-22", "--operation", "weekend")
	run("bucket", "get", "acme", "models")
	run("bucket", "list", "--entity", "acme")
	run("bucket", "list", "--entity", "acme", "-o", "csv")
	run("bucket", "reset", "acme", "models", "--operation", "again")
	run("top", "models", "--count", "2", "--interval", "10s")
	run("capacity", "models")
	run("capacity", "models", "-o", "csv")
	run("capacity", "models", "--entities")
	run("capacity", "models", "--entities", "-o", "csv")
	run("usage", "list", "--entity", "acme", "--since", "7d")
	run("usage", "list", "--entity", "acme", "--since", "7d", "-o", "csv")
	run("usage", "summary", "--entity", "acme", "--since", "7d")
	run("usage", "summary", "--entity", "acme", "--since", "7d", "-o", "csv")
	run("usage", "plot", "--entity", "acme", "--since", "7d", "--limit", "usd")
	run("usage", "plot", "--entity", "acme", "--from", "2026-02-16", "--to", "2026-02-18", "--limit", "usd")
	run("audit", "list", "--all")
	run("simulate", "--trace", trace, "--limit", "usd=2/day", "--cost", "usd=usd+0.25", "--entity", "replayed")

	got := golden.String()
	const file = "testdata/money.golden"
	if *updateMoney {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(file, []byte(got), 0o600))
	}
	want := check.Call(os.ReadFile(file)).Must(t, "os.ReadFile()")
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("commands over a limit in money show, -want +got:\n%s", diff)
	}
}

// billionths finds integers that can only be amounts of this test in billionths of a dollar.
func billionths(text string) []string {
	return slices.DeleteFunc(integers.FindAllString(text, -1), func(found string) bool { return strings.HasPrefix(found, ".") })
}

var integers = regexp.MustCompile(`\.?\b(\d{7,}|\d{1,3}(,\d{3}){2,})\b`)
