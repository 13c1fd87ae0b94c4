package protocol

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// In TestBookingsOfOneWrite, three callers share a write that leaves a debt. Each waits for its own tokens, and for the tokens of the
// callers before it.
func TestBookingsOfOneWrite(t *testing.T) {
	const now = 1_700_000_000_000
	for _, test := range []struct {
		name  string
		ahead int64 // of the stamp
	}{
		{"a stamp of now", 0},
		{"a stamp that is ahead stands in for the time", 5000},
		{"a stamp from before", -300},
	} {
		b := newBucket("ns", "e", "r")
		var to levelReceipt
		p := party{to: &to, level: &level{bucket: b, limits: &Limits{}}}
		for range 3 {
			one := &level{bucket: b, limits: &Limits{}, demand: bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: 1000}}, Wait: 10_000}}
			p.fit = append(p.fit, &waiter[*claim]{job: &claim{level: one, to: new(levelReceipt)}})
		}
		p.asks = demandsOf(p.fit)
		p.demand = bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: 3000}}, Wait: 10_000}
		left := &image{exists: true, State: bucket.State{RefilledAt: now + test.ahead, Limits: []bucket.Limit{
			{Name: "rpm", Tokens: -5000, Capacity: 1000, RefillAmount: 1000, RefillPeriod: 1000},
		}}}
		p.took(b.shard(0), left)
		p.portion()
		for i, w := range p.fit {
			got, ok := w.job.to.bookings()[0].wait(w.job.level.demand.Amounts, now)
			if want := int64(3000+1000*i) + min(test.ahead, 0); !ok || got != want {
				t.Errorf("%s: caller %d waits %d ms, want %d", test.name, i, got, want)
			}
		}
	}
}
