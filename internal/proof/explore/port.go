package explore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A port is the way of one process to the store: each call is held until the scheduler has decided about it.
type port struct {
	*sched
	process int
	history uint64            // digest of all replies
	learned map[uint64]uint64 // how often each reply came, when their order does not count
	away    atomic.Bool       // the store refuses pings
	dead    atomic.Bool       // it was killed
}

// learn adds a reply to the history of a process.
func (p *port) learn(reply uint64) {
	if !p.loose {
		p.history = digestOf(p.history, reply)
		return
	}
	p.learned[reply]++
	p.history += digestOf(reply, p.learned[reply])
}

var _ store.Store = (*port)(nil)

// A call is one held call of the store, or a moment for which an actor waits.
type call struct {
	port     *port
	ctx      context.Context //nolint:containedctx // of the call, which lives as long
	op       *running        // on whose behalf; nil for none
	text     string
	digest   uint64
	kind     callKind
	eventual bool // a read that may lag
	again    bool // a deletion, which may be done again
	shards   int  // a read: of a bucket
	begun    bool // in part, or it is done and not answered
	writes   []store.Write
	apply    func(f Fate) (reply uint64, err error) // by the scheduler; reply is a digest of the answer to the process
	answer   chan error
	orphan   bool // no process waits for it any more
}

type callKind uint8

const (
	readCall  callKind = iota
	writeCall          // Write, Transact
	pauseCall          // the beginning of an operation, or a rest
	drawCall           // a choice of a shard
)

// running is the operation of an actor that is under way, or was.
type running struct {
	Op
	actor      int
	number     int
	port       *port
	cancel     context.CancelFunc
	begun      int64 // epoch milliseconds
	after      int   // operations that had ended when it began
	at         int64 // when it ended
	since      int   // the moment when it began, among the moments of all
	over       int   // and when it ended
	attended   bool  // a reservation that was waited for
	wrote      int   // the number of the first write that counted for it, of all; 0 for none
	ended      bool
	lease      *leased // settled by it
	made       *leased
	more       *leased // that it takes more by
	err        error
	net        map[account]int64 // counted by the writes on its behalf, millitokens
	way        ancestry          // of an admitted request: the parents that are charged
	held       map[account]holding
	drawn      map[account]int64 // [witness.drawn] when it began
	outages    int               // faults that were outages
	hot        bool              // one of them named the key
	unclear    atomic.Bool       // a write was under way when its time was over: it may be done as far as its caller knows
	returns    int               // faults that hit a write that gives back
	unknown    int               // faults whose outcome it does not know
	astray     int               // the same after its end, of what it gives back in the background: no one repeats such a write
	canceled   bool
	short      bool  // a limit fell short at some time since it began
	couldSince int64 // when a request that waits for slots could have them, without a break since; epoch milliseconds, 0 for not now
	apart      bool  // the shards of a bucket fell short at some time, though not the ideal bucket
	judged     bool
	degraded   bool
	by         []zlimit.Limit       // of an admitted request: the limits of its entity that admitted it
	seen       map[shardOf]sighting // of a request: the items after its last writes outside transactions
}

// A sighting is an item as a write returned it to the process that made the write.
type sighting struct {
	state    *bucket.State
	settings int // changes of stored limits so far
}

// id identifies an operation.
func (r *running) id() [2]int {
	if r == nil {
		return [2]int{-1, -1}
	}
	return [2]int{r.actor, r.number}
}

// meanwhile returns the amount taken of a limit since an operation began, given the amount taken in all.
func (r *running) meanwhile(at account, drawn int64) int64 {
	if r == nil {
		return 0
	}
	return drawn - r.drawn[at]
}

// completed reports whether an operation is over, and did all its work.
func (r *running) completed() bool {
	return r != nil && r.judged && r.outages == 0 && r.unknown == 0 && !r.canceled
}

// An account identifies the count of one limit of one entity.
type account struct{ entity, limit string }

type opKey struct{}

// opOf returns the operation that a context is of.
func opOf(ctx context.Context) *running {
	r, _ := ctx.Value(opKey{}).(*running)
	return r
}

// hold waits until the scheduler has decided about a call.
func (p *port) hold(ctx context.Context, c *call) error {
	if p.ending.Load() || p.dead.Load() {
		return &store.Error{Op: "call", Err: store.ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.port, c.ctx, c.op, c.answer = p, ctx, opOf(ctx), make(chan error, 1)
	c.digest = digestOf(c.digest, c.text, p.process)
	if c.op != nil {
		c.digest = digestOf(c.digest, c.op.actor, c.op.number)
	}
	p.submit(c)
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		if !p.withdraw(c) {
			return <-c.answer
		}
		if c.op != nil && c.kind == writeCall && !c.again && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.op.unclear.Store(true)
		}
		return &store.Error{Op: "call", Unknown: c.kind == writeCall && !c.again, Err: ctx.Err()}
	}
}

// Read implements [store.Store].
func (p *port) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	c := &call{kind: readCall, eventual: !consistent, text: "reads " + p.keysText(keys)}
	if !consistent {
		c.text = "glances at " + p.keysText(keys)
	}
	for _, k := range keys {
		if isBucket(k) {
			c.shards++
		}
	}
	seen := make([]bool, len(keys))
	items = make([]expr.Item, len(keys))
	c.apply = func(f Fate) (uint64, error) {
		reply := uint64(0)
		for i, k := range keys {
			if seen[i] || f == Torn && i > 0 || f == TornBack && i < len(keys)-1 {
				continue
			}
			seen[i], items[i] = true, p.table.item(k, f == Lag)
			reply = digestOf(reply, i, digestItem(items[i]))
		}
		return reply, nil
	}
	if err := p.hold(ctx, c); err != nil {
		return nil, err
	}
	return items, nil
}

// Write implements [store.Store].
func (p *port) Write(ctx context.Context, w store.Write) (result store.Result, err error) {
	c := &call{kind: writeCall, writes: []store.Write{w}, text: verbs[w.Kind] + " " + p.keyText(w.Key), digest: digestWrite(&w)}
	c.apply = func(f Fate) (uint64, error) {
		var err error
		p.witness.watch(opOf(ctx), p.table, c.writes, func() bool {
			result, err = p.table.write(w)
			return err == nil && result.Applied
		})
		if f == Garbled {
			result.Item = garbled(result.Item)
		}
		return digestOf(result.Applied, digestItem(result.Item)), err
	}
	if err := p.hold(ctx, c); err != nil {
		return store.Result{}, err
	}
	return result, nil
}

// Transact implements [store.Store].
func (p *port) Transact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	c := &call{kind: writeCall, writes: writes}
	var texts []string
	for i := range writes {
		if !isAudit(writes[i].Key) {
			texts = append(texts, verbs[writes[i].Kind]+" "+p.keyText(writes[i].Key))
			c.digest = digestOf(c.digest, digestWrite(&writes[i]))
		}
	}
	c.text = "together " + strings.Join(texts, ", ")
	c.apply = func(Fate) (uint64, error) {
		var err error
		p.witness.watch(opOf(ctx), p.table, writes, func() bool {
			results, err = p.table.transact(writes)
			return err == nil && allApplied(results)
		})
		reply := uint64(0)
		for _, r := range results {
			reply = digestOf(reply, r.Applied, digestItem(r.Item))
		}
		return reply, err
	}
	if err := p.hold(ctx, c); err != nil {
		return nil, err
	}
	return results, nil
}

// garbled returns an item with an attribute of a limit that has no others, as a table tool may leave it.
func garbled(item expr.Item) expr.Item {
	item = slices.Clone(item)
	item.Set("b_zz_tk", expr.N(7))
	return item
}

func allApplied(results []store.Result) bool {
	return !slices.ContainsFunc(results, func(r store.Result) bool { return !r.Applied })
}

// Delete implements [store.Store].
func (p *port) Delete(ctx context.Context, keys []store.Key) error {
	writes := make([]store.Write, len(keys))
	for i, k := range keys {
		writes[i] = store.Write{Kind: store.Delete, Key: k}
	}
	c := &call{kind: writeCall, writes: writes, again: true, text: "deletes " + p.keysText(keys)}
	c.apply = func(Fate) (uint64, error) {
		p.witness.watch(opOf(ctx), p.table, writes, func() bool {
			p.table.remove(keys)
			return true
		})
		return 0, nil
	}
	return p.hold(ctx, c)
}

// Query implements [store.Store].
func (p *port) Query(ctx context.Context, q store.Query) (page store.Page, err error) {
	c := &call{kind: readCall, eventual: !q.Consistent, text: "queries " + q.Index + " " + p.short(q.PK) + " " + p.short(q.Prefix)}
	c.apply = func(f Fate) (uint64, error) {
		var err error
		page, err = p.table.query(q, f == Lag)
		reply := uint64(0)
		for _, item := range page.Items {
			if !isAudit(store.KeyOf(item)) {
				reply = digestOf(reply, digestItem(item))
			}
		}
		return reply, err
	}
	if err := p.hold(ctx, c); err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// Setup implements [store.Store].
func (p *port) Setup(context.Context) error { return nil }

// Ping implements [store.Store]. Nothing of the table depends on it, so it is not held.
func (p *port) Ping(context.Context) error {
	if p.away.Load() {
		return &store.Error{Op: "ping", Unavailable: true, Err: errFault}
	}
	return nil
}

// Partitioned makes buckets split.
func (p *port) Partitioned() bool { return true }

// Close implements [store.Store].
func (p *port) Close() error { return nil }

var verbs = [...]string{store.Update: "updates", store.Put: "puts", store.Delete: "deletes", store.Check: "checks"}

// short returns a key without the ID of its namespace, which is random.
func (p *port) short(key string) string {
	_, rest, ok := strings.Cut(key, "/")
	if !ok {
		return key
	}
	return rest
}

func (p *port) keyText(k store.Key) string {
	return strings.TrimSuffix(p.short(k.PK)+" "+k.SK, " #STATE")
}

func (p *port) keysText(keys []store.Key) string {
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = p.keyText(k)
	}
	return strings.Join(texts, ", ")
}

// digestWrite returns a digest of a write. Goroutines that bind the first calls of a shape concurrently compile a template each, so the
// digest uses its text.
func digestWrite(w *store.Write) uint64 {
	d := digestOf(w.Kind, w.Key, digestItem(w.Item))
	if w.Expr.Template != nil {
		d = digestOf(d, w.Expr.Members())
		for _, v := range w.Expr.Values {
			d = digestOf(d, digestValue(v))
		}
	}
	return d
}
