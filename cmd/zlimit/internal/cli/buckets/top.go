package buckets

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
		Short: "Watch buckets: balances, what is consumed, shards",
		Long: `Top shows the buckets of a resource, or of every resource with limits of its
own, every two seconds: what is left of each limit, what was consumed since the
last look, over how many items the bucket is spread. Those that consume most
come first. On a terminal it redraws one page, elsewhere it prints lines.

Looking costs reads, which the page shows: half a read unit per 4 KB of an index
and of each bucket, at each look. An interrupt ends it.`,
		Example: `  zlimit top gpt
  zlimit top --interval 10s --max 5
  zlimit top gpt --count 1 -o json`,
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
			case t.count < 0:
				return shell.Usagef("top: --count %d must not be negative", t.count)
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			t.resources = args
			first := func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				_, err := t.look(ctx, l)
				return struct{}{}, err
			}
			if err := shell.Prepare(cmd.Context(), sh, dsn, first); err != nil {
				return err
			}
			*t = top{app: sh, resources: args, interval: t.interval, max: t.max, count: t.count}
			_, err = shell.Perform(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				return struct{}{}, t.run(ctx, l)
			}, zlimit.WithObserver(t.observe))
			if cmd.Context().Err() != nil {
				return nil //nolint:nilerr // an interrupt is how it ends
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&t.interval, "interval", 2*time.Second, "`time` between two looks")
	cmd.Flags().IntVar(&t.max, "max", 20, "`number` of limits to show at most")
	cmd.Flags().IntVar(&t.count, "count", 0, "`number` of looks; 0 for no end")
	return cmd
}

// A top watches buckets.
type top struct {
	app       *shell.Shell
	resources []string // none for all that have limits of their own
	interval  time.Duration
	max       int
	count     int

	before map[topKey]zlimit.Quantity // consumed at the last look; nil before the first
	at     time.Time                  // of the last look
	height int                        // lines of the last page

	turn  sync.Mutex
	calls int
	units float64
}

// A topKey is one limit of a bucket.
type topKey struct{ entity, resource, limit string }

// A topRow is what a look tells of one limit of a bucket.
type topRow struct {
	Entity    string          `json:"entity"`
	Resource  string          `json:"resource"`
	Limit     string          `json:"limit"`
	Available int64           `json:"available"`
	Capacity  int64           `json:"capacity"`
	Consumed  zlimit.Quantity `json:"consumed"` // since the last look
	PerSecond float64         `json:"consumed_per_second"`
	Shards    int             `json:"shards"`
}

// A TopLook is one look at all buckets.
type TopLook struct {
	Time      time.Time `json:"time"`
	Buckets   int       `json:"buckets"`
	Rows      []topRow  `json:"limits"` // those that consume most first
	Calls     int       `json:"calls"`
	ReadUnits float64   `json:"read_units"`
}

// observe counts the calls that looking takes.
func (t *top) observe(_ context.Context, e zlimit.Event) {
	if e.Kind != zlimit.EventStore {
		return
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	t.calls++
	t.units += e.ReadUnits
}

// look reads all buckets.
func (t *top) look(ctx context.Context, l *zlimit.RateLimiter) (TopLook, error) {
	t.turn.Lock()
	t.calls, t.units = 0, 0
	t.turn.Unlock()
	resources := t.resources
	if len(resources) == 0 {
		var err error
		if resources, err = shell.Collect(l.Limits.Resources(ctx)); err != nil {
			return TopLook{}, err
		}
	}
	now := t.app.Now()
	look := TopLook{Time: now.UTC(), Rows: []topRow{}}
	after := map[topKey]zlimit.Quantity{}
	for _, resource := range resources {
		for b, err := range l.Usage.Buckets(ctx, resource) {
			if err != nil {
				return look, err
			}
			look.Buckets++
			for _, s := range b.Statuses {
				key := topKey{b.Entity, b.Resource, s.Limit.Name}
				after[key] = b.Consumed[s.Limit.Name]
				row := topRow{Entity: b.Entity, Resource: b.Resource, Limit: s.Limit.Name, Available: s.Available, Capacity: s.Limit.Capacity, Shards: b.Shards}
				if t.before != nil {
					row.Consumed = max(after[key]-t.before[key], 0)
					row.PerSecond = float64(row.Consumed) / 1000 / max(now.Sub(t.at).Seconds(), 0.001)
				}
				look.Rows = append(look.Rows, row)
			}
		}
	}
	t.before, t.at = after, now
	slices.SortStableFunc(look.Rows, func(a, b topRow) int { return cmp.Compare(b.PerSecond, a.PerSecond) })
	t.turn.Lock()
	defer t.turn.Unlock()
	look.Calls, look.ReadUnits = t.calls, t.units
	return look, nil
}

// run looks until the context ends, or as often as it was asked to.
func (t *top) run(ctx context.Context, l *zlimit.RateLimiter) error {
	if t.app.Live && !t.app.Output.JSON {
		defer func() { _, _ = io.WriteString(t.app.Stdout, show.ShowCursor) }()
	}
	for n := 1; ; n++ {
		look, err := t.look(ctx, l)
		if err == nil {
			err = t.print(&look)
		}
		if err != nil || n == t.count {
			return err
		}
		if err := t.app.Sleep(ctx, t.interval); err != nil {
			return err
		}
	}
}

// print shows a look: as a page that is redrawn, as lines, or as a line of JSON.
func (t *top) print(look *TopLook) error {
	dropped := max(len(look.Rows)-t.max, 0)
	look.Rows = look.Rows[:len(look.Rows)-dropped]
	if t.app.Output.JSON {
		return t.app.Print(look, nil)
	}
	title := fmt.Sprintf("%s  %s, %s; this look: %s, %s read units", look.Time.Format(time.DateTime),
		show.Counted(look.Buckets, "bucket"), t.about(), show.Counted(look.Calls, "call"), show.Decimal(look.ReadUnits))
	p := &show.Page{}
	p.Linef("%s", title)
	rows := make([][]string, len(look.Rows))
	for i, r := range look.Rows {
		left := float64(max(r.Available, 0)) / float64(max(r.Capacity, 1))
		rows[i] = []string{
			r.Entity, r.Resource, r.Limit, show.Grouped(r.Available), show.Grouped(r.Capacity), show.Bar(left, 10, "█", "░"),
			show.Decimal(r.PerSecond), strconv.Itoa(r.Shards),
		}
	}
	if len(rows) > 0 {
		p.Table([]string{"entity", "resource", "limit", "available>", "capacity>", "left", "consumed/s>", "shards>"}, rows)
	}
	if dropped > 0 {
		p.Linef("and %s more limits that consume less", show.Grouped(int64(dropped)))
	}
	if !t.app.Live {
		return t.app.Write(p)
	}
	return t.redraw(p)
}

// about names what is watched.
func (t *top) about() string {
	if len(t.resources) == 0 {
		return "every resource with limits of its own"
	}
	return "resource " + t.resources[0]
}

// redraw writes a page over the last one.
func (t *top) redraw(p *show.Page) error {
	lines := strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n")
	screen := &show.Page{}
	if t.height == 0 {
		screen.WriteString(show.HideCursor)
	} else {
		screen.WriteString("\x1b[" + strconv.Itoa(t.height) + "A")
	}
	for _, line := range lines {
		screen.Linef("%s%s", line, show.ClearLine)
	}
	for range max(t.height-len(lines), 0) {
		screen.Linef("%s", show.ClearLine)
	}
	t.height = max(t.height, len(lines))
	return t.app.Write(screen)
}
