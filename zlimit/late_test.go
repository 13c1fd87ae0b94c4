package zlimit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestABrownOut has calls take 1.5 s for ten seconds, which is longer than a request has. The failure policy decides at once, few calls
// are made in vain, and half a second after the end all is as before.
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
					case r.at > awayUntil+time.Second && !r.counted:
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

// TestAPartThatIsSlow has the calls of most keys take 1.5 s. Requests of the others are decided by the store.
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
