package scale

import (
	"math"
	"strings"
	"time"
)

// Params are the figures of a [Table]. The comments say where the figures of [Default] come from: documentation of AWS, or judgement if
// it says nothing.
type Params struct {
	Seed uint64

	// Partitions is how many the table has at first. A new on-demand table serves 4,000 writes and 12,000 reads a second,
	// which is four. (Documentation)
	Partitions int
	// PartitionWrites and PartitionReads are the units that a partition, of an index as well, serves in a second. They
	// are 1,000 and 3,000, for any keys. (Documentation)
	PartitionWrites, PartitionReads float64
	// Burst is the time whose unused units a partition keeps. AWS keeps up to 300 s of them for the table, and none
	// beyond the capacity of the partition. A second is judgement.
	Burst time.Duration
	// SplitAfter is for how long a partition throttles before it splits. AWS says several minutes. It never splits within
	// one key of the table, and in an index by the sort key.
	SplitAfter time.Duration

	// TableWrites and TableReads are the quota of the account for each table and index; 0 for none. They are 40,000 units
	// a second each until they are raised. (Documentation)
	TableWrites, TableReads float64
	// Warm is the number of writes a second that the table served before. The table serves twice that, at least 4,000, and
	// again twice as many half an hour later (documentation). Warm is 0 for a table that was warmed up to its quota.
	Warm float64

	// Pressure says which writes a full index holds back.
	Pressure Pressure
	// Backlog is the time that an index may be behind before it holds writes back. (Judgement)
	Backlog time.Duration

	// Hold is how long a transaction holds its items; plain writes of them conflict meanwhile. (Judgement)
	Hold time.Duration
	// Median and Tail are the median and the 99th percentile of the time of a call, which is distributed log-normally. A
	// transaction takes twice as long. AWS says single-digit milliseconds. (Judgement)
	Median, Tail time.Duration
	// Lag is how far an eventually consistent read may be behind. (Judgement)
	Lag time.Duration
	// Lost is the part of the writes whose reply is lost. (Judgement)
	Lost float64

	// Outage is when a part of the table does not answer, or is slow.
	Outage Outage
}

// Pressure is which writes of the table a full partition of an index throttles. AWS documents that it throttles some,
// without naming them.
type Pressure uint8

// The variants of back-pressure.
const (
	PressureOnTouching  Pressure = iota // writes that change an entry of that partition: variant A
	PressureOnPartition                 // for a second, all of the table's partition that such a write went to: variant B
)

// An Outage is a time in which a part of the table, from 0 to 1, does not answer, or is slow.
type Outage struct {
	From, To time.Duration // since the table was made
	Part     float64
	Slow     time.Duration // how long calls take then; 0 for those that are not answered
}

// hits reports whether an outage has a partition key, when it is. The ID of the namespace, which is random, does not count.
func (o *Outage) hits(pk string) bool {
	if _, rest, ok := strings.Cut(pk, "/"); ok {
		pk = rest
	}
	return float64(at(pk, "").hash) < o.Part*float64(math.MaxUint64)
}

// Default returns the figures of a table that is warm.
func Default() Params {
	return Params{
		Partitions:      64,
		PartitionWrites: 1000,
		PartitionReads:  3000,
		Burst:           time.Second,
		SplitAfter:      5 * time.Minute,
		TableWrites:     40_000,
		TableReads:      40_000,
		Backlog:         time.Second,
		Hold:            10 * time.Millisecond,
		Median:          4 * time.Millisecond,
		Tail:            15 * time.Millisecond,
		Lag:             20 * time.Millisecond,
		Lost:            1e-5,
	}
}
