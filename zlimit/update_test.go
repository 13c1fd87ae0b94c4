package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestUpdate(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		rpd := []zlimit.Limit{zlimit.PerDay("rpd", 9)}
		for _, at := range []zlimit.Level{{}, {Resource: "r"}, {Entity: "e"}, {Entity: "e", Resource: "r"}} {
			about := map[zlimit.Source]string{zlimit.SourceSystem: zlimit.AuditSystem, zlimit.SourceResource: zlimit.AuditResource("r")}[at.Source()]
			if about == "" {
				about = "e"
			}
			before := len(events(t, l, about, zlimit.AuditQuery{}))
			refused := errors.New("refused")
			for _, step := range []struct {
				name   string
				change func(*zlimit.Config) error
				want   error
				after  zlimit.Config
				events int // so far
			}{
				{"nothing of nothing", func(*zlimit.Config) error { return nil }, nil, zlimit.Config{Limits: []zlimit.Limit{}}, 0},
				{"a new level", func(c *zlimit.Config) error { c.Limits = append(c.Limits, rpd...); return nil }, nil, zlimit.Config{Limits: rpd}, 1},
				{"a policy beside it", func(c *zlimit.Config) error { c.OnUnavailable = zlimit.PolicyBlock; return nil }, nil, zlimit.Config{Limits: rpd, OnUnavailable: zlimit.PolicyBlock}, 2},
				{"a refusal", func(c *zlimit.Config) error { c.OnUnavailable = zlimit.PolicyAllow; return refused }, refused, zlimit.Config{Limits: rpd, OnUnavailable: zlimit.PolicyBlock}, 2},
				{"nothing that is left", func(c *zlimit.Config) error { *c = zlimit.Config{}; return nil }, nil, zlimit.Config{Limits: []zlimit.Limit{}}, 3},
			} {
				if err := l.Limits.Update(ctx, at, step.change); err != step.want { //nolint:errorlint // the error is that of change as it is
					t.Errorf("%v, %s: Update() = %v, want %v", at, step.name, err, step.want)
				}
				got, err := l.Limits.Get(ctx, at)
				if diff := cmp.Diff(step.after, got); err != nil || diff != "" {
					t.Errorf("%v, %s: %v (-want +got):\n%s", at, step.name, err, diff)
				}
				if got := len(events(t, l, about, zlimit.AuditQuery{})) - before; got != step.events {
					t.Errorf("%v, %s: %d events, want %d", at, step.name, got, step.events)
				}
			}
		}
		checkLevels(t, l, zlimit.LevelQuery{})
	})
}

// TestUpdateInput covers changes that must not be written.
func TestUpdateInput(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	gpt := zlimit.Level{Resource: "gpt"}
	for name, test := range map[string]struct {
		at     zlimit.Level
		change func(*zlimit.Config) error
		want   string
	}{
		"no function":    {gpt, nil, `zlimit: invalid change "nil": must not be nil`},
		"a bad resource": {zlimit.Level{Resource: "#"}, func(*zlimit.Config) error { panic("called") }, `zlimit: invalid resource "#": must hold only`},
		"a bad limit": {gpt, func(c *zlimit.Config) error {
			c.Limits = []zlimit.Limit{{Name: "rpm"}}
			return nil
		}, `zlimit: invalid limits[rpm] capacity "0"`},
		"the retention of a resource": {gpt, func(c *zlimit.Config) error {
			c.AuditRetention = zlimit.Day
			return nil
		}, `zlimit: invalid audit retention "24h0m0s": is for the system alone`},
	} {
		if err := l.Limits.Update(ctx, test.at, test.change); !errors.As(err, new(*zlimit.ValidationError)) || len(err.Error()) < len(test.want) || err.Error()[:len(test.want)] != test.want {
			t.Errorf("%s: Update() = %v, want %s", name, err, test.want)
		}
	}
	checkLevels(t, l, zlimit.LevelQuery{})
}

// In TestUpdateContended, another writer comes first each time. Update fails, says where, and has written nothing.
func TestUpdateContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the pauses between tries take no time
		ctx := context.Background()
		s := newMemory(t)
		l, other := newLimiter(t, s), newLimiter(t, s)
		gpt := zlimit.Level{Resource: "gpt"}
		calls := 0
		set := func(n int64) error {
			return other.Limits.Set(ctx, gpt, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", n)}})
		}
		err := l.Limits.Update(ctx, gpt, func(c *zlimit.Config) error {
			if calls++; calls > 1 && c.Limits[0].Capacity != int64(calls-1) {
				t.Errorf("call %d sees %v, want what was written last", calls, c.Limits)
			}
			c.OnUnavailable = zlimit.PolicyAllow
			return set(int64(calls))
		})
		if !errors.Is(err, zlimit.ErrContended) || err.Error() != "zlimit: too many concurrent writers: resource gpt" {
			t.Errorf("Update() = %v, want ErrContended for the resource", err)
		}
		if got, err := l.Limits.Get(ctx, gpt); err != nil || got.OnUnavailable != zlimit.PolicyInherit || got.Limits[0].Capacity != int64(calls) || calls != 64 {
			t.Errorf("after %d calls there is %+v, %v, want what the other has set, after 64", calls, got, err)
		}
	})
}

// updaterEnv makes the test binary an updater of TestUpdatesLoseNothing: it holds the name of the store, and the part of
// the level that is to be changed.
const updaterEnv = "ZLIMIT_TEST_UPDATER"

func updates() int { return soak.Pick(100, 500) }

// update changes a part of a level some hundred times, reads each change back, and returns the exit code.
func update(job string) int {
	var dsn, part string
	if _, err := fmt.Sscan(job, &dsn, &part); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	l, err := zlimit.Open(ctx, dsn, patient()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	at, lost := zlimit.Level{Resource: "gpt"}, 0
	for i := range updates() {
		rate := zlimit.PerMinute("rpm", int64(i+1))
		policy := zlimit.FailurePolicy(i % 2) // Inherit, Block
		err := l.Limits.Update(ctx, at, func(c *zlimit.Config) error {
			if part == "rate" {
				c.Limits = []zlimit.Limit{rate}
			} else {
				c.OnUnavailable = zlimit.PolicyBlock + policy
			}
			return nil
		})
		config, read := l.Limits.Get(ctx, at)
		if err := errors.Join(err, read); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if part == "rate" && (len(config.Limits) != 1 || config.Limits[0] != rate) || part != "rate" && config.OnUnavailable != zlimit.PolicyBlock+policy {
			lost++
		}
	}
	if err := l.Close(); err != nil || lost > 0 {
		fmt.Fprintf(os.Stderr, "%s: %d of %d updates are lost; Close() = %v\n", part, lost, updates(), err)
		return 1
	}
	return 0
}

// In TestUpdatesLoseNothing, two processes change the rate and the failure policy of one level. Each reads what it wrote.
func TestUpdatesLoseNothing(t *testing.T) {
	for name, open := range map[string]func(testing.TB) string{
		"file":     newFile,
		"dynamodb": newDSN,
	} {
		t.Run(name, func(t *testing.T) {
			dsn := open(t)
			ctx := context.Background()
			l := check.Call(zlimit.Open(ctx, dsn, append(patient(), zlimit.WithSetup())...)).Must(t, "zlimit.Open()")
			t.Cleanup(func() { _ = l.Close() })
			var group sync.WaitGroup
			for _, part := range []string{"rate", "policy"} {
				group.Go(func() {
					worker := exec.Command(os.Args[0], "-test.run=^$")
					worker.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", updaterEnv, dsn, part))
					if out, err := worker.CombinedOutput(); err != nil {
						t.Errorf("%s: %v: %s", part, err, out)
					}
				})
			}
			group.Wait()
			at := zlimit.Level{Resource: "gpt"}
			want := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", int64(updates()))}, OnUnavailable: zlimit.PolicyAllow}
			stored, err := l.Managed.Read(ctx, at)
			if err != nil || !stored[0].Config.Same(&want) || stored[0].Version != int64(2*updates()) {
				t.Errorf("in the end there is %+v, %v, want %+v of version %d", stored, err, want, 2*updates())
			}
		})
	}
}
