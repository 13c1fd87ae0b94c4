package buckets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TopCommand returns the command top.
func TopCommand(sh *shell.Shell) *cobra.Command {
	t := &top{app: sh}
	cmd := &cobra.Command{
		Use:   "top [RESOURCE]",
		Short: "Watch buckets: balances, consumption, shards",
		Long: `Top shows the buckets of a resource, or of every resource with limits of its
own, every two seconds: what is left of each limit, what was consumed since the
last look, over how many items the bucket is spread. It shows how many slots are
held, and how long queues are, where there are any, and when a budget is used up
at the rate since the last look. On a terminal it shows the trend of the rate
over the last seven looks. The first look has nothing before it, and shows - as
consumed; a script asks for two with --count 2. Those that consume most come
first, or with --sort left those with the least part left. What an entity was
charged for requests of its children is not consumed by itself; --with-children
shows it apart, and sorts by both. On a terminal it redraws one page, elsewhere
it prints lines.

With --rejected it shows who was rejected most in the last ten minutes, or in
--within, by which limit, as processes with WithRejectionReports have reported
it. Reports are up to a minute old. Processes without that option report none.

On DynamoDB a bucket that was used once may not be listed. The page shows
how many entities may be missing, a minute ago at most.

Looking costs reads, which the page shows: half a read unit per 4 KB of an index
and of each bucket, at each look. A look that fails ends nothing: top shows the
error and how old its figures are, and looks again, also where the store is away
at the start. An interrupt ends it, with exit code 0. After --count looks the
code is 1 if the last one failed.`,
		Example: `  zlimit top gpt
  zlimit top --interval 10s --max 5
  zlimit top --rejected --within 1h
  zlimit top gpt --count 2 --interval 5s -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return shell.Usagef("top: one argument too many, %q; see %s --help", args[1], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case t.interval < 500*time.Millisecond || t.interval > time.Hour:
				return shell.Usagef("top: --interval %v must be from 500ms to 1h", t.interval)
			case t.max < 1:
				return shell.Usagef("top: --max %d must be at least 1", t.max)
			case t.sort != byConsumption && t.sort != byWhatIsLeft:
				return shell.Usagef("top: --sort %q: must be %s or %s", t.sort, byConsumption, byWhatIsLeft)
			case cmd.Flags().Changed("within") && !t.rejected:
				return shell.Usagef("top: --within is for --rejected")
			case t.within < time.Minute || t.within > 7*24*time.Hour:
				return shell.Usagef("top: --within %v must be from 1m to 168h", t.within)
			case t.count < 0:
				return shell.Usagef("top: --count %d must not be negative", t.count)
			}
			t.resources = args
			first := func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				_, err := t.look(ctx, l)
				return struct{}{}, err
			}
			dsn, err := shell.Prepare(cmd.Context(), sh, first)
			if err != nil {
				return err
			}
			watched := &top{app: sh, topFlags: t.topFlags, resources: args} // without what the first look has counted
			_, err = shell.Perform(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				return struct{}{}, watched.run(ctx, l)
			}, zlimit.WithObserver(watched.observe), zlimit.WithFailurePolicy(zlimit.PolicyAllow)) // which opens a store that is away
			if cmd.Context().Err() != nil {
				return nil //nolint:nilerr // an interrupt is how it ends
			}
			return err
		},
	}
	cmd.Flags().StringVar(&t.sort, "sort", byConsumption, "`order`: "+byConsumption+" or "+byWhatIsLeft)
	cmd.Flags().BoolVar(&t.children, "with-children", false, "show what parents were charged apart")
	cmd.Flags().BoolVar(&t.rejected, "rejected", false, "show who is rejected")
	cmd.Flags().DurationVar(&t.within, "within", 10*time.Minute, "`time` that --rejected looks back")
	cmd.Flags().DurationVar(&t.interval, "interval", 2*time.Second, "`time` between two looks")
	cmd.Flags().IntVar(&t.max, "max", 20, "`number` of limits to show at most")
	cmd.Flags().IntVar(&t.count, "count", 0, "`number` of looks; 0 for no end")
	return cmd
}

// The orders of [top]: the largest consumption first, or the smallest part left.
const (
	byConsumption = "consumed"
	byWhatIsLeft  = "left"
)

// topFlags are the flags of [top].
type topFlags struct {
	interval time.Duration
	max      int
	count    int
	children bool // what children were charged is shown
	sort     string
	rejected bool          // rejections are shown, and no buckets
	within   time.Duration // of which they are
}

type top struct {
	topFlags
	app       *shell.Shell
	resources []string // none for all that have limits of their own

	before map[topKey]taken     // at the last look; nil before the first
	rates  map[topKey][]float64 // of the looks before, the latest last
	at     time.Time            // of the last look
	height int                  // lines of the last page
	shown  *TopLook             // the last look that did not fail; nil for none

	covered   map[string]zlimit.Coverage // of each resource
	coveredAt time.Time                  // when that was read; the zero time for never

	mu    sync.Mutex
	calls int
	units float64
}

// A topKey is one limit of a bucket.
type topKey struct{ entity, resource, limit string }

// A taken is the consumption of one limit of a bucket since the bucket was made.
type taken struct{ own, children zlimit.Quantity }

// A topRow has the figures of one limit of a bucket from one look.
type topRow struct {
	Entity    string           `json:"entity"`
	Resource  string           `json:"resource"`
	Limit     string           `json:"limit"`
	Available int64            `json:"available"`
	Capacity  int64            `json:"capacity"`
	Consumed  *zlimit.Quantity `json:"consumed"` // since the last look; null in the first one
	PerSecond *float64         `json:"consumed_per_second"`
	// FromChildren is what requests of children were charged to the entity since the last look.
	FromChildren zlimit.Quantity `json:"from_children,omitzero"`
	ChildrenRate float64         `json:"from_children_per_second,omitzero"`
	Shards       int             `json:"shards"`
	Held         int64           `json:"held,omitzero"`          // slots
	Queue        float64         `json:"queue_seconds,omitzero"` // in which what flows in pays the debt
	// UsedUp is when a budget is used up at the rate since the last look; the zero time if its period ends before.
	UsedUp time.Time `json:"used_up,omitzero"`
	slots  bool
	status zlimit.Status
	trend  []float64 // rates of the last looks
}

// trendLooks is how many looks the trend of a row shows.
const trendLooks = 7

// A TopLook is one look at all buckets.
type TopLook struct {
	Time      time.Time `json:"time,omitzero"` // of the figures; zero while no look has succeeded
	Buckets   int       `json:"buckets"`
	Rows      []topRow  `json:"limits"` // those that consume most first
	Calls     int       `json:"calls"`
	ReadUnits float64   `json:"read_units"`
	// Rejected are the rejections, in place of buckets.
	Rejected *zlimit.Rejections `json:"rejected,omitzero"`
	// Coverage is the coverage of each resource, at most a minute old.
	Coverage map[string]zlimit.Coverage `json:"coverage"`
	// FailedAt is when a later look failed, by Error, so that the figures are old. Both are left out otherwise.
	FailedAt time.Time `json:"failed_at,omitzero"`
	Error    string    `json:"error,omitzero"`
}

func (t *top) observe(_ context.Context, e zlimit.Event) {
	if e.Kind != zlimit.EventStore {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	t.units += e.ReadUnits
}

// look reads all buckets.
func (t *top) look(ctx context.Context, l *zlimit.RateLimiter) (TopLook, error) {
	t.mu.Lock()
	t.calls, t.units = 0, 0
	t.mu.Unlock()
	if t.rejected {
		return t.lookRejected(ctx, l)
	}
	resources := t.resources
	if len(resources) == 0 {
		var err error
		if resources, err = shell.Resources(ctx, l); err != nil {
			return TopLook{}, err
		}
	}
	now := t.app.Now()
	look := TopLook{Time: now.UTC(), Rows: []topRow{}}
	after, rates := map[topKey]taken{}, map[topKey][]float64{}
	if err := t.cover(ctx, l, resources, now); err != nil {
		return look, err
	}
	look.Coverage = t.covered
	for _, resource := range resources {
		for b, err := range l.Usage.Buckets(ctx, resource) {
			if err != nil {
				return look, err
			}
			look.Buckets++
			own := b.Own()
			for _, s := range b.Statuses {
				key := topKey{b.Entity, b.Resource, s.Limit.Name}
				after[key] = taken{own[s.Limit.Name], b.FromChildren[s.Limit.Name]}
				row := topRow{Entity: b.Entity, Resource: b.Resource, Limit: s.Limit.Name, Available: s.Available, Capacity: s.Now().Capacity, Shards: b.Shards}
				row.Held, row.Queue, row.slots = s.Held(), s.Queue.Seconds(), s.Limit.Term > 0
				row.status = s
				if t.before != nil {
					row.since(after[key], t.before[key], now, max(now.Sub(t.at).Seconds(), 0.001))
					kept := t.rates[key]
					row.trend = append(slices.Clone(kept[max(len(kept)-trendLooks+1, 0):]), *row.PerSecond)
					rates[key] = row.trend
				}
				look.Rows = append(look.Rows, row)
			}
		}
	}
	t.before, t.rates, t.at = after, rates, now
	slices.SortStableFunc(look.Rows, t.order)
	t.mu.Lock()
	defer t.mu.Unlock()
	look.Calls, look.ReadUnits = t.calls, t.units
	return look, nil
}

// since notes the consumption between two looks, some seconds apart.
func (r *topRow) since(now, before taken, looked time.Time, seconds float64) {
	consumed := max(now.own-before.own, 0)
	rate := float64(consumed) / 1000 / seconds
	r.Consumed, r.PerSecond = &consumed, &rate
	r.FromChildren = max(now.children-before.children, 0)
	r.ChildrenRate = float64(r.FromChildren) / 1000 / seconds
	if at, ok := r.status.UsedUpAt(looked, (rate+r.ChildrenRate)*secondsPerDay); ok && at.Sub(looked) < maxLeft {
		r.UsedUp = at.Truncate(time.Second)
	}
}

// held returns how many slots are held, "" for a limit of tokens.
func (r *topRow) held() string {
	if !r.slots {
		return ""
	}
	return show.Grouped(r.Held)
}

const secondsPerDay = 24 * 60 * 60

// maxLeft bounds how far ahead top says when a budget is used up.
const maxLeft = 400 * 24 * time.Hour

// usedUp returns when the budget is used up, "" for none.
func (r *topRow) usedUp(now time.Time) string {
	if r.UsedUp.IsZero() {
		return ""
	}
	if r.UsedUp.Sub(now) < 24*time.Hour {
		return r.UsedUp.Format("15:04")
	}
	return r.UsedUp.Format(time.DateOnly)
}

// left returns the part of the capacity that is left, from 0 to 1.
func (r *topRow) left() float64 { return float64(max(r.Available, 0)) / float64(max(r.Capacity, 1)) }

func (t *top) order(a, b topRow) int {
	if t.sort == byWhatIsLeft {
		return cmp.Or(cmp.Compare(a.left(), b.left()), cmp.Compare(a.Available, b.Available))
	}
	if a.PerSecond == nil || b.PerSecond == nil { // all of one look are
		return 0
	}
	if t.children {
		return cmp.Compare(*b.PerSecond+b.ChildrenRate, *a.PerSecond+a.ChildrenRate)
	}
	return cmp.Compare(*b.PerSecond, *a.PerSecond)
}

// cover reads which part of the buckets is shown, once a minute.
func (t *top) cover(ctx context.Context, l *zlimit.RateLimiter, resources []string, now time.Time) error {
	if t.covered != nil && now.Sub(t.coveredAt) < time.Minute {
		return nil
	}
	covered := map[string]zlimit.Coverage{}
	for _, resource := range resources {
		var err error
		if covered[resource], err = l.Usage.Coverage(ctx, resource); err != nil {
			return err
		}
	}
	t.covered, t.coveredAt = covered, now
	return nil
}

// run looks until the context ends, or as often as it was asked to.
func (t *top) run(ctx context.Context, l *zlimit.RateLimiter) error {
	if t.app.Live && !t.app.Output.JSON {
		defer func() { _, _ = io.WriteString(t.app.Stdout, show.ShowCursor) }()
	}
	for n := 1; ; n++ {
		look, failure := t.look(ctx, l)
		if failure != nil {
			if ctx.Err() != nil || t.shown == nil && !errors.As(failure, new(*zlimit.UnavailableError)) {
				return failure // an interrupt, or a mistake that no later look mends
			}
			look = TopLook{Rows: []topRow{}, Coverage: map[string]zlimit.Coverage{}}
			if t.shown != nil {
				look = *t.shown
			}
			look.FailedAt, look.Error = t.app.Now().UTC(), shell.Explain(failure)
		} else {
			t.shown = &look
		}
		if err := t.print(&look); err != nil {
			return err
		}
		if n == t.count {
			return failure
		}
		if err := t.app.Sleep(ctx, t.interval); err != nil {
			return err
		}
	}
}

// print shows a look: as a page that is redrawn, as lines, or as a line of JSON.
func (t *top) print(look *TopLook) error {
	if r := look.Rejected; r != nil {
		t.limitRejected(r)
	}
	dropped := max(len(look.Rows)-t.max, 0)
	look.Rows = look.Rows[:len(look.Rows)-dropped]
	if t.app.Output.JSON {
		return t.app.Print(look, nil)
	}
	p := &show.Page{}
	if look.Error != "" {
		t.warn(p, look)
		if !t.app.Live {
			return t.app.Write(p) // the figures are above
		}
		if look.Time.IsZero() {
			return t.redraw(p)
		}
	}
	if look.Rejected != nil {
		t.printRejected(p, look)
		if !t.app.Live {
			return t.app.Write(p)
		}
		return t.redraw(p)
	}
	about := fmt.Sprintf("%s  %s, %s;", look.Time.Format(time.DateTime), show.Counted(look.Buckets, "bucket"), t.about())
	cost := fmt.Sprintf("this look: %s, %s read units", show.Counted(look.Calls, "call"), show.Decimal(look.ReadUnits))
	if t.app.Live && len(about)+1+len(cost) > t.app.Width() {
		p.Linef("%s", about)
		p.Linef("%s", cost)
	} else {
		p.Linef("%s %s", about, cost)
	}
	header, rows := t.table(look)
	if len(rows) > 0 {
		p.Table(header, rows)
	}
	if dropped > 0 {
		p.Linef("and %s more limits", show.Grouped(int64(dropped)))
	}
	for _, resource := range slices.Sorted(maps.Keys(look.Coverage)) {
		if c := look.Coverage[resource]; !c.Complete && (c.Unlisted > 0 || !c.Known()) {
			p.Linef("%s: %s", resource, c)
		}
	}
	if !t.app.Live {
		return t.app.Write(p)
	}
	return t.redraw(p)
}

// table returns the rows of a look below their header. Columns that all rows would leave empty are left out.
func (t *top) table(look *TopLook) (header []string, rows [][]string) {
	header = []string{"entity", "resource", "limit", "available>", "capacity>", "left", "consumed/s>", "shards>"}
	if t.children {
		header = slices.Insert(header, len(header)-1, "children/s>")
	}
	trend := t.app.Live && slices.ContainsFunc(look.Rows, func(r topRow) bool { return len(r.trend) > 1 })
	if trend {
		header = slices.Insert(header, len(header)-1, "trend")
	}
	held := slices.ContainsFunc(look.Rows, func(r topRow) bool { return r.slots })
	queue := slices.ContainsFunc(look.Rows, func(r topRow) bool { return r.Queue > 0 })
	if held {
		header = append(header, "held>")
	}
	used := slices.ContainsFunc(look.Rows, func(r topRow) bool { return !r.UsedUp.IsZero() })
	if used {
		header = append(header, "used up")
	}
	if queue {
		header = append(header, "queue>")
	}
	rows = make([][]string, len(look.Rows))
	for i := range look.Rows {
		r := &look.Rows[i]
		rows[i] = t.cells(r, trend)
		if held {
			rows[i] = append(rows[i], r.held())
		}
		if used {
			rows[i] = append(rows[i], r.usedUp(look.Time))
		}
		if queue {
			rows[i] = append(rows[i], show.Queue(time.Duration(r.Queue*float64(time.Second))))
		}
	}
	return header, rows
}

// warn says that a look failed, and how old the figures are.
func (t *top) warn(p *show.Page, look *TopLook) {
	age := "there are no figures yet"
	if !look.Time.IsZero() {
		age = fmt.Sprintf("the figures are %v old", look.FailedAt.Sub(look.Time).Round(time.Second))
	}
	p.Linef("%s  this look failed, and %s: %s", look.FailedAt.Format(time.DateTime), age, look.Error)
}

// cells returns the cells of a row. With a trend, what is left is narrower, so that both fit 80 columns.
func (t *top) cells(r *topRow, trend bool) []string {
	bar := 10
	if trend {
		bar = 5
	}
	own, children := "-", "-"
	if r.PerSecond != nil {
		own, children = show.Rate(r.Limit, *r.PerSecond), show.Rate(r.Limit, r.ChildrenRate)
	}
	cells := []string{
		r.Entity, r.Resource, r.Limit, show.Amount(r.Limit, r.Available), show.Amount(r.Limit, r.Capacity), show.Bar(r.left(), bar, "█", "░"), own,
	}
	if t.children {
		cells = append(cells, children)
	}
	if trend {
		cells = append(cells, show.Spark(r.trend, trendLooks))
	}
	return append(cells, strconv.Itoa(r.Shards))
}

func (t *top) about() string {
	if len(t.resources) == 0 {
		return "every resource with limits of its own"
	}
	return "resource " + t.resources[0]
}

// redraw writes a page over the last one. Lines are cut at the width of the terminal: one that wraps would be two to go back over.
func (t *top) redraw(p *show.Page) error {
	lines := strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n")
	screen := &show.Page{}
	if t.height == 0 {
		screen.WriteString(show.HideCursor)
	} else {
		screen.WriteString("\x1b[" + strconv.Itoa(t.height) + "A")
	}
	for _, line := range lines {
		if cut := []rune(line); len(cut) > t.app.Width() {
			line = string(cut[:t.app.Width()-1]) + "…"
		}
		screen.Linef("%s%s", line, show.Raw(show.ClearLine))
	}
	for range max(t.height-len(lines), 0) {
		screen.Linef("%s", show.Raw(show.ClearLine))
	}
	t.height = max(t.height, len(lines))
	return t.app.Write(screen)
}
