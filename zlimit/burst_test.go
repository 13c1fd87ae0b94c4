package zlimit_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A metronome is a clock that callers move: so many calls make a second, however long they take. It ticks seldom enough
// that what a key can serve again is there for every caller, and not for the one who moved it alone.
type metronome struct {
	*clock
	calls atomic.Int64
}

const (
	callRate = 6000
	tick     = 20 * time.Millisecond
)

func newMetronome() *metronome { return &metronome{clock: newClock()} }

// call counts a call.
func (m *metronome) call() {
	if m.calls.Add(1)%int64(callRate*tick/time.Second) == 0 {
		m.sleep(tick)
	}
}

var errThrottled = &store.Error{Op: "call", Unavailable: true, Throttled: true, Err: errors.New("throttled")}

// heat returns a store that throttles keys as DynamoDB does, without its retries.
func heat(s store.Store, partitions *enginetest.Partitions) zlimit.Store {
	hot := store.Around{Store: s, Call: func(ctx context.Context, c *store.Call, do func(context.Context) error) error {
		keys, throttled := slices.Collect(c.Partitions()), []int(nil)
		switch c.Operation {
		case "write":
			throttled = partitions.Write(1, keys...)
		case "transact":
			throttled = partitions.Write(2, keys...)
		case "read":
			throttled = partitions.Read(1, keys...)
		}
		if throttled != nil {
			return errThrottled
		}
		return do(ctx)
	}}
	return zlimit.StoreOn(partitioned{hot})
}

// TestBurst writes one bucket 6,000 times a second, of which DynamoDB serves 1,000 for each item. The bucket splits
// until all requests are served, and has exactly what it should at every look. It is whole again when the traffic has
// died down (I1, I7, I9).
func TestBurst(t *testing.T) {
	hotKeys := func(m *metronome) *enginetest.Partitions {
		return enginetest.NewPartitions(enginetest.Throughput{
			Writes: 1000, Reads: 3000, Burst: 100 * time.Millisecond, OnDemand: true, Key: store.PK, Now: m.now,
		})
	}
	t.Run("memory", func(t *testing.T) {
		m := newMetronome()
		w := newWitness(store.Of(newMemory(t)))
		testBurst(t, heat(w, hotKeys(m)), zlimit.StoreOn(w), m, 2*time.Second)
		check.Error(t, "verdict()", w.verdict())
	})
	t.Run("dynamodb", func(t *testing.T) {
		if !soak.Runs() {
			t.Skip("an engine takes a while for 7,000 writes: make soak")
		}
		m := newMetronome()
		engine := enginetest.Start(t)
		table := engine.Table(t)
		over := func(transport http.RoundTripper) zlimit.Store {
			client := engine.Client(func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: transport} })
			return zlimit.StoreOn(dynamo.New(client, table, layout.Table, withoutStream))
		}
		testBurst(t, over(hotKeys(m).Transport(engine.Transport())), over(engine.Transport()), m, 1200*time.Millisecond)
	})
}

// testBurst runs the burst on a store that throttles, and looks at the bucket past the throttle.
func testBurst(t *testing.T, s, past zlimit.Store, m *metronome, length time.Duration) {
	const (
		callers = 64
		look    = 200 * time.Millisecond
	)
	eye := newLimiter(t, past, zlimit.WithClock(m.now))
	b := &ledger{limit: zlimit.PerDay("rpm", 50_000), created: m.now().UnixMilli(), net: 20_000}
	setSystem(t, eye, b.limit)
	// Each request is a write of its own: the test is about splitting, not about sharing.
	l := newLimiter(t, s, zlimit.WithClock(m.now), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1}), zlimit.WithCallTimeout(time.Minute), zlimit.WithoutCoalescing())
	acquire(t, l, ask(zlimit.Amounts{"rpm": b.net})) // so that it is never full again

	expect := func() (items []*bucket.State) {
		t.Helper()
		l.Engine().Quiesce()
		items = shardsOf(t, eye)
		if _, _, capacity := total(items, "rpm"); capacity != b.limit.Capacity*zlimit.Millis {
			t.Fatalf("the shares of %d shards add up to %d, want %d", len(items), capacity, b.limit.Capacity*zlimit.Millis)
		}
		b.resizes = max(b.resizes, 2*len(items))
		if err := b.unbalanced(items); err != nil {
			t.Fatalf("%d shards: %v", len(items), err)
		}
		return items
	}
	var served []int64 // per second, at each look
	var items []*bucket.State
	isServed := func() bool { return len(served) > 0 && served[len(served)-1] >= callRate*9/10 }
	// On a loaded machine the clock, which calls move, is far ahead of the goroutines that split. They get more looks there.
	for looks := int(length / look); len(served) < looks || len(served) < 4*looks && !isServed(); {
		var asked, got atomic.Int64
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for asked.Add(1) <= int64(callRate*look/time.Second) {
					m.call()
					_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1}))
					var outage *zlimit.UnavailableError
					switch {
					case err == nil:
						got.Add(1)
					case !errors.As(err, &outage) || outage.Unknown:
						t.Errorf("Acquire() = %v, want an UnavailableError without a write", err)
					}
				}
			})
		}
		group.Wait()
		served = append(served, got.Load()*int64(time.Second/look))
		b.net += got.Load()
		items = expect()
	}
	t.Logf("%d shards; served per second: %v", len(items), served)
	// A shard with more than 600 writes a second is split, so that 8 shards become 16. Failed conditions count as writes: on a loaded
	// machine, where many callers write by an image from before a split, a few of the 16 are split too.
	if len(items) < 6 || len(items) >= 24 || !isServed() {
		t.Errorf("%d shards serve %d a second in the end, want about 16 and %d", len(items), served[len(served)-1], callRate)
	}
	if _, consumed, _ := total(items, "rpm"); consumed != b.net*zlimit.Millis {
		t.Errorf("the shards count %d, want %d", consumed, b.net*zlimit.Millis)
	}
	for i := 0; i < 1000 && len(items) > 1; i++ {
		m.sleep(2 * time.Second)
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		b.net++
		if i%8 == 0 {
			items = expect()
		}
	}
	if len(items) > 1 {
		t.Errorf("%d shards are left, want 1", len(items))
	}
}
