package zlimit_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestClocksShareWhatFlowsIn has four processes whose clocks differ by up to half a second ask for one bucket all the time, some without a
// wait and some in a queue that stays full. Each gets about a quarter, and all of them together no more than flows in by the clock that is
// furthest ahead. They follow that clock, and do not drive each other further.
func TestClocksShareWhatFlowsIn(t *testing.T) {
	leads := []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}
	const most = 500 * time.Millisecond
	for _, wait := range []time.Duration{0, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(t)
			began := time.Now()
			end := began.Add(60 * time.Second)
			admitted := make([]atomic.Int64, len(leads))
			var group sync.WaitGroup
			for i, lead := range leads {
				l := newLimiter(t, s, zlimit.WithClock(func() time.Time { return time.Now().Add(lead) }))
				for caller := range 10 {
					random := rand.New(rand.NewPCG(uint64(i), uint64(caller)))
					group.Go(func() {
						for time.Now().Before(end) {
							if _, err := l.Wait(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(wait)); err == nil {
								admitted[i].Add(1)
							}
							time.Sleep(time.Duration(random.IntN(40)+1) * time.Millisecond)
						}
					})
				}
			}
			group.Wait()
			sum := int64(0)
			for i := range admitted {
				sum += admitted[i].Load()
			}
			for i := range admitted {
				if got := admitted[i].Load(); got < sum*18/100 || got > sum*32/100 {
					t.Errorf("wait %v: the process that is %v ahead gets %d of %d", wait, leads[i], got, sum)
				}
			}
			lasted := time.Since(began) + most + wait
			if bound := 1 + int64(lasted/(50*time.Millisecond)) + 1; sum > bound {
				t.Errorf("wait %v: %d are admitted, want at most %d", wait, sum, bound)
			}
			stamp := storedShards(t, newLimiter(t, s), "acme")
			if ahead := time.Until(time.UnixMilli(stamp[0].RefilledAt)); ahead > most {
				t.Errorf("wait %v: the bucket is %v ahead, and no clock more than %v", wait, ahead, most)
			}
		})
	}
}
