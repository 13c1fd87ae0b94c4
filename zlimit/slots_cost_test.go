package zlimit_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// wanted are fleets whose callers want slots all the time, and what an admission costs them at most: write units and read units.
var wanted = []struct {
	slots         int64
	processes     int
	callers       int // of each process
	writes, reads float64
}{
	{2, 1, 8, 1.1, 0.1},
	{2, 3, 8, 1.3, 0.4},
	{4, 2, 20, 1.1, 0.1},
	{20, 3, 40, 1.1, 0.1},
	{4, 10, 4, 1.7, 0.8},
	{2, 6, 3, 1.6, 1.1},
	{2, 3, 1, 2.2, 0.4},
}

const costsOfWanted = `
## Slots that callers wait for

Counted in virtual time on the store in memory: callers in loops hold a slot for 50 ms, and a call takes a millisecond.
The figures are upper bounds. Each failed condition is a write unit.

A slot that passes from one caller to another of the same process costs one write, and one that passes to another
process two: the former holder's release and the take. A claim is a third one. So the price depends on how many callers
of a process wait: in the last row none ever waits beside a holder of its process, and each admission costs a release
and a take. [Why they are not one write](design/slots.md#what-an-admission-costs).

| Slots | Processes and callers | Write units for each admission | Read units for each admission |
|---|---|---|---|
`

// costOfWanted appends the costs of slots that callers wait for. The callers are in loops for ten seconds of virtual time.
func costOfWanted(t *testing.T, page *strings.Builder) {
	t.Helper()
	page.WriteString(costsOfWanted)
	for _, w := range wanted {
		synctest.Test(t, func(t *testing.T) {
			s := &callCount{Store: store.Of(newMemory(t))}
			limiters := make([]*zlimit.RateLimiter, w.processes)
			for i := range limiters {
				limiters[i] = newLimiter(t, zlimit.StoreOn(s))
			}
			slots(t, limiters[0], w.slots)
			s.reads.Store(0)
			s.writes.Store(0)
			var admitted, atWork atomic.Int64
			var wg sync.WaitGroup
			for _, l := range limiters {
				wg.Go(func() {
					work := shift{callers: w.callers, slots: 1, hold: 50 * time.Millisecond, maxWait: time.Minute}
					n, refused, err := work.work(t.Context(), l, 10*time.Second, &atWork, w.slots)
					if admitted.Add(n); refused > 0 || err != nil {
						t.Errorf("%d callers are rejected: %v", refused, err)
					}
				})
			}
			wg.Wait()
			n := float64(admitted.Load())
			writes, reads := float64(s.writes.Load())/n, float64(s.reads.Load())/n
			if writes > w.writes || reads > w.reads {
				t.Errorf("%+v: an admission costs %.2f write units and %.2f read units", w, writes, reads)
			}
			fmt.Fprintf(page, "| %d | %d of %d | %v | %v |\n", w.slots, w.processes, w.callers, w.writes, w.reads)
			closeLimiters(t, limiters...)
		})
	}
}
