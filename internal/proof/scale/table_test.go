package scale

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// inBubble runs a test of a table in a bubble.
func inBubble(t *testing.T, p Params, test func(t *testing.T, table *Client)) {
	t.Helper()
	p.Lost = 0
	synctest.Test(t, func(t *testing.T) {
		table := check.Call(NewTable(p)).Must(t, "NewTable()")
		test(t, table.Client())
	})
}

// put returns a write of an item, which is in the index GSI2 when it has a group.
func put(tb testing.TB, pk, group string) store.Write {
	tb.Helper()
	absent := check.Call(layout.Insert()).Must(tb, "layout.Insert()")
	w := store.Write{Kind: store.Delete, Key: store.Key{PK: pk, SK: "s"}}
	if group != "" {
		w.Kind, w.Expr = store.Put, absent
		w.Item = expr.Item{{Name: "GSI2PK", Value: expr.S(group)}, {Name: "GSI2SK", Value: expr.S(pk)}}
	}
	return w
}

// offer makes calls at a rate for a time, and returns how many were served in each second.
func offer(rate int, d time.Duration, call func(i int) error) (served []int) {
	served = make([]int, int(d.Seconds())+4)
	var mu sync.Mutex
	var calls sync.WaitGroup
	began := time.Now()
	for i := range int(d.Seconds() * float64(rate)) {
		calls.Go(func() {
			if call(i) == nil {
				mu.Lock()
				served[int(time.Since(began).Seconds())]++
				mu.Unlock()
			}
		})
		time.Sleep(time.Second / time.Duration(rate))
	}
	calls.Wait()
	return served
}

// mean returns how many calls were served in each of some seconds.
func mean(served []int) int {
	sum := 0
	for _, n := range served {
		sum += n
	}
	return sum / len(served)
}

func between(t *testing.T, what string, got, least, most int) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %d, want %d to %d", what, got, least, most)
	}
}

func TestPartitionServesAThousand(t *testing.T) {
	inBubble(t, Default(), func(t *testing.T, table *Client) {
		served := offer(3000, 6*time.Second, func(int) error {
			_, err := table.Write(t.Context(), put(t, "p", ""))
			return err
		})
		between(t, "writes of one key in a second", mean(served[2:6]), 900, 1100)
		used := table.Used()
		if used.Throttled["TableWriteKeyRangeThroughputExceeded"] == 0 {
			t.Errorf("throttled: %v", used.Throttled)
		}
		_, err := table.Write(t.Context(), put(t, "q", ""))
		if err != nil {
			t.Errorf("a write of another partition: %v", err)
		}
	})
}

func TestThrottleTellsItsReason(t *testing.T) {
	p := Default()
	p.PartitionWrites = 0
	inBubble(t, p, func(t *testing.T, table *Client) {
		_, err := table.Write(t.Context(), put(t, "p", ""))
		var failed *store.Error
		if !errors.As(err, &failed) || !failed.KeyThrottled() || store.OutcomeOf(err) != store.Throttled {
			t.Errorf("Write() = %v, want a throttle of the key", err)
		}
	})
	p = Default()
	p.TableWrites = 1e-9
	inBubble(t, p, func(t *testing.T, table *Client) {
		_, _ = table.Write(t.Context(), put(t, "p", "")) // spends the burst
		_, err := table.Write(t.Context(), put(t, "p", ""))
		var failed *store.Error
		if !errors.As(err, &failed) || failed.KeyThrottled() || len(failed.Throttles) == 0 || failed.Throttles[0].Limit != store.OfAccount {
			t.Errorf("Write() beyond the quota = %v, want a throttle of the account", err)
		}
	})
}

// In TestSplitForHeat, two keys of one partition share it until it splits between them.
func TestSplitForHeat(t *testing.T) {
	if !soak.Runs() {
		t.Skip("makes 200,000 calls: make long")
	}
	p := Default()
	p.Partitions, p.SplitAfter, p.TableWrites = 1, time.Minute, 0
	inBubble(t, p, func(t *testing.T, table *Client) {
		served := offer(2400, 90*time.Second, func(i int) error {
			_, err := table.Write(t.Context(), put(t, []string{"p", "q"}[i%2], ""))
			return err
		})
		between(t, "writes of two keys in a second, before", mean(served[10:50]), 900, 1100)
		between(t, "writes of two keys in a second, after", mean(served[75:90]), 1900, 2100)
		between(t, "splits", table.Used().Splits, 1, 8)
	})
}

func TestPlainWriteMeetsTransaction(t *testing.T) {
	p := Default()
	p.Hold = 10 * time.Second
	inBubble(t, p, func(t *testing.T, table *Client) {
		var both sync.WaitGroup
		both.Go(func() {
			results, err := table.Transact(t.Context(), []store.Write{put(t, "p", "g"), put(t, "q", "g")})
			if err != nil || !results[0].Applied || !results[1].Applied {
				t.Errorf("Transact() = %v, %v", results, err)
			}
		})
		time.Sleep(time.Second)
		if _, err := table.Write(t.Context(), put(t, "p", "")); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Write() beside a transaction = %v, want a conflict", err)
		}
		if _, err := table.Transact(t.Context(), []store.Write{put(t, "r", "g"), put(t, "q", "g")}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Transact() beside a transaction = %v, want a conflict", err)
		}
		both.Wait()
		items, err := table.Read(t.Context(), []store.Key{put(t, "p", "").Key, put(t, "q", "").Key, put(t, "r", "").Key}, true)
		if err != nil || items[0] == nil || items[1] == nil || items[2] != nil {
			t.Errorf("Read() = %v, %v; want the first transaction alone", items, err)
		}
	})
}

func TestReadsLag(t *testing.T) {
	p := Default()
	p.Lag = time.Hour
	inBubble(t, p, func(t *testing.T, table *Client) {
		w := put(t, "p", "g")
		time.Sleep(time.Minute)
		if _, err := table.Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		old, err := table.Read(t.Context(), []store.Key{w.Key}, false)
		fresh, freshErr := table.Read(t.Context(), []store.Key{w.Key}, true)
		if err != nil || freshErr != nil || old[0] != nil || fresh[0] == nil {
			t.Errorf("Read() = %v eventually and %v consistently; want none, and the item", old, fresh)
		}
		time.Sleep(2 * time.Hour)
		if old, err = table.Read(t.Context(), []store.Key{w.Key}, false); err != nil || old[0] == nil {
			t.Errorf("Read() after the lag = %v, %v", old, err)
		}
	})
}

// TestIndexHoldsWritesBack creates items with one key in an index, beside writes of items that it does not hold.
func TestIndexHoldsWritesBack(t *testing.T) {
	for _, pressure := range []Pressure{PressureOnTouching, PressureOnPartition} {
		p := Default()
		p.Pressure = pressure
		inBubble(t, p, func(t *testing.T, table *Client) {
			var mu sync.Mutex
			others := 0
			served := offer(4000, 10*time.Second, func(i int) error {
				pk := "p" + time.Duration(i).String()
				if i%2 == 0 {
					_, err := table.Write(t.Context(), put(t, pk, "one group"))
					return err
				}
				_, err := table.Write(t.Context(), put(t, pk, ""))
				if err != nil {
					mu.Lock()
					others++
					mu.Unlock()
				}
				return errors.Join(err, errors.New("not counted"))
			})
			between(t, "creations in a second", mean(served[4:10]), 900, 1100)
			if (others > 0) != (pressure == PressureOnPartition) {
				t.Errorf("variant %d: %d writes of other items were held back", pressure, others)
			}
		})
	}
}

// TestReadsOfSomeKeys reads two keys, one of which is throttled.
func TestReadsOfSomeKeys(t *testing.T) {
	p := Default()
	p.PartitionReads = 10
	inBubble(t, p, func(t *testing.T, table *Client) {
		debt := &table.base.partitions[table.base.find(at("p", ""))].reads
		debt.units, debt.at = -0.2, time.Now()
		calls := table.Used().Calls
		if _, err := table.Read(t.Context(), []store.Key{{PK: "p", SK: "s"}, {PK: "other", SK: "s"}}, true); err != nil {
			t.Errorf("Read() = %v, want what was left to be read again", err)
		}
		if n := table.Used().Calls - calls; n < 2 {
			t.Errorf("Read() made %d calls, want one for each part", n)
		}
	})
}

func TestSilentPartition(t *testing.T) {
	p := Default()
	p.Outage = Outage{To: time.Hour, Part: 1}
	inBubble(t, p, func(t *testing.T, table *Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := table.Write(ctx, put(t, "p", "")); store.OutcomeOf(err) != store.Unknown {
			t.Errorf("Write() = %v, want an unknown outcome", err)
		}
		if _, err := table.Read(ctx, []store.Key{{PK: "p", SK: "s"}}, true); err == nil {
			t.Error("Read() of a silent partition = nil")
		}
	})
}

// In TestTableWarmsUp, a new table serves 4,000 writes a second at first, and twice as many half an hour later.
func TestTableWarmsUp(t *testing.T) {
	if !soak.Runs() {
		t.Skip("makes 200,000 calls: make long")
	}
	p := Default()
	p.Warm, p.TableWrites = 1, 0
	inBubble(t, p, func(t *testing.T, table *Client) {
		var last int
		for _, want := range []int{4000, 8000} {
			served := offer(10_000, 8*time.Second, func(i int) error {
				_, err := table.Write(t.Context(), put(t, "p"+time.Duration(i).String(), ""))
				return err
			})
			last = served[7]
			between(t, "writes in a second", last, want*8/10, want*11/10)
			time.Sleep(warmTime)
		}
	})
}

// TestFleet runs a small fleet, and sees that the witness notices when more is admitted than a ceiling allows.
func TestFleet(t *testing.T) {
	limit := zlimit.PerMinute("rpm", 600)
	load := func(c Ceiling) *Load {
		return &Load{
			Processes: 20, Rate: 200, For: 8 * time.Second, Limits: []zlimit.Limit{limit}, Ceilings: map[string]Ceiling{"hot": c},
		}
	}
	o := run(t, load(ceilingOf(limit)), Default())
	if o.Offered != o.Admitted+o.Rejected || o.Rejected == 0 || o.Over != 0 || o.Shards != 1 {
		t.Errorf("%+v, %d over, %d shards", o.Tally, o.Over, o.Shards)
	}
	between(t, "admitted of 600 and what flowed in", o.Admitted, 660, 690)
	if o := run(t, load(Ceiling{300, 5}), Default()); o.Over < 300 {
		t.Errorf("twice a ceiling was admitted, and the witness saw %d too many", o.Over)
	}
}

// TestAttemptBudget spends the budget of a process: a hundred attempts, and then one for five tokens.
func TestAttemptBudget(t *testing.T) {
	var b attemptBudget
	b.add(1000) // no more than a full budget
	for i := range attemptTokens / retryCost {
		if !b.take() {
			t.Fatalf("attempt %d is refused", i)
		}
	}
	for range 3 {
		if b.take() {
			t.Fatal("an attempt is taken from an empty budget")
		}
		b.add(retryCost - 1)
		if b.take() {
			t.Fatal("four tokens pay for an attempt")
		}
		if b.add(1); !b.take() {
			t.Fatal("five tokens do not pay for an attempt")
		}
	}
}
