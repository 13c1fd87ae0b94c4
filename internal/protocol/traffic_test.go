package protocol

import (
	"errors"
	"math"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// seen returns an image of an item with a number of writes and a refill stamp.
func seen(writes, refilledAt int64) *image {
	return &image{exists: true, State: bucket.State{
		Limits:     []bucket.Limit{{Name: bucket.WriteUnits, Consumed: writes * millis}},
		RefilledAt: refilledAt,
	}}
}

// TestTraffic holds what images show of other processes against what is known: their rate, and the part of this process in all writes.
func TestTraffic(t *testing.T) {
	for _, test := range []struct {
		name   string
		every  int64 // milliseconds between images
		others int64 // writes of others between two
		own    int64 // of this process
		want   float64
		share  float64
	}{
		{"this process alone", 10, 0, 1, 0, 1},
		{"this process alone, with writes under way", 10, 0, 7, 0, 1},
		{"others, often", 10, 5, 1, 0.5, 1. / 6},
		{"others, and this one seldom", 600_000, 300, 1, 0.0005, 1. / 301},
		{"others alone", 10, 5, 0, 0.5, 0},
	} {
		var tr traffic
		tr.sent() // it creates the item
		writes, at := int64(1), int64(1_000_000)
		tr.see(seen(writes, at), at)
		for range 2000 {
			at += test.every
			for range test.own {
				tr.sent()
			}
			writes += test.others + test.own
			tr.see(seen(writes, at), at)
		}
		if got := tr.perMillisecond(); math.Abs(got-test.want) > test.want/10 {
			t.Errorf("%s: %v writes of others in a millisecond, want %v", test.name, got, test.want)
		}
		if got, _ := tr.share(); math.Abs(got-test.share) > test.share/10 {
			t.Errorf("%s: this process has a part of %v in all writes, want %v", test.name, got, test.share)
		}
	}
}

// TestTrafficInFlight delivers replies late and out of order: what was sent counts from the moment it was sent, and
// what was refused does not.
func TestTrafficInFlight(t *testing.T) {
	var tr traffic
	tr.sent()
	tr.see(seen(1, 0), 0)
	for at := int64(1); at < 100; at++ {
		tr.sent()
		tr.sent()
		tr.sent()
		tr.see(seen(1+2*at, 0), at) // the third is under way, or was refused
		tr.refused(true)
	}
	tr.see(seen(199, 0), 99)
	if tr.isOutdated(200) {
		t.Errorf("%v writes of others in a millisecond, and there are no others", tr.perMillisecond())
	}
}

func TestTrafficOfTheFirstImage(t *testing.T) {
	var tr traffic
	tr.see(seen(40, 1000), 61_000) // was written a minute ago
	if tr.isOutdated(62_000) || !tr.isOutdated(71_000) {
		t.Errorf("an item that was written a minute ago is outdated after a second: %v, after ten: %v; want false and true",
			tr.isOutdated(62_000), tr.isOutdated(71_000))
	}
	if c := (&bucket.Config{Freshness: 1 << 40}); tr.isRefreshed(c, 71_000) {
		t.Error("a single image tells that a stamp is fresh")
	}
	tr.see(seen(41, 61_000), 121_000)
	tr.sent()
	tr.see(&image{}, 121_000)
	if tr.isOutdated(1 << 50) {
		t.Error("an item that is gone is outdated")
	}
}

func TestTrafficIsRefreshed(t *testing.T) {
	busy := func() *traffic {
		var tr traffic
		for at := int64(0); at <= 5000; at += 100 {
			tr.see(seen(at, at), at) // a write in a millisecond
		}
		return &tr
	}
	for _, test := range []struct {
		name      string
		freshness int64
		now       int64
		want      bool
	}{
		{"a moment later", 600, 5100, true},
		{"at once: the stamp is the one that was seen", 600, 5000, false},
		{"a freshness shorter than ten writes", 9, 5100, false},
		{"exact", 0, 5100, false},
		{"much later: it may be quiet by now", 600, 65_000, false},
	} {
		if got := busy().isRefreshed(&bucket.Config{Freshness: test.freshness}, test.now); got != test.want {
			t.Errorf("%s: isRefreshed() = %v, want %v", test.name, got, test.want)
		}
	}
}

// TestTrafficRestarts puts another item in the place of one.
func TestTrafficRestarts(t *testing.T) {
	var tr traffic
	tr.see(seen(0, 0), 0)
	tr.see(seen(800, 0), 1000)
	tr.see(seen(1, 0), 1001)
	if tr.isOutdated(61_000) {
		t.Error("the writes of the one before count")
	}
}

// TestTrafficOfASplitItem splits an item that is written 800 times a second. Each of the two is expected to have half
// of that, until more is seen.
func TestTrafficOfASplitItem(t *testing.T) {
	var tr traffic
	tr.see(seen(0, 0), 0)
	tr.see(seen(800, 0), 1000)
	if got := 1000 * tr.perMillisecond(); got < 790 || got > 810 {
		t.Errorf("%v writes a second, want about 800", got)
	}
	tr.see(&image{exists: true, State: bucket.State{Shards: 2, Limits: seen(801, 0).Limits}}, 1001)
	if got := 1000 * tr.perMillisecond(); got < 390 || got > 410 {
		t.Errorf("%v writes of the split item a second, want about 400", got)
	}
	if tr.isBusy() {
		t.Error("the split item is busy before it was measured")
	}
}

// In TestCrowdOfASplitBucket, a process has seen some shards of a bucket. They show how busy others are with all of them.
func TestCrowdOfASplitBucket(t *testing.T) {
	type seen struct {
		number, count int
		perSecond     float64 // negative for so many writes in 50 ms
		guess         bool
	}
	for _, test := range []struct {
		name    string
		shards  []seen
		crowded bool
	}{
		{"one item", []seen{{0, 1, 120, false}}, true},
		{"one item, seldom", []seen{{0, 1, 80, false}}, false},
		{"one item, by a single image", []seen{{0, 1, 1000, true}}, false},
		{"a burst", []seen{{0, 1, -20, false}}, true},
		{"one of 16 shards", []seen{{0, 16, 20, false}}, true},
		{"one of 16 shards, and others by a single image", []seen{{0, 16, 20, false}, {8, 16, 1, true}}, true},
		{"two shards", []seen{{0, 2, 30, false}, {1, 2, 80, false}}, true},
		{"two shards, seldom", []seen{{0, 2, 30, false}, {1, 2, 30, false}}, false},
		{"two shards, one of which others never write", []seen{{0, 2, 80, false}, {1, 2, 0, false}}, false},
		{"16 shards, by few writes", []seen{{0, 16, 7, false}}, false},
	} {
		b := newBucket("ns", "e", "r")
		for _, s := range test.shards {
			on := b.shard(s.number)
			on.image.Store(&image{exists: true, State: bucket.State{Shard: s.number, Shards: s.count}})
			on.traffic.tally = tally{known: true, guess: s.guess, others: math.Abs(s.perSecond), span: 1000}
			if s.perSecond < 0 {
				on.traffic.span = 50
			}
		}
		if got := b.isCrowded(); got != test.crowded {
			t.Errorf("%s: isCrowded() = %v, want %v", test.name, got, test.crowded)
		}
	}
}

// In TestPartsOfTheInflow, a process writes an item less often than another one. The requests that it is refused for that raise its part,
// and count less as time goes on.
func TestPartsOfTheInflow(t *testing.T) {
	var tr traffic
	writes, at := int64(1), int64(0)
	tr.see(seen(writes, at), at)
	part := func(refused int) float64 {
		for range 1000 {
			at += 10
			tr.sent()
			writes += 4
			tr.see(seen(writes, at), at)
			tr.fellShort(refused)
		}
		share, _ := tr.share()
		return share
	}
	if got := part(0); math.Abs(got-1./4) > 0.01 {
		t.Errorf("a process that makes a quarter of the writes has a part of %v", got)
	}
	if got, want := part(8), 2./5; math.Abs(got-want) > 0.02 {
		t.Errorf("a process that is refused eight times for each write has a part of %v, want %v", got, want)
	}
	if got := part(0); math.Abs(got-1./4) > 0.01 {
		t.Errorf("ten seconds after its last refusal, a process that makes a quarter of the writes has a part of %v", got)
	}
}

// TestUsedUpItems checks that a process finds an item used up by the part of its requests that fall short.
func TestUsedUpItems(t *testing.T) {
	for _, test := range []struct {
		name           string
		admitted       int // of a hundred requests
		usedUp, beyond bool
	}{
		{"all admitted", 100, false, false},
		{"a tenth refused", 90, false, false},
		{"half refused", 50, true, false},
		{"nine tenths refused", 10, true, true},
		{"all refused", 0, true, true},
	} {
		var tr traffic
		writes, at := int64(1), int64(0)
		tr.see(seen(writes, at), at)
		for i := range 1000 {
			if at += 10; i*37%100 >= test.admitted {
				tr.fellShort(1)
				continue
			}
			tr.sent()
			writes++
			tr.see(seen(writes, at), at)
		}
		tr.see(seen(writes, at), at)
		if usedUp, beyond := tr.isUsedUp(), tr.isHopeless(false); usedUp != test.usedUp || beyond != test.beyond {
			t.Errorf("%s: isUsedUp() = %v, isHopeless() = %v", test.name, usedUp, beyond)
		}
		if tr.isHopeless(true) {
			t.Errorf("%s: isHopeless() = true by the ration of the only process", test.name)
		}
		tr.others = 1 + fewWrites + 2*manyProcesses*(tr.mine+float64(tr.own))
		if beyond := tr.isHopeless(true); beyond != test.beyond {
			t.Errorf("%s: isHopeless() = %v by the ration of one of very many processes", test.name, beyond)
		}
	}
}

// TestSustainedThrottles throttles writes of a shard at several rates.
func TestSustainedThrottles(t *testing.T) {
	for _, test := range []struct {
		name    string
		gap     int64 // milliseconds
		times   int
		crowded bool
		want    bool
	}{
		{"of a bucket that is used seldom", 2000, 20, false, false},
		{"too few", 10, splitThrottles - 1, true, false},
		{"of a process that writes often", 100, splitThrottles, false, true},
		{"among other processes", 2000, splitThrottles, true, true},
		{"among other processes, now and then", 10_000, 20, true, false},
	} {
		var count throttleCount
		got := false
		for i := range test.times {
			got = count.hit(1_700_000_000_000+int64(i)*test.gap, test.crowded) || got
		}
		if got != test.want {
			t.Errorf("%s: hit() = %t, want %t", test.name, got, test.want)
		}
	}
}

// TestTrafficIsBusy finds an item busy that is written more than six hundred times a second, and none without a clock that
// moves. A write whose condition failed, and each further KB, is a unit as well.
func TestTrafficIsBusy(t *testing.T) {
	for _, test := range []struct {
		name      string
		perSecond int64 // writes that the item counts
		lost      int   // of ten writes of this process, those whose condition fails
		size      int   // bytes
		frozen    bool
		want      bool
	}{
		{"500 a second", 500, 0, 500, false, false},
		{"700 a second", 700, 0, 500, false, true},
		{"500 a second, beside as many failed ones", 500, 5, 500, false, true},
		{"400 a second of 1.5 KB", 400, 0, 1500, false, true},
		{"any number at one time", 100_000, 0, 500, true, false},
	} {
		var tr traffic
		writes, at := int64(1), int64(0)
		tr.see(seen(writes, at), at)
		for range 50 {
			for i := range 10 {
				tr.sent()
				if i < test.lost {
					tr.refused(true)
				}
			}
			writes += test.perSecond / 10
			if !test.frozen {
				at += 100
			}
			next := seen(writes, at)
			next.size = int32(test.size)
			tr.see(next, at)
		}
		if got := tr.isBusy(); got != test.want {
			t.Errorf("%s: isBusy() = %v, want %v", test.name, got, test.want)
		}
	}
}

// TestKeyThrottled distinguishes throttles that a split helps against from others.
func TestKeyThrottled(t *testing.T) {
	for _, test := range []struct {
		name      string
		throttled bool
		limits    []store.Throttle
		want      bool
	}{
		{"of the key", true, []store.Throttle{{Limit: store.OfKey, Write: true}}, true},
		{"of a key in an index", true, []store.Throttle{{Limit: store.OfKey, Index: true, Write: true}}, false},
		{"of the account", true, []store.Throttle{{Limit: store.OfAccount, Write: true}}, false},
		{"without a reason", true, nil, true},
		{"an outage", false, nil, false},
	} {
		err := &store.Error{Op: "UpdateItem", Unavailable: true, Throttled: test.throttled, Throttles: test.limits, Err: errors.New("odd")}
		if got := isKeyThrottled(err); got != test.want {
			t.Errorf("%s: isKeyThrottled() = %v, want %v", test.name, got, test.want)
		}
	}
}

// In TestGlimpses, reads show an item as it was moments ago: before a write, and before it was deleted and created again.
func TestGlimpses(t *testing.T) {
	now := seen(3, 2000)
	for _, test := range []struct {
		name  string
		next  *image
		later bool
	}{
		{"before a write", seen(2, 2000), false},
		{"after a write", seen(4, 2000), true},
		{"after a refill", seen(4, 2500), true},
		{"in an earlier life", seen(900, 1999), false},
		{"in a later life", seen(1, 2001), true},
		{"before it was created", &image{}, false},
	} {
		s := newBucket("ns", "e", "r").shard(0)
		(&items{coreFor(0)}).remember(s, now, nil)
		want := now
		if test.later {
			want = test.next
		}
		if got := s.glimpse(test.next); got != want || s.image.Load() != want {
			t.Errorf("%s: glimpse() = %+v, want %+v", test.name, got, want)
		}
	}
}
