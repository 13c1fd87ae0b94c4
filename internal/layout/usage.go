package layout

import (
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// WindowFormat returns the form of the keys of windows of one length: "monthly" or "daily", and hourly for any other text.
// Keys of windows of all lengths are in the order of their starts.
func WindowFormat(window string) string {
	switch window {
	case "monthly":
		return "2006-01"
	case "daily":
		return time.DateOnly
	default:
		return TimeFormat
	}
}

// WindowKey returns the key of the window that starts at a time.
func WindowKey(window string, start time.Time) string {
	return start.UTC().Format(WindowFormat(window))
}

// A UsageDelta is what changes of a bucket add to the snapshot of usage of a window. A snapshot contains, of each shard of
// its bucket, all changes up to one.
type UsageDelta struct {
	NS, Entity, Resource string
	Window               string    // hourly, daily or monthly
	Start                time.Time // of the window
	Kept
	Events   int64           // changes
	Consumed []bucket.Amount // of each limit, net, sorted by name
	Shards   []ShardChanges  // that the changes are of, sorted by number
}

// A Kept says how long a snapshot is kept, and where it is listed.
type Kept struct {
	ExpiresAt int64 // epoch seconds; 0 for never
	Unlisted  bool  // a snapshot that expires is not in the index of its namespace; a scan finds it
}

// say picks the clauses of a call that writes the snapshot of a key.
func (k Kept) say(call interface {
	Expire(expiresAt int64)
	Persist()
	lister
}, key UsageKey,
) {
	if k.ExpiresAt > 0 {
		call.Expire(k.ExpiresAt)
	} else {
		call.Persist()
	}
	k.list(call, key)
}

// consume picks the clauses of a call that adds amounts to a snapshot.
func consume(call interface {
	Consume(limit string, consumed int64)
	Ascribe(limit string, consumed int64)
	Contain(limit string, consumed int64)
}, amounts []bucket.Amount,
) {
	for _, a := range amounts {
		call.Consume(a.Limit, a.Tokens)
		if a.FromChildren != 0 {
			call.Ascribe(a.Limit, a.FromChildren)
		}
		if a.FromNarrower != 0 {
			call.Contain(a.Limit, a.FromNarrower)
		}
	}
}

// lister is a call that enters a snapshot into the index of its namespace, or takes it out.
type lister interface {
	List(pk, sk string)
	Unlist()
}

// list picks the clause that says whether the snapshot of a key is in the index of its namespace.
func (k Kept) list(call lister, key UsageKey) {
	if k.ExpiresAt > 0 && k.Unlisted {
		call.Unlist()
	} else {
		call.List(key.NamespaceIndex())
	}
}

// ShardChanges are changes of one shard in a row.
type ShardChanges struct {
	Shard       int
	First, Last store.Sequence
}

func (d *UsageDelta) key() UsageKey {
	return UsageKey{NS: d.NS, Entity: d.Entity, Resource: d.Resource, WindowKey: WindowKey(d.Window, d.Start)}
}

// Write returns the write that adds the changes to the snapshot, if the snapshot contains none of them.
func (d *UsageDelta) Write() (store.Write, error) { return d.write(false) }

// WriteWhole is [UsageDelta.Write] with one more condition: the snapshot is of no hour that carries amounts.
func (d *UsageDelta) WriteWhole() (store.Write, error) { return d.write(true) }

func (d *UsageDelta) write(whole bool) (store.Write, error) {
	key := d.key()
	call := CountUsage(key, d.Window, FormatTime(d.Start), d.Events)
	consume(call, d.Consumed)
	for _, s := range d.Shards {
		call.Follow(strconv.Itoa(s.Shard), string(s.First), string(s.Last))
	}
	d.say(call, key)
	if whole {
		call.Whole()
	}
	bound, err := call.Bind()
	return store.Write{Kind: store.Update, Key: key.Key(), Expr: bound}, err
}

// CountedChanges returns the last change of each shard, by its number, that a snapshot contains.
func CountedChanges(snapshot expr.Item) map[int]store.Sequence {
	var sources []UsageSource
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

// CountedEvents returns the number of changes that a snapshot contains.
func CountedEvents(snapshot expr.Item) int64 {
	decoded, _ := DecodeUsage(snapshot) // what can be read of it
	return decoded.TotalEvents
}

// HasUsage reports whether a snapshot can have a figure for a limit. It cannot for [bucket.WriteUnits], nor for a limit
// that another program named as an attribute of the snapshot.
func HasUsage(limit string) bool { return limit != bucket.WriteUnits && !UsageReserves(limit) }
