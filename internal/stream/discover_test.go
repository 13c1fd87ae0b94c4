package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// TestCrashAtTheEndOfAShard kills a consumer at each of its calls in turn, before the call and after it, while shards end
// and hand their items over. Another one goes on, and finds all children.
func TestCrashAtTheEndOfAShard(t *testing.T) {
	step := soak.Pick(3, 1)
	if testing.Short() {
		step = 7
	}
	for _, late := range []bool{false, true} {
		for killAt := 1; killAt <= 60; killAt += step {
			synctest.Test(t, func(t *testing.T) {
				w := sharded(t)
				w.shards.Open("0", "")
				m, config := w.mortal("a", killAt, late)
				a := w.start("a", config)
				m.uponDeath(a.cancel)
				b := w.start("b", nil)
				for n := range 8 {
					w.put(fmt.Sprint(n), "x")
					time.Sleep(700 * time.Millisecond)
					w.put(fmt.Sprint(n), "y")
					w.shards.Open(fmt.Sprint(n+1), fmt.Sprint(n))
					w.shards.Close(fmt.Sprint(n))
				}
				time.Sleep(8 * time.Minute)
				<-a.done
				w.audit()
				if t.Failed() {
					t.Fatalf("killed at call %d, late: %t", killAt, late)
				}
				b.stop(t)
			})
		}
	}
}

// In TestLateChildren, a stream reports a child some time after the end of its parent, or fails meanwhile.
func TestLateChildren(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := sharded(t)
			w.shards.Open("a", "")
			w.shards.Open("other", "") // without it all would be listed sooner
			w.put("a", "x")
			source := &unsteady{Streamer: w.source}
			c := w.start("one", func(c *stream.Config) { c.Source = source })
			time.Sleep(time.Second)
			expectTold(t, "the parent", w, 1)
			if fails {
				w.shards.Open("b", "a")
				source.fails.Store(true)
			}
			w.shards.Close("a")
			time.Sleep(20 * time.Second)
			if !fails {
				w.shards.Open("b", "a")
			}
			source.fails.Store(false)
			w.put("b", "x")
			time.Sleep(12 * time.Second) // the next look
			expectTold(t, "the child", w, 2)
			c.stop(t)
		})
	}
}

// unsteady is a stream that fails to report children while it is set to.
type unsteady struct {
	store.Streamer
	fails atomic.Bool
}

func (u *unsteady) Children(ctx context.Context, partition string) ([]store.Partition, error) {
	if u.fails.Load() {
		return nil, errDead
	}
	return u.Streamer.Children(ctx, partition)
}

// In TestListings, four consumers have stores of their own, and partitions end one by one, each after four hours. All calls
// that describe the stream are within the rate of DynamoDB, few of them list all, and children are read immediately.
func TestListings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, age = 48, 4 * time.Hour
		w := sharded(t)
		w.shards.PageSize = 3 // as many pages as hundreds of partitions have
		for i := range partitions {
			w.shards.Open(fmt.Sprintf("%03d", i), "")
		}
		calls := &described{base: w.shards}
		var consumers []*running
		for i := range 4 {
			db, streams := w.shards.Clients(func(o *dynamodbstreams.Options) { o.HTTPClient = &http.Client{Transport: calls} })
			consumers = append(consumers, w.start(nameOf(i), func(c *stream.Config) {
				c.Source = dynamo.New(db, "shards", storetest.Table, nil, dynamo.Streams(streams), dynamo.ReadInterval(0))
				c.Poll = 30 * time.Second
			}))
		}
		time.Sleep(10 * time.Second)
		if all, _, _ := calls.sum(); all != 1 {
			t.Errorf("%d listings by consumers that start together, want one", all)
		}
		for n := range partitions / 2 { // two hours
			parent, child := fmt.Sprintf("%03d", n), fmt.Sprintf("%03d", partitions+n)
			w.put(parent, parent)
			w.shards.Open(child, parent)
			w.shards.Close(parent)
			w.put(child, parent)
			time.Sleep(age / partitions)
		}
		w.audit()
		all, filtered, most := calls.sum()
		if most > 10 {
			t.Errorf("%d DescribeStream calls within a second, want at most 10", most)
		}
		if all < 18 || all > 26 { // one every 5 to 6.25 minutes
			t.Errorf("%d listings in two hours, want about 22", all)
		}
		if filtered != partitions/2 {
			t.Errorf("%d calls for children, want one for each partition that ended, %d", filtered, partitions/2)
		}
		for _, c := range consumers {
			c.stop(t)
		}
	})
}

// TestOneTurn starts consumers whose calls take a while at the same time: one of them lists the partitions.
func TestOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.Open("a", "")
		var listings atomic.Int64
		var consumers []*running
		for i := range 4 {
			m, config := w.mortal(nameOf(i), 0, false)
			m.delay = func() time.Duration { return 10 * time.Millisecond }
			m.Streamer = listed{m.Streamer, &listings}
			consumers = append(consumers, w.start(nameOf(i), config))
		}
		time.Sleep(time.Minute)
		if n := listings.Load(); n != 1 {
			t.Errorf("the partitions were listed %d times in a minute, want once", n)
		}
		for _, c := range consumers {
			c.stop(t)
		}
	})
}

// listed counts the listings.
type listed struct {
	store.Streamer
	listings *atomic.Int64
}

func (l listed) Partitions(ctx context.Context) ([]store.Partition, error) {
	l.listings.Add(1)
	return l.Streamer.Partitions(ctx)
}

// described notes the DescribeStream calls that pass.
type described struct {
	base http.RoundTripper

	mu            sync.Mutex
	times         []time.Time
	all, filtered int
}

func (d *described) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".DescribeStream") {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		d.mu.Lock()
		d.times = append(d.times, time.Now())
		switch {
		case strings.Contains(string(text), "CHILD_SHARDS"):
			d.filtered++
		case !strings.Contains(string(text), "ExclusiveStartShardId"):
			d.all++
		}
		d.mu.Unlock()
	}
	return d.base.RoundTrip(r)
}

// sum returns how many listings of all there were, how many calls for children, and the most calls within a second.
func (d *described) sum() (all, filtered, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, at := range d.times {
		end := slices.IndexFunc(d.times[i:], func(t time.Time) bool { return t.Sub(at) >= time.Second })
		if end < 0 {
			end = len(d.times) - i
		}
		most = max(most, end)
	}
	return d.all, d.filtered, most
}

// TestFinishedLeases keeps the lease of a finished partition for two days, and while the stream lists the partition. Few
// looks read such leases.
func TestFinishedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		const ended = 30
		for n := range ended + 1 {
			w.shards.Open(fmt.Sprintf("%02d", n), fmt.Sprintf("%02d", n-1))
			if n > 0 {
				w.shards.Close(fmt.Sprintf("%02d", n-1))
			}
		}
		w.put("00", "x")
		var reads atomic.Int64
		c := w.start("one", func(c *stream.Config) {
			c.Poll = time.Minute
			c.Leases = reading{c.Leases, &reads}
		})
		time.Sleep(6 * time.Minute) // all of them were open when it read them last
		reads.Store(0)
		time.Sleep(time.Hour)
		// Each of some 360 looks reads the open one and the record of the last listing. The twelve turns read all, and so do
		// twelve looks.
		if n := reads.Load(); n > 360*2+24*(ended+2)+50 {
			t.Errorf("%d leases read in an hour, want those that are open", n)
		}
		for n := 1; n < ended; n++ {
			w.shards.Forget(fmt.Sprintf("%02d", n))
		}
		time.Sleep(46 * time.Hour)
		if l := w.lease(w.shards.Partition("05")); !l.Finished {
			t.Errorf("after 47 hours the lease of a partition is %+v, want it kept", l)
		}
		time.Sleep(2 * time.Hour)
		if l := w.lease(w.shards.Partition("05")); l != (stream.Lease{}) {
			t.Errorf("after 49 hours the lease of a partition is %+v, want none", l)
		}
		if l := w.lease(w.shards.Partition("00")); !l.Finished {
			t.Errorf("after 49 hours the lease of a partition that the stream has yet is %+v, want it kept", l)
		}
		expectTold(t, "the partition that the stream has yet", w, 1)
		c.stop(t)
	})
}

// In TestForgottenGenerations, a stream forgets a partition with its children. What comes after them is read within a look,
// and not only when all partitions are listed again.
func TestForgottenGenerations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.Open("a", "")
		c := w.start("one", nil)
		time.Sleep(time.Second)
		w.shards.Open("c", "b")
		w.shards.Forget("a")
		w.put("c", "x")
		time.Sleep(30 * time.Second)
		expectTold(t, "the third generation", w, 1)
		c.stop(t)
	})
}

// TestStartAfterAWhile starts a consumer an hour after the last listing: it lists the partitions immediately.
func TestStartAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.Open("a", "")
		c := w.start("one", nil)
		time.Sleep(time.Second)
		c.stop(t)
		w.shards.Open("b", "")
		w.put("b", "x")
		time.Sleep(time.Hour)
		c = w.start("two", nil)
		time.Sleep(time.Second)
		expectTold(t, "the new partition", w, 1)
		c.stop(t)
	})
}

// TestClaimOfALateLease lists a partition before those in reading, and fails to claim it. The next look claims it.
func TestClaimOfALateLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.Open("b0", "")
		var failed atomic.Bool
		c := w.start("one", func(c *stream.Config) {
			c.Leases = refusing{c.Leases, func(next stream.Lease) bool {
				return next.Partition == w.shards.Partition("a0") && next.Owner != "" && failed.CompareAndSwap(false, true)
			}}
		})
		time.Sleep(time.Second)
		w.shards.Open("a0", "")
		w.put("a0", "x")
		time.Sleep(410 * time.Second) // up to 385 s until the next listing
		if !failed.Load() {
			t.Error("the partition was not to be claimed")
		}
		expectTold(t, "the partition", w, 1)
		c.stop(t)
	})
}

// refusing fails writes of leases.
type refusing struct {
	stream.Leases
	refuses func(stream.Lease) bool
}

func (r refusing) Save(ctx context.Context, next stream.Lease) (stream.Lease, bool, error) {
	if r.refuses(next) {
		return stream.Lease{}, false, errDead
	}
	return r.Leases.Save(ctx, next)
}

// reading counts the leases that are read.
type reading struct {
	stream.Leases
	reads *atomic.Int64
}

func (r reading) List(ctx context.Context, from string) ([]stream.Lease, error) {
	leases, err := r.Leases.List(ctx, from)
	r.reads.Add(int64(len(leases)))
	return leases, err
}
