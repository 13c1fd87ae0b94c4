package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// writers are the operations that touch the items of a bucket, as seen from a process. Each does its work once, and
// returns the error that callers would get.
var writers = map[string]func(ctx context.Context, p *writer) error{
	"acquire a little": func(ctx context.Context, p *writer) error { return p.acquire(ctx, zlimit.Amounts{"rpm": 1, "tpm": 10}) },
	"acquire much":     func(ctx context.Context, p *writer) error { return p.acquire(ctx, zlimit.Amounts{"tpm": 350}) },
	"acquire all": func(ctx context.Context, p *writer) error {
		return p.acquire(ctx, zlimit.Amounts{"rpm": 1, "tpm": 590})
	},
	"consume more":               func(ctx context.Context, p *writer) error { return p.lease.Consume(ctx, zlimit.Amounts{"tpm": 20}) },
	"commit what it knew before": func(ctx context.Context, p *writer) error { return p.settle(ctx, nil) },
	"commit a debit":             func(ctx context.Context, p *writer) error { return p.settle(ctx, zlimit.Amounts{"rpm": 1, "tpm": 5}) },
	"commit a debt":              func(ctx context.Context, p *writer) error { return p.settle(ctx, zlimit.Amounts{"tpm": 2000}) },
	"commit a refund":            func(ctx context.Context, p *writer) error { return p.settle(ctx, zlimit.Amounts{"tpm": -7}) },
	"roll back":                  func(ctx context.Context, p *writer) error { return p.rollback(ctx) },
	"acquire by limits of its own": func(ctx context.Context, p *writer) error {
		return p.acquire(ctx, zlimit.Amounts{"tpm": 10}, zlimit.PerMinute("rpm", 600), zlimit.PerMinute("tpm", 60))
	},
	"lower the limits": func(ctx context.Context, p *writer) error {
		return p.change(ctx, zlimit.PerMinute("rpm", 6), zlimit.PerMinute("tpm", 60), zlimit.PerDay("x", 10))
	},
	"raise the limits": func(ctx context.Context, p *writer) error {
		return p.change(ctx, zlimit.PerSecond("rpm", 60), zlimit.PerHour("tpm", 6000), zlimit.PerDay("x", 10))
	},
	"replace a limit": func(ctx context.Context, p *writer) error {
		return p.change(ctx, zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 600), zlimit.PerDay("y", 10))
	},
	"split": func(ctx context.Context, p *writer) error {
		return resizeEach(ctx, p.limiter, p.before.Store, splitShard)
	},
	"merge": func(ctx context.Context, p *writer) error {
		return resizeEach(ctx, p.limiter, p.before.Store, mergeShard)
	},
	"reset by hand": func(ctx context.Context, p *writer) error {
		_, err := p.limiter.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"})
		return err
	},
	"move to another parent": func(ctx context.Context, p *writer) error {
		_, err := p.limiter.Entities.SetParent(ctx, "key-1", "other")
		return err
	},
	"delete the entity": func(ctx context.Context, p *writer) error { return p.limiter.Entities.Delete(ctx, "key-1") },
	"expire":            func(ctx context.Context, p *writer) error { return p.expire(ctx) },
}

// A writer is a process that writes, and what it holds.
type writer struct {
	limiter *zlimit.RateLimiter
	before  *hooked
	lease   *zlimit.Lease
	kept    []*zlimit.Lease // not rolled back
}

func (p *writer) acquire(ctx context.Context, consume zlimit.Amounts, limits ...zlimit.Limit) error {
	r := ask(consume)
	r.Limits = limits
	lease, err := p.limiter.Acquire(ctx, r)
	if err == nil {
		p.kept = append(p.kept, lease)
	}
	return err
}

func (p *writer) settle(ctx context.Context, correction zlimit.Amounts) error {
	return errors.Join(p.lease.Adjust(correction), p.lease.Commit(ctx))
}

func (p *writer) rollback(ctx context.Context) error {
	p.kept = slices.DeleteFunc(p.kept, func(lease *zlimit.Lease) bool { return lease == p.lease })
	return p.lease.Rollback(ctx)
}

// change stores limits, and has them reach the bucket.
func (p *writer) change(ctx context.Context, limits ...zlimit.Limit) error {
	return errors.Join(p.limiter.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, zlimit.Config{Limits: limits}), p.acquire(ctx, zlimit.Amounts{"tpm": 1}))
}

// expire deletes what has expired, as the store would.
func (p *writer) expire(ctx context.Context) error {
	w := p.before.Store.(*witness)
	w.mu.Lock() // so that no write that the witness looks at meets it
	defer w.mu.Unlock()
	return w.Store.(store.Expirer).Expire(ctx, zlimit.Thousands(p.limiter.Now().UnixMilli()))
}

// A setting is the state in which two writers meet.
type setting struct {
	name    string
	used    int64         // tokens of tpm, of 600, that others have taken
	idle    time.Duration // since the writers took their leases
	patient bool          // the second writer takes an old refill stamp for fresh
	ahead   time.Duration // by which the clock of the second writer is ahead
	shards  int
	absent  bool // the bucket was deleted since
}

var settings = []setting{
	{name: "a full bucket"},
	{name: "an empty bucket", used: 570},
	{name: "a bucket that fills up", idle: 10 * time.Minute},
	{name: "a bucket that fills up, and a writer that does not see it", idle: 10 * time.Minute, patient: true},
	{name: "a bucket in use", used: 450, idle: 20 * time.Second},
	{name: "a bucket in use, and a writer that does not see it", used: 450, idle: 20 * time.Second, patient: true},
	{name: "a bucket that is nearly full, and a writer that does not see it", used: 4, idle: 1500 * time.Millisecond, patient: true},
	{name: "a bucket in use, and a writer whose clock is ahead", used: 450, idle: 20 * time.Second, ahead: 40 * time.Second},
	{name: "a bucket of two shards", shards: 2},
	{name: "a bucket of four shards in use", used: 450, idle: 20 * time.Second, shards: 4},
	{name: "full shards, and a writer that does not see it", idle: 10 * time.Minute, shards: 2, patient: true},
	{name: "full shards, and a writer whose clock is ahead", idle: 10 * time.Minute, shards: 2, ahead: time.Minute},
	{name: "a bucket that is gone", absent: true},
	{name: "a bucket that has expired", idle: 30 * 24 * time.Hour},
}

// TestWriters runs every operation that touches the items of a bucket against every other one. When the first is about
// to write, the second comes first, from another process. A witness judges every write. In the end the buckets count
// what the leases hold. Only operations that may leave a debt have left one (I1, I3, I4, I5, I7, I9).
func TestWriters(t *testing.T) {
	states := settings
	if testing.Short() {
		states = states[:4]
	}
	names := slices.Sorted(maps.Keys(writers))
	for k, s := range states {
		t.Run(s.name, func(t *testing.T) {
			for i, first := range names {
				for j, second := range names {
					if k > 1 && (i+j+k)%4 != 0 && !soak.Runs() {
						continue // a quarter of the pairs, of every operation with others in other settings
					}
					runBefore(t, s, first, second)
				}
			}
		})
	}
}

func runBefore(t *testing.T, s setting, first, second string) {
	ctx := context.Background()
	name := fmt.Sprintf("%s, but before %s", first, second)
	w := newWitness(store.Of(newMemory(t)))
	c := newClock()
	skew := time.Duration(0)
	start := func(opts ...zlimit.Option) *writer {
		p := &writer{before: hookBuckets(w)}
		var err error
		p.limiter, err = zlimit.New(ctx, zlimit.StoreOn(p.before), append([]zlimit.Option{zlimit.WithSetup(), zlimit.WithTuning(zlimit.Tuning{ClockSkew: 24 * time.Hour})}, opts...)...)
		check.Fatal(t, "zlimit.New()", err)
		return p
	}
	other := []zlimit.Option{zlimit.WithClock(func() time.Time { return c.now().Add(skew) })}
	if s.patient {
		other = append(other, zlimit.WithFreshness(24*time.Hour))
	}
	a, b := start(zlimit.WithClock(c.now)), start(other...)
	defer func() {
		if err := errors.Join(a.limiter.Close(), b.limiter.Close()); err != nil {
			t.Errorf("%s: Close() = %v", name, err)
		}
	}()
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "other"}, {ID: "key-1", ParentID: "team", Cascade: true}} {
		create(t, a.limiter, e)
	}
	setSystem(t, a.limiter, zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 600), zlimit.PerDay("x", 10))
	for _, p := range []*writer{a, b} {
		p.lease = acquire(t, p.limiter, ask(zlimit.Amounts{"rpm": 1, "tpm": 10}))
		p.kept = []*zlimit.Lease{p.lease}
	}
	if s.used > 0 {
		a.kept = append(a.kept, acquire(t, a.limiter, ask(zlimit.Amounts{"tpm": s.used})))
	}
	for n := 1; n < s.shards; n *= 2 {
		split(t, a.limiter)
	}
	if s.absent {
		drop(t, a.limiter)
		c.sleep(time.Millisecond) // a stamp stands for one state of an item; a deleted one that comes back gets another
	}
	c.sleep(s.idle)
	skew = s.ahead

	var hindrance error
	both := false
	a.before.once(func() { hindrance, both = writers[second](ctx, b), true })
	outcome := writers[first](ctx, a)
	for _, err := range []error{outcome, hindrance} {
		if err != nil && !errors.As(err, new(*zlimit.ExceededError)) && !errors.Is(err, zlimit.ErrEntityNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.verdict(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	held := zlimit.Amounts{}
	for _, lease := range slices.Concat(a.kept, b.kept) {
		for limit, n := range lease.Consumed() {
			held[limit] += n
		}
	}
	gone := s.absent || strings.Contains(name, "delete") || strings.Contains(name, "expire") // what is given back is lost, too
	for limit, n := range held {
		if got := w.counted("key-1", limit); got != float64(n) && !gone {
			t.Errorf("%s: key-1 counts %v of %s, and the leases hold %d", name, got, limit, n)
		}
		if got := w.counted("team", limit) + w.counted("other", limit); got != float64(n) && !gone {
			t.Errorf("%s: the parents count %v of %s, and the leases hold %d", name, got, limit, n)
		}
	}
	if strings.Contains(name, "move") && both && !gone {
		checkMoved(t, w, name, a, b)
	}
	mayOwe := strings.Contains(name, "debt") || strings.Contains(name, "debit") || strings.Contains(name, "lower") || strings.Contains(name, "of its own")
	for _, state := range shardsOf(t, a.limiter) {
		for _, l := range state.Limits {
			if l.Tokens < 0 && l.Name != "wcu" && !mayOwe {
				t.Errorf("%s: %s owes %d", name, l.Name, -l.Tokens)
			}
		}
	}
}

// checkMoved checks that leases of before a move are settled with the former parent, and that both processes charge the new one from now on.
func checkMoved(t *testing.T, w *witness, name string, processes ...*writer) {
	t.Helper()
	takes := strings.Contains(name, "acquire") || strings.Contains(name, "consume") || strings.Contains(name, "limit")
	if got := w.counted("other", "rpm") + w.counted("other", "tpm"); got != 0 && !takes {
		t.Errorf("%s: a lease of before is settled with the new parent, which counts %v", name, got)
	}
	for _, p := range processes {
		team, other := w.counted("team", "rpm"), w.counted("other", "rpm")
		err := p.acquire(context.Background(), zlimit.Amounts{"rpm": 1})
		if got := w.counted("other", "rpm"); w.counted("team", "rpm") != team || err == nil && got != other+1 {
			t.Errorf("%s: then the new parent counts %v more, and the former one %v", name, got-other, w.counted("team", "rpm")-team)
		}
	}
}

// TestEveryWriterIsKnown looks for functions of the package that send writes. One that is not listed here needs a place
// among the writers, or touches no bucket.
func TestEveryWriterIsKnown(t *testing.T) {
	known := map[string]string{
		"exchange":          "every write of one shard, for send and keep",
		"send":              "take, settle, create, refill, change of limits",
		"writeParts":        "taking from several shards, and settling on them",
		"settleTogether":    "settling of a token, with its record",
		"takeOnce":          "taking of a request with an id, with its record",
		"settleToken":       "records of settlements; no bucket",
		"withdraw":          "records of settlements; no bucket",
		"createLevels":      "creation of a whole chain",
		"enterIndex":        "keys of indexes; nothing that a bucket counts",
		"split":             "split",
		"merge":             "merge",
		"expire":            "deletion of what has expired",
		"create":            "entities and their audit events; no bucket",
		"writeUpdate":       "name and metadata of entities, and their audit events; no bucket",
		"change":            "changes by hand of buckets",
		"rewrite":           "limits and their audit events",
		"move":              "records of entities and lists of children; no bucket",
		"register":          "records of namespaces; no bucket",
		"clear":             "deletion of entities",
		"forget":            "deletion of entities; no bucket",
		"clearBuckets":      "deletion of entities",
		"delete":            "records of namespaces; no bucket",
		"recover":           "records of namespaces; no bucket",
		"purge":             "records of namespaces; no bucket",
		"remove":            "deletion of namespaces",
		"writeVersion":      "the version; no bucket",
		"changeVersion":     "the version; no bucket",
		"SetAuditRetention": "how long audit events are kept; no bucket",
		"writeLock":         "the lock of managed limits; no bucket",
		"writeHeld":         "which levels are managed; no bucket",
		"unlock":            "the lock of managed limits; no bucket",
		"changeNothing":     "changes by hand of no bucket",
		"keep":              "slots of a bucket; its tokens and its stamp stay as they are",
		"save":              "alerts of budgets; no bucket",
		"succeed":           "a bucket that refuses requests and has served none, which gets what another one has",
		"mark":              "generation and disabled of items; their tokens stay as they are",
	}
	found := map[string]string{}
	fset := token.NewFileSet()
	for _, dir := range []string{".", "../internal/protocol"} {
		packages, err := parser.ParseDir(fset, dir, nil, 0) //nolint:staticcheck // of one directory, without build tags
		check.Fatal(t, "parser.ParseDir()", err)
		for _, p := range packages {
			for path, file := range p.Files {
				if !strings.HasSuffix(path, "_test.go") {
					findWriters(file, path, found)
				}
			}
		}
	}
	for name, path := range found {
		if known[name] == "" {
			t.Errorf("%s in %s sends writes and is not known", name, path)
		}
	}
	for name := range known {
		if found[name] == "" {
			t.Errorf("%s sends no writes any more", name)
		}
	}
}

// findWriters notes the functions of a file that send writes to a table or a store.
func findWriters(file *ast.File, path string, found map[string]string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			method, ok := n.(*ast.SelectorExpr) // of a call, or of a function that is passed on
			if !ok {
				return true
			}
			of, _ := method.X.(*ast.SelectorExpr)
			switch method.Sel.Name {
			case "Write", "PatientWrite", "PatientTransact", "Transact", "TryTransact", "Delete", "Expire":
				if of != nil && (of.Sel.Name == "table" || of.Sel.Name == "store") {
					found[f.Name.Name] = path
				}
			case "exchange":
				found[f.Name.Name] = path
			}
			return true
		})
	}
}
