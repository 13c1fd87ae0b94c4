package bucket

import "time"

// When a shard is quiet.
const (
	quietTime            = 10 * time.Second // least time over which the rate of writes is measured
	quietWritesPerSecond = 100              // writes per second
)

// IsQuiet reports whether a shard may be merged with its sibling, given how often its item was written over a time. It may
// when the rate is below quietWritesPerSecond, measured over quietTime or more.
func IsQuiet(writes int64, over time.Duration) bool {
	return over >= quietTime && writes*1000 < quietWritesPerSecond*over.Milliseconds()
}

// When a shard is busy.
const (
	busyTime  = time.Second // least time over which the rate of writes is measured
	busyUnits = 600         // write units per second, of the thousand that DynamoDB serves
)

// IsBusy reports whether a shard is to be split, by the write units that its item took over a time. It is when the rate
// is above busyUnits, measured over busyTime or more. So a shard is split before its key throttles.
func IsBusy(units float64, over time.Duration) bool {
	return over >= busyTime && units > busyUnits*over.Seconds()
}
