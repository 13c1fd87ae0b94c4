package dynamo_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// TestRetryBudget throttles every attempt. Calls repeat attempts until a hundred repetitions were in vain, and then make one
// attempt each. Each success is worth a fifth of a repetition, and a repetition that succeeds costs nothing. Nor does one
// after a throttle of the key.
func TestRetryBudget(t *testing.T) {
	throttled, fine := reply{status: 400, body: exception("ThrottlingException")}, reply{status: 200, body: counted7}
	key := reply{status: 400, body: exception("ThrottlingException", `,"throttlingReasons":[{"reason":"TableWriteKeyRangeThroughputExceeded"}]`)}
	for way, options := range ways {
		synctest.Test(t, func(t *testing.T) {
			sent := &script{}
			s := dynamo.New(storeClient(sent, provide(staticKey)), "table", storetest.Table, nil, options...)
			// attempts returns how many requests some calls make, whose replies a script has, the last one again and again.
			attempts := func(calls int, want store.Outcome, replies ...reply) int {
				sent.replies, sent.requests = replies, nil
				for range calls {
					if _, err := s.Write(t.Context(), count(t, one)); store.OutcomeOf(err) != want {
						t.Fatalf("%s: Write() = %v, outcome %d, want %d", way, err, store.OutcomeOf(err), want)
					}
				}
				return len(sent.requests)
			}
			if got := attempts(200, store.Throttled, key); got != 600 {
				t.Errorf("%s: 200 calls of a throttled key make %d attempts, want 600", way, got)
			}
			if got := attempts(200, store.Throttled, throttled); got != 300 {
				t.Errorf("%s: 200 throttled calls make %d attempts, want 300", way, got)
			}
			attempts(10, store.Outcome(0), fine)
			if got := attempts(10, store.Throttled, throttled); got != 12 {
				t.Errorf("%s: 10 throttled calls make %d attempts after 10 successes, want 12", way, got)
			}
			attempts(5, store.Outcome(0), fine)
			for range 3 {
				if got := attempts(1, store.Outcome(0), throttled, fine); got != 2 {
					t.Errorf("%s: a call that succeeds again makes %d attempts, want 2", way, got)
				}
			}
		})
	}
}

// TestPausesAfterConflicts measures the pauses of a call whose first two attempts meet another transaction, which is over in milliseconds,
// beside the pauses of one that is throttled twice.
func TestPausesAfterConflicts(t *testing.T) {
	fine := reply{status: 200, body: counted7}
	for way, options := range ways {
		synctest.Test(t, func(t *testing.T) {
			// pauses returns the shortest and the longest time that a call takes whose first two attempts fail with a code.
			pauses := func(code string) (shortest, longest time.Duration) {
				shortest = time.Hour
				failed := reply{status: 400, body: exception(code)}
				for range 50 {
					sent := &script{replies: []reply{failed, failed, fine}}
					s := dynamo.New(storeClient(sent, provide(staticKey)), "table", storetest.Table, nil, options...)
					began := time.Now()
					if _, err := s.Write(t.Context(), count(t, one)); err != nil {
						t.Fatalf("%s: Write() = %v", way, err)
					}
					shortest, longest = min(shortest, time.Since(began)), max(longest, time.Since(began))
				}
				return shortest, longest
			}
			if shortest, longest := pauses("TransactionConflictException"); shortest < 10*time.Millisecond || longest >= 30*time.Millisecond {
				t.Errorf("%s: two pauses after conflicts take %v to %v, want 10 to 30 ms", way, shortest, longest)
			}
			if _, longest := pauses("ThrottlingException"); longest < 75*time.Millisecond {
				t.Errorf("%s: two pauses after throttles take at most %v, want up to 150 ms", way, longest)
			}
		})
	}
}
