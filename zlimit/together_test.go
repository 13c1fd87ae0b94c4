package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// step is what an agent asks for in the tests: two models of key-1 and one of key-2, which share buckets of their team and of all models.
func step(first, second, third int64) []zlimit.Request {
	return []zlimit.Request{
		{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": first}},
		{Entity: "key-1", Resource: "gpt-3", Consume: zlimit.Amounts{"tpd": second}},
		{Entity: "key-2", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": third}},
	}
}

// TestAcquireAll charges each bucket once with the sum, and settles each request by its own lease.
func TestAcquireAll(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newWider(t, s, zlimit.WithClock(newClock().now))
		leases := check.Call(l.AcquireAll(ctx, step(10, 20, 30))).Must(t, "AcquireAll()")
		checkStands(t, l, "key-1 gpt-4 tpd: 50 left, 10 used", "key-1 gpt-3 tpd: 30 left, 20 used", "key-2 gpt-4 tpd: 30 left, 30 used",
			"key-1 models tpd: 70 left, 30 used", "key-2 models tpd: 70 left, 30 used", "team gpt-4 tpd: 40 left, 40 used", "team models tpd: 90 left, 60 used")
		if got := fmt.Sprint(leases.Of(1).Consumed(), leases.Of(2).Statuses()[0].Requested); got != "map[tpd:20] 30" {
			t.Errorf("the second and the third lease are of %v", got)
		}
		err := errors.Join(leases.Of(0).Adjust(zlimit.Amounts{"tpd": 5}), leases.Of(1).Consume(ctx, zlimit.Amounts{"tpd": 1}),
			leases.Of(2).Rollback(ctx), leases.Of(1).Release(zlimit.Amounts{"tpd": 11}), leases.Commit(ctx))
		check.Fatal(t, "Adjust() and Consume() and Rollback() and Release() and Commit()", err)
		checkStands(t, l, "key-1 gpt-4 tpd: 45 left, 15 used", "key-1 gpt-3 tpd: 40 left, 10 used", "key-2 gpt-4 tpd: 60 left, 0 used",
			"key-1 models tpd: 75 left, 25 used", "key-2 models tpd: 100 left, 0 used", "team gpt-4 tpd: 65 left, 15 used", "team models tpd: 125 left, 25 used")
		if err := leases.Rollback(ctx); !errors.Is(err, zlimit.ErrLeaseClosed) {
			t.Errorf("Rollback() after Commit() = %v", err)
		}

		_, err = l.AcquireAll(ctx, step(40, 0, 26)) // of 65 of the team
		var e *zlimit.ExceededError
		if !errors.As(err, &e) || len(e.Violations()) != 1 || e.Violations()[0].Entity != "team" || e.Violations()[0].Resource != "gpt-4" || e.Violations()[0].Requested != 66 {
			t.Errorf("AcquireAll() = %v, want it rejected by the 65 tokens of the team for gpt-4", err)
		}
		twice := step(22, 0, 0)[:1]
		if leases, err = l.AcquireAll(ctx, append(twice, twice[0])); err != nil {
			t.Fatalf("AcquireAll() = %v", err)
		}
		check.Fatal(t, "Rollback()", leases.Of(1).Rollback(ctx))
		checkStands(t, l, "key-1 gpt-4 tpd: 23 left, 37 used", "team gpt-4 tpd: 43 left, 37 used", "key-2 gpt-4 tpd: 60 left, 0 used")
		if got := l.Stats(); got.Admitted != 5 || got.Rejected != 3 {
			t.Errorf("%d requests were admitted and %d rejected, want 5 and 3", got.Admitted, got.Rejected)
		}
	})
}

// TestAcquireAllInput refuses what breaks a rule, before any call where no stored limits are needed.
func TestAcquireAllInput(t *testing.T) {
	s, faults := newTable(t)
	l := newWider(t, s, zlimit.WithClock(newClock().now))
	with := func(change func(r *zlimit.Request)) []zlimit.Request {
		requests := step(1, 1, 1)
		change(&requests[1])
		return requests
	}
	calls := faults.Calls("")
	for want, requests := range map[string][]zlimit.Request{
		`number of requests "0": must be from 1 to 16`:            nil,
		`number of requests "17": must be from 1 to 16`:           make([]zlimit.Request, 17),
		`requests[1] entity "": must not be empty`:                with(func(r *zlimit.Request) { r.Entity = "" }),
		`requests[1] consume "": must name at least one limit`:    with(func(r *zlimit.Request) { r.Consume = nil }),
		`requests[1] priority "batch": must be that of the first`: with(func(r *zlimit.Request) { r.Priority = "batch" }),
		`requests[1] limits "key-1/gpt-4": must be the same for all`: with(func(r *zlimit.Request) {
			r.Entity, r.Resource, r.Limits = "key-1", "gpt-4", []zlimit.Limit{zlimit.PerMinute("tpd", 9)}
		}),
	} {
		_, err := l.AcquireAll(context.Background(), requests)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("AcquireAll() = %v, want %s", err, want)
		}
	}
	if got := faults.Calls(""); got != calls {
		t.Errorf("bad input made %d calls", got-calls)
	}
	_, err := l.AcquireAll(context.Background(), with(func(r *zlimit.Request) { r.Consume = zlimit.Amounts{"rps": 1} }))
	if want := `requests[1] consume "rps": no limit of that name`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("AcquireAll() = %v, want %s", err, want)
	}
	many := make([]zlimit.Request, 16)
	for i := range many {
		parent := ""
		for up := range 5 {
			id := fmt.Sprintf("e-%d-%d", i, up)
			putEntity(t, l, id, parent)
			parent = id
		}
		many[i] = zlimit.Request{Entity: parent, Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 1}}
	}
	_, err = l.AcquireAll(context.Background(), many)
	if invalid := new(zlimit.ValidationError); !errors.As(err, &invalid) || invalid.Value != "160 buckets" || !strings.Contains(invalid.Reason, "at most 64") {
		t.Errorf("AcquireAll() of 160 buckets = %v", err)
	}
	checkStands(t, l, "key-1 gpt-4 tpd: none", "e-0-4 gpt-4 tpd: none")
}

// TestAcquireAllWithLimits admits requests with limits of their own, all or none of them.
func TestAcquireAllWithLimits(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("tpd", 100))
		putChain(t, l, "team", "key-1")
		own := func(entity, resource string, limit, tokens int64) zlimit.Request {
			r := zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"tpd": tokens}}
			if limit > 0 {
				r.Limits = []zlimit.Limit{zlimit.PerDay("tpd", limit)}
			}
			return r
		}
		left := func(entity, resource string, limit, want int64) {
			t.Helper()
			statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: resource, Limits: own("", "", limit, 0).Limits})
			if err != nil || len(statuses) != 1 || statuses[0].Available != want {
				t.Errorf("%s/%s has %v, %v; want %d", entity, resource, statuses, err, want)
			}
		}
		leases, err := l.AcquireAll(ctx, []zlimit.Request{own("ip", "login", 10, 4), own("user", "login", 5, 2), own("user", "login", 5, 1), own("user", "stored", 0, 7)})
		check.Fatal(t, "AcquireAll()", err)
		left("ip", "login", 10, 6)
		left("user", "login", 5, 2)
		left("user", "stored", 0, 93)
		if _, err := l.AcquireAll(ctx, []zlimit.Request{own("ip", "login", 10, 4), own("user", "login", 5, 3)}); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("AcquireAll() = %v, want it rejected by the limit of the user", err)
		}
		left("ip", "login", 10, 6)
		if err := errors.Join(leases.Of(0).Adjust(zlimit.Amounts{"tpd": -3}), leases.Of(1).Rollback(ctx), leases.Commit(ctx)); err != nil {
			t.Errorf("Adjust() and Rollback() and Commit() = %v", err)
		}
		left("ip", "login", 10, 9)
		left("user", "login", 5, 4)
		_, err = l.AcquireAll(ctx, []zlimit.Request{own("key-1", "login", 0, 1), own("team", "login", 5, 1)})
		if invalid(err).Field != "requests[1] limits" || invalid(err).Value != "team/login" {
			t.Errorf("AcquireAll() of a parent by other limits = %v, want a ValidationError of requests[1]", err)
		}
	})
}

// TestAcquireAllSlots divides the slots of a bucket among the leases of its requests: each gives back its own.
func TestAcquireAllSlots(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	putChain(t, l, "team", "key-1")
	putEntity(t, l, "key-2", "team")
	setSystem(t, l, zlimit.Slots("slots", 4), zlimit.PerDay("tpd", 100))
	ask := func(entity string, slots int64) zlimit.Request {
		return zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"slots": slots, "tpd": 1}}
	}
	for range 2 { // of new buckets, and of known ones
		leases := check.Call(l.AcquireAll(ctx, []zlimit.Request{ask("key-1", 1), ask("key-2", 2), ask("key-2", 0)})).Must(t, "AcquireAll()")
		if first, second := leases.Of(0).Fence(), leases.Of(1).Fence(); first == 0 || second <= first || leases.Of(2).Fence() != 0 {
			t.Errorf("the leases have the fencing numbers %d, %d and %d", first, second, leases.Of(2).Fence())
		}
		free := func(want string) {
			t.Helper()
			var got []int64
			for _, entity := range []string{"team", "key-1", "key-2"} {
				all := check.Call(l.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4"})).Must(t, "Available()")
				for _, s := range all {
					if s.Limit.Name == "slots" {
						got = append(got, s.Available)
					}
				}
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%v slots are free, want %s", got, want)
			}
		}
		free("[1 3 2]")
		if _, err := l.AcquireAll(ctx, []zlimit.Request{ask("key-1", 1), ask("key-2", 1)}); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("AcquireAll() = %v, want it rejected by the slots of the team", err)
		}
		check.Fatal(t, "Commit()", leases.Of(1).Commit(ctx))
		free("[3 3 4]")
		check.Fatal(t, "Commit()", leases.Commit(ctx))
		free("[4 4 4]")
	}
	if held := l.Stats().SlotsHeld; held != 0 {
		t.Errorf("%d slots are held", held)
	}
}

// TestAcquireAllOfShards takes a sum that several shards have together. Each lease gives back what it has of each shard.
func TestAcquireAllOfShards(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("tpm", 100), zlimit.PerDay("more", 100))
	acquire(t, l, ask(zlimit.Amounts{"tpm": 0}))
	split(t, l)
	leases, err := l.AcquireAll(ctx, []zlimit.Request{ask(zlimit.Amounts{"tpm": 45}), ask(zlimit.Amounts{"more": 10, "tpm": 45})})
	check.Fatal(t, "AcquireAll()", err)
	expect := func(wantTokens, wantMore int64) {
		t.Helper()
		tokens, used, _ := total(shardsOf(t, l), "tpm")
		more, usedMore, _ := total(shardsOf(t, l), "more")
		if tokens != wantTokens*zlimit.Millis || more != wantMore*zlimit.Millis || used != (100-wantTokens)*zlimit.Millis || usedMore != (100-wantMore)*zlimit.Millis {
			t.Errorf("tpm has %d left and %d used, more %d and %d; want %d and %d tokens left", tokens, used, more, usedMore, wantTokens, wantMore)
		}
	}
	expect(10, 90)
	check.Fatal(t, "Rollback()", leases.Of(1).Rollback(ctx))
	expect(55, 100)
	check.Fatal(t, "Release() and Commit()", errors.Join(leases.Of(0).Release(zlimit.Amounts{"tpm": 40}), leases.Commit(ctx)))
	expect(95, 100)
	if err := leases.Of(0).Commit(ctx); !errors.Is(err, zlimit.ErrLeaseClosed) {
		t.Errorf("a second Commit() = %v", err)
	}
}

// TestAcquireAllModes uses shadow and soft limits, bypasses and guaranteed shares, and gives back what was taken of each.
func TestAcquireAllModes(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("soft", 10).Soft(), zlimit.PerDay("shadow", 10).Shadow(), zlimit.PerDay("tpd", 100).Share("batch", 30))
	ask := func(n int64) zlimit.Request {
		return zlimit.Request{Entity: "key-1", Resource: "gpt-4", Priority: "batch", Consume: zlimit.Amounts{"soft": n, "shadow": n, "tpd": n}}
	}
	acquire(t, l, ask(0))
	leases, err := l.AcquireAll(ctx, []zlimit.Request{ask(6), ask(7)})
	check.Fatal(t, "AcquireAll()", err)
	checkStands(t, l, "key-1 gpt-4 soft: -3 left, 13 used", "key-1 gpt-4 shadow: 10 left, 13 used", "key-1 gpt-4 tpd: 70 left, 0 used",
		"key-1 gpt-4 tpd/batch: 17 left, 13 used")
	check.Fatal(t, "Rollback()", leases.Of(1).Rollback(ctx))
	checkStands(t, l, "key-1 gpt-4 soft: 4 left, 6 used", "key-1 gpt-4 shadow: 10 left, 6 used", "key-1 gpt-4 tpd/batch: 24 left, 6 used")
	if _, err := l.Limits.Bypass(ctx, zlimit.Level{Entity: "key-1"}, nil); err != nil {
		t.Fatalf("Limits.Bypass() = %v", err)
	}
	if leases, err = l.AcquireAll(ctx, []zlimit.Request{ask(1000), ask(2000)}); err != nil {
		t.Fatalf("AcquireAll() = %v", err)
	}
	check.Fatal(t, "Rollback()", leases.Of(0).Rollback(ctx))
	checkStands(t, l, "key-1 gpt-4 soft: 4 left, 2006 used", "key-1 gpt-4 shadow: 10 left, 2006 used")
}

// TestAcquireAllFaults loses the reply of one of the writes of requests together. Nothing else stays charged. An outage is that of the
// strictest policy.
func TestAcquireAllFaults(t *testing.T) {
	s, faults := newTable(t)
	l := newWider(t, s, zlimit.WithClock(newClock().now))
	ctx := context.Background()
	requests := step(1, 1, 1)
	charges := []int{1, 1, 1, 2, 1, 2, 3} // of the seven buckets
	used := func() (all [7]int) {
		for i, at := range []string{"key-1 gpt-4", "key-1 gpt-3", "key-2 gpt-4", "key-1 models", "key-2 models", "team gpt-4", "team models"} {
			f := strings.Fields(at)
			var tokens int
			if _, err := fmt.Sscanf(stands(t, l, f[0], f[1], "tpd"), "%d left, %d used", &tokens, &all[i]); err != nil {
				t.Fatalf("fmt.Sscanf() = %v", err)
			}
		}
		return all
	}
	for range 2 {
		if _, err := l.AcquireAll(ctx, requests); err != nil {
			t.Fatalf("AcquireAll() = %v", err)
		}
	}
	for hit := range 7 {
		before := used()
		faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Operation: "UpdateItem", Skip: hit, Times: 1})
		if hit == 0 {
			requests[0].OnUnavailable, requests[1].OnUnavailable = zlimit.PolicyAllow, zlimit.PolicyAllow // and not the third one
		}
		var outage *zlimit.UnavailableError
		if _, err := l.AcquireAll(ctx, requests); !errors.As(err, &outage) || !outage.Unknown || outage.Op != zlimit.OpAcquireAll {
			t.Errorf("AcquireAll() = %v, want an UnavailableError with an unknown outcome", err)
		}
		lost := 0
		for i, now := range used() {
			switch now - before[i] {
			case 0:
			case charges[i]:
				lost++
			default:
				t.Errorf("write %d: bucket %d is charged %d", hit, i, now-before[i])
			}
		}
		if lost != 1 {
			t.Errorf("write %d: %d buckets are charged beyond what was admitted, want the one whose reply was lost", hit, lost)
		}
	}
	faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Operation: "UpdateItem", Times: 1})
	requests[2].OnUnavailable = zlimit.PolicyAllow
	leases, err := l.AcquireAll(ctx, requests)
	if err != nil || !leases.Of(0).Degraded() || !leases.Of(2).Degraded() {
		t.Errorf("AcquireAll() = %v, want degraded leases", err)
	}
}

// In TestAcquireAllOnce, a caller gives up while calls for several buckets are under way. Its error says so once.
func TestAcquireAllOnce(t *testing.T) {
	s := hook(newMemory(t))
	l := newWider(t, zlimit.StoreOn(s), zlimit.WithClock(newClock().now))
	leases := check.Call(l.AcquireAll(context.Background(), step(1, 1, 1))).Must(t, "AcquireAll()")
	ctx, cancel := context.WithCancel(context.Background())
	s.set(func(...store.Write) error {
		cancel()
		return &store.Error{Op: "write", Err: context.Canceled}
	})
	for call, err := range map[string]error{
		"AcquireAll": func() error { _, err := l.AcquireAll(ctx, step(1, 1, 1)); return err }(),
		"Commit":     errors.Join(leases.Of(0).Adjust(zlimit.Amounts{"tpd": 1}), leases.Of(1).Adjust(zlimit.Amounts{"tpd": 1}), leases.Commit(ctx)),
	} {
		if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s() = %v, want one line", call, err)
		}
	}
}

// TestAcquireAllAtOnce lets processes take the same buckets together in any order, and settle in any way. No request is half taken: in the
// end each bucket has counted what the leases hold.
func TestAcquireAllAtOnce(t *testing.T) {
	ctx := context.Background()
	s, c := newMemory(t), newClock()
	limiters := []*zlimit.RateLimiter{newWider(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))}
	var mu sync.Mutex
	held := map[string]int64{}
	note := func(entity, resource string, n int64) {
		mu.Lock()
		defer mu.Unlock()
		held[entity+" "+resource] += n
		held[entity+" models"] += n
		if resource == "gpt-4" {
			held["team gpt-4"] += n
		}
		held["team models"] += n
	}
	try := func(l *zlimit.RateLimiter, random *rand.Rand) {
		requests := make([]zlimit.Request, 1+random.IntN(4))
		for i := range requests {
			requests[i] = zlimit.Request{
				Entity: []string{"key-1", "key-2"}[random.IntN(2)], Resource: []string{"gpt-4", "gpt-3"}[random.IntN(2)],
				Consume: zlimit.Amounts{"tpd": int64(random.IntN(4))},
			}
			if requests[i].Resource == "gpt-3" {
				requests[i].Entity = "key-1"
			}
		}
		leases, err := l.AcquireAll(ctx, requests)
		if err != nil {
			if !errors.As(err, new(*zlimit.ExceededError)) {
				t.Errorf("AcquireAll() = %v", err)
			}
			return
		}
		all := random.IntN(2) == 0
		for i, r := range requests {
			n := leases.Of(i).Consumed()["tpd"]
			switch random.IntN(3) {
			case 0:
				check.Error(t, "Rollback()", leases.Of(i).Rollback(ctx))
				n = 0
			case 1:
				check.Error(t, "Release()", leases.Of(i).Release(zlimit.Amounts{"tpd": n / 2}))
				n -= n / 2
			}
			if !all {
				if err := leases.Of(i).Commit(ctx); err != nil && !errors.Is(err, zlimit.ErrLeaseClosed) {
					t.Errorf("Commit() = %v", err)
				}
			}
			note(r.Entity, r.Resource, n)
		}
		if err := leases.Commit(ctx); err != nil && !errors.Is(err, zlimit.ErrLeaseClosed) {
			t.Errorf("Commit() = %v", err)
		}
	}
	var group sync.WaitGroup
	for i, l := range limiters {
		for j := range 4 {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for range 100 {
					try(l, random)
				}
			})
		}
	}
	group.Wait()
	for at, capacity := range map[string]int64{"key-1 gpt-4": 60, "key-1 gpt-3": 50, "key-2 gpt-4": 60, "key-1 models": 100, "key-2 models": 100, "team gpt-4": 80, "team models": 150} {
		checkStands(t, limiters[0], fmt.Sprintf("%s tpd: %d left, %d used", at, capacity-held[at], held[at]))
	}
	if held["team models"] < 100 {
		t.Errorf("%d tokens of the team were admitted, want most of its 150", held["team models"])
	}
}
