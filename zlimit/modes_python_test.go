package zlimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/sibling"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestModesWithSibling, zlimit and zae-limiter in turn make a limit soft, bypass a resource, and say whether a resource, an entity or
// both charge the parent. Both obey what either of them has stored, and what it has taken back. Each has created one of the entities.
func TestModesWithSibling(t *testing.T) {
	f := newMixedFleet(t, 1, zlimit.WithMixedFleet(), zlimit.WithListing(true))
	ctx, pair := context.Background(), zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
	newChains(t, f.l, []string{"org", "key-1"})
	f.other.Call(t, f.clock.now(), "create_entity", "key-2", sibling.Named{"parent_id": "org", "cascade": true})
	setLimits(t, f.l, zlimit.Level{Entity: "org"}, zlimit.PerMinute("day", 1_000_000))
	both := func(what string, amount int64, want string) {
		t.Helper()
		for _, theirs := range []bool{false, true} {
			if got := f.take(theirs, amount, 0); got != want {
				t.Errorf("%s: %d are %s, want %s; zae-limiter: %t", what, amount, got, want, theirs)
			}
		}
	}
	for _, theirs := range []bool{false, true} {
		soft := zlimit.PerMinute("day", 20).Soft()
		f.set(theirs, []zlimit.Limit{soft}, sibling.Limit{"name": "day", "amount": 20, "soft": true})
		f.clock.sleep(2 * time.Minute)
		both("soft", 50, "admitted")
		f.set(theirs, []zlimit.Limit{zlimit.PerMinute("day", 20)}, sibling.Limit{"name": "day", "amount": 20})
		f.clock.sleep(2 * time.Minute)
		both("hard again", 1, "rejected")
		f.clock.sleep(10 * time.Minute)
		turn := func(how string, change func(context.Context, zlimit.Level, func(zlimit.SwitchReport)) (zlimit.SwitchReport, error)) {
			t.Helper()
			if theirs {
				f.otherSwitches(how, zlimit.Level{Resource: "gpt-4"})
			} else if _, err := change(ctx, zlimit.Level{Resource: "gpt-4"}, nil); err != nil {
				t.Fatalf("change() = %v", err)
			}
			f.clock.sleep(2 * time.Second)
		}
		if got := f.take(theirs, 20, 0); got != "admitted" {
			t.Errorf("all that is left is %s", got)
		}
		turn("bypass", f.l.Limits.Bypass)
		both("bypassed", 50, "admitted")
		f.clock.sleep(70 * time.Second) // past the stamps
		both("bypassed later", 50, "admitted")
		turn("leave", f.l.Limits.LeaveSwitch)
		f.clock.sleep(2 * time.Minute)
		both("enforced again", 21, "rejected")
	}
	f.set(false, []zlimit.Limit{zlimit.PerMinute("day", 1_000_000)})
	f.clock.sleep(2 * time.Minute)
	for step, test := range []struct {
		at      zlimit.Level
		policy  zlimit.CascadePolicy
		charged [2]bool // of key-1 and of key-2
	}{
		{zlimit.Level{Resource: "gpt-4"}, zlimit.CascadeNever, [2]bool{false, false}},
		{zlimit.Level{Entity: "key-1"}, zlimit.CascadeAlways, [2]bool{true, false}},
		{pair, zlimit.CascadeNever, [2]bool{false, false}},
		{zlimit.Level{Resource: "gpt-4"}, zlimit.CascadeInherit, [2]bool{false, true}},
		{pair, zlimit.CascadeInherit, [2]bool{true, true}},
		{zlimit.Level{Entity: "key-1"}, zlimit.CascadeInherit, [2]bool{true, true}},
	} {
		for _, theirs := range []bool{step%2 == 0, step%2 != 0} { // the second one says what the first has said, and both have set each at last
			if theirs {
				f.otherCharges(test.at, test.policy)
			} else if err := f.l.Limits.Update(ctx, test.at, func(c *zlimit.Config) error {
				c.Cascade = test.policy
				return nil
			}); err != nil {
				t.Fatalf("Limits.Update() = %v", err)
			}
			f.clock.sleep(2 * time.Minute)
			for i, entity := range []string{"key-1", "key-2"} {
				before, want := f.charged("org"), int64(0)
				f.other.Take(t, f.clock.now(), sibling.Take{Entity: entity, Consume: map[string]int64{"day": 3}})
				acquire(t, f.l, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"day": 4}})
				if test.charged[i] {
					want = 7
				}
				if got := f.charged("org") - before; got != want {
					t.Errorf("step %d, %v %q, set by zae-limiter: %t: the parent of %s is charged %d, want %d", step, test.at, test.policy, theirs, entity, got, want)
				}
			}
		}
	}
}

// otherCharges makes zae-limiter store whether a level charges the parent.
func (f *mixedFleet) otherCharges(at zlimit.Level, policy zlimit.CascadePolicy) {
	f.Helper()
	method, what, arguments := "set", "resource", []any{at.Resource}
	if at.Entity != "" {
		what, arguments = "entity", []any{at.Entity}
	}
	if policy == zlimit.CascadeInherit {
		method = "clear"
	} else {
		arguments = append(arguments, policy == zlimit.CascadeAlways)
	}
	if at.Entity != "" && at.Resource != "" {
		arguments = append(arguments, at.Resource)
	}
	f.other.Call(f.T, f.clock.now(), method+"_"+what+"_cascade", arguments...)
}

// charged returns what the buckets of an entity have consumed.
func (f *mixedFleet) charged(entity string) (sum int64) {
	f.Helper()
	for _, b := range collect(f, "Entities.Buckets()", f.l.Entities.Buckets(context.Background(), entity)) {
		sum += b.Consumed["day"].Tokens()
	}
	return sum
}
