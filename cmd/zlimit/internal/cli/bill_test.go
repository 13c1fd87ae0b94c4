package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/usage"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An entry is what one entity was charged of a limit in an hour, by its own requests and by those of children, in tokens.
type entry struct {
	hour                    time.Time
	entity, resource, limit string
	own, children           int64
}

// An account is a line of a bill, without figures.
type account struct{ entity, resource, limit string }

// A billedMonth is the life of families for thirty days, on a virtual clock, and the ledger of it.
type billedMonth struct {
	t       *testing.T
	path    string
	now     time.Time
	reset   time.Time // of the budgets
	random  *rand.Rand
	limiter *zlimit.RateLimiter
	parents map[string]string
	keys    []string
	teams   []string
	ledger  []entry
	open    []func()
	killed  sync.WaitGroup // aggregators whose store is gone
}

func (m *billedMonth) clock() time.Time { return m.now }

// store opens the file once more, as another process does.
func (m *billedMonth) store() (zlimit.Store, *sqlite.Store) {
	m.t.Helper()
	raw, err := sqlite.Open(m.path, layout.Table, sqlite.Clock(m.clock))
	if err == nil {
		err = raw.Setup(m.t.Context())
	}
	check.Fatal(m.t, "sqlite.Open()", err)
	return store.NewHandle(raw, true), raw
}

// aggregate runs an aggregator for a moment. When it is killed, its store fails in the middle, and it can write nothing any more.
func (m *billedMonth) aggregate(d time.Duration, killed bool) {
	m.t.Helper()
	s, raw := m.store()
	a, err := aggregator.New(s, aggregator.WithClock(m.clock), aggregator.WithPoll(5*time.Millisecond), aggregator.WithName("pod-0"))
	check.Fatal(m.t, "aggregator.New()", err)
	ctx, stop := context.WithTimeout(m.t.Context(), d)
	if killed {
		m.killed.Go(func() { // which goes on for seconds to give its lease back
			defer stop()
			_ = a.Run(ctx)
		})
		time.Sleep(d / 2)
		_ = raw.Close()
		return
	}
	defer stop()
	check.Fatal(m.t, "Run()", a.Run(ctx))
	_ = s.Close()
}

// charge notes what a request or its settlement takes, now.
func (m *billedMonth) charge(family []string, resource string, amounts map[string]int64) {
	for i, entity := range family {
		for limit, n := range amounts {
			e := entry{hour: zlimit.WindowHourly.Start(m.now), entity: entity, resource: resource, limit: limit}
			if i == 0 {
				e.own = n
			} else {
				e.children = n
			}
			m.ledger = append(m.ledger, e)
		}
	}
}

// request takes something for an entity, and settles it minutes later, perhaps in another hour.
func (m *billedMonth) request(entity, resource string) {
	m.t.Helper()
	var family []string
	for e := entity; e != ""; e = m.parents[e] {
		family = append(family, e)
	}
	estimate, used := m.random.Int64N(5000), m.random.Int64N(9000)
	lease := check.Call(m.limiter.Acquire(m.t.Context(), zlimit.Request{
		Entity: entity, Resource: resource, Consume: zlimit.Amounts{"rpm": 1, "tpm": estimate, "usd": 1000 * estimate},
	})).Must(m.t, "Acquire()")
	m.charge(family, resource, map[string]int64{"rpm": 1, "tpm": estimate, "usd": 1000 * estimate})
	m.open = append(m.open, func() {
		delta := used - estimate
		err := lease.Adjust(zlimit.Amounts{"tpm": delta, "usd": 1000 * delta})
		if err == nil {
			err = lease.Commit(m.t.Context())
		}
		check.Fatal(m.t, "Adjust()", err)
		m.charge(family, resource, map[string]int64{"tpm": delta, "usd": 1000 * delta})
	})
}

func (m *billedMonth) settle(all bool) {
	for len(m.open) > 0 && (all || m.random.IntN(2) == 0) {
		m.open[0]()
		m.open = m.open[1:]
	}
}

// live goes through the days: requests, moves of keys and of teams, and an aggregator that is killed every other day.
func (m *billedMonth) live(days int) {
	m.t.Helper()
	all := []string{"org-0", "org-1", "org-2", "org-3", "org-4"}
	all = append(append(all, m.teams...), m.keys...)
	for day := range days {
		for n := range 24 {
			next := m.now.Add(time.Hour - time.Duration(n%2)*7*time.Minute)
			if reset := m.reset; m.now.Before(reset) && !next.Before(reset) {
				m.settle(true) // what is settled after a reset belongs to no budget any more
			}
			m.now = next
			m.settle(false)
			m.request(all[m.random.IntN(len(all))], []string{"gpt", "claude"}[m.random.IntN(2)])
			if n%8 == 7 { // the log keeps changes for a day
				if n == 15 && day%2 == 0 {
					m.aggregate(50*time.Millisecond, true)
				}
				m.catchUp()
			}
		}
		m.settle(true)
		if day%3 == 1 {
			who, to := m.keys[m.random.IntN(len(m.keys))], m.teams[m.random.IntN(len(m.teams))]
			if day%2 == 1 {
				who, to = m.teams[m.random.IntN(len(m.teams))], fmt.Sprint("org-", m.random.IntN(5))
			}
			if _, err := m.limiter.Entities.SetParent(m.t.Context(), who, to); err != nil {
				m.t.Fatalf("Entities.SetParent() = %v", err)
			}
			m.parents[who] = to
		}
	}
	m.now = m.now.Add(3 * time.Hour)
	m.catchUp()
}

// catchUp runs the aggregator until it has counted everything.
func (m *billedMonth) catchUp() {
	m.t.Helper()
	for try := range 50 {
		m.aggregate(time.Duration(40+20*try)*time.Millisecond, false)
		complete := check.Call(m.limiter.Usage.Completeness(m.t.Context())).Must(m.t, "Usage.Completeness()")
		if complete.To.Equal(m.now) {
			return
		}
	}
	m.t.Fatal("the aggregator does not come to the end of the changes")
}

// run runs a command on the store.
func (m *billedMonth) run(args ...string) string {
	m.t.Helper()
	return output(m.t, &shell.Shell{Now: m.clock}, append(args, "--store", "sqlite:"+m.path)...)
}

// bill runs the command.
func (m *billedMonth) bill(args ...string) usage.Bill {
	m.t.Helper()
	out := m.run(append([]string{"usage", "bill", "-o", "json"}, args...)...)
	var b usage.Bill
	check.Fatal(m.t, "json.Unmarshal()", json.Unmarshal([]byte(out), &b))
	return b
}

// between draws a time, in whole seconds, an hour after the first and before the last two days.
func (m *billedMonth) between(first, last time.Time) time.Time {
	room := last.Add(-48 * time.Hour).Sub(first.Add(time.Hour))
	return first.Add(time.Hour + time.Duration(m.random.Int64N(int64(max(room, time.Hour)/time.Second)))*time.Second)
}

// figures returns the figures of bills, added up: own and from children.
func figures(bills ...usage.Bill) map[account][2]zlimit.Quantity {
	sums := map[account][2]zlimit.Quantity{}
	for _, b := range bills {
		for _, l := range b.Lines {
			a := account{l.Entity, l.Resource, l.Limit}
			sums[a] = [2]zlimit.Quantity{sums[a][0] + l.Own, sums[a][1] + l.FromChildren}
		}
	}
	return sums
}

// should returns the figures of the ledger in a range.
func (m *billedMonth) should(from, to time.Time) map[account][2]zlimit.Quantity {
	sums := map[account][2]zlimit.Quantity{}
	for _, e := range m.ledger {
		if e.hour.Before(from) || !e.hour.Before(to) {
			continue
		}
		a := account{e.entity, e.resource, e.limit}
		sums[a] = [2]zlimit.Quantity{sums[a][0] + zlimit.Quantity(1000*e.own), sums[a][1] + zlimit.Quantity(1000*e.children)}
	}
	return sums
}

// In TestBillsEqualALedger, 50 tenants in families of three levels live for thirty days, over the ends of summer time in two zones. The
// bills of each month in each zone equal the ledger, and so do those of any split. A budget and the bill of its month agree.
func TestBillsEqualALedger(t *testing.T) {
	t.Parallel() // it mostly waits
	begin := time.Date(2026, 10, soak.Pick(29, 20), 0, 0, 0, 0, time.UTC)
	days, least := soak.Pick(5, 30), soak.Pick(5, 20)
	m := &billedMonth{
		t: t, path: filepath.Join(t.TempDir(), "limits.db"), now: begin, reset: time.Date(2026, 10, 31, 23, 0, 0, 0, time.UTC),
		random: rand.New(rand.NewPCG(7, 7)), parents: map[string]string{},
	}
	s, _ := m.store()
	l, err := zlimit.New(t.Context(), s, zlimit.WithClock(m.clock), zlimit.WithSetup(), zlimit.WithPrincipal("x"))
	check.Fatal(t, "zlimit.New()", err)
	m.limiter = l
	defer m.killed.Wait()
	defer func() { _, _ = l.Close(), s.Close() }()
	m.aggregate(300*time.Millisecond, false) // turns the log of changes on
	budget := zlimit.USD("usd", 1_000_000, zlimit.PerMonth).In("Europe/Berlin")
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 1_000_000), zlimit.PerMinute("tpm", 1_000_000_000), budget}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: limits}))
	create := func(id, parent string) {
		if _, err := l.Entities.Create(t.Context(), zlimit.Entity{ID: id, ParentID: parent, Cascade: parent != ""}); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
		m.parents[id] = parent
	}
	for i := range 5 {
		create(fmt.Sprint("org-", i), "")
	}
	for i := range 15 {
		m.teams = append(m.teams, fmt.Sprint("team-", i))
		create(m.teams[i], fmt.Sprint("org-", i%5))
	}
	for i := range 30 {
		m.keys = append(m.keys, fmt.Sprint("key-", i))
		create(m.keys[i], m.teams[i%15])
	}
	m.live(days)

	bounds := map[string][3]string{ // of October and November, in UTC
		"UTC":              {"2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		"Europe/Berlin":    {"2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"},
		"America/New_York": {"2026-10-01T04:00:00Z", "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z"},
		"Asia/Kolkata":     {"2026-09-30T19:00:00Z", "2026-10-31T19:00:00Z", "2026-11-30T19:00:00Z"}, // hours that begin in the month
	}
	at := func(text string) time.Time {
		return check.Call(time.Parse(time.RFC3339, text)).Must(t, "time.Parse()")
	}
	for zone, b := range bounds {
		for i, month := range []string{"2026-10", "2026-11"} {
			bill := m.bill("--month", month, "--zone", zone)
			if diff := cmp.Diff(m.should(at(b[i]), at(b[i+1])), figures(bill)); diff != "" {
				t.Errorf("the bill of %s in %s (-ledger +bill):\n%s", month, zone, diff)
			}
			if complete := month == "2026-10"; bill.Complete != complete || bill.CompleteTo == nil || bill.CompleteTo.After(m.now) {
				t.Errorf("the bill of %s in %s is complete: %v, to %v, at %v", month, zone, bill.Complete, bill.CompleteTo, m.now)
			}
			if i > 0 {
				continue
			}
			// Any split adds up, and so do the totals.
			cuts := []string{b[i]}
			for range 3 { // bounds anywhere, most of them within an hour
				cuts = append(cuts, m.between(at(cuts[len(cuts)-1]), at(b[i+1])).Format(time.RFC3339))
			}
			var parts []usage.Bill
			for n, from := range cuts {
				to := b[i+1]
				if n+1 < len(cuts) {
					to = cuts[n+1]
				}
				parts = append(parts, m.bill("--from", from, "--to", to, "--zone", zone))
			}
			if diff := cmp.Diff(figures(bill), figures(parts...)); diff != "" {
				t.Errorf("the parts of %s in %s from %v on (-month +parts):\n%s", month, zone, cuts, diff)
			}
			once := map[account]zlimit.Quantity{}
			for _, l := range bill.Lines {
				once[account{"", l.Resource, l.Limit}] += l.Own
				if l.Own+l.FromChildren != l.Total {
					t.Errorf("%+v: own and from children are not the total", l)
				}
			}
			for _, total := range bill.Totals {
				if a := (account{"", total.Resource, total.Limit}); once[a] != total.Own {
					t.Errorf("the total %+v, want %v, each request once", total, once[a])
				}
			}
		}
	}

	november := figures(m.bill("--month", "2026-11", "--zone", "Europe/Berlin"))
	compared := 0
	for _, entity := range append(append([]string{"org-0", "org-1"}, m.teams...), m.keys...) {
		statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: entity, Resource: "gpt"})).Must(t, "Available()")
		for _, status := range statuses {
			if billed, ok := november[account{entity, "gpt", "usd"}]; ok && status.Entity == entity && status.Limit.Name == "usd" {
				compared++
				if spent := zlimit.Quantity(1000 * (status.Limit.Capacity - status.Available)); spent != billed[0]+billed[1] {
					t.Errorf("of the budget of %s %v is spent in November, and its bill has %v", entity, spent, billed[0]+billed[1])
				}
			}
		}
	}
	if compared < least {
		t.Errorf("%d budgets were compared, want %d at least", compared, least)
	}

	tree := m.bill("--month", "2026-11", "--entity", "org-0", "--tree")
	for _, l := range tree.Lines {
		if above := m.parents[l.Entity]; l.Entity != "org-0" && above != "org-0" && m.parents[above] != "org-0" || l.Parent != above {
			t.Errorf("the tree of org-0 has %s below %q, which is a child of %q", l.Entity, l.Parent, above)
		}
	}
	if len(tree.Lines) == 0 {
		t.Error("the tree of org-0 is empty")
	}
	alone := m.bill("--month", "2026-11", "--entity", "org-0")
	for i, total := range alone.Totals {
		if line := alone.Lines[i]; total.Total != line.Total || total.Total == 0 || total.Own == total.Total {
			t.Errorf("the bill of org-0 alone has the total %+v, want that of its line %+v, with the requests of its children", total, line)
		}
	}
	if half := m.bill("--month", "2026-11", "--zone", "Asia/Kolkata"); len(half.Notes) != 2 || half.From != at("2026-10-31T19:00:00Z") {
		t.Errorf("a bill of a zone off the hour begins at %v, with notes %q", half.From, half.Notes)
	}

	rows, err := csv.NewReader(strings.NewReader(m.run("usage", "bill", "--month", "2026-10", "--zone", "Europe/Berlin", "-o", "csv"))).ReadAll()
	check.Fatal(t, "ReadAll()", err)
	if want := "from,to,zone,complete_to,complete,entity,parent,resource,limit,unit,own,from_children,total,from_narrower"; strings.Join(rows[0], ",") != want {
		t.Errorf("CSV has the columns %v, want %s", rows[0], want)
	}
	for _, row := range rows[1:] {
		if row[0] != "2026-09-30T22:00:00Z" || row[2] != "Europe/Berlin" || row[3] == "" || row[4] != "true" {
			t.Fatalf("a row is %v", row)
		}
	}
}

// TestBillOfNobody: a bill of an entity that nothing is known of is an error, and a bill without usage of one with a record, a bucket or
// usage of another month is none.
func TestBillOfNobody(t *testing.T) {
	m := &billedMonth{t: t, path: filepath.Join(t.TempDir(), "limits.db"), now: time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)}
	s, raw := m.store()
	l := check.Call(zlimit.New(t.Context(), s, zlimit.WithSetup(), zlimit.WithClock(m.clock))).Must(t, "zlimit.New()")
	check.Call(l.Entities.Create(t.Context(), zlimit.Entity{ID: "idle"})).Must(t, "Entities.Create()")
	_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "used", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 5)}})
	check.Fatal(t, "Acquire()", err)
	ns := check.Call(l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
	former := layout.UsageDelta{NS: ns.ID, Entity: "former", Resource: "gpt", Window: "monthly", Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Events: 1}
	w := check.Call(former.Write()).Must(t, "Write()")
	check.Call(raw.Write(t.Context(), w)).Must(t, "Write()")
	check.Fatal(t, "Close()", l.Close())
	for entity, code := range map[string]int{"nope": shell.ExitFailure, "idle": shell.ExitOK, "used": shell.ExitOK, "former": shell.ExitOK} {
		got := command(t, "", "usage", "bill", "--month", "2026-11", "--entity", entity, "--store", "sqlite:"+m.path)
		if unknown := strings.Contains(got.stderr, "nothing is known of entity"); got.code != code || unknown != (code != shell.ExitOK) {
			t.Errorf("usage bill --entity %s: code %d, %s%s", entity, got.code, got.stdout, got.stderr)
		}
	}
	got := command(t, "", "usage", "bill", "--month", "2026-11", "--entity", "idle", "--store", "sqlite:"+m.path, "-o", "csv")
	want := "note: no usage from 2026-11-01T00:00:00Z to 2026-12-01T00:00:00Z, zone UTC; how far it is complete is not known\n"
	if got.stderr != want || !strings.HasPrefix(got.stdout, "from,to,zone,") {
		t.Errorf("usage bill without rows as CSV: %s%s, want %s", got.stdout, got.stderr, want)
	}
}

// TestBillOfARotatedTenant bills a tenant that got a new ID in the month: each request is in the bill once. In JSON, money is in billionths of
// a dollar, and the unit says so; CSV has dollars.
func TestBillOfARotatedTenant(t *testing.T) {
	m := &billedMonth{t: t, path: filepath.Join(t.TempDir(), "limits.db"), now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	s, _ := m.store()
	l, err := zlimit.New(t.Context(), s, zlimit.WithClock(m.clock), zlimit.WithSetup(), zlimit.WithPrincipal("x"))
	check.Fatal(t, "zlimit.New()", err)
	m.limiter = l
	defer func() { _, _ = l.Close(), s.Close() }()
	m.aggregate(300*time.Millisecond, false) // turns the log of changes on
	run := m.run
	run("limits", "set", "--entity", "acme", "--resource", "pay", "--limit", "tpd=10000/day@UTC", "--limit", "usd=100/month@UTC")
	run("acquire", "acme", "pay", "--consume", "tpd=4112", "--consume", "usd=12.5")
	run("entity", "rotate", "acme", "acme-2")
	run("acquire", "acme-2", "pay", "--consume", "tpd=8", "--consume", "usd=0.5")
	m.catchUp()
	bill := m.bill("--month", "2026-11")
	const dollar = 1_000_000_000_000 // in thousandths of a billionth
	lines := func(old, next zlimit.Quantity, limit, unit string) []usage.BillLine {
		return []usage.BillLine{
			{Entity: "acme", Resource: "pay", Limit: limit, Unit: unit, Own: old, Total: old},
			{Entity: "acme-2", Resource: "pay", Limit: limit, Unit: unit, Own: next, Total: next},
		}
	}
	tpd, usd := lines(4_112_000, 8000, "tpd", "tokens"), lines(12.5*dollar, 0.5*dollar, "usd", "nano-usd")
	bill.Lines = slices.DeleteFunc(bill.Lines, func(l usage.BillLine) bool { return l.Limit == "wcu" })
	if diff := cmp.Diff([]usage.BillLine{tpd[0], usd[0], tpd[1], usd[1]}, bill.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	totals := []usage.BillLine{
		{Resource: "pay", Limit: "tpd", Unit: "tokens", Own: 4_120_000, Total: 4_120_000},
		{Resource: "pay", Limit: "usd", Unit: "nano-usd", Own: 13 * dollar, Total: 13 * dollar},
	}
	if diff := cmp.Diff(totals, bill.Totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if text := run("usage", "bill", "--month", "2026-11"); !strings.Contains(text, "\npay usd: $13, each request once") || !strings.Contains(text, "\npay tpd: 4,120, each request once") {
		t.Errorf("the bill is:\n%s", text)
	}
	if text := run("usage", "bill", "--month", "2026-11", "-o", "csv"); !strings.Contains(text, ",acme-2,,pay,usd,dollars,0.5,0,0.5,0\n") {
		t.Errorf("the CSV is:\n%s", text)
	}
}
