package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A siblingCall is a call of zae-limiter as a limiter makes it.
type siblingCall func(context.Context, *zlimit.RateLimiter) error

func takes(entity, resource string, amounts zlimit.Amounts) siblingCall {
	return func(ctx context.Context, l *zlimit.RateLimiter) error {
		_, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: resource, Consume: amounts})
		return err
	}
}

func resets(entity, resource string, limits ...string) siblingCall {
	return func(ctx context.Context, l *zlimit.RateLimiter) error {
		_, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: entity, Resource: resource, Limits: limits})
		return err
	}
}

func disables(at zlimit.Level, enable bool) siblingCall {
	return func(ctx context.Context, l *zlimit.RateLimiter) error {
		do := l.Limits.Disable
		if enable {
			do = l.Limits.Enable
		}
		_, err := do(ctx, at, nil)
		return err
	}
}

// scheduledCalls are the calls that concern times and operators, by their group and name, with the time of one of several.
var scheduledCalls = map[string]map[string]siblingCall{
	"main": {
		"acq carol sch":                  takes("carol", "sch", zlimit.Amounts{"rpm": 1, "tpm": 10}),
		"acq carol sch again":            takes("carol", "sch", zlimit.Amounts{"rpm": 1, "tpm": 10}),
		"acq carol cal 4":                takes("carol", "cal", zlimit.Amounts{"rpd": 4, "rpm": 1}),
		"acq carol cal 8":                takes("carol", "cal", zlimit.Amounts{"rpd": 8, "rpm": 1}),
		"acq carol ses 7":                takes("carol", "ses", zlimit.Amounts{"msgs": 7}),
		"acq carol ses 7 rejected":       takes("carol", "ses", zlimit.Amounts{"msgs": 7}),
		"acq carol ses 7 after window":   takes("carol", "ses", zlimit.Amounts{"msgs": 7}),
		"adjust below: reset_bucket ses": resets("carol", "ses"),
		"reset_bucket cal rpd":           resets("carol", "cal", "rpd"),
		"top_up gpt rpm 50 (bob)": func(ctx context.Context, l *zlimit.RateLimiter) error {
			_, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "bob", Resource: "gpt", Amounts: zlimit.Amounts{"rpm": 50}})
			return err
		},
		"acq bob gpt":                      takes("bob", "gpt", zlimit.Amounts{"rpm": 1}),
		"acq new gpt":                      takes("new", "gpt", zlimit.Amounts{"rpm": 1}),
		"disable_entity bob (no resource)": disables(zlimit.Level{Entity: "bob"}, false),
		"enable_entity bob gpt":            disables(zlimit.Level{Entity: "bob", Resource: "gpt"}, true),
		"disable resource gpt":             disables(zlimit.Level{Resource: "gpt"}, false),
	},
	"minute edges": {
		"acq edge": takes("u", "edge", zlimit.Amounts{"q": 7, "rpm": 1}),
		"acq par":  takes("u", "par", zlimit.Amounts{"rpm": 1}),
	},
	"shards, windows, fan-outs, refunds": {
		"acq ivy window over": takes("ivy", "m", zlimit.Amounts{"rpm": 1, "ses": 1, "day": 1}),
		// Before, there is one shard of two. A call by shard 0 has begun the session, and shard 1 has yet to take part in it.
		"acq ivy@1795456687816": takes("ivy", "m", zlimit.Amounts{"rpm": 1, "ses": 1, "day": 1}),
		"acq ivy@1795456687826": takes("ivy", "m", zlimit.Amounts{"rpm": 1, "ses": 1, "day": 1}),
		"acq ivy@1795456687836": takes("ivy", "m", zlimit.Amounts{"rpm": 1, "ses": 1, "day": 1}),
		"acq ivy@1795456687845": takes("ivy", "m", zlimit.Amounts{"rpm": 1, "ses": 1, "day": 1}),
		"reset_bucket":          resets("ivy", "m", "rpm"),
	},
}

// credited are calls after which zae-limiter has credited the time before a window at the rate of the window.
var credited = []int64{1795456740310, 1795456860330}

// A scene is the items of zae-limiter's table in a limiter's namespace.
type scene map[string]map[string]map[string]any

func (s scene) place(tb testing.TB, l *zlimit.RateLimiter) {
	for _, item := range s {
		pk, sk := item["PK"]["S"].(string), item["SK"]["S"].(string)
		ns, rest, _ := strings.Cut(pk, "/")
		if ns == "_" {
			continue // the registry of namespaces, and the version
		}
		placed := itemOf(tb, item)
		for i, a := range placed {
			if of, ok := strings.CutPrefix(a.Value.Text(), ns); ok && strings.HasPrefix(a.Name, "GSI") && a.Value.Kind() == expr.KindS {
				placed[i].Value = expr.S(l.NS() + of)
			}
		}
		put(tb, l, store.Key{PK: l.NS() + "/" + rest, SK: sk}, placed)
	}
}

// apply changes the scene as a call of zae-limiter did.
func (s scene) apply(call vector) {
	for _, it := range call.Items {
		if it.Before != nil {
			delete(s, it.Before["PK"]["S"].(string)+"|"+it.Before["SK"]["S"].(string))
		}
		if it.After != nil {
			s[it.After["PK"]["S"].(string)+"|"+it.After["SK"]["S"].(string)] = it.After
		}
	}
}

// buckets describes each bucket of the scene at a time, as a limiter finds it in its store. It reports whether requests
// are served, and of each limit the tokens, the count, and when it resets.
func (s scene) buckets(tb testing.TB, l *zlimit.RateLimiter, at int64, loose bool) map[string]string {
	tokens, counted, ends, told := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]string{}
	for _, item := range s {
		pk, sk := item["PK"]["S"].(string), item["SK"]["S"].(string)
		if sk != "#STATE" {
			continue
		}
		_, rest, _ := strings.Cut(pk, "/")
		found := stored(tb, l, store.Key{PK: l.NS() + "/" + rest, SK: sk})
		if found == nil {
			continue
		}
		state, err := layout.ReadState(found)
		if err != nil {
			continue // of a feature that is not obeyed
		}
		bucketName := rest[:strings.LastIndexByte(rest, '#')]
		for i := range state.Limits {
			limit := &state.Limits[i]
			if limit.Name == bucket.WriteUnits {
				continue
			}
			name := bucketName + " " + limit.Name
			tokens[name] += state.Available(limit, max(at, state.RefilledAt))
			counted[name] += limit.Consumed
			if limit.Session() > 0 && limit.Since()+limit.Session()*1000 > at {
				ends[name] = max(ends[name], limit.Since())
			}
			told[name] = fmt.Sprintf("disabled %t", state.Disabled)
		}
	}
	for name := range told {
		left := (tokens[name] + 500) / 1000 // within a few milliseconds
		if loose {
			left = 0
		}
		told[name] += fmt.Sprintf(", %d left, %d counted, in the session of second %d", left, counted[name], ends[name]/1000)
	}
	return told
}

// TestScheduledVectors makes the calls of zae-limiter 0.17.0 about times and operators. They are schedules, calendar
// quotas, sessions, resets, top-ups up to the capacity, and disabled levels. A limiter makes each of them on the
// items as they were before. Its answer, and the bucket afterwards, are those of zae-limiter.
func TestScheduledVectors(t *testing.T) {
	groups, made := loadVectors(t), map[string]int{}
	for group, calls := range scheduledCalls {
		before := scene{}
		for _, vector := range groups[group] {
			name := vector.Call
			if timed := fmt.Sprintf("%s@%d", name, vector.AtMS); calls[timed] != nil {
				name = timed
			}
			if do := calls[name]; do != nil {
				made[group+": "+name]++
				t.Run(fmt.Sprint(group, "/", vector.Call, "/", vector.AtMS), func(t *testing.T) {
					now := func() time.Time { return time.UnixMilli(vector.AtMS + 5) } // the calls took some milliseconds
					ours, theirs := newLimiter(t, newMemory(t), zlimit.WithClock(now)), newLimiter(t, newMemory(t), zlimit.WithClock(now))
					before.place(t, ours)
					err := do(t.Context(), ours)
					switch vector.Result {
					case "ResourceDisabled":
						if !errors.Is(err, zlimit.ErrDisabled) {
							t.Errorf("%v, want ErrDisabled", err)
						}
					case "RateLimitExceeded":
						if !errors.As(err, new(*zlimit.ExceededError)) {
							t.Errorf("%v, want a rejection", err)
						}
					default:
						check.Error(t, "the call", err)
					}
					after := scene{}
					for key, item := range before {
						after[key] = item
					}
					after.apply(vector)
					after.place(t, theirs)
					at, loose := vector.AtMS+100, slices.Contains(credited, vector.AtMS)
					want, got := after.buckets(t, theirs, at, loose), after.buckets(t, ours, at, loose)
					for name := range want {
						if got[name] != want[name] {
							t.Errorf("%s: %s, want %s", name, got[name], want[name])
						}
					}
				})
			}
			before.apply(vector)
		}
	}
	for group, calls := range scheduledCalls {
		for name := range calls {
			if made[group+": "+name] == 0 {
				t.Errorf("no call %q of the group %q", name, group)
			}
		}
	}
}
