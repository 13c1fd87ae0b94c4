package zlimit

import (
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/internal/bridge"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Package aggregator looks after buckets by the writes that limiters use themselves. Each holds only for the refill stamp
// that it was planned from.

// ShardKey returns the key of a shard's item.
func (t table) ShardKey(s bridge.Shard) store.Key { return shardOf(s).key }

func shardOf(s bridge.Shard) *shard {
	return newBucketRef(s.NS, s.Entity, s.Resource).newShard(s.Number)
}

// Calm reports whether a shard that was written so often in a time may be joined with its sibling.
func (t table) Calm(writes int64, in time.Duration) bool { return isCalm(writes, in.Milliseconds()) }

// Refill returns the write that refills every limit of a shard up to now and leaves its parameters as they are; false
// when nothing has flowed in.
func (t table) Refill(s bridge.Shard, state *bucket.State, now int64) (store.Write, bool, error) {
	config := defaults.keep(state)
	config.Freshness = 0
	var plan bucket.Plan
	if plan.Decide(state, config, &bucket.Demand{}, now); plan.Kind != bucket.Advance {
		return store.Write{}, false, nil
	}
	w, err := shardOf(s).write(&plan, owner{})
	return w, true, err
}

// defaults are those options that items of buckets depend on.
var defaults = options{freshness: defaultFreshness, bucketTTL: defaultBucketTTL}

// Split returns the writes that divide a shard in two, for one transaction.
func (t table) Split(s bridge.Shard, item expr.Item, now int64) ([]store.Write, error) {
	decoded, err := decodeBucket(item)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", store.KeyOf(item).PK, err)
	}
	state := decoded.state()
	return shardOf(s).splitting(&state, owner{cascade: decoded.Cascade, parent: decoded.Parent}, now)
}

// Merge returns the writes by which a shard takes over the one that it split off last, for one transaction; none when
// they are not of one size, or have other limits. Where that one is lost, nil, it takes over what is left of it, its share.
func (t table) Merge(s bridge.Shard, state, other *bucket.State, now int64) ([]store.Write, error) {
	low := shardOf(s)
	high := s
	high.Number += state.Shards / 2
	switch {
	case state.Shards < 2 || s.Number >= state.Shards/2:
		return nil, nil
	case other == nil:
		var plan bucket.Plan
		plan.Merge(state, &bucket.State{RefilledAt: now, Shard: high.Number, Shards: state.Shards}, now)
		update, err := low.write(&plan, owner{})
		if err != nil {
			return nil, err
		}
		absent, err := insert()
		return []store.Write{update, {Kind: store.Check, Key: t.ShardKey(high), Expr: absent}}, err
	case other.Shards != state.Shards || !alike(state, other):
		return nil, nil
	}
	return low.merging(shardOf(high), state, other, now)
}
