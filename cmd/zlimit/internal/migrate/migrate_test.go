package migrate

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
)

// run copies, follows and finishes, as far as the process gets.
func (w *testbed) run(p *process) error {
	ctx := w.t.Context()
	m, err := Start(ctx, w.config(p))
	if errors.Is(err, ErrDeleting) {
		if m, err = Resume(ctx, w.config(p)); err == nil {
			_, err = m.Finish(ctx)
		}
		return err
	}
	if err != nil {
		return err
	}
	if err := m.Copy(ctx); err != nil {
		return err
	}
	if err := m.CatchUp(ctx); err != nil {
		return err
	}
	_, err = m.Finish(ctx)
	return err
}

// worlds are the ways to migrate a release.
var worlds = map[string]func(*testing.T, string) *testbed{"to a new table": newTestbed, "in place": newTestbedInPlace}

// TestMigrate migrates the table of each release, which no one writes meanwhile.
func TestMigrate(t *testing.T) {
	for way, newTestbed := range worlds {
		for _, release := range releases {
			t.Run(way+"/"+release, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTestbed(t, release)
					check.Fatal(t, "run()", w.run(&process{}))
					w.check()
				})
			})
		}
	}
}

// TestKilled kills a run at every one of its calls in turn, before it is carried out and after it, while programs write the
// source. The next run goes on. In the end the target is exactly what follows from the source.
func TestKilled(t *testing.T) {
	for way, newTestbed := range worlds {
		for _, release := range releases {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/after=%t", way, release, after), func(t *testing.T) { testKilled(t, release, after, newTestbed) })
			}
		}
	}
}

func testKilled(t *testing.T, release string, after bool, newTestbed func(*testing.T, string) *testbed) {
	killed, every := 0, soak.Pick(3, 1)
	if testing.Short() {
		every = 5
	}
	for at := 1; ; at++ {
		if at%every != 0 {
			continue
		}
		dead := false
		synctest.Test(t, func(t *testing.T) { dead = newTestbed(t, release).killed(at, after) })
		if !dead || t.Failed() {
			break
		}
		killed++
	}
	t.Logf("killed at %d calls", killed)
	if killed < 10 {
		t.Errorf("killed %d times", killed)
	}
}

// killed kills a run at one of its calls, before it is carried out or after it, while programs write the source. The next
// run goes on. It returns false for a run that was through before.
func (w *testbed) killed(at int, after bool) bool {
	first := &process{killAt: at, after: after, writer: w.write}
	err := w.run(first)
	if first.dead == (err == nil) {
		w.t.Fatalf("a run that is killed at call %d, was killed: %t: %v", at, first.dead, err)
	}
	if first.dead {
		switch err := w.run(&process{writer: w.write}); {
		case errors.Is(err, ErrFinished): // by the call at which the first one was killed
		case err != nil:
			w.t.Fatalf("killed at call %d; the next run: %v", at, err)
		}
	}
	w.check()
	return first.dead
}

// TestReplay runs a whole migration again from the start, in all but its last step: nothing is written to items.
func TestReplay(t *testing.T) {
	for _, release := range releases {
		synctest.Test(t, func(t *testing.T) {
			w := newTestbed(t, release)
			ctx := t.Context()
			m := check.Call(Start(ctx, w.config(&process{}))).Must(t, "Start()")
			check.Fatal(t, "Copy() and CatchUp()", errors.Join(m.Copy(ctx), m.CatchUp(ctx)))
			before := m.Counts()
			if err := m.restart(ctx); !errors.Is(err, ErrGap) {
				t.Fatalf("restart() = %v", err)
			}
			check.Fatal(t, "Copy() and CatchUp()", errors.Join(m.Copy(ctx), m.CatchUp(ctx)))
			after := m.Counts()
			for _, name := range []string{CountWritten, CountReplaced, CountDeleted} {
				if after[name] != before[name] {
					t.Errorf("%s: %s = %d after a replay, %d before", release, name, after[name], before[name])
				}
			}
			if after[CountKept]-before[CountKept] < before[CountWritten] {
				t.Errorf("%s: a replay found %d items as they should be, of %d", release, after[CountKept]-before[CountKept], before[CountWritten])
			}
		})
	}
}

// TestRegistries asks for the registries of releases that had none, or others.
func TestRegistries(t *testing.T) {
	for release, want := range map[string]struct {
		resources []string
		entities  map[string]int64
	}{
		"0.4": {nil, map[string]int64{"gpt-4": 1, "_default_": 1}},
		"0.6": {[]string{"gpt-4"}, map[string]int64{"gpt-4": 1, "_default_": 1}},
		"0.9": {[]string{"gpt-4"}, map[string]int64{"gpt-4": 1, "_default_": 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newTestbed(t, release)
			check.Fatal(t, "run()", w.run(&process{}))
			items := check.Call(w.target.Read(t.Context(), []store.Key{
				layout.ResourceRegistryKey{NS: "ns"}.Key(), layout.EntityConfigRegistryKey{NS: "ns"}.Key(), layout.VersionKey{}.Key(),
			}, true)).Must(t, "Read()")
			var resources []string
			if items[0] != nil {
				it := check.Call(layout.DecodeResourceRegistry(items[0])).Must(t, "layout.DecodeResourceRegistry()")
				resources = it.Resources
			}
			it := check.Call(layout.DecodeEntityConfigRegistry(items[1])).Must(t, "layout.DecodeEntityConfigRegistry()")
			entities := map[string]int64{}
			for _, r := range it.Resources {
				entities[r.Name] = r.Entities
			}
			compare.Equal(t, fmt.Sprintf("%s: resources", release), want.resources, resources)
			compare.Equal(t, fmt.Sprintf("%s: entities", release), want.entities, entities)
			version, err := layout.DecodeVersion(items[2])
			if err != nil || !version.Admits("0.10.0", "0.10.0") {
				t.Errorf("%s: version %+v, %v", release, version, err)
			}
		})
	}
}

// TestGuard asks that no client may use the target while it is being written.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.6")
		m := check.Call(Start(t.Context(), w.config(&process{}))).Must(t, "Start()")
		admits := func() bool {
			items := check.Call(w.target.Read(t.Context(), []store.Key{layout.VersionKey{}.Key()}, true)).Must(t, "Read()")
			it := check.Call(layout.DecodeVersion(items[0])).Must(t, "layout.DecodeVersion()")
			return it.Admits("0.10.0", "0.99.0")
		}
		if admits() {
			t.Error("the target is open while it is being written")
		}
		if _, err := m.Finish(t.Context()); err != nil || !admits() {
			t.Errorf("Finish() = %v, the target is open: %t", err, admits())
		}
	})
}

// copied returns a testbed whose target has all that follows from its source, and the run that copied it.
func copied(t *testing.T) (*testbed, *Migration) {
	t.Helper()
	w := newTestbed(t, "0.7")
	m := check.Call(Start(t.Context(), w.config(&process{}))).Must(t, "Start()")
	check.Fatal(t, "Copy() and CatchUp()", errors.Join(m.Copy(t.Context()), m.CatchUp(t.Context())))
	return w, m
}

// TestVerify changes the target behind the back of a migration, in every way.
func TestVerify(t *testing.T) {
	bucket := layout.BucketKey{NS: "ns", Entity: "key-1", Resource: "gpt-4"}.Key()
	for _, test := range []struct {
		name   string
		change store.Write
		want   Verification
	}{
		{"nothing", store.Write{Kind: store.Delete, Key: store.Key{PK: "none", SK: "none"}}, Verification{}},
		{"a missing item", store.Write{Kind: store.Delete, Key: bucket}, Verification{Different: 1}},
		{"another item", store.Write{Kind: store.Put, Key: bucket, Item: expr.Item{{Name: "rf", Value: expr.N(1)}}}, Verification{Different: 1}},
		{"one more", store.Write{Kind: store.Put, Key: store.Key{PK: "ns/ENTITY#x", SK: "#META"}, Item: expr.Item{{Name: "rf", Value: expr.N(1)}}}, Verification{Extra: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, m := copied(t)
			ctx := t.Context()
			if _, err := w.target.Write(ctx, test.change); err != nil {
				t.Fatalf("Write() = %v", err)
			}
			v, err := m.Finish(ctx)
			exact := test.want.Exact()
			if exact != (err == nil) || !exact && !errors.Is(err, ErrDiffers) {
				t.Fatalf("%s: Finish() = %v", test.name, err)
			}
			if v.Different != test.want.Different || v.Extra != test.want.Extra || int(v.Different+v.Extra) != len(v.Differences) {
				t.Errorf("%s: %d different, %d extra, %q", test.name, v.Different, v.Extra, v.Differences)
			}
			for _, difference := range v.Differences {
				if !strings.Contains(difference, fmt.Sprintf("PK %q, SK %q", test.change.Key.PK, test.change.Key.SK)) {
					t.Errorf("%s: difference %q does not name %v", test.name, difference, test.change.Key)
				}
			}
		})
	}
}

// TestVerifyPauses compares many items that differ. All of them are compared again after each pause, so that they take as long as one.
func TestVerifyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := copied(t)
		ctx := t.Context()
		changed := int64(0)
		err := m.calls.scanTarget(ctx, func(items []expr.Item) error {
			for _, item := range items {
				if key := store.KeyOf(item); key.PK != ownPartition && changed < shownDifferences {
					changed++
					if _, err := w.target.Write(ctx, store.Write{Kind: store.Delete, Key: key}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil || changed < 5 {
			t.Fatalf("%d items are deleted, %v", changed, err)
		}
		began := time.Now()
		v, err := m.Verify(ctx)
		if err != nil || v.Different != changed || v.Moving == 0 {
			t.Fatalf("Verify() = %+v, %v, want %d different items", v, err, changed)
		}
		if took, most := time.Since(began), (verifyTries-1)*m.config.Poll; took > most {
			t.Errorf("Verify() pauses for %v, want at most %v", took, most)
		}
	})
}

// In TestTakeOver, a second run takes over from a silent one, which then writes nothing.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.6")
		ctx := t.Context()
		first := check.Call(Start(ctx, w.config(&process{}))).Must(t, "Start()")
		began := time.Now()
		c, left := w.config(&process{}), []time.Duration{}
		c.Waiting = func(other Rival) {
			left = append(left, other.Left)
			if host, _ := os.Hostname(); !strings.Contains(other.Owner, host) || other.Owner != first.ledger.record.Owner || !other.Started.Equal(began.Truncate(time.Second)) {
				t.Errorf("a run that waits is told of %+v, want %s of %v", other, first.ledger.record.Owner, began)
			}
		}
		second, err := Start(ctx, c)
		if len(left) == 0 || left[0] < time.Minute || left[len(left)-1] >= left[0] {
			t.Errorf("a run that waits for a sign of another one is told of %v", left)
		}
		if err != nil || time.Since(began) < time.Minute {
			t.Fatalf("Start() = %v after %v, want none before a term", err, time.Since(began))
		}
		check.Fatal(t, "Copy()", second.Copy(ctx))
		if err := first.Copy(ctx); !errors.Is(err, ErrTaken) {
			t.Errorf("Copy() of the first run = %v, want ErrTaken", err)
		}
		if err := first.ledger.savePart(ctx, first.ledger.part(segmentPart(0)), Counts{}); !errors.Is(err, ErrTaken) {
			t.Errorf("savePart() of the first run = %v, want ErrTaken", err)
		}
		time.Sleep(time.Minute)
		if err := first.ledger.beat(ctx); !errors.Is(err, ErrTaken) {
			t.Errorf("beat() of the first run = %v, want ErrTaken", err)
		}
		check.Fatal(t, "Release()", errors.Join(first.Release(ctx), second.Release(ctx)))
		began = time.Now()
		if _, err := Start(ctx, w.config(&process{})); err != nil || time.Since(began) > 0 {
			t.Errorf("Start() = %v after %v, want at once after a release", err, time.Since(began))
		}
	})
}

// TestFence: a run that was taken over replaces and deletes nothing.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.6")
		ctx := t.Context()
		first, err := Start(ctx, w.config(&process{}))
		if err == nil {
			err = first.Copy(ctx)
		}
		check.Fatal(t, "Start()", err)
		if _, err := Start(ctx, w.config(&process{})); err != nil {
			t.Fatalf("Start() = %v", err)
		}
		before := len(contents(t, w.target))
		gone := work{affected: map[store.Key]bool{layout.BucketKey{NS: "ns", Entity: "key-1", Resource: "gpt-4"}.Key(): true}}
		if err := first.copier.bring(ctx, gone, Counts{}); !errors.Is(err, ErrTaken) {
			t.Errorf("bring() of the first run = %v, want ErrTaken", err)
		}
		if after := len(contents(t, w.target)); after != before {
			t.Errorf("%d items, want %d: a run that was taken over deleted one", after, before)
		}
	})
}

// In TestWakes, another run takes over from a run that is about to insert an item, and finishes. Programs then delete the items. When the
// first run wakes, it writes nothing.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.7")
		ctx := t.Context()
		p := &process{}
		first := check.Call(Start(ctx, w.config(p))).Must(t, "Start()")
		slept := false
		p.transacts = func() {
			if slept {
				return
			}
			slept = true
			if err := w.run(&process{}); err != nil { // which takes over, copies and finishes
				t.Fatalf("run() = %v", err)
			}
			w.check()
			for _, item := range contents(t, w.target) { // as programs do, once the table is theirs
				if key := store.KeyOf(item); key.PK != ownPartition {
					check.Fatal(t, "Delete()", w.target.Delete(ctx, []store.Key{key}))
				}
			}
		}
		if err := first.Copy(ctx); !errors.Is(err, ErrTaken) || !slept {
			t.Errorf("Copy() of a run that woke = %v, slept: %t", err, slept)
		}
		for _, item := range contents(t, w.target) {
			if key := store.KeyOf(item); key.PK != ownPartition {
				t.Errorf("a run that woke wrote %v", key)
			}
		}
	})
}

// TestAbort deletes all written items, though it is killed at each call.
func TestAbort(t *testing.T) {
	for at := 1; ; at++ {
		done := false
		synctest.Test(t, func(t *testing.T) {
			w := newTestbed(t, "0.9")
			source := contents(t, w.source)
			m, err := Start(t.Context(), w.config(&process{}))
			if err == nil {
				err = m.Copy(t.Context())
			}
			if err == nil {
				err = m.Release(t.Context())
			}
			check.Fatal(t, "Start()", err)
			abort := func(p *process) error {
				m, err := Resume(t.Context(), w.config(p))
				if err == nil {
					_, err = m.Abort(t.Context())
				}
				return err
			}
			p := &process{killAt: at, after: at%2 == 0}
			err = abort(p)
			if done = !p.dead; !done {
				if _, started := Start(t.Context(), w.config(&process{})); !errors.Is(started, ErrAborting) && len(contents(t, w.target)) < 3 {
					t.Logf("killed at call %d: Start() = %v", at, started)
				}
				err = abort(&process{})
				if errors.Is(err, ErrNone) {
					err = nil
				}
			}
			if err != nil {
				t.Fatalf("killed at call %d: %v", at, err)
			}
			if left := contents(t, w.target); len(left) != 1 || store.KeyOf(left[0]) != (layout.VersionKey{}).Key() {
				t.Errorf("killed at call %d: %v is left", at, left)
			}
			if diff := cmp.Diff(len(source), len(contents(t, w.source))); diff != "" {
				t.Errorf("the source has changed: %s", diff)
			}
		})
		if done || t.Failed() {
			return
		}
	}
}

// TestRefusals asks what is no place for a migration.
func TestRefusals(t *testing.T) {
	w := newTestbed(t, "0.6")
	fill(t, w.target, []expr.Item{{{Name: "PK", Value: expr.S("x/ENTITY#y")}, {Name: "SK", Value: expr.S("#META")}}})
	if _, err := Start(t.Context(), w.config(&process{})); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("Start() to a table with items = %v", err)
	}
	w.target = newStore(t)
	if _, _, err := Find(t.Context(), w.config(&process{})); !errors.Is(err, ErrNone) {
		t.Errorf("Find() = %v, want none", err)
	}
	if _, err := Resume(t.Context(), w.config(&process{})); !errors.Is(err, ErrNone) {
		t.Errorf("Resume() = %v, want none", err)
	}
	if _, err := Start(t.Context(), w.config(&process{})); err != nil {
		t.Fatalf("Start() = %v", err)
	}
	c := w.config(&process{})
	c.SourceName = "dynamodb:other"
	if _, err := Start(t.Context(), c); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("Start() from another source = %v", err)
	}
}

// TestUnmoved: a bucket moved by a later release and then deleted follows from the old one again.
func TestUnmoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.10.0")
		moved := layout.BucketKey{NS: "a7x3kq_w-Zs", Entity: "key-1", Resource: "gpt-4"}
		fill(t, w.source, []expr.Item{moved.Key().Join((&layout.Bucket{Key: moved, RefilledAt: 5}).Encode())})
		m, err := Start(t.Context(), w.config(&process{}))
		if err == nil {
			err = m.Copy(t.Context())
		}
		check.Fatal(t, "Start()", err)
		w.remove(moved.Key())
		if _, err := m.Finish(t.Context()); err != nil {
			t.Fatalf("Finish() = %v", err)
		}
		w.check()
	})
}

// TestPlan compares the plan of a whole small table with what a migration then does.
func TestPlan(t *testing.T) {
	for _, release := range releases {
		w := newTestbed(t, release)
		p := check.Call(MakePlan(t.Context(), w.config(&process{}), 1000)).Must(t, "MakePlan()")
		r := derive(w.rules(), contents(t, w.source))
		lost := int64(0)
		for _, l := range p.Losses {
			lost += l.Items
		}
		if !p.Exact || p.Items != int64(len(contents(t, w.source))) || p.Targets != int64(len(r.Items)) || !p.Stream || p.Foreign() || p.Current() {
			t.Errorf("%s: plan %+v, want %d items", release, p, len(r.Items))
		}
		if lost != int64(len(r.Losses)) {
			t.Errorf("%s: %d losses %v, want %d %v", release, lost, p.Losses, len(r.Losses), r.Losses)
		}
	}
	empty := &testbed{t: t, source: newStore(t), target: newStore(t)}
	p, err := MakePlan(t.Context(), empty.config(&process{}), 1000)
	if err != nil || !p.Foreign() || p.Items != 0 {
		t.Errorf("plan of an empty table: %+v, %v", p, err)
	}
}

// In TestMigratedKinds, the source has limits with windows, and others. The target is for clients that obey them. It is for no older ones
// than the source is, whose moves leave nothing else behind. It counts the charges of parents for children since the source does.
func TestMigratedKinds(t *testing.T) {
	const since = "2026-07-14T00:00:00Z"
	for way, newTestbed := range worlds {
		for name, test := range map[string]struct {
			attribute expr.Attribute
			client    string
			source    string
		}{
			"windows":                     {expr.Attribute{Name: "l_rpm_sched", Value: expr.S("1h9-17s500")}, "0.14.0", "0.0.0"},
			"a session quota":             {expr.Attribute{Name: "w_tokens_rsa", Value: expr.N(18000)}, "0.15.0", "0.0.0"},
			"rollover":                    {expr.Attribute{Name: "l_rpm_cy", Value: expr.N(5000)}, "0.17.1", "0.0.0"},
			"a wider resource":            {expr.Attribute{Name: "within", Value: expr.S("models")}, "0.17.1", "0.17.0"},
			"limits that older ones know": {expr.Attribute{Name: "on_unavailable", Value: expr.S("allow")}, "0.10.0", "0.0.0"},
			"moved entities":              {expr.Attribute{Name: "on_unavailable", Value: expr.S("allow")}, "0.17.0", "0.17.0"},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTestbed(t, "0.10.0")
					level := layout.ResourceConfig{
						Key: layout.ResourceConfigKey{NS: w.rules().NS, Resource: "gpt-5"}, ConfigVersion: 1,
						Limits: []bucket.StoredLimit{{Name: "rpm", Capacity: 10, RefillAmount: 10, RefillPeriod: 60}},
					}
					// An amount is of a limit, whatever the name of that is.
					usage := layout.Usage{
						Key:    layout.UsageKey{NS: w.rules().NS, Entity: "e", Resource: "r", WindowKey: "2026-01-01T00:00:00Z"},
						Window: "hourly", WindowStart: "2026-01-01T00:00:00Z", Limits: []layout.UsageCount{{Name: "within", Consumed: 1}},
					}
					item := level.Key.Key().Join(level.Encode())
					item.Set(test.attribute.Name, test.attribute.Value)
					w.add(item)
					w.put(layout.VersionKey{}.Key(), func(item *expr.Item) {
						item.Set("client_min_version", expr.S(test.source))
						item.Set("children_from", expr.S(since))
					})
					w.add(usage.Key.Key().Join(usage.Encode()))
					check.Fatal(t, "run()", w.run(&process{}))
					w.check()
					items := check.Call(w.target.Read(t.Context(), []store.Key{layout.VersionKey{}.Key()}, true)).Must(t, "Read()")
					if v, err := layout.DecodeVersion(items[0]); err != nil || v.ClientMinVersion != test.client {
						t.Errorf("the target is for clients from %s, %v; want %s", v.ClientMinVersion, err, test.client)
					} else if v.ChildrenFrom != since {
						t.Errorf("the target counts the charges of parents for children since %q, want %s", v.ChildrenFrom, since)
					}
				})
			})
		}
	}
}
