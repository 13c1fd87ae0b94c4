package protocol

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// lower lowers the limit of the bucket of a contest to a part. Writes of some shards lose all their races until held is set to false, or
// fail as given, and so does each transaction. It counts what is sent meanwhile.
func (c *contest) lower(to int64, failure error, lost ...int) (held *atomic.Bool, sent *atomic.Int64) {
	lowered := quick
	lowered.Capacity, lowered.RefillAmount = lowered.Capacity/to, lowered.RefillAmount/to
	c.limits.set("e", &Limits{Epoch: 1 << 41, Config: bucket.Config{Params: []bucket.Params{lowered}}})
	b := c.e.Memory.Bucket("e", "model")
	held, sent = new(atomic.Bool), new(atomic.Int64)
	held.Store(true)
	c.onWrite(func(writes []store.Write) error {
		sent.Add(1)
		isLost := func(number int) bool { return b.shard(number).key == writes[0].Key }
		if held.Load() && (len(writes) > 1 || slices.ContainsFunc(lost, isLost)) {
			return failure
		}
		return nil
	})
	return held, sent
}

// formers returns the numbers of those shards that have former limits.
func (c *contest) formers(t *testing.T, shards int) (numbers []int) {
	t.Helper()
	limits := c.limits["e"].Load()
	for number := range shards {
		i := check.Call(c.other.items.readShard(t.Context(), c.other.Memory.Bucket("e", "model").shard(number))).Must(t, "readShard()")
		if !limits.Config.Matches(&i.State) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

func (c *contest) take(t *testing.T) error {
	t.Helper()
	return c.e.Take(t.Context(), &Request{Entity: "e", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 1})}, new(Receipt))
}

// TestAlignmentGoesOn lowers the limit of a divided bucket. The one request that knows of it loses all its races, or cannot write, and
// fails. No other request comes, and the bucket is in line soon after it can be written. Shards that can be written are in line before.
func TestAlignmentGoesOn(t *testing.T) {
	throttled := &store.Error{Op: "UpdateItem", Unavailable: true, Throttled: true, Throttles: []store.Throttle{{Limit: store.OfTable, Write: true}}}
	for _, test := range []struct {
		name    string
		failure error
		lost    []int
		left    []int // with former limits when the request fails
		want    error
	}{
		{"the first shard loses its races", store.ErrConflict, []int{0}, []int{0}, ErrContended},
		{"the last shard loses its races", store.ErrConflict, []int{3}, []int{3}, ErrContended},
		{"all shards lose their races", store.ErrConflict, []int{0, 1, 2, 3}, []int{0, 1, 2, 3}, ErrContended},
		{"the table is throttled", throttled, []int{0, 1, 2, 3}, []int{0, 1, 2, 3}, throttled},
	} {
		t.Run(test.name, func(t *testing.T) {
			inContest(t, 4, quick, func(t *testing.T, c *contest) {
				for _, to := range []int64{10, 20} { // also when it happens again
					held, _ := c.lower(to, test.failure, test.lost...)
					if err := c.take(t); !errors.Is(err, test.want) {
						t.Fatalf("Take() = %v, want %v", err, test.want)
					}
					if left := c.formers(t, 4); !slices.Equal(left, test.left) {
						t.Errorf("shards %v have former limits when the request has failed, want %v", left, test.left)
					}
					held.Store(false)
					time.Sleep(leastRest * 2)
					c.e.Quiesce()
					if left := c.formers(t, 4); len(left) > 0 {
						t.Errorf("shards %v have former limits", left)
					}
				}
			})
		})
	}
}

// In TestAlignmentAfterReads, a request finds a shard out of line, and no other shard can be read. The bucket is in line once they can.
func TestAlignmentAfterReads(t *testing.T) {
	inContest(t, 4, quick, func(t *testing.T, c *contest) {
		held, _ := c.lower(10, nil)
		held.Store(false)
		var failure error = &store.Error{Op: "BatchGetItem", Unavailable: true, Err: errors.New("no route")}
		c.blind.Store(&failure)
		if err := c.take(t); !errors.Is(err, failure) {
			t.Fatalf("Take() = %v, want %v", err, failure)
		}
		c.blind.Store(nil)
		time.Sleep(leastRest * 2)
		c.e.Quiesce()
		if left := c.formers(t, 4); len(left) > 0 {
			t.Errorf("shards %v have former limits", left)
		}
	})
}

// In TestAlignmentEnds, a bucket cannot be brought in line. A process tries for a while, and not after it is closed.
func TestAlignmentEnds(t *testing.T) {
	for name, closed := range map[string]bool{"after a minute": false, "with Close": true} {
		t.Run(name, func(t *testing.T) {
			inContest(t, 4, quick, func(t *testing.T, c *contest) {
				_, sent := c.lower(10, store.ErrConflict, 0)
				if err := c.take(t); !errors.Is(err, ErrContended) {
					t.Fatalf("Take() = %v, want %v", err, ErrContended)
				}
				time.Sleep(10 * time.Second)
				before, began := sent.Load(), time.Now()
				if closed {
					if c.e.Close(); time.Since(began) > 0 {
						t.Errorf("Close() took %v", time.Since(began))
					}
				} else if time.Sleep(2 * alignOnTime); sent.Load() == before {
					t.Error("the process does not try any more after 10 s")
				}
				last := sent.Load()
				if time.Sleep(2 * alignOnTime); sent.Load() > last {
					t.Errorf("the process sends %d more writes", sent.Load()-last)
				}
				if closed {
					return
				}
				if err := c.take(t); !errors.Is(err, ErrContended) || sent.Load() == last {
					t.Errorf("Take() = %v after %d writes, want another try", err, sent.Load()-last)
				}
			})
		})
	}
}

// In TestAlignmentOfRequests, a request brings limits. No process goes on with those when the request has failed.
func TestAlignmentOfRequests(t *testing.T) {
	inContest(t, 4, quick, func(t *testing.T, c *contest) {
		held, sent := c.lower(10, store.ErrConflict, 0, 1, 2, 3)
		own := *c.limits["e"].Load()
		own.Own = true
		c.limits.set("e", &own)
		if err := c.take(t); !errors.Is(err, ErrContended) {
			t.Fatalf("Take() = %v, want %v", err, ErrContended)
		}
		held.Store(false)
		last := sent.Load()
		if time.Sleep(alignOnTime); sent.Load() > last {
			t.Errorf("the process sends %d writes without a request", sent.Load()-last)
		}
		if err := c.take(t); err != nil || len(c.formers(t, 4)) > 0 {
			t.Errorf("Take() = %v, shards %v have former limits", err, c.formers(t, 4))
		}
	})
}
