package aggregator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/zlimit"
)

// The roller looks for hours that have ended, and rolls them up. One aggregator at a time works on the hour of a resource,
// so that the work is not done twice. Nothing depends on that.

const (
	lookPause  = 2 * time.Minute  // between two looks of Run; up to as much is added at random
	claimTerm  = 5 * time.Minute  // for which an aggregator has an hour, from its last page on
	rollUpPage = 100              // snapshots between two notes of how far the work has come
	pageTime   = 20 * time.Second // for a page that is under way when Run is to end
)

// A roller has hours added to their days and months.
type roller struct {
	*base
	registry *registry
	adder    *adder
	owner    string       // the name under which this aggregator alone rolls up
	looked   atomic.Int64 // time of its last look in a function, epoch nanoseconds
}

// keepRolling rolls up due hours until the context ends. It then finishes its page, so that another aggregator may continue immediately.
func (ro *roller) keepRolling(ctx context.Context) {
	for wait.For(ctx, lookPause+rand.N(lookPause)) == nil {
		calls, cancel := outlasting(ctx, pageTime)
		ro.rollDue(calls, ctx)
		cancel()
	}
}

// outlasting returns a context that ends some time after another one.
func outlasting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = wait.For(longer, d)
		cancel()
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// rollDue rolls up due hours, until there are no more or working ends. Calls are made with ctx, which may last longer,
// to finish a page. What fails is logged, and is due again later.
func (ro *roller) rollDue(ctx, working context.Context) {
	if err := ro.registry.admit(ctx); err != nil {
		return // the next changes will show
	}
	first := rand.IntN(dueParts) // others begin elsewhere
	for i := range dueParts {
		if err := ro.rollPart(ctx, working, (first+i)%dueParts); err != nil && working.Err() == nil {
			ro.log(ctx, &ro.outages.rolling, slog.LevelError, "aggregator: hours could not be rolled up into days and months, and are tried again", err)
		}
		if working.Err() != nil {
			return
		}
	}
}

func (ro *roller) rollPart(ctx, working context.Context, part int) error {
	q := layout.QueryDueHours(part)
	last := ro.options.clock().Add(-dueAfter - time.Hour) // the last start of an hour that is due
	q.Consistent = true
	q.UpTo = q.Prefix + layout.WindowKey(string(zlimit.WindowHourly), last) + "$" // after every key of that hour
	var failed error
	for item, err := range ro.table.Items(ctx, q) {
		if err != nil {
			return errors.Join(failed, err)
		}
		record, err := layout.DecodeDueHour(item)
		if err == nil {
			err = ro.rollRecord(ctx, working, &record)
		}
		failed = errors.Join(failed, err)
		if working.Err() != nil {
			break
		}
	}
	return failed
}

// rollRecord rolls up the hour of a resource, unless another aggregator does.
func (ro *roller) rollRecord(ctx, working context.Context, record *layout.DueHour) error {
	k := record.Key
	now := ro.options.clock()
	if record.Owner != "" && record.Owner != ro.owner && record.Until > now.Unix() {
		return nil
	}
	claim, err := layout.ClaimDueHour(ro.owner, now.Unix(), now.Add(claimTerm).Unix())
	if err != nil {
		return err
	}
	r, err := ro.table.PatientWrite(ctx, store.Write{Kind: store.Update, Key: k.Key(), Expr: claim})
	if err != nil || !r.Applied {
		return err
	}
	claimed, err := layout.DecodeDueHour(r.Item)
	if err != nil {
		return err
	}
	done, err := ro.rollResource(ctx, working, &claimed)
	if errors.Is(err, errTaken) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("roll up hour %s of resource %s: %w", k.WindowKey, k.Resource, err)
	}
	if !done {
		return nil
	}
	owned, err := layout.FinishDueHour(ro.owner)
	if err != nil {
		return err
	}
	_, err = ro.table.PatientWrite(ctx, store.Write{Kind: store.Delete, Key: k.Key(), Expr: owned})
	return err
}

// errTaken says that another aggregator has gone on with an hour.
var errTaken = errors.New("another aggregator has gone on with it")

// rollResource rolls up the snapshots of a resource for the hour of a record, page by page, from where the record says. It
// returns false when working ends before that.
func (ro *roller) rollResource(ctx, working context.Context, record *layout.DueHour) (done bool, err error) {
	k := record.Key
	q := layout.QueryUsageOfResource(k.ID, k.Resource, k.WindowKey)
	q.After, q.Limit = record.After, rollUpPage
	for page, err := range ro.table.Pages(ctx, q) {
		if err != nil {
			return false, err
		}
		if err := ro.rollPage(ctx, table.Keys(page)); err != nil {
			return false, err
		}
		until := ro.options.clock().Add(claimTerm)
		over := working.Err() != nil
		if over { // the next aggregator may continue immediately
			until = ro.options.clock()
		}
		_, after := lastOf(table.Keys(page)).ResourceIndex()
		keep, err := layout.KeepDueHour(ro.owner, until.Unix(), after)
		if err != nil {
			return false, err
		}
		r, err := ro.table.PatientWrite(ctx, store.Write{Kind: store.Update, Key: k.Key(), Expr: keep})
		switch {
		case err != nil:
			return false, err
		case !r.Applied:
			return false, errTaken
		case over:
			return false, nil
		}
	}
	return true, nil
}

func lastOf(keys []store.Key) layout.UsageKey {
	k, _ := layout.ParseUsageKey(keys[len(keys)-1])
	return k
}

// rollPage rolls up the snapshots of a page. Days and months of a namespace that was purged meanwhile are deleted again.
func (ro *roller) rollPage(ctx context.Context, keys []store.Key) error {
	began := ro.options.clock()
	b := newBatch(0)
	var hours []*hour
	for _, key := range keys {
		k, ok := layout.ParseUsageKey(key)
		start := layout.ParseTime(k.WindowKey)
		if !ok || start.IsZero() {
			continue
		}
		hours = append(hours, &hour{snapshot: &snapshot{
			bucket: layout.BucketKey{NS: k.NS, Entity: k.Entity, Resource: k.Resource}, window: zlimit.WindowHourly, start: start,
		}})
	}
	var failed error
	for _, err := range ro.adder.rollUp(ctx, hours, b) {
		failed = errors.Join(failed, err)
	}
	failed = errors.Join(failed, ro.registry.forget(ctx, b))
	ro.observe(b, began)
	return failed
}
