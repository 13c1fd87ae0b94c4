package aggregator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// An account is what a ledger has of one entity, resource, hour and limit, in tokens.
type account struct {
	entity, resource string
	hour             time.Time
	limit            string
}

// A charge is the sum of an account: what requests of the entity itself were charged, and those of children. A part of both is of requests
// of narrower resources.
type charge struct{ own, children, narrower int64 }

// A ledger holds the true consumption of families: it follows requests and settlements, and no item.
type ledger struct {
	parents map[string]string
	limits  map[string][]string // that the entity has

	mu       sync.Mutex
	accounts map[account]charge
}

// note charges an entity and all its parents with what a request takes in an hour, and for the wider resource, too.
func (g *ledger) note(family []string, resource string, hour time.Time, consumed zlimit.Amounts) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.charge(family, resource, false, hour, consumed)
	if resource == narrow {
		g.charge(family, wide, true, hour, consumed)
	}
}

func (g *ledger) charge(family []string, resource string, narrower bool, hour time.Time, consumed zlimit.Amounts) {
	for limit, n := range consumed {
		counted := false // by an entity below
		for _, entity := range family {
			if !g.has(entity, resource, limit) {
				continue
			}
			a := account{entity, resource, hour, limit}
			c := g.accounts[a]
			if counted {
				c.children += n
			} else {
				c.own += n
			}
			if counted = true; narrower && g.has(entity, narrow, limit) {
				c.narrower += n
			}
			g.accounts[a] = c
		}
	}
}

// has reports whether an entity has a limit for a resource.
func (g *ledger) has(entity, resource, limit string) bool {
	if limit == paid {
		return resource == wide && g.pays(entity)
	}
	return slices.Contains(g.limits[entity], limit)
}

// paid is the limit that teams and the organization alone have, for the wide resource alone. Others pay by it.
const paid = "usd"

// pays reports whether an entity has that limit.
func (g *ledger) pays(entity string) bool {
	return entity == "org" || strings.HasPrefix(entity, "team-")
}

// family returns an entity and its parents.
func (g *ledger) family(entity string) (family []string) {
	for ; entity != ""; entity = g.parents[entity] {
		family = append(family, entity)
	}
	return family
}

// sum adds up the accounts that are chosen, by limit.
func (g *ledger) sum(chosen func(account) bool) map[string]charge {
	sums := map[string]charge{}
	for a, c := range g.accounts {
		if s := sums[a.limit]; chosen(a) {
			sums[a.limit] = charge{s.own + c.own, s.children + c.children, s.narrower + c.narrower}
		}
	}
	return sums
}

// An openLease is a lease that is settled later, perhaps in another hour.
type openLease struct {
	*zlimit.Lease
	family   []string
	resource string
	consumed zlimit.Amounts
}

// A fleet makes random requests of families, and keeps the ledger of them.
type fleet struct {
	*ledger
	l        *zlimit.RateLimiter
	entities []string

	mu   sync.Mutex
	open []openLease
}

// newFleet makes families of one to four levels. Some levels lack a limit that those below have, and some one that those above have.
func newFleet(t *testing.T, l *zlimit.RateLimiter) *fleet {
	f := &fleet{l: l, ledger: &ledger{parents: map[string]string{}, limits: map[string][]string{}, accounts: map[account]charge{}}}
	plenty := func(names ...string) (limits []zlimit.Limit) {
		for _, name := range names {
			limits = append(limits, zlimit.PerMinute(name, 1_000_000_000))
		}
		return limits
	}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: plenty("rpm", "tpm")}))
	err := errors.Join(l.Limits.Set(t.Context(), zlimit.Level{Resource: wide}, zlimit.Config{Limits: plenty("rpm", "tpm")}),
		l.Resources.Put(t.Context(), zlimit.Resource{ID: narrow, Within: wide}))
	check.Fatal(t, "Limits.Set() and Resources.Put()", err)
	add := func(entity, parent string, limits ...string) {
		if parent != "" || len(limits) < 2 {
			_, err := l.Entities.Create(t.Context(), zlimit.Entity{ID: entity, ParentID: parent, Cascade: parent != ""})
			check.Fatal(t, "Entities.Create()", err)
		}
		if len(limits) < 2 {
			err := l.Limits.Set(t.Context(), zlimit.Level{Entity: entity}, zlimit.Config{Limits: plenty(limits...)})
			check.Fatal(t, "Limits.Set()", err)
		}
		f.entities = append(f.entities, entity)
		f.parents[entity], f.limits[entity] = parent, limits
		if f.pays(entity) {
			err := l.Limits.Set(t.Context(), zlimit.Level{Entity: entity, Resource: wide}, zlimit.Config{Limits: plenty(append(slices.Clone(limits), paid)...)})
			check.Fatal(t, "Limits.Set()", err)
		}
	}
	add("single", "", "rpm", "tpm")
	add("org", "", "tpm")
	for i := range 3 {
		team := fmt.Sprintf("team-%d", i)
		add(team, "org", []string{"rpm", "tpm"}[:2-i%2]...)
		for j := range 3 {
			user := fmt.Sprintf("user-%d-%d", i, j)
			add(user, team, "rpm", "tpm")
			add(fmt.Sprintf("key-%d-%d", i, j), user, "rpm", "tpm")
		}
	}
	return f
}

// resources are those of the requests of a fleet.
var resources = []string{narrow, "claude", wide}

const narrow, wide = "gpt", "models" // the one lies within the other

// work makes one request, and settles that or leaves it open.
func (f *fleet) work(ctx context.Context, hour time.Time) error {
	f.mu.Lock()
	entity := f.entities[rand.IntN(len(f.entities))]
	family := f.family(entity)
	f.mu.Unlock()
	resource := resources[rand.IntN(len(resources))]
	consumed := zlimit.Amounts{}
	for _, limit := range f.limits[entity] {
		consumed[limit] = 1 + rand.Int64N(50)
	}
	if resource != "claude" && slices.ContainsFunc(family, f.pays) {
		consumed[paid] = 1 + rand.Int64N(50)
	}
	lease, err := f.l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: resource, Consume: consumed})
	if err != nil {
		return err
	}
	f.note(family, resource, hour, consumed)
	o := openLease{lease, family, resource, consumed}
	if rand.IntN(8) == 0 {
		f.mu.Lock()
		f.open = append(f.open, o)
		f.mu.Unlock()
		return nil
	}
	return f.settle(ctx, o, hour)
}

// settle ends a lease in one of four ways.
func (f *fleet) settle(ctx context.Context, o openLease, hour time.Time) error {
	change := zlimit.Amounts{}
	switch rand.IntN(4) {
	case 0:
		for limit, n := range o.consumed {
			change[limit] = -n
		}
		f.note(o.family, o.resource, hour, change)
		return o.Rollback(ctx)
	case 1:
		for limit, n := range o.consumed {
			change[limit] = rand.Int64N(60) - n
		}
	default:
	}
	if err := o.Adjust(change); err != nil {
		return err
	}
	f.note(o.family, o.resource, hour, change)
	return o.Commit(ctx)
}

// hour makes requests of several goroutines at the same time, and settles some of those that are open. Leases open
// in the end were left by a killed process.
func (f *fleet) hour(t *testing.T, hour time.Time, requests int) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range requests / 8 {
				if err := f.work(t.Context(), hour); err != nil {
					t.Errorf("work() = %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, o := range f.open[:len(f.open)/2] {
		check.Fatal(t, "settle()", f.settle(t.Context(), o, hour))
	}
	f.open = f.open[len(f.open)/2:]
}

// A killed is an aggregator that is killed in the middle of its work, again and again, and begins again a little
// before.
type killed struct {
	s    zlimit.Store
	at   store.Position
	past []store.Change
}

// follow applies the changes that were made since, as of an hour.
func (k *killed) follow(t *testing.T, hour time.Time) {
	stream := store.Of(k.s).(store.Streamer)
	partitions, err := stream.Partitions(t.Context())
	if err != nil || len(partitions) != 1 {
		t.Fatalf("Partitions() = %v, %v", partitions, err)
	}
	for {
		page := check.Call(stream.Changes(t.Context(), partitions[0].ID, k.at, 1000)).Must(t, "Changes()")
		if len(page.Changes) == 0 {
			return
		}
		for i := range page.Changes {
			page.Changes[i].At = hour.Add(time.Minute)
		}
		k.apply(t, page.Changes)
		k.at = page.Next
	}
}

// apply applies changes, a few of the past again before them.
func (k *killed) apply(t *testing.T, changes []store.Change) {
	changes = append(slices.Clone(k.past), changes...)
	k.past = changes[max(0, len(changes)-rand.IntN(50)):]
	for tries := 0; ; tries++ {
		a := byHour(newAggregator(t, k.s), true)
		if tries < 2 {
			inject(a, func(n int) (bool, error) {
				if n > 5 {
					return rand.IntN(2) == 0, errLost
				}
				return false, nil
			})
		}
		if errs := a.apply(context.Background(), changes); errors.Join(errs...) == nil {
			return
		} else if tries >= 2 {
			t.Fatal(errors.Join(errs...))
		}
	}
}

var (
	ledgerRequests = flag.Int("ledger.requests", 5000, "requests of TestLedger; make soak makes 100,000")
	ledgerEngine   = flag.Bool("ledger.engine", false, "whether TestLedger uses a DynamoDB engine in place of memory")
)

// In TestLedger, families of one to four levels make random requests, each level by itself, with corrections across
// hours and leases that are never settled. The aggregator is killed in the middle. Usage by hour, day, month, entity
// and resource equals the ledger. It reports the charges of an entity, their part through children, and over all
// entities each request once.
func TestLedger(t *testing.T) {
	requests, hours := *ledgerRequests, 50
	if testing.Short() {
		requests, hours = 2000, 5
	}
	s := newMemory(t)
	if *ledgerEngine {
		engine := enginetest.Fresh(t)
		s = dynamo.New(engine.Client(), engine.Table(t), dynamo.WithStreams(engine.Streams()))
		setUp(t, s)
	}
	check.Fatal(t, "StartStream()", store.Of(s).(store.Streamer).StartStream(t.Context()))
	l, err := zlimit.New(t.Context(), s, zlimit.WithSetup(), zlimit.WithCoalescing(), zlimit.WithFreshness(0),
		zlimit.WithCallTimeout(time.Minute)) // an engine is slow while streams are read, and an unknown outcome is in no ledger
	check.Fatal(t, "zlimit.New()", err)
	t.Cleanup(func() { _ = l.Close() })
	f, k := newFleet(t, l), &killed{s: s}
	start := time.Date(2036, 1, 30, 12, 0, 0, 0, time.UTC) // which expires later, and is a day before the end of a month
	for i := range hours {
		hour := start.Add(time.Duration(i) * time.Hour)
		f.hour(t, hour, requests/hours)
		k.follow(t, hour)
		if i == hours/2 { // an entity gains a parent
			if _, err := l.Entities.Create(t.Context(), zlimit.Entity{ID: "single", ParentID: "team-0", Cascade: true}); err != nil {
				t.Fatalf("Entities.Create() = %v", err)
			}
			l.Limits.InvalidateAll()
			f.parents["single"] = "team-0"
		}
	}
	byHour(newAggregator(t, s), true).roller.rollDue(t.Context(), t.Context())
	for _, window := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly} {
		for start, end := start, start.Add(time.Duration(hours)*time.Hour); start.Before(end); start = window.End(start) {
			f.compare(t, window, window.Start(start))
		}
	}
}

// compare compares the usage of a window with the ledger.
func (f *fleet) compare(t *testing.T, window zlimit.Window, start time.Time) {
	within := func(a account) bool { return !a.hour.Before(start) && a.hour.Before(window.End(start)) }
	for _, resource := range resources {
		q := zlimit.UsageQuery{Resource: resource, Window: window, From: start, To: window.End(start)}
		want := f.sum(func(a account) bool { return within(a) && a.resource == resource })
		if diff := cmp.Diff(want, summed(t, f.l, q), cmp.AllowUnexported(charge{})); diff != "" {
			t.Fatalf("%s usage of %s from %v (-ledger +usage):\n%s", window, resource, start, diff)
		}
	}
	for _, entity := range f.entities {
		for limit, c := range f.sum(func(a account) bool { return within(a) && a.entity == entity }) {
			q := zlimit.UsageQuery{Entity: entity, Window: window, From: start, To: window.End(start)}
			if got, want := summed(t, f.l, q)[limit], (charge{c.own + c.children - c.narrower, c.children, c.narrower}); got != want {
				t.Fatalf("%s %s usage of %s from %v: %v, want %v", window, limit, entity, start, got, want)
			}
		}
	}
}

// summed returns what a summary has of each limit, in tokens.
func summed(t *testing.T, l *zlimit.RateLimiter, q zlimit.UsageQuery) map[string]charge {
	sum := check.Call(l.Usage.Summary(t.Context(), q)).Must(t, "Usage.Summary()")
	if sum.MayRepeat {
		t.Errorf("the usage of %+v may count requests more than once, on a new table", q)
	}
	sums := map[string]charge{}
	for _, u := range sum.Limits {
		sums[u.Name] = charge{int64(u.Total) / 1000, int64(u.FromChildren) / 1000, int64(u.FromNarrower) / 1000}
	}
	return sums
}
