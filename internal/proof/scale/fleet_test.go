package scale

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

// caseOf returns a case of the scenarios.
func caseOf(t *testing.T, name string) *Case {
	t.Helper()
	for _, s := range Scenarios() {
		for i := range s.Cases {
			if s.caseName(&s.Cases[i]) == name {
				return &s.Cases[i]
			}
		}
	}
	t.Fatalf("no case %q", name)
	return nil
}

// In TestOneWriteARequest, fleets of several sizes pay at most 1.1 write units a request, and one read unit. Buckets are used seldom or often.
func TestOneWriteARequest(t *testing.T) {
	names := []string{
		"fleet: 10 processes, 100/s", "fleet: 1 processes, 10/s", "fleet: 10 processes, 1/s", "fleet: 10 processes, 0.1/s",
		"fleet: 100 processes, 10/s", "fleet: 100 processes, 0.1/s",
	}
	switch {
	case testing.Short():
		names = names[:1]
	case !*all:
		names = names[:soak.Pick(2, 4)] // a hundred processes compute for long
	}
	for _, name := range names {
		c := caseOf(t, name)
		o := run(t, &c.Load, c.Params)
		f := figureOf(o, "", false)
		if f.Writes > 1.1 || o.Admitted < o.Offered-2 || o.Over > 0 {
			t.Errorf("%s: %v write units a request, %d of %d admitted, %d over", name, f.Writes, o.Admitted, o.Offered, o.Over)
		}
		if f.Reads > 1 {
			t.Errorf("%s: %v read units a request: each process reads what is stored for an entity", name, f.Reads)
		}
		if strings.Contains(name, " 1 processes") && f.Reads > 0.01 {
			t.Errorf("%s: %v read units a request: there is no other process", name, f.Reads)
		}
	}
}

// In TestExhaustedBucketsAdmitNothing, a fleet asks an exhausted bucket far more often than its key can answer, under the policy Allow. The
// bucket admits or rejects each request.
func TestExhaustedBucketsAdmitNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	limit, p := zlimit.PerMinute("rpm", 600), Default()
	p.Lost = 0 // the request of a lost reply is admitted without an answer
	o := run(t, &Load{
		Processes: 600, Rate: 12_000, For: soak.Pick(3*time.Second, 5*time.Second), Limits: []zlimit.Limit{limit}, Policy: zlimit.PolicyAllow,
		Ceilings: map[string]Ceiling{"hot": ceilingOf(limit)},
	}, p)
	if o.Degraded > 0 || o.Admitted+o.Rejected < o.Offered || o.Over > 0 || o.Admitted < 600 {
		t.Errorf("%+v, %d over", o.Tally, o.Over)
	}
	if throttled := o.Used.Throttled["TableReadKeyRangeThroughputExceeded"]; throttled > uint64(o.Offered)/2 {
		t.Errorf("%d throttled reads for %d requests: the processes keep no pace", throttled, o.Offered)
	}
	if o.Used.Failed > uint64(o.Offered)/20 {
		t.Errorf("%d writes failed for %d requests: no process looked first", o.Used.Failed, o.Offered)
	}
	if o.Longest > 5*time.Second {
		t.Errorf("a request took %v", o.Longest)
	}
	if o.Shards > 1 {
		t.Errorf("%d shards of an exhausted bucket", o.Shards)
	}
}

// In TestSilentQuarter, a quarter of the table is silent for ten seconds. The requests for keys that answer notice nothing, and soon after
// the return all are counted, without a storm of calls.
func TestSilentQuarter(t *testing.T) {
	if !soak.Runs() {
		t.Skip("TestFleetsInOutages has it with fewer processes: make long")
	}
	c := caseOf(t, "outage: ten seconds")
	o := run(t, &c.Load, c.Params)
	f := figureOf(o, c.Group, false)
	if rest := o.Groups["rest"]; rest.Offered < o.Offered/2 || rest.Admitted < rest.Offered || rest.Slow > 0 {
		t.Errorf("of the requests for keys that answer: %+v", *rest)
	}
	if o.Groups["silent"].Unavailable == 0 || f.Away.Back > 2 || f.Away.Return > 2 {
		t.Errorf("of the others: %+v, and after the return %+v", *o.Groups["silent"], *f.Away)
	}
}

// In TestFleetsInOutages, fleets lose a quarter of the table or all of it, or find it slow, under the policy Allow. They are few
// processes, each with the requests of one of a thousand. Requests for keys that answer notice nothing, unless their process takes the
// part for all, and stops its calls for a moment. Soon after the return all are counted, without a storm of calls.
func TestFleetsInOutages(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	const processes, from, after = 40, 20 * time.Second, 3 * time.Second
	for _, test := range []struct {
		name   string
		each   float64 // requests a second of a process
		outage Outage
	}{
		{"a quarter is silent", 10, Outage{Part: 0.25}},
		{"a brown-out", 10, Outage{Part: 1, Slow: 1500 * time.Millisecond}},
		{"ten minutes", 1, Outage{Part: 1, To: from + 10*time.Minute}},
	} {
		test.outage.From = from
		c := outageCase(test.name, processes, test.each, test.outage, zlimit.PolicyAllow)
		c.Load.Settle, c.Load.For = 0, c.Params.Outage.To-10*time.Second+after // the processes start after ten seconds
		o := run(t, &c.Load, c.Params)
		f := figureOf(o, c.Group, false)
		if o.failures()+o.Rejected > 0 || o.Over > 0 || f.Away.Back > 2 || f.Away.Return > 2 || f.Away.Return == 0 {
			t.Errorf("%s: %+v, %d over, and after the return %+v", test.name, o.Tally, o.Over, *f.Away)
		}
		if rest := o.Groups["rest"]; rest != nil && (rest.Offered < o.Offered/2 || uncounted(rest) > rest.Offered/100 || rest.Slow > 0) {
			t.Errorf("%s: of the requests for keys that answer: %+v", test.name, *rest)
		}
		if o.Degraded == 0 {
			t.Errorf("%s: no request notices it", test.name)
		}
	}
}

// In TestFlashCrowd, a fleet suddenly asks for a bucket of one item three times as often as its key bears. Its requests wait and share
// writes until it is split. Nearly none fails, and few transactions are tried.
func TestFlashCrowd(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	c := caseOf(t, "hot: 1000 processes, 3000/s")
	load := c.Load
	load.For = 10 * time.Second
	o := run(t, &load, c.Params)
	if o.Admitted < o.Offered*95/100 || o.Over > 0 || o.Shards < 4 {
		t.Errorf("%d of %d admitted, %d over, %d shards: %v", o.Admitted, o.Offered, o.Over, o.Shards, o.Errors)
	}
	if o.Used.Transactions > 500 {
		t.Errorf("%d transactions to split one bucket", o.Used.Transactions)
	}
}

// In TestOverloadedPartitions, many buckets of little traffic ask a table of few partitions for twice its rate. No
// bucket is the reason for the throttles of its key. Requests are tried no more often than a call is, and nothing is
// split.
func TestOverloadedPartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	const entities = 20_000
	p := Default()
	p.Partitions = 2
	o := run(t, &Load{
		Processes: 50, Rate: 4000, For: soak.Pick(2*time.Second, 5*time.Second), Limits: roomy, Entity: anyOf(entities), Known: entities, Sticky: true,
	}, p)
	throttled := o.Used.Throttled["TableWriteKeyRangeThroughputExceeded"]
	if throttled == 0 || throttled > uint64(o.Unavailable)*attempts+uint64(o.Admitted) {
		t.Errorf("%d throttled writes for %d requests that failed and %d that did not", throttled, o.Unavailable, o.Admitted)
	}
	if o.Used.Transactions > 0 {
		t.Errorf("%d transactions, though no bucket is busy", o.Used.Transactions)
	}
}

// In TestThrottledReads, a table serves fewer reads than a fleet needs for entities that are new to its processes. Only the store retries a
// throttled read: no request begins another beside it.
func TestThrottledReads(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	p := Default()
	p.Partitions, p.PartitionReads = 4, 400
	var next int
	o := run(t, &Load{
		Processes: 500, Rate: 1200, For: 5 * time.Second, Limits: roomy, Known: 6000, Entity: func(*rand.Rand, time.Duration) string {
			next++
			return entityOf(next % 6000)
		},
	}, p)
	if throttled := o.Used.Throttled["TableReadKeyRangeThroughputExceeded"]; throttled == 0 || throttled > 25*uint64(o.Offered) {
		t.Errorf("%d throttled reads for %d requests of up to six keys each", throttled, o.Offered)
	}
}

// In TestFullHour, 10,000 entities begin snapshots of usage within a minute, beside requests. All are counted soon after their index can
// have taken them. Few writes are throttled, and nearly no request is held back.
func TestFullHour(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	for _, pressure := range soak.Pick([]Pressure{PressureOnPartition}, []Pressure{PressureOnTouching, PressureOnPartition}) {
		c := fullHour(10_000, pressure)
		o := run(t, &c.Load, c.Params)
		if u := o.Usage; u.Left > 0 || u.Seconds > 120 || u.Throttled > 0.35 || u.Failed > 0.3 {
			t.Errorf("%s: usage %+v", c.Label, *u)
		}
		if most := o.Offered / 50; o.failures() > most || o.Slow > most {
			t.Errorf("%s: of %d requests %d failed, and %d were slow", c.Label, o.Offered, o.failures(), o.Slow)
		}
	}
}

// In TestSettledLeases, a fleet settles the leases of one hot key of tokens. A settlement costs one more write, and nothing is read for it,
// even if shards are full. If the limit is used up, requests are rejected, and few fail.
func TestSettledLeases(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	for _, test := range []struct {
		name     string
		failures float64 // parts of the requests
		writes   float64 // a request
		reads    float64
	}{
		{"settle: 60,000,000 tokens a minute, 60 used", 0.001, 2.3, 1.5},
		{"settle: 1,200,000 tokens a minute, 150 used", 0.05, 6, 10},
	} {
		if test.failures > 0.01 && !soak.Runs() {
			continue // explore and the programs of zlimit settle where limits are used up
		}
		c := caseOf(t, test.name)
		load := c.Load
		load.Processes, load.For, load.Settle = 30, 30*time.Second, 15*time.Second
		c.Params.Lost = 0 // the lease of a lost reply counts as not settled
		o := run(t, &load, c.Params)
		f := figureOf(o, "", false)
		if failed := float64(o.failures()) / float64(o.Offered); failed > test.failures || o.Admitted+o.Rejected < o.Offered*95/100 {
			t.Errorf("%s: %v of the requests failed, %+v: %v", test.name, failed, o.Tally, o.Errors)
		}
		if f.Writes > test.writes || f.Reads > test.reads {
			t.Errorf("%s: %v write and %v read units a request", test.name, f.Writes, f.Reads)
		}
		if test.failures < 0.01 && o.Unsettled > 0 {
			t.Errorf("%s: %d leases were not settled: %v", test.name, o.Unsettled, o.Errors)
		}
	}
}
