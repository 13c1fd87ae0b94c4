package bucket

import "time"

// When a shard is quiet.
const (
	quietTime            = 10 * time.Second // least time over which the rate of writes is measured
	quietWritesPerSecond = 100              // writes per second
)

// IsQuiet reports whether a shard may be merged with its sibling, given how often its item was written over a time. The rate must be below
// quietWritesPerSecond, over at least quietTime.
func IsQuiet(writes int64, over time.Duration) bool {
	return over >= quietTime && writes*1000 < quietWritesPerSecond*over.Milliseconds()
}

// When a shard is busy.
const (
	busyTime  = time.Second // least time over which the rate of writes is measured
	busyUnits = 600         // write units per second, of the thousand that DynamoDB serves
)

// IsBusy reports whether to split a shard, given the write units that its item took over a time. The rate must be above busyUnits, over at
// least busyTime. So a shard is split before its key throttles.
func IsBusy(units float64, over time.Duration) bool {
	return over >= busyTime && units > busyUnits*over.Seconds()
}
