package aggregator

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// In TestUnsupportedBucketsAreLeft, another program gives a bucket that would be refilled a limit in an unsupported form. The
// aggregator counts it, reports it once, and leaves it as it is.
func TestUnsupportedBucketsAreLeft(t *testing.T) {
	var left, counted int
	var log bytes.Buffer
	g := newGarden(t, newMemory(t), WithLogger(slog.New(slog.NewTextHandler(&log, nil))), WithObserver(func(b Batch) {
		left += b.Left
		counted += b.Counted
	}))
	created := store.Change{Key: g.shard.Key(), New: g.item(0), At: g.now}
	marked := g.setTo(0, "b_rpm_sched", expr.S("2h9x500"))
	before := g.item(0)
	g.now = g.now.Add(6 * time.Second)
	g.seen(created, marked)
	g.seen(g.setTo(0, "b_rpm_sched", expr.S("2h9x500")))
	if diff := cmp.Diff(before, g.item(0)); diff != "" {
		t.Errorf("the bucket was written:\n%s", diff)
	}
	if got := strings.Count(log.String(), "left alone"); left != 2 || counted == 0 || got != 1 {
		t.Errorf("left %d times, counted %d changes, logged %d times, want 2, some and 1:\n%s", left, counted, got, log.String())
	}
}

// In TestAttributesOfOthersStay, an aggregator writes in each of its ways. The items have attributes of other programs: of
// zae-limiter 0.17, and of a later release. Items that remain afterwards still have all of these.
func TestAttributesOfOthersStay(t *testing.T) {
	s := partitioned(t)
	g := newGarden(t, s, WithMaxShards(2))
	all := func() map[store.Key]expr.Item {
		items := map[store.Key]expr.Item{}
		for q := (store.Scan{}); ; {
			page := check.Call(g.table.Store().(store.Scanner).Scan(t.Context(), q)).Must(t, "Scan()")
			for _, item := range page.Items {
				items[store.KeyOf(item)] = item
			}
			if q.Continue = page.Next; page.Next == nil {
				return items
			}
		}
	}
	others := func(key store.Key) expr.Item {
		kept := expr.Item{{Name: "x_later", Value: expr.S("kept")}}
		switch {
		case key.SK == "#STATE":
			kept = append(kept, expr.Attribute{Name: "b_rpm_gc", Value: expr.N(1)}, expr.Attribute{Name: "b_rpm_rn", Value: expr.N(7)})
		case strings.HasPrefix(key.SK, "#USAGE#"):
			kept = append(kept, expr.Attribute{Name: "rpm#od", Value: expr.N(3)})
		}
		return kept
	}
	counted := int64(0)
	count := func() {
		counted += 1000
		g.seen(g.set(0, "b_rpm_tc", counted))
	}
	count()
	for _, writer := range []struct {
		name  string
		write func()
		items int // that it changes, at least
	}{
		{"count", count, 1},
		{"refill", func() {
			g.now = g.now.Add(6 * time.Second)
			g.set(0, "b_rpm_tk", 0)
			count()
		}, 2},
		{"split", func() {
			g.set(0, "b_wcu_tk", scarceUnits-1000)
			g.seen(g.set(0, "rf", g.now.UnixMilli()))
			g.want("split,", 0, 2, 1, 2)
		}, 1},
		{"merge", func() {
			first := g.set(0, "b_tpm_tc", 1)
			first.At = g.now
			g.now = g.now.Add(20 * time.Second)
			g.seen(first, g.set(0, "b_tpm_tc", 2))
			g.want("merged,", 0, 1)
		}, 1},
		{"roll-up", func() { roll(t, s, after) }, 1},
		{"next hour", func() {
			g.now = g.now.Add(time.Hour)
			count()
		}, 1},
		{"roll-up of the next hour", func() { roll(t, s, after.Add(time.Hour)) }, 3},
	} {
		before := all()
		for key, item := range before {
			for _, a := range others(key) {
				item.Set(a.Name, a.Value)
			}
			rest := slices.DeleteFunc(item.Clone(), func(a expr.Attribute) bool { return a.Name == store.PK || a.Name == store.SK })
			if _, err := g.table.Store().Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: rest}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
			before[key] = item
		}
		writer.write()
		changed := 0
		for key, item := range all() {
			was, had := before[key]
			if !had {
				continue
			}
			for _, a := range others(key) {
				if v := item.Get(a.Name); !v.Equal(a.Value) {
					t.Errorf("%s: %s of PK %q, SK %q is %v", writer.name, a.Name, key.PK, key.SK, v)
				}
			}
			if !item.Equal(was) {
				changed++
			}
		}
		if changed < writer.items {
			t.Errorf("%s changes %d items, want %d", writer.name, changed, writer.items)
		}
	}
}
