//go:build unix

package zlimit_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// cpuTime returns the time that the processors have spent on this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkEngine compares acquires of a known bucket, one after the other, with the bare SDK call that they make. Both
// run on the engine, which is a process of its own. The two take turns. It reports the median duration and the
// processor time of this process against the bare call.
func BenchmarkEngine(b *testing.B) {
	l, client, table := benchTable(b, func(engine http.RoundTripper) http.RoundTripper { return engine })
	bare, warm := bareUpdate(client, table, shardKey(l, "key-1", 0).Key().PK), acquirer(l)
	ways := []*way{
		{name: "sdk", call: func(int) error { return bare() }},
		{name: "zlimit", call: func(int) error { return warm() }},
	}
	cpu := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, w := range ways {
			before := cpuTime(b)
			w.burst(b, 1, 100)
			cpu[i] = append(cpu[i], cpuTime(b)-before)
		}
	}
	b.ReportMetric(0, "ns/op") // of both together: means nothing
	b.ReportMetric(ratio(ways[1].medians, ways[0].medians), "p50-x-sdk")
	b.ReportMetric(ratio(cpu[1], cpu[0]), "cpu-x-sdk")
	b.ReportMetric(float64(median(cpu[1]).Nanoseconds())/100, "cpu-ns")
}

// BenchmarkOwnTime is [BenchmarkOverhead] in processor time, which other programs on the machine disturb less.
func BenchmarkOwnTime(b *testing.B) {
	l := newReady(b)
	before := cpuTime(b)
	for b.Loop() {
		if _, err := l.Acquire(context.Background(), benchRequest); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
