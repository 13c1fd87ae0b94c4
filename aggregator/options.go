package aggregator

import (
	"context"
	"log/slog"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Option changes how an aggregator works. Options are checked by [New].
type Option func(*options)

type options struct {
	clock       func() time.Time
	sleep       func(context.Context, time.Duration) error // between tries
	concurrency int
	logger      *slog.Logger
	retention   map[zlimit.Window]time.Duration
	archive     Sink        // nil for none
	observer    func(Batch) // nil for none
	tending     bool
	maxShards   int
	name        string        // "" for one that the consumer makes
	poll        time.Duration // 0 for the default of the store
	batch       int
	skipping    bool
	rollingUp   bool
	streamOf    string // the table whose stream a function is called with; "" for any
}

// windows are the windows that usage is summed up over.
var windows = [...]zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly}

// minRetention is the shortest time that a snapshot is kept after its window. A change may be delivered again for as long as the stream of
// the table has it, which is a day. Such a change would begin a new snapshot in place of one that has expired.
const minRetention = 48 * time.Hour

func newOptions(opts []Option) (options, error) {
	o := options{
		clock:       time.Now, //nolint:forbidigo // the default of WithClock
		concurrency: 8,
		sleep:       wait.For,
		logger:      slog.New(slog.DiscardHandler),
		tending:     true,
		rollingUp:   true,
		maxShards:   32,
		batch:       10_000,
		retention: map[zlimit.Window]time.Duration{
			zlimit.WindowHourly:  90 * 24 * time.Hour,
			zlimit.WindowDaily:   400 * 24 * time.Hour,
			zlimit.WindowMonthly: 0,
		},
	}
	for i, opt := range opts {
		if opt == nil {
			return o, invalid("option "+strconv.Itoa(i+1), "nil", "must not be nil")
		}
		opt(&o)
	}
	return o, o.validate()
}

func invalid(field, value, reason string) error {
	return &zlimit.ValidationError{Field: field, Value: value, Reason: reason}
}

func (o *options) validate() error {
	switch {
	case o.clock == nil:
		return invalid("clock", "nil", "must not be nil")
	case o.logger == nil:
		return invalid("logger", "nil", "must not be nil")
	case bits.OnesCount(uint(o.maxShards)) != 1 || o.maxShards > 32:
		return invalid("max shards", strconv.Itoa(o.maxShards), "must be 1, 2, 4, 8, 16 or 32")
	case strings.Contains(o.name, "#") || len(o.name) > 128:
		return invalid("name", o.name, "must have at most 128 bytes, and no #")
	case o.poll < 0:
		return invalid("poll", o.poll.String(), "must not be negative")
	case o.batch < 1:
		return invalid("batch", strconv.Itoa(o.batch), "must be positive")
	case o.concurrency < 1:
		return invalid("concurrency", strconv.Itoa(o.concurrency), "must be positive")
	}
	for w, d := range o.retention {
		if _, err := zlimit.ParseWindow(string(w)); err != nil {
			return err
		}
		if d != 0 && d < minRetention {
			return invalid("retention", d.String(), "must be 0, forever, or at least "+minRetention.String())
		}
	}
	return nil
}

// WithRetention sets how long the snapshots of a window are kept after its end. It is at least 48 hours, since changes may be delivered
// again for a day; 0 keeps them forever. The default is 90 days for hours, 400 days for days, and forever for months. It applies to every
// snapshot written from then on, existing ones included.
func WithRetention(w zlimit.Window, d time.Duration) Option {
	return func(o *options) { o.retention[w] = d }
}

// WithConcurrency sets how many writes of one batch are under way at a time; the default is 8.
func WithConcurrency(n int) Option { return func(o *options) { o.concurrency = n } }

// WithoutTending leaves all buckets to the limiters. By default the aggregator refills, splits and merges busy buckets before the limiters
// have to. Correctness does not depend on that.
func WithoutTending() Option { return func(o *options) { o.tending = false } }

// WithMaxShards sets into how many items the bucket of one entity and resource may be split. It should equal the
// setting of the limiters, see [zlimit.Tuning]. The default is 32.
func WithMaxShards(n int) Option { return func(o *options) { o.maxShards = n } }

// WithName sets the name by which other processes know this one in [Aggregator.Run]; no two may have the same at any
// time. The default is made from the name of the host and a random part.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithPoll sets the pause of [Aggregator.Run] once all changes are read. The default, also for 0, is a minute on
// DynamoDB, and a second on stores whose writes cost nothing. Usage is behind by the pause. A longer pause makes batches
// larger, and a bucket at constant work costs a write per batch.
func WithPoll(d time.Duration) Option { return func(o *options) { o.poll = d } }

// WithBatch bounds the changes that [Aggregator.Run] applies together; the default is 10,000. A bucket costs a write
// per batch, so a bound that a busy partition reaches before the pause ends costs writes. Each change
// takes about 4 KB of memory, 40 MB for a full batch of one partition.
func WithBatch(n int) Option { return func(o *options) { o.batch = n } }

// WithSkipping makes [Aggregator.Run] skip a change whose snapshot the store repeatedly finds invalid, such as one that
// is too large. It logs the change as an error. An outage, or a missing permission, does not count.
//
// By default the aggregator stops at such a change, logs it once a minute and is not healthy. Skipped changes are
// permanently missing from the usage.
func WithSkipping() Option { return func(o *options) { o.skipping = true } }

// WithoutRollUp writes the snapshots of hour, day and month with each batch. By default a batch on DynamoDB writes the
// hour alone, which is added to its day and month a quarter of an hour after its end. With this option, days and months
// are as up to date as hours, for up to three times the write units. The option takes effect with the next hour of a
// bucket: hours begun without it are rolled up. On other stores, whose writes cost nothing, it changes nothing.
//
// A table needs it while another program, or an aggregator that does not roll up, works on it at the same time.
func WithoutRollUp() Option { return func(o *options) { o.rollingUp = false } }

// WithClock sets the clock of the aggregator; the default is [time.Now]. Figures follow the time of each change. The clock decides when
// an hour has ended, and is added to its day and its month. The clocks of the aggregators of a table must agree within minutes, or an
// hour may be missed. The function must be safe for concurrent use.
func WithClock(now func() time.Time) Option { return func(o *options) { o.clock = now } }

// WithLogger sets the logger for an operator's news, such as an unreadable item. By default there is none.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }
