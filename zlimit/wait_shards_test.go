package zlimit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestQueuesOfShards, callers of several processes come at the rate of a bucket of eight shards that has a queue of five seconds. They
// look at two shards that they know, so that the queues of shards are alike.
func TestQueuesOfShards(t *testing.T) {
	const rate, queue, callers = 1000, 5, 8000
	for _, test := range []struct {
		processes int
		most      time.Duration
	}{{4, 200 * time.Millisecond}, {40, time.Second}} {
		c := newClock()
		s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
		processes := make([]*zlimit.RateLimiter, test.processes)
		for i := range processes {
			processes[i] = newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithHooks(hooks.Limiter{Sleeper: frozen{c}}))
		}
		setSystem(t, processes[0], zlimit.PerSecond("rpm", rate))
		acquire(t, processes[0], ask(zlimit.Amounts{"rpm": 1}))
		for range 3 {
			split(t, processes[0])
		}
		start := c.now()
		var late, passed []time.Duration
		last := start
		for i := 2; i < callers+queue*rate; i++ {
			if i > (queue+1)*rate {
				c.sleep(time.Second / rate)
			}
			r, err := processes[i%len(processes)].Reserve(t.Context(), ask(zlimit.Amounts{"rpm": 1}), zlimit.MaxWait(time.Minute))
			check.Fatal(t, "Reserve()", err)
			due := r.Due()
			if i < rate {
				continue
			}
			late = append(late, due.Sub(start.Add(time.Duration(i-rate)*time.Second/rate)))
			passed = append(passed, max(last.Sub(due), 0))
			if due.After(last) {
				last = due
			}
		}
		slices.Sort(late)
		slices.Sort(passed)
		at := func(all []time.Duration, percent int) time.Duration {
			return all[(len(all)-1)*percent/100].Round(time.Millisecond)
		}
		t.Logf("%d processes: late by %v, %v and %v, passed by callers who came up to %v, %v and %v later (p50, p99, most)", test.processes,
			at(late, 50), at(late, 99), at(late, 100), at(passed, 50), at(passed, 99), at(passed, 100))
		if worst := max(at(late, 100), at(passed, 100)); worst > test.most {
			t.Errorf("%d processes: a caller is %v later than in one queue", test.processes, worst)
		}
	}
}
