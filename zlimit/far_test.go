package zlimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestFarFromTheTable, several limiters use up a limit whose store answers each call 20 ms late, at twice and at ten times the rate.
// They admit nearly all that an ideal bucket admits that sees each request when it comes, and no more than the limit allows. Each limiter
// gets its tokens, and a request takes about a write, or less.
func TestFarFromTheTable(t *testing.T) {
	t.Parallel() // it waits more than it computes
	if testing.Short() || enginetest.IsMean() {
		t.Skip("it takes seconds, and counts every call")
	}
	const limiters, rate, capacity = 4, 50, 10
	for _, test := range []struct {
		name    string
		each    time.Duration // between requests of a limiter
		writes  float64       // a request, at most
		average float64       // the least part of it that a limiter gets
	}{
		{"twice the limit", 40 * time.Millisecond, 1.3, 0.4},
		{"ten times the limit", 8 * time.Millisecond, 0.6, 0.3},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, faults := newTable(t)
			all := make([]*zlimit.RateLimiter, limiters)
			for i := range all {
				all[i] = newLimiter(t, s, zlimit.WithConfigTTL(time.Hour))
			}
			setSystem(t, all[0], zlimit.Limit{Name: "rps", Capacity: capacity, RefillAmount: rate, RefillPeriod: time.Second})
			faults.Reset()
			faults.Inject(enginetest.Fault{Kind: enginetest.Slow, Delay: 20 * time.Millisecond})
			var mu sync.Mutex
			var senders, requests sync.WaitGroup
			var admitted [limiters]int
			offered, ideal, level, at := 0, 0, float64(capacity), time.Now()
			began := at
			for i, l := range all {
				senders.Go(func() { // at random: of senders in step, the same one would always be the first after a token
					for time.Since(began) < 3*time.Second {
						mu.Lock()
						now := time.Now()
						level, at = min(capacity, level+rate*now.Sub(at).Seconds()), now
						if offered++; level >= 1 {
							level--
							ideal++
						}
						mu.Unlock()
						requests.Go(func() {
							_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rps": 1}))
							mu.Lock()
							defer mu.Unlock()
							if err == nil {
								admitted[i]++
							} else if !errors.As(err, new(*zlimit.ExceededError)) {
								t.Errorf("Acquire() = %v", err)
							}
						})
						time.Sleep(test.each/2 + rand.N(test.each))
					}
				})
			}
			senders.Wait()
			requests.Wait()
			sum, least := 0, offered
			for _, n := range admitted {
				sum, least = sum+n, min(least, n)
			}
			if most := capacity + rate*time.Since(began).Seconds(); float64(sum) > most+1 {
				t.Errorf("%d requests are admitted, and the limit allows %.0f", sum, most)
			}
			if float64(sum) < 0.8*float64(ideal) {
				t.Errorf("%d of %d requests are admitted, by an ideal bucket %d", sum, offered, ideal)
			}
			if float64(least*limiters) < test.average*float64(sum) {
				t.Errorf("the limiters have %v of the tokens", admitted)
			}
			if writes := float64(faults.Calls("UpdateItem")) / float64(offered); writes > test.writes {
				t.Errorf("%.2f writes a request, want %v at most", writes, test.writes)
			}
			t.Logf("%d offered, %v admitted, ideal %d, %d writes", offered, admitted, ideal, faults.Calls("UpdateItem"))
		})
	}
}
