package protocol

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// In TestPlacesInShards, a request for 5 tokens chooses its place in a bucket of two shards. What other requests of the process are about to take of
// a shard counts as taken.
func TestPlacesInShards(t *testing.T) {
	const any, rejected, all, other = -1, -2, -3, -4 // any shard, a rejection, all shards together, and a shard that is read first
	for _, test := range []struct {
		name     string
		limit    bucket.Params // quick, if it has no name
		left     [2]int64
		placed   [2]int64 // tokens that others are about to take of each shard
		full     bool     // no request fell short recently
		few      bool     // some did, beside many that were admitted
		seldom   bool     // two did, and there were no others
		waits    bool
		again    bool
		aged     time.Duration // the images, when the request came; negative for later ones
		strained bool
		exact    bool // without rejections from memory
		tokens   int64
		want     int
	}{
		{name: "tokens for all", left: [2]int64{400, 400}, full: true, want: any},
		{name: "a caller that waits", left: [2]int64{20, 40}, full: true, waits: true, want: any},
		{name: "after a shard fell short", left: [2]int64{20, 40}, full: true, again: true, want: 1},
		{name: "some requests fell short", left: [2]int64{20, 40}, few: true, want: 1},
		{name: "some requests fell short, and neither has enough", left: [2]int64{4, 4}, few: true, want: all},
		{name: "the first one has more", left: [2]int64{9, 6}, want: 0},
		{name: "the other one has more", left: [2]int64{6, 9}, want: 1},
		{name: "others are on the way to the one that has more", left: [2]int64{19, 6}, placed: [2]int64{15, 0}, want: 1},
		{name: "neither has enough, and both together have", left: [2]int64{4, 4}, seldom: true, want: all},
		{name: "the same beside later requests", left: [2]int64{4, 4}, want: rejected},
		{name: "a shard refills it within seconds, beside later requests", limit: slow, left: [2]int64{4, 4}, want: rejected},
		{name: "a shard refills it within seconds, without others", limit: slow, left: [2]int64{4, 4}, seldom: true, want: all},
		{name: "others are on the way to the rest of one", left: [2]int64{9, 4}, placed: [2]int64{5, 0}, want: rejected},
		{name: "others are on the way to both", left: [2]int64{9, 9}, placed: [2]int64{5, 5}, want: rejected},
		{name: "images that are too old to reject", limit: daily, left: [2]int64{4, 4}, aged: 2 * time.Second, want: other},
		{name: "images that are too old, seen since the request came", limit: daily, left: [2]int64{4, 4}, again: true, aged: 2 * time.Second, want: all},
		{name: "images of after the request came", left: [2]int64{2, 2}, again: true, aged: -10 * time.Millisecond, want: rejected},
		{name: "more than a trickle", left: [2]int64{300, 299}, tokens: 350, want: all},
		{name: "no rejections from memory", left: [2]int64{4, 9}, exact: true, want: 1},
		{name: "no rejections from memory, and neither has enough", left: [2]int64{2, 2}, exact: true, want: all},
		{name: "images that are too old, for much of a shard", limit: daily, left: [2]int64{4, 4}, tokens: 20, aged: 2 * time.Second, want: all},
		{name: "throttled", left: [2]int64{9, 9}, strained: true, want: all},
		{name: "throttled, and out of its ration", left: [2]int64{2, 2}, strained: true, want: rejected},
	} {
		t.Run(test.name, func(t *testing.T) {
			limit := quick
			if test.limit.Name != "" {
				limit = test.limit
			}
			inContest(t, 2, limit, func(t *testing.T, c *contest) {
				c.leave(t, test.left[:]...)
				l := c.level(t, max(test.tokens, 5))
				if test.waits {
					l.demand.Wait = 1
				}
				if _, err := c.e.aligner.viewInLine(t.Context(), &l, c.e.looks.seenSince(c.e.NextEpoch())); err != nil {
					t.Fatalf("the shards cannot be read: %v", err)
				}
				if c.e.core.options.RejectionAge = time.Second; test.exact {
					c.e.core.options.RejectionAge = 0
				}
				for number, tokens := range test.placed {
					traffic := &l.bucket.shard(number).traffic
					switch {
					case test.few:
						traffic.mine += 100
						traffic.fellShort(2)
					case test.seldom:
						traffic.fellShort(2)
					case !test.full:
						traffic.fellShort(100)
					}
					if tokens > 0 {
						others := []bucket.Amount{{Limit: "rpm", Tokens: tokens * millis}}
						traffic.placed.begins(others)
						l.bucket.shard(0).traffic.pending.begins(others)
					}
				}
				if test.strained {
					c.strain()
				}
				l.at = c.now.Load() + test.aged.Milliseconds()
				c.now.Store(max(l.at, c.now.Load()))
				if !test.again {
					l.began = c.e.NextEpoch()
				}
				got := any
				switch p := c.e.taker.place(&l, test.again); {
				case p.short != nil:
					got = rejected
				case p.whole:
					got = all
				case p.shard != nil && test.want == other:
					got = other
				case p.shard != nil:
					got = p.shard.Shard
				}
				if got != test.want {
					t.Errorf("place() = %d, want %d", got, test.want)
				}
			})
		})
	}
}
