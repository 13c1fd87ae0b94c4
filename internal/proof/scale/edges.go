package scale

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Span is a part of a load's time.
type Span struct{ From, To time.Duration }

// Spent is what came of the requests of a span, and what the table was asked for in it.
type Spent struct {
	Tally
	Seconds   float64 `json:"seconds"`
	Writes    float64 `json:"writes"`    // write units a second
	Failed    float64 `json:"failed"`    // part of the writes whose condition failed
	Throttled float64 `json:"throttled"` // calls a second
	P99       float64 `json:"p99"`       // milliseconds
}

// A spanOf measures a span.
type spanOf struct {
	Span
	Spent
	latencies latencies
}

// watch notes the calls of the table in the spans.
func (f *fleet) watch(all *sync.WaitGroup) {
	for i := range f.spans {
		s := &f.spans[i]
		all.Go(func() {
			time.Sleep(time.Until(f.began.Add(s.From)))
			before := f.table.Used()
			time.Sleep(s.To - s.From)
			used := f.table.Used().since(before)
			s.Seconds = (s.To - s.From).Seconds()
			s.Writes, s.Failed = used.WriteUnits/s.Seconds, float64(used.Failed)/float64(max(used.Writes, 1))
			for _, n := range used.Throttled {
				s.Throttled += float64(n) / s.Seconds
			}
		})
	}
}

// midnight returns the next midnight of a month in UTC.
func midnight(now time.Time) time.Time {
	now = now.UTC()
	return time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// A waiter is a request that waits.
type waiter struct{ came, due, served time.Duration }

// A Queue is what came of requests that wait, beside an ideal bucket that serves them in the order in which they come.
type Queue struct {
	Wait   float64 `json:"wait"`   // 99th percentile, seconds
	Ideal  float64 `json:"ideal"`  // the same of the ideal bucket
	Late   float64 `json:"late"`   // by how much a request is later than there: 99th percentile, seconds
	Passed float64 `json:"passed"` // how much earlier one that came later was served: 99th percentile, seconds
	Last   float64 `json:"last"`   // by how much the last one is later than there, seconds
	Warm   float64 `json:"warm"`   // Late, of those who come when a new bucket has been busy for coldTime
}

// coldTime is the time in which a new bucket that many ask for is split.
const coldTime = 3 * time.Second

// A line has the requests in the order in which they came.
type line struct {
	Ceiling
	level   float64
	at      time.Duration
	waiters []*waiter
}

// come adds a request to the ideal bucket.
func (l *line) come(now time.Duration, amount float64) *waiter {
	l.level = min(l.Capacity, l.level+l.Rate*(now-l.at).Seconds()) - amount
	l.at = now
	w := &waiter{came: now, due: now + time.Duration(max(0, -l.level)/l.Rate*float64(time.Second)), served: -1}
	l.waiters = append(l.waiters, w)
	return w
}

// sum sums a line up.
func (l *line) sum() *Queue {
	var waits, ideal, late, passed, warm []time.Duration
	var latest, last, lastDue time.Duration
	for _, w := range l.waiters {
		if w.served < 0 {
			continue
		}
		waits, ideal, late = append(waits, w.served-w.came), append(ideal, w.due-w.came), append(late, w.served-w.due)
		passed = append(passed, max(0, latest-w.served))
		if w.came >= coldTime {
			warm = append(warm, w.served-w.due)
		}
		latest, lastDue = max(latest, w.served), max(lastDue, w.due)
	}
	last = latest - lastDue
	p99 := func(all []time.Duration) float64 {
		slices.Sort(all)
		if len(all) == 0 {
			return 0
		}
		return rounded(all[len(all)*99/100].Seconds(), 3)
	}
	return &Queue{p99(waits), p99(ideal), p99(late), p99(passed), rounded(last.Seconds(), 3), p99(warm)}
}

// asTold is the spread of callers that sleep by [zlimit.ExceededError.SpreadRetryAfter].
const asTold time.Duration = -1

// again returns how long a refused request sleeps before it comes again, false for never.
func (f *fleet) again(err error) (time.Duration, bool) {
	var exceeded *zlimit.ExceededError
	if !f.Returns || !errors.As(err, &exceeded) || !exceeded.Possible() {
		return 0, false
	}
	if f.Spread == asTold {
		return exceeded.SpreadRetryAfter(), true
	}
	return exceeded.RetryAfter() + time.Duration(rand.Int64N(int64(f.Spread)+1)), true
}

// A Walk is the outcome of an operator who disables a resource.
type Walk struct {
	Seconds float64 `json:"seconds"` // until all buckets are marked
	Buckets int     `json:"buckets"` // items of buckets that are marked in the end
	Writes  float64 `json:"writes"`  // write units meanwhile, of requests as well
	Reads   float64 `json:"reads"`
	Last    float64 `json:"last"`   // seconds after which a request was admitted last
	Missed  int     `json:"missed"` // items of buckets that serve requests in the end
}

// turnOff disables the resource at the time of the switch.
func (f *fleet) turnOff(ctx context.Context) error {
	time.Sleep(time.Until(f.began.Add(f.Switch)))
	l, err := f.limiter(ctx)
	if err != nil {
		return err
	}
	before := f.table.Used()
	f.outcome.Walk = &Walk{}
	w := f.outcome.Walk
	level := zlimit.Level{Resource: resource}
	f.turnedOff = time.Now()
	if f.Halfway {
		halfway, stop := context.WithCancel(ctx)
		_, err = l.Limits.Disable(halfway, level, func(r zlimit.SwitchReport) {
			if r.Buckets == f.Known/2 {
				stop()
			}
		})
		if stop(); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("the walk has not ended halfway: %w", err)
		}
	}
	report, err := l.Limits.Disable(ctx, level, nil)
	used := f.table.Used().since(before)
	w.Seconds, w.Writes, w.Reads = rounded(time.Since(f.turnedOff).Seconds(), 1), used.WriteUnits, used.ReadUnits
	w.Buckets = report.Buckets
	return errors.Join(err, l.Close())
}

// missed returns the number of items of buckets that serve requests.
func (f *fleet) missed(ctx context.Context) (missed int, err error) {
	for _, key := range f.table.keys {
		items, err := f.table.items.Read(ctx, []store.Key{key}, true)
		if err != nil {
			return 0, err
		}
		if _, ok := layout.ParseBucketKey(key); ok && items[0] != nil && !items[0].Get("disabled").True() {
			missed++
		}
	}
	return missed, nil
}

// crossings returns the number of items that one write has brought into their next period, and of those that several have.
func (t *Table) crossings() (items [2]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.crossed {
		items[min(n, 2)-1]++
	}
	return items
}

// pageBytes is the size of a page of a scan, and pageTime the time that the table takes for it, by documentation and by judgement.
const (
	pageBytes = 1 << 20
	pageTime  = 40 * time.Millisecond
)

// A placedKey is the key of an item, with its place in the table.
type placedKey struct {
	at  position
	key store.Key
}

// Scan reads a page, of the items that there are when it begins: those put meanwhile are missed, where DynamoDB may show them. It is
// charged to the partition of its first item.
func (c *Client) Scan(ctx context.Context, q store.Scan) (page store.Page, err error) {
	err = c.repeat(ctx, true, func() error {
		c.travel(1)
		time.Sleep(pageTime)
		page, err = c.scan(ctx, q)
		return err
	})
	return page, err
}

func (t *Table) scan(ctx context.Context, q store.Scan) (page store.Page, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.scanned) != len(t.keys) {
		t.scanned = t.scanned[:0]
		for _, k := range t.keys {
			t.scanned = append(t.scanned, placedKey{at(k.PK, k.SK), k})
		}
		slices.SortFunc(t.scanned, func(a, b placedKey) int { return a.at.compare(b.at) })
	}
	find := func(p position) int {
		i, _ := slices.BinarySearchFunc(t.scanned, p, func(k placedKey, p position) int { return k.at.compare(p) })
		return i
	}
	step := math.MaxUint64 / uint64(max(q.Segments, 1))
	from, end, size, now := find(position{hash: step * uint64(q.Segment)}), len(t.scanned), 0, time.Now()
	if q.Segment+1 < q.Segments {
		end = find(position{hash: step * uint64(q.Segment+1)})
	}
	if after := store.KeyOf(expr.Item(q.Continue)); q.Continue != nil {
		for from = find(at(after.PK, after.SK)); t.scanned[from].key == after; {
			from++
		}
	}
	if from >= end {
		return page, nil
	}
	if m := t.mayRead(t.scanned[from].key, now); m != nil {
		return page, m.err("Scan")
	}
	for i := from; i < end && page.Next == nil; i++ {
		k := t.scanned[i].key
		found, err := t.items.Read(context.WithoutCancel(ctx), []store.Key{k}, true)
		if err != nil {
			return page, err
		}
		size += store.Size(found[0])
		if found[0] != nil && strings.HasPrefix(k.PK, q.Prefix) {
			page.Items = append(page.Items, t.lagging(k, found[0], now))
		}
		if size >= pageBytes && i+1 < end {
			page.Next = store.Cursor(k.Join(nil))
		}
	}
	units := math.Ceil(float64(size)/4096) / 2
	t.base.partitions[t.base.find(at(t.scanned[from].key.PK, ""))].reads.units -= units
	t.base.read.units -= units
	t.used.ReadUnits += units
	return page, nil
}

// Estimate counts all items.
func (t *Table) Estimate(ctx context.Context) (items, bytes int64, err error) {
	return t.items.Estimate(ctx)
}
