package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newWider returns a limiter on which key-1 cascades to team, and gpt-4 and gpt-3 lie within models, and that within all.
//
//	          gpt-4         gpt-3    models             all
//	key-1     60 tpd        50 tpd   100 tpd, 500 usd   -
//	team      80 tpd        -        150 tpd, 600 usd   7 rpd
func newWider(t *testing.T, s zlimit.Store, opts ...zlimit.Option) *zlimit.RateLimiter {
	t.Helper()
	ctx := context.Background()
	l := newLimiter(t, s, opts...)
	putChain(t, l, "team", "key-1")
	putEntity(t, l, "key-2", "team")
	config := func(limits ...zlimit.Limit) zlimit.Config { return zlimit.Config{Limits: limits} }
	err := errors.Join(
		l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, config(zlimit.PerDay("tpd", 60))),
		l.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-3"}, config(zlimit.PerDay("tpd", 50))),
		l.Limits.Set(ctx, zlimit.Level{Resource: "models"}, config(zlimit.PerDay("tpd", 100), zlimit.PerDay("usd", 500))),
		l.Limits.Set(ctx, zlimit.Level{Entity: "team", Resource: "gpt-4"}, config(zlimit.PerDay("tpd", 80))),
		l.Limits.Set(ctx, zlimit.Level{Entity: "team", Resource: "models"}, config(zlimit.PerDay("tpd", 150), zlimit.PerDay("usd", 600))),
		l.Limits.Set(ctx, zlimit.Level{Entity: "team", Resource: "all"}, config(zlimit.PerDay("rpd", 7))),
		l.Resources.Put(ctx, zlimit.Resource{ID: "models", Within: "all"}),
		l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Within: "models"}),
		l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-3", Within: "models"}),
	)
	if err != nil {
		t.Fatalf("Limits.Set() and Limits.Set() and Limits.Set() and Limits.Set() and Limits.Set() and Limits.Set() and Resources.Put() and Resources.Put() and Resources.Put() = %v", err)
	}
	enginetest.CatchUp()
	return l
}

// stands returns what a limit has and counts, in tokens, over the shards of a bucket; the capacity and 0 for a bucket that does not exist.
func stands(tb testing.TB, l *zlimit.RateLimiter, entity, resource, limit string) (text string) {
	tb.Helper()
	items, err := l.Table().Read(context.Background(), layout.BucketKey{NS: l.NS(), Entity: entity, Resource: resource}.Key())
	if err != nil || items[0] == nil {
		return "none"
	}
	item := check.Call(layout.DecodeBucket(items[0])).Must(tb, "layout.DecodeBucket()")
	for _, l := range item.Limits {
		if l.Name == limit {
			return fmt.Sprintf("%d left, %d used", l.Tokens/zlimit.Millis, l.Consumed/zlimit.Millis)
		}
	}
	return "none"
}

// checkStands compares where limits stand with lines of "entity resource limit: N left, N used".
func checkStands(t *testing.T, l *zlimit.RateLimiter, want ...string) {
	t.Helper()
	for _, line := range want {
		name, figures, _ := strings.Cut(line, ": ")
		f := strings.Fields(name)
		if got := stands(t, l, f[0], f[1], f[2]); got != figures {
			t.Errorf("%s: %s, want %s", name, got, figures)
		}
	}
}

// TestWithin charges entities × resources, all or none, and settles leases on all of them.
func TestWithin(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newWider(t, s, zlimit.WithClock(newClock().now))
		lease := acquire(t, l, ask(zlimit.Amounts{"tpd": 40, "usd": 100})) // the limit usd is that of the wider resource alone
		if got := lease.Statuses(); len(got) != 7 || got[0].Resource != "gpt-4" || got[1].Resource != "models" || got[1].Ancestor != 0 || got[1].Wider != 1 || got[6].Wider != 2 || got[6].Ancestor != 1 || got[6].Resource != "all" {
			t.Errorf("Statuses() = %v", got)
		}
		checkStands(t, l, "key-1 gpt-4 tpd: 20 left, 40 used", "key-1 models tpd: 60 left, 40 used", "key-1 models usd: 400 left, 100 used",
			"team gpt-4 tpd: 40 left, 40 used", "team models tpd: 110 left, 40 used", "team models usd: 500 left, 100 used", "team all rpd: none")
		err := errors.Join(lease.Consume(ctx, zlimit.Amounts{"usd": 50}), lease.Adjust(zlimit.Amounts{"tpd": -10, "usd": 7}), lease.Commit(ctx))
		check.Fatal(t, "Consume() and Adjust() and Commit()", err)
		checkStands(t, l, "key-1 gpt-4 tpd: 30 left, 30 used", "key-1 models tpd: 70 left, 30 used", "key-1 models usd: 343 left, 157 used",
			"team gpt-4 tpd: 50 left, 30 used", "team models tpd: 120 left, 30 used", "team models usd: 443 left, 157 used")

		cheap := zlimit.Request{Entity: "key-1", Resource: "gpt-3", Consume: zlimit.Amounts{"tpd": 50, "usd": 1}}
		check.Fatal(t, "Rollback()", acquire(t, l, cheap).Rollback(ctx))
		acquire(t, l, cheap)
		checkStands(t, l, "key-1 gpt-3 tpd: 0 left, 50 used", "key-1 models tpd: 20 left, 80 used", "team models tpd: 70 left, 80 used", "team gpt-3 tpd: none")

		e := reject(t, l, ask(zlimit.Amounts{"tpd": 21, "usd": 1})) // of 30 of the model, and 20 of all models
		if v := e.Violations(); len(v) != 1 || v[0].Entity != "key-1" || v[0].Resource != "models" || v[0].Available != 20 || !strings.Contains(e.Error(), "key-1/models tpd") {
			t.Errorf("Acquire() = %v, want it rejected by the models of key-1", e)
		}
		checkStands(t, l, "key-1 gpt-4 tpd: 30 left, 30 used", "key-1 models tpd: 20 left, 80 used", "team gpt-4 tpd: 50 left, 30 used", "team models tpd: 70 left, 80 used")

		all, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4", Parents: true})
		if err != nil || len(all) != 7 {
			t.Errorf("Available() = %v, %v, want all seven limits", all, err)
		}
		if own, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"}); err != nil || len(own) != 1 {
			t.Errorf("Available() = %v, %v, want the limit of gpt-4", own, err)
		}
		wait, err := l.TimeUntil(ctx, ask(zlimit.Amounts{"tpd": 21}))
		if err != nil || wait != 864*time.Second { // one token of 100 a day
			t.Errorf("TimeUntil() = %v, %v, want 14m24s", wait, err)
		}
	})
}

// TestWithinInput asks for limits that no level has, and stores what makes no sense.
func TestWithinInput(t *testing.T) {
	ctx := context.Background()
	s := newDown(store.Of(newMemory(t)))
	l := newWider(t, zlimit.StoreOn(s), zlimit.WithClock(newClock().now))
	invalid := func(what string, err error, field, text string) {
		t.Helper()
		var e *zlimit.ValidationError
		if !errors.As(err, &e) || e.Field != field || !strings.Contains(e.Error(), text) {
			t.Errorf("%s: %v, want a ValidationError of %s with %q", what, err, field, text)
		}
	}
	_, err := l.Acquire(ctx, ask(zlimit.Amounts{"eur": 1}))
	invalid("an unknown limit", err, "consume", "key-1/gpt-4, key-1/models, key-1/all, team/gpt-4, team/models, team/all, which have tpd, usd, rpd")
	// The limit of team for all is none of key-1, and suffices.
	if s, _ := acquire(t, l, ask(zlimit.Amounts{"rpd": 1})).Statuses().Limit("rpd"); s.Entity != "team" {
		t.Errorf("a limit of the parent has the status %+v", s)
	}
	if _, err := l.Acquire(ctx, zlimit.Request{Entity: "nobody", Resource: "all", Consume: zlimit.Amounts{"rpd": 1}}); !errors.Is(err, zlimit.ErrNoLimits) {
		t.Errorf("Acquire() = %v, want ErrNoLimits", err)
	}
	lease := acquire(t, l, ask(zlimit.Amounts{"usd": 1}))
	invalid("a correction", lease.Adjust(zlimit.Amounts{"eur": 1}), "adjust[eur]", "tpd, usd")

	before := s.calls.Load()
	put := func(id, within string) error { return l.Resources.Put(ctx, zlimit.Resource{ID: id, Within: within}) }
	invalid("itself", put("gpt-4", "gpt-4"), "within", "another resource")
	invalid("a reserved one", put("gpt-4", zlimit.DefaultResource), "within", "reserved")
	invalid("a bad name", put("gpt-4", "a#b"), "within", "#")
	invalid("no name", put("", "models"), "resource", "")
	invalid("an entity", l.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, zlimit.Config{Within: "models"}), "within", "resources alone")
	if made := s.calls.Load() - before; made != 0 {
		t.Errorf("bad input took %d calls", made)
	}
	writes := s.wrote.Load()
	invalid("a circle", put("all", "gpt-4"), "within", "all within gpt-4 within models within all")
	invalid("a circle of two", l.Limits.Set(ctx, zlimit.Level{Resource: "models"}, zlimit.Config{Within: "gpt-3"}), "within", "gpt-3 within models within gpt-3")
	invalid("four resources", put("all", "everything"), "within", "models within all within everything")
	invalid("four resources", put("tiny", "gpt-4"), "within", "tiny within gpt-4 within models within all")
	invalid("an unknown one", put("gpt-4", "modles"), "within", "has no limits")
	invalid("an unknown one", l.Limits.Update(ctx, zlimit.Level{Resource: "gpt-4"}, func(c *zlimit.Config) error {
		c.Within = "modles"
		return nil
	}), "within", "has no limits")
	if made := s.wrote.Load() - writes; made != 0 {
		t.Errorf("resources that make no sense took %d writes", made)
	}
}

// TestWithinCircles makes a circle, as two writers at the same time may, and a program that checks none. Requests are refused with
// the names.
func TestWithinCircles(t *testing.T) {
	ctx := context.Background()
	l := newWider(t, newMemory(t), zlimit.WithClock(newClock().now))
	err := l.Managed.Run(ctx, func(ctx context.Context, r *zlimit.ManagedRun) error {
		at := zlimit.Level{Resource: "all"}
		_, err := r.Replace(ctx, zlimit.Stored{Level: at}, zlimit.Stored{Level: at, Config: zlimit.Config{Within: "gpt-4"}})
		return err
	})
	check.Fatal(t, "Managed.Run()", err)
	if _, err := l.Acquire(ctx, ask(zlimit.Amounts{"tpd": 1})); err == nil || !strings.Contains(err.Error(), `"gpt-4" lies within itself or more than 2 others: gpt-4 within models within all within gpt-4`) {
		t.Errorf("Acquire() = %v", err)
	}
	if err := l.Resources.Put(ctx, zlimit.Resource{ID: "all"}); err != nil { // it was so before
		t.Fatalf("Resources.Put() = %v", err)
	}
	acquire(t, l, ask(zlimit.Amounts{"tpd": 1}))
}

// TestWithinStays changes and deletes limits of a resource, which stays within the wider one until Put or Update says otherwise.
func TestWithinStays(t *testing.T) {
	ctx := context.Background()
	l := newWider(t, newMemory(t), zlimit.WithClock(newClock().now))
	at := zlimit.Level{Resource: "gpt-4"}
	within := func(want string) {
		t.Helper()
		if r, err := l.Resources.Get(ctx, "gpt-4"); err != nil || r.Within != want || r.ID != "gpt-4" {
			t.Errorf("Get() = %+v, %v, want it within %q", r, err, want)
		}
	}
	within("models")
	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 5)}}
	check.Fatal(t, "Limits.Set() and Limits.Delete()", errors.Join(l.Limits.Set(ctx, at, limits), l.Limits.Delete(ctx, at)))
	within("models")
	acquire(t, l, ask(zlimit.Amounts{"tpd": 70})) // by those of models
	checkStands(t, l, "key-1 models tpd: 30 left, 70 used", "key-1 gpt-4 tpd: none")
	if _, err := l.Limits.Apply(ctx, zlimit.Declaration{Resource: "gpt-4", Limits: limits.Limits}); err != nil {
		t.Fatalf("Limits.Apply() = %v", err)
	}
	within("models")
	check.Fatal(t, "Resources.Put()", l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Within: "all"}))
	within("all")
	if applied, err := l.Limits.Apply(ctx, zlimit.Declaration{Resource: "gpt-4", Limits: []zlimit.Limit{zlimit.PerDay("tpd", 6)}}); err != nil || len(applied.Set) != 1 {
		t.Errorf("Apply() = %v, %v, want the limits to be those of Apply still", applied, err)
	}
	check.Fatal(t, "Resources.Put()", l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4"}))
	within("")
	var ids []string
	for _, r := range collect(t, "Resources.List()", l.Resources.List(ctx)) {
		ids = append(ids, r.ID+">"+r.Within)
	}
	if got := strings.Join(ids, " "); got != "gpt-3>models gpt-4> models>all" {
		t.Errorf("List() = %s", got)
	}
	var last map[string]any
	for _, e := range collect(t, "Audit.Events()", l.Audit.Events(ctx, zlimit.AuditResource("models"), zlimit.AuditQuery{})) {
		last = e.Details
	}
	if last["within"] != "all" {
		t.Errorf("the last event of models has %v", last)
	}
}

// TestWithinDisabled refuses requests of a resource where a wider one is disabled: as a whole, for the entity, or for its parent. A process
// that has all of it in memory notices at its next write. A wider resource that the entity has no limits for counts as well.
func TestWithinDisabled(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		at     zlimit.Level
		entity string // whose bucket refuses
		read   bool   // the level shows it, and no bucket
	}{
		{zlimit.Level{Resource: "models"}, "key-1", false},
		{zlimit.Level{Entity: "key-1", Resource: "models"}, "key-1", false},
		{zlimit.Level{Entity: "team", Resource: "models"}, "team", false},
		{zlimit.Level{Entity: "key-1", Resource: "all"}, "key-1", true},
	} {
		s, clock := newMemory(t), newClock()
		operator, l := newWider(t, s, zlimit.WithClock(clock.now)), newLimiter(t, s, zlimit.WithClock(clock.now))
		request := ask(zlimit.Amounts{"tpd": 1})
		acquire(t, l, request)
		lease := acquire(t, l, request)
		if _, err := operator.Limits.Disable(ctx, c.at, nil); err != nil {
			t.Fatalf("Limits.Disable() = %v", err)
		}
		if c.read {
			l.Limits.InvalidateAll() // as after the time of WithConfigTTL
		}
		var disabled *zlimit.DisabledError
		for range 2 {
			if _, err := l.Acquire(ctx, request); !errors.As(err, &disabled) || disabled.Entity != c.entity || disabled.Resource != c.at.Resource {
				t.Errorf("%v is disabled: Acquire() = %v", c.at, err)
			}
		}
		if err := lease.Rollback(ctx); err != nil {
			t.Errorf("%v is disabled: Rollback() = %v", c.at, err)
		}
		checkStands(t, l, "key-1 gpt-4 tpd: 59 left, 1 used", "key-1 models tpd: 99 left, 1 used", "team models tpd: 149 left, 1 used")
		if _, err := operator.Limits.LeaveSwitch(ctx, c.at, nil); err != nil {
			t.Fatalf("Limits.LeaveSwitch() = %v", err)
		}
		clock.sleep(2 * time.Second)
		if _, err := l.Acquire(ctx, request); err != nil {
			t.Errorf("%v is enabled: Acquire() = %v", c.at, err)
		}
	}
}

// TestWithinFaults loses the reply of one of the writes of a request. Nothing else stays charged.
func TestWithinFaults(t *testing.T) {
	s, faults := newTable(t)
	l := newWider(t, s, zlimit.WithClock(newClock().now))
	request := ask(zlimit.Amounts{"tpd": 1})
	for range 2 {
		acquire(t, l, request)
	}
	used := func() (sum int) {
		for _, at := range []string{"key-1 gpt-4", "key-1 models", "team gpt-4", "team models"} {
			f := strings.Fields(at)
			var tokens, count int
			if _, err := fmt.Sscanf(stands(t, l, f[0], f[1], "tpd"), "%d left, %d used", &tokens, &count); err != nil {
				t.Fatalf("fmt.Sscanf() = %v", err)
			}
			sum += count
		}
		return sum
	}
	for hit := range 4 {
		before := used()
		faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Operation: "UpdateItem", Skip: hit, Times: 1})
		var outage *zlimit.UnavailableError
		if _, err := l.Acquire(context.Background(), request); !errors.As(err, &outage) || !outage.Unknown {
			t.Errorf("Acquire() = %v, want an UnavailableError with an unknown outcome", err)
		}
		if got := used() - before; got != 1 { // of the write whose reply was lost
			t.Errorf("write %d: %d are charged beyond what was admitted, want 1", hit, got)
		}
	}
}

// TestWithinAtOnce lets several processes take from several models of one budget at once, until it is spent. Each bucket counts what was
// admitted, and no more than the budget is.
func TestWithinAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		limiters := []*zlimit.RateLimiter{newWider(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))}
		var mu sync.Mutex
		admitted := map[string]int{}
		try := func(l *zlimit.RateLimiter, entity, resource string) {
			_, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"tpd": 1}})
			if err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
				t.Errorf("Acquire() = %v", err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				admitted[entity+" "+resource]++
			}
		}
		entities, resources := []string{"key-1", "key-2"}, []string{"gpt-4", "gpt-3"}
		var group sync.WaitGroup
		for _, l := range limiters {
			for range 4 {
				group.Go(func() {
					for range 25 {
						try(l, entities[rand.IntN(2)], resources[rand.IntN(2)])
					}
				})
			}
		}
		group.Wait()
		for i := range 200 { // what was on its way to a bucket that had no room may have kept others out
			try(limiters[i%3], entities[i%2], resources[i/2%2])
		}
		a, b := admitted["key-1 gpt-4"]+admitted["key-1 gpt-3"], admitted["key-2 gpt-4"]+admitted["key-2 gpt-3"]
		if a+b != 150 {
			t.Errorf("admitted %d, want the 150 of the team over all models", a+b)
		}
		l := limiters[0]
		both := admitted["key-1 gpt-4"] + admitted["key-2 gpt-4"]
		checkStands(t, l, "team models tpd: 0 left, 150 used",
			fmt.Sprintf("key-1 models tpd: %d left, %d used", 100-a, a), fmt.Sprintf("key-2 models tpd: %d left, %d used", 100-b, b),
			fmt.Sprintf("team gpt-4 tpd: %d left, %d used", 80-both, both),
			fmt.Sprintf("key-1 gpt-4 tpd: %d left, %d used", 60-admitted["key-1 gpt-4"], admitted["key-1 gpt-4"]))
	})
}

// TestWithinAsksForClients raises the version that the table asks for with the first wider resource, and not before. A mixed fleet has none.
func TestWithinAsksForClients(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	l := newLimiter(t, s)
	asked := func() string {
		items := check.Call(l.Table().Read(ctx, layout.VersionKey{}.Key())).Must(t, "Read()")
		v := check.Call(layout.DecodeVersion(items[0])).Must(t, "layout.DecodeVersion()")
		return v.ClientMinVersion
	}
	setLimits(t, l, zlimit.Level{Resource: "models"}, zlimit.PerDay("tpd", 5))
	mixed := newLimiter(t, s, zlimit.WithMixedFleet())
	if err := mixed.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Within: "models"}); !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), "zae-limiter") {
		t.Errorf("Put() in a mixed fleet = %v", err)
	}
	if err := l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4"}); err != nil || asked() != zlimit.ClientMinVersion {
		t.Errorf("Put() without a wider resource = %v; the table asks for %s", err, asked())
	}
	if err := l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Within: "models"}); err != nil || asked() != "0.17.1" {
		t.Errorf("Put() = %v; the table asks for %s", err, asked())
	}
	record := layout.Version{SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: "0.17.1"}
	if record.Admits(zlimit.SchemaVersion, "0.17.0") || !record.Admits(zlimit.SchemaVersion, zlimit.Version) {
		t.Errorf("a table for 0.17.1 admits 0.17.0, or not %s", zlimit.Version)
	}
	newLimiter(t, s)
}

// TestWithinDeleted deletes the limits of a resource that another one lies within. Requests that name one of them fail, and others are served.
func TestWithinDeleted(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t), zlimit.WithConfigTTL(0))
	err := errors.Join(
		l.Limits.Set(ctx, zlimit.Level{Resource: "models"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("usd", 25, "UTC")}}),
		l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}),
		l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Within: "models"}),
	)
	check.Fatal(t, "Limits.Set() and Limits.Set() and Resources.Put()", err)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "usd": 1}))
	check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, zlimit.Level{Resource: "models"}))
	if _, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1, "usd": 1})); !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), "usd") {
		t.Errorf("a request that names a deleted limit: %v", err)
	}
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
}
