package zlimit_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestABrownOut, calls take 1.5 s for ten seconds, which is longer than a request has. The failure policy decides immediately, and few
// calls are made without success. A good second after the end all is as before: a trial that has just begun is answered late.
func TestABrownOut(t *testing.T) {
	slow := func(ctx context.Context, _ string, write bool) error {
		select {
		case <-time.After(1500 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return &store.Error{Op: "call", Unavailable: true, Unknown: write, Err: ctx.Err()}
		}
	}
	for name, test := range map[string]struct {
		policy zlimit.FailurePolicy
		opts   []zlimit.Option
	}{
		"allow":           {zlimit.PolicyAllow, nil},
		"block for 300ms": {zlimit.PolicyBlock, []zlimit.Option{zlimit.WithDecisionTimeout(300 * time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			inOutage(t, 400, 200, slow, test.policy, func(l *load, _ *distant, calls [3]int64, _ *faulttest.Log) {
				var waiting, late int
				for _, r := range l.done {
					switch {
					case r.at > awayFrom+time.Second && r.at < awayUntil-time.Second && r.took > 0:
						waiting++
					case r.at > awayUntil+1250*time.Millisecond && !r.counted:
						late++
					}
				}
				if waiting > 8*5 || late > 0 {
					t.Errorf("%d requests wait in eight seconds, want five a second at most, and %d are not counted after it", waiting, late)
				}
				if calls[1] > calls[0]/2 || calls[2] > 5*calls[0]*5/4 {
					t.Errorf("%d calls in the ten seconds and %d in those after it; %d are usual", calls[1], calls[2], 5*calls[0])
				}
			}, test.opts...)
		})
	}
}

// In TestAPartThatIsSlow, the calls of most keys take 1.5 s. The store decides the requests of the others.
func TestAPartThatIsSlow(t *testing.T) {
	isSlow := func(entity string) bool { return entity[len(entity)-1] != '7' }
	fault := func(_ context.Context, pk string, _ bool) error {
		if _, entity, ok := strings.Cut(pk, "BUCKET#"); ok && isSlow(strings.Split(entity, "#")[0]) {
			time.Sleep(1500 * time.Millisecond)
		}
		return nil
	}
	inOutage(t, 100, 200, fault, zlimit.PolicyAllow, func(l *load, _ *distant, _ [3]int64, _ *faulttest.Log) {
		away := 0
		for _, r := range l.done {
			if !isSlow(r.entity) && !r.counted && r.at > awayFrom+time.Second && r.at < awayUntil {
				away++
			}
		}
		if away > 5 {
			t.Errorf("%d requests of keys that answer are not counted", away)
		}
	})
}

// In TestSlotsThatComeTooLate, the policy decides requests for slots, and the store gives the slots later. No one holds them, so that they
// are free.
func TestSlotsThatComeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := []zlimit.Limit{zlimit.Slots("slots", 3), zlimit.PerDay("rpd", 100)}
		l, s := faulttest.New(t, limits, zlimit.WithFailurePolicy(zlimit.PolicyAllow))
		r := zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"slots": 1, "rpd": 1}}
		kept := acquire(t, l, r)
		s.Break(faulttest.Slow(400 * time.Millisecond))
		for range 12 { // from the ninth on no caller waits
			lease, err := l.Acquire(t.Context(), r)
			if err != nil || !lease.Degraded() {
				t.Fatalf("Acquire() = %v, %v, want it to be degraded", lease, err)
			}
			time.Sleep(2 * time.Second)
			check.Error(t, "Commit()", lease.Commit(t.Context()))
		}
		s.Break(nil)
		if held := l.Stats().SlotsHeld; held != 1 {
			t.Errorf("%d slots are held, want that of the lease in time", held)
		}
		check.Error(t, "Commit()", kept.Commit(t.Context()))
		if stats := l.Stats(); stats.SlotsHeld != 0 || stats.SlotsLost != 0 || stats.SlotsTaken < 2 {
			t.Errorf("of %d slots taken %d are held and %d are lost, want none", stats.SlotsTaken, stats.SlotsHeld, stats.SlotsLost)
		}
	})
}
