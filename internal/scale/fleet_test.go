package scale

import (
	"strings"
	"testing"
	"time"

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

// TestOneWriteARequest has fleets of several sizes pay at most 1.1 write units a request, of buckets that are used seldom and
// often.
func TestOneWriteARequest(t *testing.T) {
	names := []string{"fleet: 1 processes, 10/s", "fleet: 10 processes, 100/s", "fleet: 100 processes, 10/s", "fleet: 10 processes, 1/s"}
	if testing.Short() {
		names = names[1:3]
	}
	for _, name := range names {
		c := caseOf(t, name)
		o := run(t, &c.Load, c.Params)
		f := figureOf(o, "", false)
		if f.Writes > 1.1 || o.Admitted < o.Offered-2 || o.Over > 0 {
			t.Errorf("%s: %v write units a request, %d of %d admitted, %d over", name, f.Writes, o.Admitted, o.Offered, o.Over)
		}
		if strings.Contains(name, " 1 processes") && f.Reads > 0.01 {
			t.Errorf("%s: %v read units a request: there is no other process", name, f.Reads)
		}
	}
}

// TestExhaustedBucketsAdmitNothing has a fleet ask an exhausted bucket far more often than its key can answer, under the policy
// Allow: all is admitted by the bucket, or rejected.
func TestExhaustedBucketsAdmitNothing(t *testing.T) {
	limit := zlimit.PerMinute("rpm", 600)
	o := run(t, &Load{
		Processes: 600, Rate: 12_000, For: 5 * time.Second, Limits: []zlimit.Limit{limit}, Policy: zlimit.Allow,
		Ceilings: map[string]Ceiling{"hot": ceilingOf(limit)},
	}, Default())
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
