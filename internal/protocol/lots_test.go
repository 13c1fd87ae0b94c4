package protocol

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// In TestLotsFindTheirShards, processes draw lots of a bucket that was split since they saw its shards, once or again and again. Each
// takes from the shard of its lot, so that no shard has more than its part of the requests. Without a wait, the first write asks for
// tokens alone: it may go to another shard, and shows the split.
func TestLotsFindTheirShards(t *testing.T) {
	splits := []int{0, 0, 0, 1}             // leave 0, 2, 4 and 1, 3 as shards of 8, 4, 8 and 4, 4
	leaves := []int{0, 1, 2, 3, 4, 1, 2, 3} // of the lots
	limit := bucket.Params{Name: "rpm", Capacity: 80_000 * millis, RefillAmount: 80_000 * millis, RefillPeriod: 1000}
	for _, wait := range []time.Duration{0, time.Minute} {
		g, limits := newGauge(t), fixedLimits{}
		limits.set("e", &Limits{Epoch: 1 << 40, Config: bucket.Config{Params: []bucket.Params{limit}}})
		splitter := newProcess(t, g, limits)
		giveAllBack(t, splitter, takeFrom(t, splitter, "e", map[string]int64{"rpm": 1}))
		processes := make([][]*Engine, len(splits)+1) // by the splits they know of, and by their lots
		for known := range processes {
			for lot := range leaves {
				e := newProcessBy(t, g, limits, func(n int) int { return lot % n })
				shards := []*shard{e.Memory.Bucket("e", "model").shard(0)}
				for number := 1; number < 8; number++ { // none of them is there at first
					shards = append(shards, e.Memory.Bucket("e", "model").shard(number))
				}
				if _, err := e.items.readShards(t.Context(), shards); err != nil {
					t.Fatalf("readShards() = %v", err)
				}
				processes[known] = append(processes[known], e)
			}
			if known < len(splits) {
				split(t, splitter, "e", splits[known])
			}
		}
		for known := range processes {
			for lot, e := range processes[known] {
				if wait == 0 {
					takeFrom(t, e, "e", map[string]int64{"rpm": 1})
				}
				r := new(Receipt)
				err := e.Take(t.Context(), &Request{Entity: "e", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 1}), Wait: wait}, r)
				check.Fatal(t, "Take()", err)
				if parts := r.levels[0].parts; len(parts) != 1 || parts[0].shard.Shard != leaves[lot] {
					t.Errorf("who knows of %d splits and draws %d takes from shard %d, want %d; waits %v", known, lot, parts[0].shard.Shard, leaves[lot], wait)
				}
			}
		}
	}
}

// In TestLongQueueIsNotSplit, a key throttles the writes of a shard in which callers wait, and of a shard without a queue. A queue of over
// a second stays on its key, though the process has seen the other shard when that had no queue.
func TestLongQueueIsNotSplit(t *testing.T) {
	throttled := &store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}}
	limit := bucket.Params{Name: "rpm", Capacity: 8000 * millis, RefillAmount: 8000 * millis, RefillPeriod: 1000}
	for _, test := range []struct {
		queue int64 // tokens of a shard into which 4,000 flow in a second
		want  int
	}{{-4000, 4}, {0, 4}, {4000, 4}, {4001, 2}, {8000, 2}} {
		synctest.Test(t, func(t *testing.T) {
			g, limits := newGauge(t), fixedLimits{}
			limits.set("e", &Limits{Epoch: 1 << 40, Config: bucket.Config{Params: []bucket.Params{limit}}})
			e := newProcessBy(t, g, limits, func(int) int { return 0 })
			giveAllBack(t, e, takeFrom(t, e, "e", map[string]int64{"rpm": 1}))
			split(t, e, "e", 0)
			s := e.Memory.Bucket("e", "model").shard(0)
			l := level{bucket: s.bucket, limits: limits["e"].Load()}
			for rest := max(4000+test.queue, 1); rest > 0; rest -= 4000 {
				l.demand = bucket.Demand{Amounts: amountsOf(map[string]int64{"rpm": min(rest, 4000)}), Wait: 60_000}
				check.Fatal(t, "takeFromShard()", e.taker.takeFromShard(t.Context(), &party{level: &l, lot: lotOf(0), to: new(levelReceipt)}, s))
			}
			l.demand.Amounts = amountsOf(map[string]int64{"rpm": 1})
			for range splitThrottles {
				e.resizer.splitIfThrottled(context.Background(), &l, s, s.image.Load(), throttled)
			}
			e.Close() // what is under way in the background ends
			if got := s.count(); got != test.want {
				t.Errorf("with a queue of %d tokens the item is one of %d shards, want %d", test.queue, got, test.want)
			}
		})
	}
}

// TestQuotaThatCarriesIsNotSplit asks whether busy shards may be split. With a quota that carries, none may, so that no process tries at each write.
func TestQuotaThatCarriesIsNotSplit(t *testing.T) {
	day := check.Call(calendar.Parse("0 0 * * *", "UTC")).Must(t, "calendar.Parse()")
	for carry, want := range map[int64]bool{0: true, 1: false} {
		g, limits := newGauge(t), fixedLimits{}
		limit := bucket.Params{Name: "rpm", Capacity: 8000 * millis, RefillPeriod: 1000, Times: day, Carry: carry}
		limits.set("e", &Limits{Epoch: 1 << 40, Config: bucket.Config{Params: []bucket.Params{limit}}})
		e := newProcess(t, g, limits)
		takeFrom(t, e, "e", map[string]int64{"rpm": 1})
		s := e.Memory.Bucket("e", "model").shard(0)
		l := level{bucket: s.bucket, limits: limits["e"].Load(), demand: bucket.Demand{Amounts: amountsOf(map[string]int64{"rpm": 1})}}
		if got := e.resizer.maySplit(&l, s.image.Load(), e.resizer.now()); got != want {
			t.Errorf("maySplit() = %t for a quota that carries %d, want %t", got, carry, want)
		}
	}
}

// TestLotOfALostShard draws the lot of a shard whose item was deleted, though its origin still shows it. The origin serves the lot.
func TestLotOfALostShard(t *testing.T) {
	g, limits := newGauge(t), fixedLimits{}
	limits.set("e", perDay("", map[string]int64{"rpm": 100}))
	e := newProcessBy(t, g, limits, func(n int) int { return 1 % n })
	giveAllBack(t, e, takeFrom(t, e, "e", map[string]int64{"rpm": 1}))
	split(t, e, "e", 0)
	lost := e.Memory.Bucket("e", "model").shard(1)
	if _, err := g.Store.Write(t.Context(), store.Write{Kind: store.Delete, Key: lost.key}); err != nil {
		t.Fatalf("Store.Write() = %v", err)
	}
	for range 3 {
		if r := takeFrom(t, e, "e", map[string]int64{"rpm": 1}); r.levels[0].parts[0].shard.Shard != 0 {
			t.Errorf("shard %d", r.levels[0].parts[0].shard.Shard)
		}
	}
}
