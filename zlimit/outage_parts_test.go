package zlimit_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestOneHotKey throttles a key: its requests wait for it or follow the policy, and those of all others notice nothing.
func TestOneHotKey(t *testing.T) {
	throttle := throttleOf(store.OfKey)
	for _, rate := range outageRates() {
		fault := func(ctx context.Context, pk string, write bool) error {
			if strings.Contains(pk, "#e7#") {
				return throttle(ctx, pk, write)
			}
			return nil
		}
		inOutage(t, rate, 200, fault, zlimit.PolicyBlock, func(l *load, _ *distant, _ [3]int64, log *faulttest.Log) {
			for _, r := range l.done {
				if r.entity != "e7" && (!r.counted || r.took > 50*time.Millisecond) {
					t.Fatalf("%+v is not decided as usual", r)
				}
			}
			if got := l.limiter.Stats().Outages; got != 0 {
				t.Errorf("%d outages because of one key:\n%s", got, log)
			}
		})
	}
}

// TestASilentPart swallows the calls of a quarter of the keys. The others are decided as usual. Those of a silent key are decided
// immediately when a few of them were not answered.
func TestASilentPart(t *testing.T) {
	isSilent := func(text string) bool {
		h := fnv.New32a()
		h.Write([]byte(text))
		return h.Sum32()%4 == 0
	}
	for _, rate := range outageRates() {
		for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
			t.Run(fmt.Sprintf("%d, %v", rate, policy), func(t *testing.T) {
				fault := func(ctx context.Context, pk string, write bool) error {
					if i := strings.Index(pk, "BUCKET#"); i >= 0 && isSilent(strings.Split(pk[i:], "#")[1]) {
						return unanswered(ctx, pk, write)
					}
					return nil
				}
				inOutage(t, rate, 200, fault, policy, func(l *load, _ *distant, _ [3]int64, log *faulttest.Log) {
					var disturbed, slow, late, waiting int
					var last time.Duration
					unanswered := map[string]int{} // requests by key
					for _, r := range l.done {
						if isSilent(r.entity) && r.at > awayFrom && r.at < awayUntil && r.took > 0 {
							if unanswered[r.entity]++; r.at > awayFrom+4*time.Second && unanswered[r.entity] > 4 {
								waiting++
							}
						}
						switch {
						case !isSilent(r.entity) && (!r.counted || r.took > 100*time.Millisecond):
							if rate < 2000 || r.at < awayFrom || r.at > awayFrom+2500*time.Millisecond { // until then calls of the silent ones are under way
								disturbed++
								last = r.at
							}
						case isSilent(r.entity) && policy == zlimit.PolicyAllow && (r.err != nil || r.took > 250*time.Millisecond):
							slow++
						case r.at > awayUntil+2*time.Second && !r.counted:
							late++
						}
					}
					if waiting > 0 {
						t.Errorf("%d requests of silent keys wait", waiting)
					}
					if disturbed > 0 || slow > 0 || late > 0 {
						t.Errorf("of %d decisions %d of other keys are disturbed, %d too slow, %d not counted after it; last %v, %+v", len(l.done), disturbed, slow, late, last, l.limiter.Stats())
					}
					if lines := strings.Count(log.String(), "\n"); lines > 10 {
						t.Errorf("%d lines:\n%s", lines, log)
					}
				})
			})
		}
	}
}

// TestASilentLevel swallows the calls of the bucket of an entity, or of its parent. Once that is noticed, requests
// are decided immediately. They take nothing of the answering level, to which they would have to give it back.
func TestASilentLevel(t *testing.T) {
	for _, silent := range []string{"key", "team"} {
		t.Run(silent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &distant{Store: store.Of(newMemory(t))}
				limiter := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
				setSystem(t, limiter, zlimit.PerDay("rpd", 1_000_000))
				for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "key", ParentID: "team", Cascade: true}} {
					create(t, limiter, e)
				}
				request := zlimit.Request{Entity: "key", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
				if lease, err := limiter.Acquire(t.Context(), request); err != nil || lease.Degraded() {
					t.Fatalf("Acquire() = %v, %v", lease, err)
				}
				var others atomic.Int64
				fault := func(ctx context.Context, pk string, write bool) error {
					if strings.Contains(pk, "BUCKET#"+silent+"#") {
						return unanswered(ctx, pk, write)
					}
					if strings.Contains(pk, "BUCKET#") {
						others.Add(1)
					}
					return nil
				}
				d.fault.Store(&fault)
				for range 6 {
					_, _ = limiter.Acquire(t.Context(), request)
				}
				time.Sleep(5 * time.Second) // what they began is over
				_, _ = limiter.Acquire(t.Context(), request)
				others.Store(0)
				began := time.Now()
				for range 10 {
					lease, err := limiter.Acquire(t.Context(), request)
					if err != nil || !lease.Degraded() {
						t.Fatalf("Acquire() = %v, %v, want it uncounted", lease, err)
					}
				}
				if took, calls := time.Since(began), others.Load(); took > 0 || calls > 0 {
					t.Errorf("ten requests took %v and %d calls of the level that answers, want none", took, calls)
				}
			})
		})
	}
}

// TestASilentLeader swallows the writes and the consistent reads of half of the keys, and serves the other reads.
// That is a partition without its leader. Requests of the keys follow the policy immediately, until the leader is
// back: the other replicas do not count.
func TestASilentLeader(t *testing.T) {
	isSilent := func(entity string) bool { return entity[len(entity)-1]%2 == 0 }
	fault := func(ctx context.Context, pk string, write bool) error {
		_, entity, ok := strings.Cut(pk, "BUCKET#")
		if ok && isSilent(strings.Split(entity, "#")[0]) && ctx.Value(eventualKey{}) == nil {
			return unanswered(ctx, pk, write)
		}
		return nil
	}
	inOutage(t, 200, 20, fault, zlimit.PolicyBlock, func(l *load, _ *distant, _ [3]int64, _ *faulttest.Log) {
		var waiting, late int
		for _, r := range l.done {
			if isSilent(r.entity) && r.at > awayFrom+2*time.Second && r.at < awayUntil && r.took > 0 {
				waiting++
			}
			if r.at > awayUntil+2*time.Second && !r.counted || !isSilent(r.entity) && !r.counted {
				late++
			}
		}
		if waiting > 0 || late > 0 {
			t.Errorf("%d requests of silent keys wait, and %d are not counted that are of other keys or of later", waiting, late)
		}
	})
}
