package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestCopyUnderTraffic does what docs/copy.md says, from a table of one engine to a table of another one, while two programs go on with 7
// and 30 requests a second. Each step ends while they do, and no charge is lost.
func TestCopyUnderTraffic(t *testing.T) {
	from, _ := engineDSN(t, enginetest.Start(t))
	to, _ := engineDSN(t, enginetest.Fresh(t))
	run := func(code int, want string, args ...string) {
		t.Helper()
		if got := command(t, "", args...); got.code != code || !strings.Contains(got.stdout+got.stderr, want) {
			t.Fatalf("%v: code %d, %s%s, want %d and %q", args, got.code, got.stdout, got.stderr, code, want)
		}
	}
	run(shell.ExitOK, "", "setup", "--store", from)
	run(shell.ExitOK, "", "limits", "set", "--store", from, "--resource", "gpt-4o", "--limit", "tpd=1000000/day@UTC")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var programs errgroup.Group
	used := make([]int64, 2)
	for i, perSecond := range []int{7, 30} {
		programs.Go(func() (err error) {
			used[i], err = traffic(ctx, from, fmt.Sprint("program-", i), perSecond)
			return err
		})
	}
	run(shell.ExitOK, "dynamodb:", "copy", "plan", from)
	run(shell.ExitOK, "is copied, and in step with", "copy", "run", from, to, "--yes")
	run(shell.ExitOK, "following from", "copy", "status", to)
	run(shell.ExitOK, "is copied, and in step with", "copy", "run", from, to, "--yes")
	run(shell.ExitOK, " what follows from", "copy", "verify", to)
	run(shell.ExitFailure, "is still written", "copy", "finish", to, "--yes", "--quiet", "1s")
	stop()
	check.Fatal(t, "traffic()", programs.Wait())
	run(shell.ExitOK, "programs may open", "copy", "finish", to, "--yes", "--quiet", "300ms")
	left := func(dsn, entity string) int64 {
		t.Helper()
		l := check.Call(zlimit.Open(t.Context(), dsn)).Must(t, "zlimit.Open()")
		defer l.Close()
		statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4o"})).Must(t, "Available()")
		s, _ := statuses.Limit("tpd")
		return s.Available
	}
	for i, n := range used {
		entity := fmt.Sprint("program-", i)
		if was, is := left(from, entity), left(to, entity); n == 0 || is != was || is > 1_000_000-n {
			t.Errorf("%s used %d tokens of 1,000,000; of them the source has %d left, and the copy %d", entity, n, was, is)
		}
	}
}

// traffic makes requests of an entity until the context ends, and returns how many tokens they used at least: on a busy machine the engine may
// not answer in time, and the outcome is unknown then.
func traffic(ctx context.Context, dsn, entity string, perSecond int) (used int64, err error) {
	l, err := zlimit.Open(context.WithoutCancel(ctx), dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return used, nil
		case <-tick.C:
		}
		lease, err := l.Acquire(context.WithoutCancel(ctx), zlimit.Request{Entity: entity, Resource: "gpt-4o", Consume: zlimit.Amounts{"tpd": 3}})
		if err == nil {
			err = lease.Commit(context.WithoutCancel(ctx))
			used += 3
		}
		if err != nil && !errors.As(err, new(*zlimit.UnavailableError)) {
			return used, err
		}
	}
}
