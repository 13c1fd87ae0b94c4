package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/stream/leases"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a stream, the table with the leases, and the changes reported to consumers.
type testbed struct {
	t      *testing.T
	store  store.Store
	source store.Streamer
	shards *enginetest.Shards // nil when the source is the table itself

	mu         sync.Mutex
	deliveries []delivery
	events     []stream.Event
	next       int              // value of the last change that was made
	partition  map[int64]string // of each change
}

// A delivery is one change in one call of Apply, by one consumer. One without an item says that the consumer has the
// partition from there on, perhaps once more.
type delivery struct {
	consumer  string
	partition string // "" if it is not reported
	item      string
	n         int64 // the value of the item, which counts up
}

// embedded returns a world whose changes are those of a store in memory.
func embedded(t *testing.T) *testbed {
	t.Helper()
	s := check.Call(zlimit.Memory()).Must(t, "zlimit.Memory()")
	t.Cleanup(func() { check.Error(t, "Close()", s.Close()) })
	w := &testbed{t: t, store: store.Of(s), partition: map[int64]string{}}
	check.Fatal(t, "Setup()", w.store.Setup(t.Context()))
	w.source = w.store.(store.Streamer)
	check.Fatal(t, "StartStream()", w.source.StartStream(t.Context()))
	return w
}

// sharded returns a world whose changes are those of a DynamoDB stream of several shards.
func sharded(t *testing.T) *testbed {
	t.Helper()
	w := embedded(t)
	w.shards = enginetest.NewShards()
	db, streams := w.shards.Clients()
	w.source = dynamo.New(db, "shards", storetest.Table, nil, dynamo.Streams(streams), dynamo.ReadInterval(0))
	return w
}

// put makes a change of an item, in the shard that has it. Its value is greater than that of any change before.
func (w *testbed) put(shard, item string) {
	w.t.Helper()
	w.mu.Lock()
	w.next++
	w.partition[int64(w.next)] = "log"
	if w.shards != nil {
		w.partition[int64(w.next)] = w.shards.Partition(shard)
	}
	w.mu.Unlock()
	if w.shards != nil {
		w.shards.Put(shard, item, w.next, time.Now())
		return
	}
	k := store.Key{PK: item, SK: "s"}
	check.Call(w.store.Write(w.t.Context(), store.Write{Kind: store.Put, Key: k, Item: storetest.Item("n", w.next)})).Must(w.t, "Write()")
}

// A running consumer.
type running struct {
	*stream.Consumer
	cancel context.CancelFunc
	done   chan error
}

// start runs a consumer that notes its changes. change may change its configuration.
func (w *testbed) start(name string, change func(*stream.Config)) *running {
	w.t.Helper()
	c := stream.Config{Source: w.source, Leases: leases.In(table.New(w.store, table.Options{Timeout: time.Minute})), Name: name, Apply: w.note(name)}
	c.Report = func(e stream.Event) { w.report(name, e) }
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &running{stream.New(c), cancel, make(chan error, 1)}
	go func() { r.done <- r.Run(ctx) }()
	return r
}

// stop stops a consumer in good order.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	check.Error(t, "Run()", <-r.done)
}

// note returns an Apply that notes changes.
func (w *testbed) note(consumer string) stream.Apply {
	return func(_ context.Context, changes []store.Change) []error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range changes {
			n, _ := changes[i].New.Get("n").Int()
			w.deliveries = append(w.deliveries, delivery{consumer, w.partition[n], changes[i].Key.PK, n})
		}
		return nil
	}
}

func (w *testbed) report(consumer string, e stream.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Kind == stream.Claimed {
		w.deliveries = append(w.deliveries, delivery{consumer: consumer, partition: e.Partition})
	}
	w.events = append(w.events, e)
}

// told returns the values that consumers received, in order, and forgets them.
func (w *testbed) reported() (values []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.deliveries {
		if d.item != "" {
			values = append(values, d.n)
		}
	}
	w.deliveries = nil
	return values
}

// count returns the number of events of a kind.
func (w *testbed) count(kind stream.Kind) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.events {
		if w.events[i].Kind == kind {
			n++
		}
	}
	return n
}

// lease returns the lease of a partition.
func (w *testbed) lease(partition string) stream.Lease {
	w.t.Helper()
	records := check.Call(leases.In(table.New(w.store, table.Options{Timeout: time.Minute})).List(w.t.Context(), "")).Must(w.t, "List()")
	if i := slices.IndexFunc(records, func(l stream.Lease) bool { return l.Partition == partition }); i >= 0 {
		return records[i]
	}
	return stream.Lease{}
}

// upTo returns the numbers from first to last.
func upTo(first, last int64) (values []int64) {
	for n := first; n <= last; n++ {
		values = append(values, n)
	}
	return values
}

// audit checks that every change was delivered, for each item first in order. Between two claims of a partition, a
// consumer received each change once, in order.
func (w *testbed) audit() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	type place struct{ consumer, partition string }
	reported := map[place]map[string]int64{} // since the claim, by item
	first := map[string]int64{}
	seen := map[int64]bool{}
	for _, d := range w.deliveries {
		at := place{d.consumer, d.partition}
		if d.item == "" {
			reported[at] = map[string]int64{}
			continue
		}
		if last := reported[at][d.item]; d.n <= last {
			w.t.Errorf("%s was reported of change %d of %s after change %d", d.consumer, d.n, d.item, last)
		}
		reported[at][d.item] = d.n
		if !seen[d.n] && d.n <= first[d.item] {
			w.t.Errorf("change %d of %s was delivered for the first time after change %d", d.n, d.item, first[d.item])
		}
		first[d.item] = max(first[d.item], d.n)
		seen[d.n] = true
	}
	for n := int64(1); n <= int64(w.next); n++ {
		if !seen[n] {
			w.t.Errorf("change %d was not delivered", n)
		}
	}
}

// errDead is the error of every call of a killed process.
var errDead = errors.New("killed")

// A mortal is the way of one process to the stream and to the leases. The process is killed at the call of a number,
// before it is made or before its result is known. Each call may take some time.
type mortal struct {
	store.Streamer
	stream.Leases

	mu      sync.Mutex
	calls   int
	killAt  int  // 0 for never
	late    bool // the call is made
	dead    bool
	onDeath func()
	delay   func() time.Duration
}

func (m *mortal) pass(ctx context.Context, call func() error) error {
	if m.delay != nil {
		timer := time.NewTimer(m.delay())
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	m.calls++
	dies := m.calls == m.killAt
	m.dead = m.dead || dies
	dead := m.dead
	m.mu.Unlock()
	if dead && (!dies || !m.late) {
		m.die(dies)
		return errDead
	}
	err := call()
	if dies {
		m.die(true)
		return errDead
	}
	return err
}

func (m *mortal) die(now bool) {
	m.mu.Lock()
	do := m.onDeath
	m.mu.Unlock()
	if now && do != nil {
		do()
	}
}

// uponDeath calls a function at the death, or immediately if that was before.
func (m *mortal) uponDeath(do func()) {
	m.mu.Lock()
	m.onDeath = do
	dead := m.dead
	m.mu.Unlock()
	if dead {
		do()
	}
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) StartStream(ctx context.Context) error {
	return m.pass(ctx, func() error { return m.Streamer.StartStream(ctx) })
}

func (m *mortal) Partitions(ctx context.Context) (partitions []store.Partition, err error) {
	return partitions, m.pass(ctx, func() error { partitions, err = m.Streamer.Partitions(ctx); return err })
}

func (m *mortal) Changes(ctx context.Context, partition string, at store.Position, limit int) (page store.ChangePage, err error) {
	err = m.pass(ctx, func() error { page, err = m.Streamer.Changes(ctx, partition, at, limit); return err })
	return page, err
}

func (m *mortal) Children(ctx context.Context, partition string) (partitions []store.Partition, err error) {
	err = m.pass(ctx, func() error { partitions, err = m.Streamer.Children(ctx, partition); return err })
	return partitions, err
}

func (m *mortal) Forget(ctx context.Context, partition string, upTo store.Sequence) error {
	f, ok := m.Streamer.(store.Forgetter)
	if !ok {
		return nil
	}
	return m.pass(ctx, func() error { return f.Forget(ctx, partition, upTo) })
}

func (m *mortal) List(ctx context.Context, from string) (leases []stream.Lease, err error) {
	err = m.pass(ctx, func() error { leases, err = m.Leases.List(ctx, from); return err })
	return leases, err
}

func (m *mortal) Delete(ctx context.Context, partitions []string) error {
	return m.pass(ctx, func() error { return m.Leases.Delete(ctx, partitions) })
}

func (m *mortal) Save(ctx context.Context, next stream.Lease) (found stream.Lease, saved bool, err error) {
	err = m.pass(ctx, func() error { found, saved, err = m.Leases.Save(ctx, next); return err })
	return found, saved, err
}

// mortal returns the way of a process that can be killed; its Apply does nothing once it is dead.
func (w *testbed) mortal(name string, killAt int, late bool) (*mortal, func(*stream.Config)) {
	m := &mortal{Streamer: w.source, Leases: leases.In(table.New(w.store, table.Options{Timeout: time.Minute})), killAt: killAt, late: late}
	note := w.note(name)
	return m, func(c *stream.Config) {
		c.Source, c.Leases = m, m
		c.Apply = func(ctx context.Context, changes []store.Change) []error {
			if m.isDead() {
				return slices.Repeat([]error{errDead}, len(changes))
			}
			return note(ctx, changes)
		}
	}
}

func nameOf(i int) string { return fmt.Sprintf("consumer-%d", i) }
