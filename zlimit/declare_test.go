package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestApply is the life of a declaration. Each line is an act of an application or an operator, with the limits that
// follow.
func TestApply(t *testing.T) {
	limits := func(rpm int64) []zlimit.Limit {
		return []zlimit.Limit{zlimit.PerMinute("tpm", 1000), zlimit.PerMinute("rpm", rpm)}
	}
	declare := func(rpm int64) func(context.Context, *zlimit.LimitService) (zlimit.Applied, error) {
		return func(ctx context.Context, s *zlimit.LimitService) (zlimit.Applied, error) {
			return s.Apply(ctx, zlimit.Declaration{"gpt-4", limits(rpm)})
		}
	}
	set := func(rpm int64) func(context.Context, *zlimit.LimitService) (zlimit.Applied, error) {
		return func(ctx context.Context, s *zlimit.LimitService) (zlimit.Applied, error) {
			return zlimit.Applied{}, s.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits(rpm)})
		}
	}
	remove := func(ctx context.Context, s *zlimit.LimitService) (zlimit.Applied, error) {
		return zlimit.Applied{}, s.Delete(ctx, zlimit.Level{Resource: "gpt-4"})
	}
	var (
		nothing = zlimit.Applied{}
		done    = zlimit.Applied{Set: []string{"gpt-4"}}
		kept    = zlimit.Applied{Kept: []string{"gpt-4"}}
	)
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		for _, step := range []struct {
			name   string
			do     func(context.Context, *zlimit.LimitService) (zlimit.Applied, error)
			want   zlimit.Applied
			rpm    int64 // afterwards; 0 for no limits
			events int   // that it leaves
		}{
			{"the first deployment sets the limits", declare(60), done, 60, 1},
			{"a restart changes nothing", declare(60), nothing, 60, 0},
			{"a deployment with other limits sets them", declare(90), done, 90, 1},
			{"one that goes back sets the earlier ones", declare(60), done, 60, 1},
			{"an operator sets others", set(10), nothing, 10, 1},
			{"a restart leaves them alone, and says so", declare(60), kept, 10, 0},
			{"so does a deployment with other limits", declare(90), kept, 10, 0},
			{"limits that are declared at last are no difference", declare(10), nothing, 10, 0},
			{"but they are still those of the operator", declare(60), kept, 10, 0},
			{"an operator deletes them", remove, nothing, 0, 1},
			{"the next deployment sets those that are declared", declare(60), done, 60, 1},
			{"and the one after it", declare(70), done, 70, 1},
			{"an operator who sets the same limits takes them over", set(70), nothing, 70, 1},
			{"so that they stay", declare(80), kept, 70, 0},
		} {
			before := len(events(t, l, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{}))
			c.sleep(time.Second)
			got, err := step.do(ctx, l.Limits)
			if diff := cmp.Diff(step.want, got); err != nil || diff != "" {
				t.Fatalf("%s: %v (-want +got):\n%s", step.name, err, diff)
			}
			stored, err := l.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"})
			if step.rpm == 0 {
				if err != nil || stored.Limits == nil || len(stored.Limits) > 0 {
					t.Fatalf("%s: Get() = %v, %v, want an empty list", step.name, stored, err)
				}
			} else if diff := cmp.Diff([]zlimit.Limit{zlimit.PerMinute("rpm", step.rpm), zlimit.PerMinute("tpm", 1000)}, stored.Limits); err != nil || diff != "" {
				t.Fatalf("%s: Get() = %v (-want +got):\n%s", step.name, err, diff)
			}
			if got := len(events(t, l, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{})) - before; got != step.events {
				t.Errorf("%s: %d audit events, want %d", step.name, got, step.events)
			}
		}
	})
}

func TestApplyIsKnownAtOnce(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	ctx := context.Background()
	for _, rpm := range []int64{1, 5} {
		if _, err := l.Limits.Apply(ctx, zlimit.Declaration{"gpt-4", []zlimit.Limit{zlimit.PerDay("rpm", rpm)}}, zlimit.Declaration{"gpt-5", []zlimit.Limit{zlimit.PerDay("rpm", 9)}}); err != nil {
			t.Fatalf("Limits.Apply() = %v", err)
		}
		if got, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || got.Limits[0].Capacity != rpm {
			t.Errorf("Resolve() = %v, %v, want %d a day", got, err, rpm)
		}
	}
	checkLevels(t, l, zlimit.LevelQuery{Source: zlimit.SourceResource}, "resource gpt-4", "resource gpt-5")
}

func TestApplyManyResources(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	var declared []zlimit.Declaration
	for i := range store.MaxRead + 1 {
		declared = append(declared, zlimit.Declaration{fmt.Sprint("model-", i), []zlimit.Limit{zlimit.PerDay("rpd", 1)}})
	}
	if got, err := l.Limits.Apply(context.Background(), declared...); err != nil || len(got.Set) != len(declared) {
		t.Errorf("Apply() = %d set, %v, want %d", len(got.Set), err, len(declared))
	}
	if got, err := l.Limits.Apply(context.Background(), declared...); err != nil || len(got.Set)+len(got.Kept) != 0 {
		t.Errorf("Apply() again = %+v, %v, want nothing", got, err)
	}
}

// TestApplyAtOnce starts many processes at the same time, on a store that has nothing yet.
func TestApplyAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		var group sync.WaitGroup
		const processes = 8
		sets := make([]int, processes)
		for i := range processes {
			l := newLimiter(t, s, zlimit.WithClock(c.now))
			group.Go(func() {
				got, err := l.Limits.Apply(context.Background(), zlimit.Declaration{"gpt-4", []zlimit.Limit{zlimit.PerDay("rpd", 5)}})
				if sets[i] = len(got.Set); err != nil || len(got.Kept) > 0 {
					t.Errorf("Apply() = %+v, %v, want the limits set by one of them", got, err)
				}
			})
		}
		group.Wait()
		slices.Sort(sets)
		if want := append(make([]int, processes-1), 1); !slices.Equal(sets, want) {
			t.Errorf("resources set = %v, want %v", sets, want)
		}
		if got := len(events(t, newLimiter(t, s, zlimit.WithClock(c.now)), zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{})); got != 1 {
			t.Errorf("%d audit events, want 1", got)
		}
	})
}

func TestApplyYieldsToAnOperatorWhoComesFirst(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	operator := newLimiter(t, s)
	before := hook(s)
	l := newLimiter(t, zlimit.StoreOn(before))
	before.once(func() {
		setLimits(t, operator, zlimit.Level{Resource: "gpt-4"}, zlimit.PerDay("rpd", 7))
	})
	got, err := l.Limits.Apply(ctx, zlimit.Declaration{"gpt-4", []zlimit.Limit{zlimit.PerDay("rpd", 5)}})
	if diff := cmp.Diff(zlimit.Applied{Kept: []string{"gpt-4"}}, got); err != nil || diff != "" {
		t.Errorf("Apply() = %v (-want +got):\n%s", err, diff)
	}
	if got, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || got.Limits[0].Capacity != 7 {
		t.Errorf("Resolve() = %v, %v, want the operator's", got, err)
	}
}

// In TestApplyAndAFile, a program and a file of limits keep the same resource. The file is the owner, and both say so.
func TestApplyAndAFile(t *testing.T) {
	var log strings.Builder
	l := newLimiter(t, newMemory(t), zlimit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	at := zlimit.Level{Resource: "gpt-4"}
	apply := func(rpd int64) zlimit.Applied {
		t.Helper()
		log.Reset()
		applied, err := l.Limits.Apply(t.Context(), zlimit.Declaration{"gpt-4", []zlimit.Limit{zlimit.PerDay("rpd", rpd)}})
		check.Fatal(t, "Limits.Apply()", err)
		return applied
	}
	read := func() zlimit.Stored {
		t.Helper()
		stored := check.Call(l.Managed.Read(t.Context(), at)).Must(t, "Managed.Read()")
		return stored[0]
	}
	if got := apply(5); len(got.Set) != 1 || !read().Declared || log.Len() > 0 {
		t.Fatalf("the first Apply() = %+v, stored %+v, log %s", got, read(), &log)
	}
	err := l.Managed.Run(t.Context(), func(ctx context.Context, run *zlimit.ManagedRun) error {
		_, err := run.Replace(ctx, read(), zlimit.Stored{Level: at, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 5)}}})
		return errors.Join(err, run.Record(ctx, zlimit.ManagedSet{Levels: []zlimit.Level{at}, Manager: "file:limits.yaml"}))
	})
	check.Fatal(t, "Managed.Run()", err)
	if got := read(); got.Declared || !got.Managed {
		t.Errorf("once the file is applied, stored is %+v", got)
	}
	for _, test := range []struct {
		rpd  int64
		kept []string
	}{{5, nil}, {6, []string{"gpt-4"}}} {
		got := apply(test.rpd)
		if diff := cmp.Diff(zlimit.Applied{Kept: test.kept, Managed: []string{"gpt-4"}, Manager: "file:limits.yaml"}, got); diff != "" {
			t.Errorf("Apply() of %d (-want +got):\n%s", test.rpd, diff)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "resources=gpt-4 manager=file:limits.yaml") {
			t.Errorf("the log of Apply() of %d: %q", test.rpd, &log)
		}
	}
	if err := l.Limits.Delete(t.Context(), at); err != nil { // which ends what the file wrote
		t.Fatalf("Limits.Delete() = %v", err)
	}
	if got := apply(6); len(got.Set) != 1 || got.Managed != nil {
		t.Errorf("Apply() behind a deletion = %+v", got)
	}
}

func TestApplyValidatesBeforeItDoesAnything(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	good := zlimit.Declaration{"gpt-4", []zlimit.Limit{zlimit.PerDay("rpd", 1)}}
	for _, test := range []struct {
		name string
		bad  zlimit.Declaration
		want string
	}{
		{"a resource that cannot be", zlimit.Declaration{"4 ", good.Limits}, `invalid resource "4 "`},
		{"entity defaults", zlimit.Declaration{zlimit.DefaultResource, good.Limits}, `invalid resource "_default_"`},
		{"a resource twice", good, `invalid declarations "gpt-4": is given twice`},
		{"no limits", zlimit.Declaration{"gpt-5", nil}, `invalid limits of gpt-5 "": must hold at least one`},
		{"a period that cannot be stored", zlimit.Declaration{"gpt-5", []zlimit.Limit{{Name: "rpm", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Millisecond}}}, `invalid limits of gpt-5[rpm] refill period "1ms"`},
	} {
		_, err := l.Limits.Apply(context.Background(), good, test.bad)
		checkInvalid(t, test.name, err, test.want)
	}
	checkLevels(t, l, zlimit.LevelQuery{})
	check.Fatal(t, "Close()", l.Close())
	if _, err := l.Limits.Apply(context.Background(), good); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Apply() of a closed limiter = %v, want ErrClosed", err)
	}
}

// TestApplyReportsWhatItCannotRead leaves an item alone that another layout has written.
func TestApplyReportsWhatItCannotRead(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	setLimits(t, l, zlimit.Level{Resource: "gpt-5"}, zlimit.PerDay("rpd", 1))
	key := l.ResourceKey("gpt-5")
	items := check.Call(l.Table().Read(ctx, key)).Must(t, "Read()")
	damaged := slices.Clone(items[0])
	damaged.Set("l_rpd_cp", expr.S("many"))
	if result, err := l.Calls().Write(ctx, store.Write{Kind: store.Put, Key: key, Item: damaged}); err != nil || !result.Applied {
		t.Fatal(result, err)
	}
	got, err := l.Limits.Apply(ctx, zlimit.Declaration{"gpt-4", []zlimit.Limit{zlimit.PerDay("rpd", 1)}}, zlimit.Declaration{"gpt-5", []zlimit.Limit{zlimit.PerDay("rpd", 1)}})
	if diff := cmp.Diff(zlimit.Applied{Set: []string{"gpt-4"}}, got); err == nil || diff != "" {
		t.Errorf("Apply() = %v, want an error (-want +got):\n%s", err, diff)
	}
}

// In TestApplyAfterAChangeOfPolicy, an operator changes the failure policy, and an application its limits.
func TestApplyAfterAChangeOfPolicy(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, newMemory(t))
	one, two := zlimit.PerMinute("rpm", 1), zlimit.PerMinute("rpm", 2)
	apply := func(resource string, limit zlimit.Limit) zlimit.Applied {
		t.Helper()
		applied, err := l.Limits.Apply(ctx, zlimit.Declaration{Resource: resource, Limits: []zlimit.Limit{limit}})
		check.Fatal(t, "Limits.Apply()", err)
		return applied
	}
	allow := func(resource string, limits ...zlimit.Limit) {
		t.Helper()
		if err := l.Limits.Set(ctx, zlimit.Level{Resource: resource}, zlimit.Config{Limits: limits, OnUnavailable: zlimit.PolicyAllow}); err != nil {
			t.Fatalf("Limits.Set() = %v", err)
		}
	}
	is := func(resource string, limit zlimit.Limit) {
		t.Helper()
		c, err := l.Limits.Get(ctx, zlimit.Level{Resource: resource})
		if err != nil || !slices.Equal(c.Limits, []zlimit.Limit{limit}) || c.OnUnavailable != zlimit.PolicyAllow {
			t.Errorf("%s is %+v, %v, want %v and allow", resource, c, err, limit)
		}
	}
	apply("declared", one)
	allow("declared", one)
	if applied := apply("declared", two); !slices.Equal(applied.Set, []string{"declared"}) {
		t.Errorf("after a change of the policy alone Apply = %+v", applied)
	}
	is("declared", two)

	allow("bare")
	if applied := apply("bare", one); !slices.Equal(applied.Set, []string{"bare"}) {
		t.Errorf("of a resource with a policy and no limits Apply = %+v", applied)
	}
	is("bare", one)

	allow("bare", two) // an operator's own
	if applied := apply("bare", one); !slices.Equal(applied.Kept, []string{"bare"}) {
		t.Errorf("of an operator's limits Apply = %+v", applied)
	}
	is("bare", two)
}
