package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestCopy copies a file to another one while a program writes it. Balances, limits, parents, usage and requests with an ID come along. An
// aggregator of the copy counts nothing of it again.
func TestCopy(t *testing.T) {
	from, to := "sqlite:"+filepath.Join(t.TempDir(), "from.db"), "sqlite:"+filepath.Join(t.TempDir(), "to.db")
	count := func(dsn string) {
		t.Helper()
		s := check.Call(zlimit.OpenStore(t.Context(), dsn)).Must(t, "zlimit.OpenStore()")
		defer s.Close()
		a := check.Call(aggregator.New(s, aggregator.WithPoll(5*time.Millisecond), aggregator.WithName("a"))).Must(t, "aggregator.New()")
		ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer stop()
		check.Fatal(t, "Run()", a.Run(ctx))
	}
	open := func(dsn string) *zlimit.RateLimiter {
		t.Helper()
		return check.Call(zlimit.Open(t.Context(), dsn)).Must(t, "zlimit.Open()")
	}
	var last *zlimit.Lease
	useAs := func(l *zlimit.RateLimiter, id string, n int64) {
		t.Helper()
		lease, err := l.Acquire(t.Context(), zlimit.Request{ID: id, Entity: "key", Resource: "gpt", Consume: zlimit.Amounts{"tpd": n}})
		last = lease
		if err == nil {
			err = lease.Commit(t.Context())
		}
		check.Fatal(t, "Acquire()", err)
	}
	use := func(l *zlimit.RateLimiter, n int64) { t.Helper(); useAs(l, "", n) }
	left := func(l *zlimit.RateLimiter) (available, counted int64) {
		t.Helper()
		statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key", Resource: "gpt"})).Must(t, "Available()")
		now := time.Now()
		sum := check.Call(l.Usage.Summary(t.Context(), zlimit.UsageQuery{
			Entity: "key", Resource: "gpt", Window: zlimit.WindowHourly, From: now.Add(-48 * time.Hour), To: now.Add(time.Hour),
		})).Must(t, "Usage.Summary()")
		for _, limit := range sum.Limits {
			counted += limit.Total.Tokens()
		}
		status, _ := statuses.Limit("tpd")
		return status.Available, counted
	}
	run := func(code int, want string, args ...string) {
		t.Helper()
		got := command(t, "", args...)
		if got.code != code || !strings.Contains(got.stdout+got.stderr, want) {
			t.Fatalf("%v: code %d, %s%s, want %q", args, got.code, got.stdout, got.stderr, want)
		}
	}
	first := open(from)
	if _, err := first.Entities.Create(t.Context(), zlimit.Entity{ID: "team"}); err != nil {
		t.Fatalf("Entities.Create() = %v", err)
	}
	if _, err := first.Entities.Create(t.Context(), zlimit.Entity{ID: "key", ParentID: "team", Cascade: true}); err != nil {
		t.Fatalf("Entities.Create() = %v", err)
	}
	day := zlimit.Daily("tpd", 1_000_000, "UTC")
	check.Fatal(t, "Limits.Set()", first.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{day}}))
	count(from) // turns the log of changes on
	use(first, 600)
	useAs(first, "job-1", 100)
	count(from)
	run(shell.ExitUsage, "nothing was changed", "copy", "run", from, to)
	run(shell.ExitOK, "is copied, and in step with", "copy", "run", from, to, "--yes")
	use(first, 30) // after the copy
	run(shell.ExitOK, "is exactly what follows from", "copy", "verify", to)
	alterCopy(t, to)
	for _, want := range []string{"1 differ, and 1 have no source", "no such item", "has no source", "#NSID", "run: zlimit copy abort '" + to + "', and start again"} {
		run(shell.ExitDiffers, want, "copy", "verify", to)
	}
	run(shell.ExitOK, "given up", "copy", "abort", to, "--yes")
	run(shell.ExitOK, "is copied, and in step with", "copy", "run", from, to, "--yes")
	run(shell.ExitOK, "following from "+from, "copy", "status", to)
	run(shell.ExitFailure, "zlimit copy status", "available", "key", "gpt", "--store", to)
	count(from) // the last changes
	check.Fatal(t, "Close()", first.Close())
	run(shell.ExitOK, "programs may open", "copy", "finish", to, "--yes", "--quiet", "50ms")
	second := open(to)
	defer second.Close()
	run(shell.ExitOK, "how far it is complete is not known", "usage", "bill", "--store", to) // as docs/copy.md says
	count(to)
	if available, counted := left(second); available != 1_000_000-730 || counted != 730 {
		t.Errorf("the copy has %d available and %d counted, want %d and 730", available, counted, 1_000_000-730)
	}
	use(second, 5)
	if useAs(second, "job-1", 100); !last.Repeated() {
		t.Error("the copy does not remember a request")
	}
	count(to)
	if available, counted := left(second); available != 1_000_000-735 || counted != 735 {
		t.Errorf("after a request the copy has %d available and %d counted, want %d and 735", available, counted, 1_000_000-735)
	}
	run(shell.ExitOK, "; complete to ", "usage", "bill", "--store", to)
	if e, err := second.Entities.Get(t.Context(), "key"); err != nil || e.ParentID != "team" {
		t.Errorf("the entity of the copy is %+v, %v", e, err)
	}
	run(shell.ExitFailure, "is finished", "copy", "abort", to, "--yes")
	run(shell.ExitUsage, "FROM is missing", "copy", "plan")
}

// TestCopyOfNothing refuses sources that cannot be copied, in words of the command, and creates no file.
func TestCopyOfNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	check.Fatal(t, "os.WriteFile()", os.WriteFile("empty.db", nil, 0o600))
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{shell.ExitFailure, "sqlite:nosuch.db: the file does not exist", []string{"run", "sqlite:nosuch.db", "sqlite:y.db", "--yes"}},
		{shell.ExitFailure, "sqlite:nosuch.db: the file does not exist", []string{"plan", "sqlite:nosuch.db"}},
		{shell.ExitFailure, "sqlite:y.db: the file does not exist", []string{"status", "sqlite:y.db"}},
		{shell.ExitFailure, "sqlite:y.db: the file does not exist", []string{"finish", "sqlite:y.db", "--yes"}},
		{shell.ExitFailure, "sqlite:empty.db holds no items: there is nothing to copy", []string{"run", "sqlite:empty.db", "sqlite:y.db", "--yes"}},
		{shell.ExitUsage, "FROM and TO are both sqlite:empty.db: a copy is to another store", []string{"run", "sqlite:empty.db", "sqlite:empty.db", "--yes"}},
	} {
		got := command(t, "", append([]string{"copy"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.want) {
			t.Errorf("copy %v: code %d, %s%s, want %d and %q", c.args, got.code, got.stdout, got.stderr, c.code, c.want)
		}
	}
	for _, name := range []string{"nosuch.db", "y.db"} {
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that it does not exist", name, err)
		}
	}
}

// alterCopy changes a copy behind its back: it adds an item, and deletes the record of a namespace.
func alterCopy(t *testing.T, dsn string) {
	t.Helper()
	opened := check.Call(zlimit.OpenStore(t.Context(), dsn)).Must(t, "zlimit.OpenStore()")
	defer opened.Close()
	s := store.Of(opened)
	page := check.Call(s.(store.Scanner).Scan(t.Context(), store.Scan{Consistent: true})).Must(t, "Scan()")
	writes := []store.Write{{Kind: store.Put, Key: store.Key{PK: "no such item", SK: "#META"}, Item: expr.Item{{Name: "rf", Value: expr.N(1)}}}}
	for _, item := range page.Items {
		if key := store.KeyOf(item); strings.HasPrefix(key.SK, "#NSID") {
			writes = append(writes, store.Write{Kind: store.Delete, Key: key})
		}
	}
	if len(writes) != 2 {
		t.Fatalf("the copy has %d records of namespaces, want 1", len(writes)-1)
	}
	for _, w := range writes {
		if _, err := s.Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
}
