package zlimit

import (
	"strconv"

	"github.com/zlimit/zlimit-go/internal/bridge"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Snapshots of usage are written by package aggregator alone. A snapshot contains, of each shard of its bucket, all
// changes up to a sequence number, and it is written on condition that it contains none of those that are added.

// Countable reports whether a snapshot can have a figure for a limit. Those of tables that other programs write may have
// names that are taken.
func (t table) Countable(limit string) bool {
	return limit != bucket.WriteUnits && !usageReserves(limit)
}

// CountUsage returns the write that adds changes to a snapshot, on condition that it contains none of them.
func (t table) CountUsage(u *bridge.Usage) (store.Write, error) {
	key := usageKey{NS: u.NS, Entity: u.Entity, Resource: u.Resource, WindowKey: Window(u.Window).key(u.Start)}
	call := countUsage(key, u.Window, u.Start.UTC().Format(timeFormat), u.Events)
	for _, c := range u.Consumed {
		call.consume(c.Limit, c.Tokens)
	}
	for _, s := range u.Sources {
		call.follow(strconv.Itoa(s.Number), string(s.First), string(s.Last))
	}
	if u.ExpiresAt > 0 {
		call.expire(u.ExpiresAt)
	}
	bound, err := call.Bind()
	return store.Write{Kind: store.Update, Key: key.key(), Expr: bound}, err
}

// Counted returns the last change of each shard that a snapshot contains.
func (t table) Counted(snapshot expr.Item) map[int]store.Sequence {
	var sources []usageSource
	for i := range snapshot {
		decodeUsageSource(new(decoder), &sources, &snapshot[i])
	}
	counted := make(map[int]store.Sequence, len(sources))
	for _, s := range sources {
		if number, err := strconv.Atoi(s.Name); err == nil {
			counted[number] = store.Sequence(s.Last)
		}
	}
	return counted
}
