package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/table"
)

// newStore returns a store in memory that is set up.
func newStore(t *testing.T) *memory.Store {
	t.Helper()
	s, err := memory.New(layout.Table)
	if err == nil {
		err = s.Setup(t.Context())
	}
	check.Fatal(t, "memory.New()", err)
	return s
}

// fill puts items into a store.
func fill(t *testing.T, s store.Store, items []expr.Item) {
	t.Helper()
	for _, item := range items {
		if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: store.KeyOf(item), Item: withoutKey(item)}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
}

// contents returns all items of a store.
func contents(t *testing.T, s store.Store) (items []expr.Item) {
	t.Helper()
	for q := (store.Scan{Consistent: true}); ; {
		page := check.Call(s.(store.Scanner).Scan(t.Context(), q)).Must(t, "Scan()")
		items = append(items, page.Items...)
		if q.Continue = page.Next; page.Next == nil {
			return items
		}
	}
}

// errKilled is what every call of a killed run gets.
var errKilled = errors.New("killed")

// A process is what a run sees of a store: it is killed at one of its calls, before the call or after it. Between calls
// others write the source.
type process struct {
	mu     sync.Mutex
	calls  int
	killAt int  // 0 for never
	after  bool // the call is carried out all the same
	dead   bool
	writer func() // is called before each call; nil for none
	scans  func() // is called before each page of a comparison; nil for none
	// transacts is called before each transaction; nil for none
	transacts func()
	// bills makes calls take units: one for each item that is read or written by its key, two in a transaction, one for a
	// page. A transaction whose conditions fail takes one for each item, and does not report them.
	bills  bool
	billed store.Units
}

// bill adds the units of a call to the bill, and reports them to the caller if the call can.
func (p *process) bill(ctx context.Context, units store.Units, tells bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.bills {
		return
	}
	p.billed.Read += units.Read
	p.billed.Write += units.Write
	if told := store.UnitsOf(ctx); told != nil && tells {
		told.Read += units.Read
		told.Write += units.Write
	}
}

// wrap returns a store as the process sees it.
func (p *process) wrap(s tableStore) *seen { return &seen{s, p} }

// do makes a call.
func (p *process) do(call func() error) error {
	p.mu.Lock()
	if p.writer != nil && !p.dead {
		p.writer()
	}
	p.calls++
	killed := p.dead || p.calls == p.killAt
	late := !p.dead && killed && p.after
	p.dead = p.dead || killed
	p.mu.Unlock()
	if !killed {
		return call()
	}
	if late {
		_ = call()
	}
	return &store.Error{Op: "call", Err: errKilled}
}

// seen is a store as a process sees it. It is not immediate, so that the timeouts and tries of a table are in play.
type seen struct {
	tableStore
	p *process
}

func (s *seen) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	if len(keys) == 0 {
		return nil, errors.New("a read of nothing")
	}
	err = s.p.do(func() (err error) { items, err = s.tableStore.Read(ctx, keys, consistent); return err })
	s.p.bill(ctx, store.Units{Read: float64(len(keys))}, true)
	return items, err
}

func (s *seen) Write(ctx context.Context, w store.Write) (r store.Result, err error) {
	err = s.p.do(func() (err error) { r, err = s.tableStore.Write(ctx, w); return err })
	s.p.bill(ctx, store.Units{Write: 1}, true)
	return r, err
}

func (s *seen) Transact(ctx context.Context, w []store.Write) (r []store.Result, err error) {
	if s.p.transacts != nil {
		s.p.transacts()
	}
	err = s.p.do(func() (err error) { r, err = s.tableStore.Transact(ctx, w); return err })
	if table.Applied(r) {
		s.p.bill(ctx, store.Units{Write: 2 * float64(len(w))}, true)
	} else {
		s.p.bill(ctx, store.Units{Write: float64(len(w))}, false)
	}
	return r, err
}

func (s *seen) Delete(ctx context.Context, keys []store.Key) error {
	return s.p.do(func() error { return s.tableStore.Delete(ctx, keys) })
}

func (s *seen) Query(ctx context.Context, q store.Query) (page store.Page, err error) {
	err = s.p.do(func() (err error) { page, err = s.tableStore.Query(ctx, q); return err })
	s.p.bill(ctx, store.Units{Read: 1}, true)
	return page, err
}

func (s *seen) Scan(ctx context.Context, q store.Scan) (page store.Page, err error) {
	if s.p.scans != nil && q.Consistent {
		s.p.scans()
	}
	err = s.p.do(func() (err error) { page, err = s.tableStore.Scan(ctx, q); return err })
	s.p.bill(ctx, store.Units{Read: 1}, true)
	return page, err
}

func (s *seen) StartStream(ctx context.Context) error {
	return s.p.do(func() error { return s.tableStore.StartStream(ctx) })
}

func (s *seen) Partitions(ctx context.Context) (p []store.Partition, err error) {
	err = s.p.do(func() (err error) { p, err = s.tableStore.Partitions(ctx); return err })
	return p, err
}

func (s *seen) Changes(ctx context.Context, partition string, at store.Position, limit int) (page store.ChangePage, err error) {
	err = s.p.do(func() (err error) { page, err = s.tableStore.Changes(ctx, partition, at, limit); return err })
	return page, err
}

// A tableStore is what a source and a target are.
type tableStore interface {
	store.Store
	store.Scanner
	store.Streamer
}

// A testbed is a source, a target, and programs that write the source.
type testbed struct {
	t              *testing.T
	release        string
	source, target tableStore
	// place is a table that is migrated in place, nil for none. The source is then what it would be without a migration.
	place   tableStore
	changes []func() // of the source that are still to come
	every   int      // calls between two of them
	calls   int
	tune    func(*Config) // changes the config of each run; nil for none
}

func newTestbed(t *testing.T, release string) *testbed {
	return newTestbedOn(t, release, newStore(t), newStore(t))
}

// newTestbedOn returns a testbed of two stores without items.
func newTestbedOn(t *testing.T, release string, source, target tableStore) *testbed {
	w := &testbed{t: t, release: release, source: source, target: target, every: 3}
	fill(t, w.source, fixture(t, release))
	w.changes = w.traffic()
	return w
}

func newTestbedInPlace(t *testing.T, release string) *testbed {
	return newTestbedIn(t, release, newStore(t))
}

// newTestbedIn returns a testbed of a store without items, which is migrated in place.
func newTestbedIn(t *testing.T, release string, place tableStore) *testbed {
	w := newTestbed(t, release)
	w.place = place
	fill(t, w.place, fixture(t, release))
	w.target = w.place
	return w
}

// sources returns what programs write.
func (w *testbed) sources() []tableStore {
	if w.place != nil {
		return []tableStore{w.source, w.place}
	}
	return []tableStore{w.source}
}

// put changes an item of the source, which may not exist yet.
func (w *testbed) put(key store.Key, change func(*expr.Item)) {
	for _, s := range w.sources() {
		w.putIn(s, key, change)
	}
}

func (w *testbed) putIn(s store.Store, key store.Key, change func(*expr.Item)) {
	items := check.Call(s.Read(w.t.Context(), []store.Key{key}, true)).Must(w.t, "Read()")
	item := expr.Item{}
	if items[0] != nil {
		item = withoutKey(items[0])
	}
	change(&item)
	if _, err := s.Write(w.t.Context(), store.Write{Kind: store.Put, Key: key, Item: item}); err != nil {
		w.t.Fatalf("Write() = %v", err)
	}
}

func (w *testbed) remove(keys ...store.Key) {
	for _, s := range w.sources() {
		check.Fatal(w.t, "Delete()", s.Delete(w.t.Context(), keys))
	}
}

func (w *testbed) add(item expr.Item) {
	for _, s := range w.sources() {
		fill(w.t, s, []expr.Item{item})
	}
}

// traffic returns changes of the source, one of each kind that a release makes. It changes every item, adds one, and
// deletes and recreates another.
func (w *testbed) traffic() (all []func()) {
	items := fixture(w.t, w.release)
	number := func(key store.Key, nested bool) func() {
		return func() {
			w.put(key, func(item *expr.Item) {
				set := func(item *expr.Item) {
					for i := range *item {
						a := &(*item)[i]
						n, ok := a.Value.Int()
						switch {
						case !ok || a.Name == "ttl":
						case strings.HasSuffix(a.Name, "_tk"), strings.HasSuffix(a.Name, "_tc"), a.Name == "tokens_milli",
							a.Name == "total_consumed_milli", a.Name == "rpm", a.Name == "capacity", strings.HasPrefix(a.Name, "l_"):
							a.Value = expr.N(n + 7)
						}
					}
				}
				if !nested {
					*item = item.Clone()
					set(item)
					return
				}
				inner := item.Get(mapAttribute).Elements().Clone()
				set(&inner)
				item.Set(mapAttribute, expr.Map(inner))
			})
		}
	}
	for _, item := range items {
		if ShapeOf(item).Record != versionRecord {
			all = append(all, number(store.KeyOf(item), item.Get(mapAttribute).Kind() == expr.KindM))
		}
	}
	// One entity goes with all it has, another comes with a bucket, and a bucket comes back.
	var ofKey []store.Key
	for _, item := range items {
		if key := store.KeyOf(item); strings.HasSuffix(key.PK, "ENTITY#key-1") {
			ofKey = append(ofKey, key)
		}
	}
	all = append(all, func() { w.remove(ofKey...) })
	for _, item := range items {
		key := store.KeyOf(item)
		switch {
		case strings.HasSuffix(key.PK, "ENTITY#acme"):
			all = append(all, func() {
				w.add(store.Key{PK: strings.Replace(key.PK, "acme", "newcomer", 1), SK: key.SK}.Join(withoutKey(item)))
			})
		case strings.HasSuffix(key.PK, "ENTITY#key-1") && strings.HasPrefix(key.SK, "#BUCKET#gpt-4"):
			all = append(all, func() { w.add(item) })
		}
	}
	return all
}

// write makes the next change of the source, now and then.
func (w *testbed) write() {
	if w.calls++; w.calls%w.every == 0 {
		w.change()
	}
}

// touch changes a bucket of release 0.7.
func (w *testbed) touch() {
	w.put(layout.OldBucketKey{Entity: "key-1", Resource: "gpt-4"}.Key(), func(item *expr.Item) {
		n, _ := item.Get("b_rpm_tk").Int()
		item.Set("b_rpm_tk", expr.N(n-1))
	})
}

func (w *testbed) change() {
	if len(w.changes) > 0 {
		next := w.changes[0]
		w.changes = w.changes[1:]
		next()
	}
}

// config returns the config of a run of a process.
func (w *testbed) config(p *process) Config {
	c := Config{
		SourceName: "dynamodb:old", SchemaVersion: "0.10.0", ClientMinVersion: "0.10.0", ClientVersion: "0.17.1", Segments: 2, Page: 5, Term: time.Minute,
	}
	if w.place != nil {
		c.Source, c.InPlace, c.Namespace, c.Rules = p.wrap(w.place), true, "default", Rules{Windows: Windows}
	} else {
		c.Source, c.Target, c.Rules = p.wrap(w.source), p.wrap(w.target), w.rules()
	}
	if w.tune != nil {
		w.tune(&c)
	}
	return c
}

// rules are those of the fixture. That of 0.10.0 has a namespace.
func (w *testbed) rules() Rules {
	rules := rulesOf()
	if w.release == "0.10.0" {
		rules.NS = "a7x3kq_w-Zs"
	} else if w.place != nil {
		record, _, err := Find(w.t.Context(), Config{Target: w.place})
		check.Fatal(w.t, "Find()", err)
		rules.NS = record.NamespaceID
	}
	return rules
}

// want returns the items that follow from the source as it is.
func (w *testbed) want() map[store.Key]expr.Item {
	want := map[store.Key]expr.Item{}
	items := contents(w.t, w.source)
	r := derive(w.rules(), items)
	for _, it := range r.Items {
		want[it.Key] = it.Key.Join(it.Attributes)
	}
	for _, item := range items {
		key := store.KeyOf(item)
		if w.place != nil && slices.ContainsFunc(r.Losses, func(l Loss) bool {
			return l.Key == key && slices.Contains([]string{lostUnknown, lostMalformed, lostName, lostWindows}, l.Reason)
		}) {
			want[key] = item // which stays
		}
	}
	return want
}

// check compares the target with what follows from the source.
func (w *testbed) check() {
	w.t.Helper()
	want, have := map[string]string{}, map[string]string{}
	show := func(to map[string]string, item expr.Item) {
		key := store.KeyOf(item)
		if w.place != nil && key.PK == ownPartition || recordOf(key) == ownRecord || recordOf(key) == versionRecord || key.PK == ownPartition && strings.HasPrefix(key.SK, "#MIGRATION") {
			return
		}
		if strings.HasSuffix(key.SK, "RESOURCES") && w.release != "0.10.0" {
			return // is counted, and has a test of its own
		}
		attributes := item.Clone()
		slices.SortFunc(attributes, func(a, b expr.Attribute) int { return strings.Compare(a.Name, b.Name) })
		to[fmt.Sprint(key)] = fmt.Sprint(attributes)
	}
	for _, item := range w.want() {
		show(want, item)
	}
	for _, item := range contents(w.t, w.target) {
		show(have, item)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		w.t.Fatalf("the target (-want +got):\n%s", diff)
	}
}
