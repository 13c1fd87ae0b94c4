package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/stream/leases"
	"github.com/zlimit/zlimit-go/internal/tool/seldom"
	"github.com/zlimit/zlimit-go/zlimit"
)

// ErrNoStream reports a table without a stream of old and new images, or a store that cannot read the stream. A store
// that dynamo.New made needs dynamo.WithStreams.
var ErrNoStream = store.ErrNoStream

// newConsumer returns the consumer of the stream of the table, nil if the store has no change stream.
func (a *Aggregator) newConsumer() *stream.Consumer {
	source, ok := a.table.Store().(store.Streamer)
	if !ok {
		return nil
	}
	c := stream.Config{
		Source: source,
		Leases: leases.In(a.table),
		Apply:  a.applyAdmitted,
		Name:   a.options.name,
		Wants:  a.wants,
		Batch:  a.options.batch,
		Poll:   a.poll(),
		Now:    a.options.clock,
		Report: a.report,
		Lose: func(ctx context.Context, partition string, from, to time.Time) error {
			return a.noteGap(ctx, gapLost, partition, from, to)
		},
		Begin: a.noteBegin,
	}
	if a.options.skipping {
		c.Skip = a.skips
	}
	return stream.New(c)
}

// costlyPoll is the pause between batches where each write of a snapshot is paid for, and freePoll the one elsewhere.
const (
	costlyPoll = time.Minute
	freePoll   = time.Second
)

// poll returns the pause of Run once all changes are read.
func (a *Aggregator) poll() time.Duration {
	switch {
	case a.options.poll > 0:
		return a.options.poll
	case a.table.Partitioned():
		return costlyPoll
	default:
		return freePoll
	}
}

// wants reports whether something may follow from a change. Most others are changes of the snapshots themselves.
func (a *Aggregator) wants(c *store.Change) bool {
	_, isBucket := layout.ParseBucketKey(c.Key)
	return isBucket || c.Expired && a.options.archive != nil
}

// isRefusal reports whether the store will never take a write. An outage passes, and a missing permission or table can
// be given. Where several writes failed, all must be refused.
func isRefusal(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !isRefusal(err) })
	}
	var e *store.Error
	return errors.As(err, &e) && e.Invalid
}

// Run works on the changes of the table until ctx ends. It then finishes the work under way, for up to 20 seconds, or
// 30 if the store does not answer, and returns nil. Call it once.
//
// Run immediately returns [ErrNoStream] or [zlimit.ErrTableNotFound] if the table has no changes to read. It returns a
// [*zlimit.VersionError] if this client may not use the table. Other failures are logged and retried.
//
// Any number of processes may run aggregators of one table. They share the partitions of its stream. Another process
// takes over the partitions of a crashed one within 40 seconds. Run starts two goroutines, and two for each partition.
//
// Every two to four minutes Run looks for hours that have ended, and adds them to their days and months, see
// [WithoutRollUp]. A look costs 16 read units. The found hours are added with at most [WithConcurrency] calls at a
// time.
//
// In a SQLite file the first Run turns the log of changes on, which about doubles the time of a write. The log is turned
// off again once no aggregator has run for a day.
//
// While the stream has few changes, reading costs two or three GetRecords calls for each shard and pause of [WithPoll].
// While it has many, reading costs at most five a second. Each partition costs one write unit in ten seconds. In the
// same time each process costs one read unit for every fifteen partitions or so. One of the processes lists all shards
// every five minutes.
func (a *Aggregator) Run(ctx context.Context) error {
	if a.consumer == nil {
		return fmt.Errorf("aggregator: %w", ErrNoStream)
	}
	if err := a.registry.admit(ctx); errors.As(err, new(*zlimit.VersionError)) { // what else fails is tried again with the first changes
		return fmt.Errorf("aggregator: %w", err)
	}
	rolling, stop := context.WithCancel(ctx)
	var roller sync.WaitGroup
	roller.Go(func() { a.roller.keepRolling(rolling) })
	err := a.consumer.Run(ctx)
	stop()
	roller.Wait()
	switch {
	case errors.Is(err, store.ErrTableNotFound):
		return fmt.Errorf("%w: %w", zlimit.ErrTableNotFound, err)
	case err != nil:
		return fmt.Errorf("aggregator: %w", err)
	default:
		return nil
	}
}

// outageLog has the lines of log that an outage brings again and again. Each is written once a minute.
type outageLog struct {
	away    seldom.Line // any work that an outage of the store stops
	failing seldom.Line // changes that fail for another reason
	unread  seldom.Line // leases that cannot be read
	trouble seldom.Line // calls that fail for another reason
	rolling seldom.Line // hours that are not rolled up, for another reason
	tending seldom.Line // buckets that are not tended, for another reason
}

// log writes a failure that is tried again. A failure of an outage has the outage's line, and any other has a line of
// its own.
func (bs *base) log(ctx context.Context, own *seldom.Line, level slog.Level, text string, err error, more ...any) {
	switch {
	case isOutage(err):
		own, level = &bs.outages.away, slog.LevelWarn
	case store.OutcomeOf(err) == store.Conflicted:
		level = slog.LevelWarn
	}
	own.Log(ctx, bs.options.logger, level, text, append(more, "error", err)...)
}

// isOutage reports whether an error comes from a store that is away or overloaded.
func isOutage(err error) bool {
	switch store.OutcomeOf(err) {
	case store.Throttled, store.Unavailable, store.Unknown, store.Ended:
		return true
	default:
		return false
	}
}

// news are the lines of log about what happens to the consumer.
var news = map[stream.Kind]struct {
	level slog.Level
	text  string
}{
	stream.Claimed:    {slog.LevelInfo, "aggregator: has a partition of the stream"},
	stream.Released:   {slog.LevelInfo, "aggregator: gave a partition of the stream back"},
	stream.Finished:   {slog.LevelInfo, "aggregator: a partition of the stream has ended"},
	stream.Lost:       {slog.LevelWarn, "aggregator: could not keep a partition of the stream"},
	stream.Gap:        {slog.LevelError, "aggregator: the stream had forgotten changes that were not read; usage may be too low"},
	stream.Failing:    {slog.LevelWarn, "aggregator: changes could not be applied, and are tried again"},
	stream.Stuck:      {slog.LevelError, "aggregator: a partition of the stream stands still at a change that cannot be applied"},
	stream.Skipped:    {slog.LevelError, "aggregator: a change that cannot be applied is left out"},
	stream.Unreadable: {slog.LevelError, "aggregator: the lease of a partition cannot be read, and its changes are not"},
	stream.Trouble:    {slog.LevelWarn, "aggregator: a call to the store failed, and is tried again"},
	stream.Waiting:    {slog.LevelInfo, "aggregator: waits, since another process has the partitions of the stream"},
	stream.Back:       {slog.LevelInfo, "aggregator: the store answers again"},
}

// report logs what happens to the consumer.
func (a *Aggregator) report(e stream.Event) {
	level, text := news[e.Kind].level, news[e.Kind].text
	line := map[stream.Kind]*seldom.Line{ // nil for failures written each time
		stream.Failing: &a.outages.failing, stream.Unreadable: &a.outages.unread, stream.Trouble: &a.outages.trouble,
	}[e.Kind]
	if e.Kind == stream.Back && !a.outages.away.Over() {
		return // what failed was no outage
	}
	var more []any
	if e.From != "" {
		more = append(more, "from", e.From)
	}
	if !e.Until.IsZero() {
		more = append(more, "until", e.Until.UTC().Truncate(time.Second), "unless", "it renews its lease") // as a process that works does
	}
	if e.Partition != "" {
		more = append(more, "partition", e.Partition)
	}
	if e.Change != nil {
		more = append(more, "pk", e.Change.Key.PK, "sk", e.Change.Key.SK, "sequence", e.Change.Sequence, "failed", e.Failed, "attempt", e.Attempt)
	}
	switch {
	case e.Kind == stream.Stuck && isOutage(e.Err): // of many partitions together
		a.outages.away.Log(context.Background(), a.options.logger, level, text, append(more, "error", e.Err)...)
		return
	case line != nil:
		a.log(context.Background(), line, level, text, e.Err, more...)
		return
	}
	if e.Err != nil {
		more = append(more, "error", e.Err)
	}
	a.options.logger.Log(context.Background(), level, text, more...)
}

// A Status is the state of [Aggregator.Run].
type Status struct {
	Name       string      `json:"name"` // by which other processes know this one
	Healthy    bool        `json:"healthy"`
	LookedAt   time.Time   `json:"looked_at"` // when it last read who has which partition
	Err        string      `json:"error,omitempty"`
	Partitions []Partition `json:"partitions"` // of this process, and those that no process seems to have
}

// A Partition says how far the aggregator has come in one partition of the stream.
type Partition struct {
	ID         string    `json:"id"`
	Held       bool      `json:"held"`     // by this process; false where no process seems to have the partition
	Position   string    `json:"position"` // sequence of the last change that is applied
	Applied    int64     `json:"applied"`  // changes, since this process has the partition
	Skipped    int64     `json:"skipped"`  // changes that were skipped
	Gaps       int64     `json:"gaps"`     // times that the stream had forgotten changes
	LastChange time.Time `json:"last_change"`
	LagSeconds float64   `json:"lag_seconds"` // the age of the oldest change that is not applied, or may not be
	Failing    string    `json:"failing,omitempty"`
	Stuck      bool      `json:"stuck"` // it stands still at the change that fails
	Err        string    `json:"error,omitempty"`
}

// Status returns how far Run has come. It makes no call.
func (a *Aggregator) Status() Status {
	if a.consumer == nil {
		return Status{Err: ErrNoStream.Error(), Partitions: []Partition{}}
	}
	now := a.consumer.Status()
	s := Status{
		Name: now.Name, Healthy: now.Healthy(), LookedAt: now.LookedAt.UTC(), Err: text(now.Err), Partitions: []Partition{},
	}
	for i := range now.Partitions {
		p := &now.Partitions[i]
		s.Partitions = append(s.Partitions, Partition{
			ID: p.Partition, Held: !p.Unheld, Position: string(p.Position), Applied: p.Applied, Skipped: p.Skipped, Gaps: p.Gaps,
			LastChange: p.LastChange.UTC(), LagSeconds: p.Lag.Seconds(), Failing: string(p.Failing), Stuck: p.Stuck, Err: text(p.Err),
		})
	}
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ServeHTTP answers with the status as JSON: 200 while the aggregator is healthy, 503 when it is not. It is for a health
// check.
func (a *Aggregator) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s := a.Status()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !s.Healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(s) // the caller is gone
}
