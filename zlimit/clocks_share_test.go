package zlimit_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestClocksShareWhatFlowsIn, four processes ask for one bucket all the time, some without a wait and some in a full
// queue. Their clocks differ by up to half a second. Once they have met, each gets 18 to 34 %, or 10 to 45 % of a
// queue, in which a lead is learned slowly. All of them together get no more than flows in by the clock that is
// furthest ahead. They follow that clock, and do not drive each other further. No caller is passed by a later one,
// beyond what is not learned yet of the lead. No admission is earlier than in one right bucket, beyond the lead of that
// clock.
func TestClocksShareWhatFlowsIn(t *testing.T) {
	leads := []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond}
	const (
		most      = 500 * time.Millisecond
		unlearned = 100 * time.Millisecond // of the lead, at first
	)
	for _, test := range []struct {
		wait        time.Duration
		least, most int64 // percent
	}{{0, 18, 34}, {500 * time.Millisecond, 10, 45}} {
		wait := test.wait
		synctest.Test(t, func(t *testing.T) {
			s := newMemory(t)
			began := time.Now()
			end := began.Add(soak.Pick(40*time.Second, 80*time.Second))
			admitted := make([]atomic.Int64, len(leads)) // once they have met
			var mu sync.Mutex
			var all []stayed
			var group sync.WaitGroup
			for i, lead := range leads {
				l := newLimiter(t, s, zlimit.WithClock(func() time.Time { return time.Now().Add(lead) }))
				for caller := range 10 {
					random := rand.New(rand.NewPCG(uint64(i), uint64(caller)))
					group.Go(func() {
						for time.Now().Before(end) {
							came := time.Since(began)
							if _, err := l.Wait(t.Context(), waitFor(1, waitLimit), zlimit.MaxWait(wait)); err == nil {
								mu.Lock()
								all = append(all, stayed{came, time.Since(began)})
								mu.Unlock()
								if time.Since(began) > 20*time.Second {
									admitted[i].Add(1)
								}
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
				if got := admitted[i].Load(); got < sum*test.least/100 || got > sum*test.most/100 {
					t.Errorf("wait %v: the process that is %v ahead gets %d of %d", wait, leads[i], got, sum)
				}
			}
			for k, v := range all { // in the order of admissions
				if ideal := time.Duration(k-1) * 50 * time.Millisecond; v.admitted < ideal-most {
					t.Fatalf("wait %v: admission %d is at %v, more than %v before that of one right clock", wait, k, v.admitted, most)
				}
			}
			slices.SortStableFunc(all, func(a, b stayed) int { return int(a.came - b.came) })
			latest := time.Duration(0)
			for _, v := range all {
				if latest = max(latest, v.admitted); v.admitted < latest-unlearned {
					t.Errorf("wait %v: a caller that is admitted at %v is passed by %v", wait, latest, latest-v.admitted)
				}
			}
			stamp := storedShards(t, newLimiter(t, s), "acme")
			if ahead := time.Until(time.UnixMilli(stamp[0].RefilledAt)); ahead > most {
				t.Errorf("wait %v: the bucket is %v ahead, and no clock more than %v", wait, ahead, most)
			}
		})
	}
}

// A stayed is when a caller came, and when it was admitted.
type stayed struct{ came, admitted time.Duration }

// In TestFollowingClockIsSetForward, a clock that is behind by a second is set right and wrong again, beside one that is right. What it
// follows and what it is set forward add up. The stamps get two seconds ahead of the right clock at most, and no more flows in than by
// then.
func TestFollowingClockIsSetForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t)
		began := time.Now()
		behind := func() time.Time {
			now := time.Now()
			if int(now.Sub(began)/(5*time.Second))%2 == 0 {
				return now.Add(-time.Second)
			}
			return now
		}
		admitted, furthest := 0, time.Duration(0)
		right, other, reader := newLimiter(t, s), newLimiter(t, s, zlimit.WithClock(behind)), newLimiter(t, s)
		for time.Since(began) < soak.Pick(2*time.Minute, 5*time.Minute) {
			for _, l := range []*zlimit.RateLimiter{other, right} {
				if _, err := l.Acquire(t.Context(), waitFor(1, waitLimit)); err == nil {
					admitted++
				}
				time.Sleep(7 * time.Millisecond)
			}
			stamp := time.UnixMilli(storedShards(t, reader, "acme")[0].RefilledAt)
			furthest = max(furthest, time.Until(stamp))
		}
		if furthest > 2*time.Second {
			t.Errorf("the bucket gets %v ahead", furthest)
		}
		if furthest < time.Second {
			t.Errorf("the bucket gets %v ahead: the clock does not follow", furthest)
		}
		if bound := 1 + int((time.Since(began)+2*time.Second)/(50*time.Millisecond)) + 1; admitted > bound {
			t.Errorf("%d are admitted, want at most %d", admitted, bound)
		}
	})
}
