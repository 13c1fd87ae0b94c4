package protocol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	memorystore "github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/table"
)

// callTimeout and callTime are those of tests whose store takes its time.
const (
	callTimeout = 2 * time.Second
	callTime    = 5 * time.Millisecond
)

// A network is the way to a store that takes its time, and loses calls on the way.
type network struct {
	store.Store
	fate  atomic.Pointer[func(call string) error] // of the next calls: errLost for no reply, nil for one
	calls atomic.Int64
}

// errLost is the fate of a call that is not answered.
var errLost = errors.New("lost")

// next sets a function that decides what becomes of calls: "read" and "write".
func (n *network) next(fate func(call string) error) { n.fate.Store(&fate) }

// once returns the fate of the first call of a kind; the others are answered.
func once(kind string, err error) func(string) error {
	var met atomic.Bool
	return func(call string) error {
		if call == kind && met.CompareAndSwap(false, true) {
			return err
		}
		return nil
	}
}

func (n *network) pass(ctx context.Context, call string) error {
	n.calls.Add(1)
	fate := n.fate.Load()
	if fate == nil {
		return nil
	}
	switch err := (*fate)(call); {
	case errors.Is(err, errLost):
		<-ctx.Done()
		return &store.Error{Op: call, Unavailable: true, Unknown: call == "write", Err: ctx.Err()}
	case err != nil:
		time.Sleep(callTime)
		return err
	}
	time.Sleep(callTime)
	return nil
}

func (n *network) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if err := n.pass(ctx, "read"); err != nil {
		return nil, err
	}
	return n.Store.Read(ctx, keys, consistent)
}

func (n *network) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := n.pass(ctx, "write"); err != nil {
		return store.Result{}, err
	}
	return n.Store.Write(ctx, w)
}

// sameLimits are the limits of every bucket.
type sameLimits struct{ Limits }

func (s *sameLimits) For(context.Context, *Bucket) (*Limits, error) { return &s.Limits, nil }

func (s *sameLimits) After(context.Context, *Bucket, int64) (*Limits, error) { return &s.Limits, nil }

// onNetwork runs a test with an engine on a store in memory, over a network. Each bucket has a limit of so many tokens. The first one is
// taken of the bucket that [tokens] asks for.
func onNetwork(t *testing.T, capacity int64, writesAtOnce int, test func(t *testing.T, e *Engine, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := check.Call(memorystore.New(layout.Table)).Must(t, "memorystore.New()")
		check.Fatal(t, "Setup()", s.Setup(t.Context()))
		n := &network{Store: s}
		e := New(Options{
			Table:     table.New(n, table.Options{Timeout: callTimeout, Gate: store.NewGate(256, nil), IntN: noChance}),
			Namespace: func() string { return "ns" },
			Source: &sameLimits{Limits{Epoch: 1 << 62, Config: bucket.Config{Params: []bucket.Params{
				{Name: "rpd", Capacity: capacity * millis, RefillAmount: 1, RefillPeriod: 24 * time.Hour.Milliseconds()},
			}}}},
			Now: time.Now, Freshness: func([]bucket.Params) int64 { return 0 }, MaxShards: 1, WritesAtOnce: writesAtOnce, Buckets: 10,
			MaxLead: time.Minute, SettleLimit: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Resized: func(context.Context, string, string, int) {},
		})
		check.Fatal(t, "Take()", e.Take(t.Context(), tokens(1), new(Receipt)))
		test(t, e, n)
		e.Close()
	})
}

// tokens is a request of so many tokens.
func tokens(n int64) *Request {
	return &Request{Entity: "key-1", Resource: "gpt-4", Amounts: []bucket.Amount{{Limit: "rpd", Tokens: n * millis}}}
}

// counted returns how many tokens the item counts as taken.
func counted(t *testing.T, e *Engine) int64 {
	t.Helper()
	i := check.Call(e.items.readShard(t.Context(), e.Memory.Bucket("key-1", "gpt-4").shard(0))).Must(t, "readShard()")
	return i.Limits[slices.IndexFunc(i.Limits, func(l bucket.Limit) bool { return l.Name == "rpd" })].Consumed / millis
}

// An answer is what became of one request.
type answer struct {
	err  error
	took time.Duration
}

// arrive sends requests of one token, one every gap, and returns what became of them.
func arrive(ctx context.Context, e *Engine, requests int, gap time.Duration) []answer {
	answers := make([]answer, requests)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			began := time.Now()
			answers[i].err = e.Take(ctx, tokens(1), new(Receipt))
			answers[i].took = time.Since(began)
		})
		time.Sleep(gap)
	}
	all.Wait()
	return answers
}

// slower counts the answers that took longer than a time.
func slower(answers []answer, than time.Duration) (n int) {
	for _, a := range answers {
		if a.took > than {
			n++
		}
	}
	return n
}

// TestOneLostLook asks for an exhausted bucket a hundred times a second. One read is not answered: another one takes its place, and
// all requests are rejected.
func TestOneLostLook(t *testing.T) {
	for _, writesAtOnce := range []int{0, 1, 8} {
		t.Run(fmt.Sprint(writesAtOnce), func(t *testing.T) {
			onNetwork(t, 1, writesAtOnce, func(t *testing.T, e *Engine, n *network) {
				n.next(once("read", errLost))
				answers := arrive(t.Context(), e, 200, 10*time.Millisecond)
				for i, a := range answers {
					if rejected := (*RejectedError)(nil); !errors.As(a.err, &rejected) || a.took > callTimeout/4 {
						t.Errorf("request %d: %v after %v, want a rejection", i, a.err, a.took)
					}
				}
				if slow := slower(answers, 100*time.Millisecond); slow > 25 {
					t.Errorf("%d of %d requests took longer than 100ms", slow, len(answers))
				}
			})
		})
	}
}

// In TestFailedLookIsOnes, a read that many wait for fails. It is an outage of the request that began it.
func TestFailedLookIsOnes(t *testing.T) {
	onNetwork(t, 1, 0, func(t *testing.T, e *Engine, n *network) {
		n.next(once("read", &store.Error{Op: "read", Unavailable: true, Err: errors.New("no route")}))
		outages := 0
		for _, a := range arrive(t.Context(), e, 50, 0) {
			if isOutage(a.err) {
				outages++
			} else if rejected := (*RejectedError)(nil); !errors.As(a.err, &rejected) {
				t.Errorf("Take() = %v, want a rejection", a.err)
			}
		}
		if outages != 1 {
			t.Errorf("%d requests met an outage, want 1", outages)
		}
	})
}

// TestSilentStore asks for an exhausted bucket while the store answers nothing. Each request is an outage, and waits about as long as
// for a call of its own. Once the store answers again, requests are decided.
func TestSilentStore(t *testing.T) {
	for _, writesAtOnce := range []int{0, 1, 8} {
		t.Run(fmt.Sprint(writesAtOnce), func(t *testing.T) {
			onNetwork(t, 1, writesAtOnce, func(t *testing.T, e *Engine, n *network) {
				n.next(func(string) error { return errLost })
				before := n.calls.Load()
				for i, a := range arrive(t.Context(), e, 300, 10*time.Millisecond) {
					if !isOutage(a.err) || a.took > callTimeout+3*callTimeout/10 {
						t.Errorf("request %d: %v after %v, want an outage after %v", i, a.err, a.took, callTimeout)
					}
				}
				if calls := n.calls.Load() - before; calls > 60 {
					t.Errorf("%d calls while the store is silent", calls)
				}
				n.next(func(string) error { return nil })
				for _, a := range arrive(t.Context(), e, 10, 0) {
					if rejected := (*RejectedError)(nil); !errors.As(a.err, &rejected) || a.took > callTimeout/10+10*callTime {
						t.Errorf("when the store answers again: %v after %v, want a rejection", a.err, a.took)
					}
				}
			})
		})
	}
}

// TestOneLostWrite sends requests that share writes of a bucket, or have eight of their own. One write is not answered: its outcome is
// unknown, and that of no other. Those that came later do not wait for it.
func TestOneLostWrite(t *testing.T) {
	for _, writesAtOnce := range []int{1, 8} {
		t.Run(fmt.Sprint(writesAtOnce), func(t *testing.T) {
			onNetwork(t, 1000, writesAtOnce, func(t *testing.T, e *Engine, n *network) {
				n.next(once("write", errLost))
				answers := arrive(t.Context(), e, 200, 10*time.Millisecond)
				admitted, unknown := int64(1), 0
				for i, a := range answers {
					switch {
					case a.err == nil:
						admitted++
					case IsUnknown(a.err):
						unknown++
					default:
						t.Errorf("request %d: %v", i, a.err)
					}
				}
				if unknown != 1 {
					t.Errorf("the outcome of %d requests is unknown, want 1", unknown)
				}
				if slow := slower(answers, 100*time.Millisecond); slow > 25 {
					t.Errorf("%d of %d requests took longer than 100ms", slow, len(answers))
				}
				if got := counted(t, e); got != admitted {
					t.Errorf("the item counts %d, want %d", got, admitted)
				}
			})
		})
	}
}

// TestOneLostCorrection settles receipts of one bucket. One write is not answered, and the others do not wait for it.
func TestOneLostCorrection(t *testing.T) {
	const receipts = 100
	onNetwork(t, 1000, 1, func(t *testing.T, e *Engine, n *network) {
		var all sync.WaitGroup
		var took [receipts]Receipt
		for i := range took {
			check.Fatal(t, "Take()", e.Take(t.Context(), tokens(1), &took[i]))
		}
		n.next(once("write", errLost))
		var unknown, slow atomic.Int64
		for i := range took {
			all.Go(func() {
				began, s := time.Now(), took[i].Return()
				if err := e.Settle(t.Context(), &s); IsUnknown(err) {
					unknown.Add(1)
				} else if err != nil {
					t.Errorf("Settle() = %v", err)
				}
				if time.Since(began) > callTimeout/2 {
					slow.Add(1)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		if unknown.Load() != 1 || slow.Load() != 1 {
			t.Errorf("the outcome of %d corrections is unknown, and %d were late; want 1 and 1", unknown.Load(), slow.Load())
		}
		if got := counted(t, e); got != 2 {
			t.Errorf("the item counts %d, want 2", got)
		}
	})
}

// In TestLostTurn, a goroutine keeps its turn for long. Requests that wait go on after maxTurn, and requests that come later immediately.
func TestLostTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		it, s := &items{coreFor(8)}, newBucket("ns", "hot", "model").shard(0)
		time.Sleep(time.Second)
		leave, err := it.enter(t.Context(), s)
		check.Fatal(t, "enter()", err)
		for i, want := range []time.Duration{maxTurn, 0, 0} {
			began := time.Now()
			other, err := it.enter(t.Context(), s)
			if err != nil || time.Since(began) != want {
				t.Errorf("goroutine %d goes on after %v, %v, want %v", i, time.Since(began), err, want)
			}
			other()
		}
		leave()
		if leave, err = it.enter(t.Context(), s); err != nil || len(s.turn) != 1 {
			t.Errorf("after the turn has ended: %v, %d in turn", err, len(s.turn))
		}
		time.Sleep(time.Second)
		leave()
		if len(s.turn) != 0 {
			t.Error("nobody has the turn, and it is not free")
		}
	})
}

// In TestTurnsOfMany, many callers take of a limit that is full before the next one comes, so that each has to move the refill stamp. Each
// makes its plan again when its turn comes, and hardly any write is lost. Some find that a later request has moved the stamp.
func TestTurnsOfMany(t *testing.T) {
	const callers = 80
	onNetwork(t, 100, 0, func(t *testing.T, e *Engine, n *network) {
		p := &e.core.options.Source.(*sameLimits).Config.Params[0]
		p.RefillAmount, p.RefillPeriod = 1000_000*millis, 1000
		if err := e.Take(t.Context(), tokens(100), new(Receipt)); !errors.As(err, new(*RejectedError)) { // it brings the item in line
			t.Fatalf("Take() = %v", err)
		}
		n.next(func(string) error { return nil })
		time.Sleep(time.Minute)
		before, began := n.calls.Load(), time.Now()
		for i, a := range arrive(t.Context(), e, callers, time.Millisecond) {
			if a.err != nil {
				t.Errorf("request %d: %v", i, a.err)
			}
		}
		if calls, took := n.calls.Load()-before, time.Since(began); calls > callers+callers/20 || took > callers*callTime {
			t.Errorf("%d calls in %v, want %d in at most %v", calls, took, callers, callers*callTime)
		}
	})
}

// In TestThrottledIndex, an index throttles the write of a bucket that is in memory. The request tries once more about a second later, if
// its context has the time.
func TestThrottledIndex(t *testing.T) {
	throttle := &store.Error{
		Op: "UpdateItem", Unavailable: true, Throttled: true, Throttles: []store.Throttle{{Limit: store.OfKey, Index: true, Write: true}},
	}
	for _, test := range []struct {
		name     string
		patience time.Duration
		times    int
		writes   int64
		least    time.Duration
		throttle bool
	}{
		{"once", time.Minute, 1, 2, indexRest / 2, false},
		{"for long", time.Minute, 100, 2, indexRest / 2, true},
		{"a caller in a hurry", 300 * time.Millisecond, 1, 1, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			onNetwork(t, 1000, 8, func(t *testing.T, e *Engine, n *network) {
				left := test.times
				n.next(func(string) error {
					if left--; left >= 0 {
						return throttle
					}
					return nil
				})
				before := n.calls.Load()
				ctx, cancel := context.WithTimeout(t.Context(), test.patience)
				defer cancel()
				a := arrive(ctx, e, 1, 0)[0]
				if got := IsThrottled(a.err); got != test.throttle || !got && a.err != nil {
					t.Errorf("Take() = %v, want a throttle: %t", a.err, test.throttle)
				}
				if most := test.least*3 + 2*callTime; a.took < test.least || a.took > most {
					t.Errorf("Take() took %v, want %v to %v", a.took, test.least, most)
				}
				if got := n.calls.Load() - before; got != test.writes {
					t.Errorf("%d writes, want %d", got, test.writes)
				}
			})
		})
	}
	onNetwork(t, 1000, 8, func(t *testing.T, e *Engine, n *network) {
		n.next(func(string) error { return throttle })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(callTimeout/10, cancel)
		if a := arrive(ctx, e, 1, 0)[0]; !errors.Is(a.err, context.Canceled) || a.took != callTimeout/10 {
			t.Errorf("a caller who leaves meanwhile: %v after %v, want %v", a.err, a.took, context.Canceled)
		}
	})
}
