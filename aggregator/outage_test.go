package aggregator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A leaving store is away at times: its calls fail immediately, or are not answered. Some of them may go on.
type leaving struct {
	store.Store
	store.Streamer
	away    atomic.Bool
	refuses bool
	spares  func(pk string) bool // nil for no call
}

func (s *leaving) call(ctx context.Context, pk string) error {
	if !s.away.Load() || s.spares != nil && s.spares(pk) {
		return nil
	}
	if s.refuses {
		return &store.Error{Op: "call", Unavailable: true, Err: errors.New("connection refused")}
	}
	<-ctx.Done()
	return &store.Error{Op: "call", Unavailable: true, Unknown: true, Err: ctx.Err()}
}

func (s *leaving) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if err := s.call(ctx, keys[0].PK); err != nil {
		return nil, err
	}
	return s.Store.Read(ctx, keys, consistent)
}

func (s *leaving) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := s.call(ctx, w.Key.PK); err != nil {
		return store.Result{}, err
	}
	return s.Store.Write(ctx, w)
}

func (s *leaving) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	if err := s.call(ctx, writes[0].Key.PK); err != nil {
		return nil, err
	}
	return s.Store.Transact(ctx, writes)
}

func (s *leaving) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.call(ctx, q.PK); err != nil {
		return store.Page{}, err
	}
	return s.Store.Query(ctx, q)
}

func (s *leaving) Partitions(ctx context.Context) ([]store.Partition, error) {
	if err := s.call(ctx, ""); err != nil {
		return nil, err
	}
	return s.Streamer.Partitions(ctx)
}

func (s *leaving) Changes(ctx context.Context, partition string, at store.Position, limit int) (store.ChangePage, error) {
	if err := s.call(ctx, ""); err != nil {
		return store.ChangePage{}, err
	}
	return s.Streamer.Changes(ctx, partition, at, limit)
}

func (s *leaving) Partitioned() bool { return true }

// TestLogOfAnOutage runs an aggregator for ten minutes in which its store is away, or takes no snapshots and no buckets. The log has a
// line a minute, and one when the store is back, and all is counted then.
func TestLogOfAnOutage(t *testing.T) {
	const away = 10 * time.Minute
	for name, s := range map[string]*leaving{
		"refused": {refuses: true},
		"silent":  {},
		"a part is silent": {spares: func(pk string) bool {
			return !strings.Contains(pk, "/BUCKET#") && !strings.Contains(pk, "/ENTITY#")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				items := newMemory(t)
				startStream(t, items)
				l := check.Call(zlimit.New(t.Context(), items)).Must(t, "zlimit.New()")
				defer l.Close()
				log := &faulttest.Log{}
				a := check.Call(New(items, WithLogger(log.Logger()), WithPoll(time.Second))).Must(t, "New()")
				s.Store, s.Streamer = store.Of(items), store.Of(items).(store.Streamer)
				a.table = a.tableOf(s)
				a.byHour, a.hourly.carries = true, true
				a.consumer = a.newConsumer()
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- a.Run(ctx) }()
				load := func(d time.Duration) {
					for i := 0; d > 0; i++ {
						r := zlimit.Request{
							Entity: fmt.Sprint("e", i%10), Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1},
							Limits: []zlimit.Limit{zlimit.PerHour("rpm", 100_000)},
						}
						if _, err := l.Acquire(t.Context(), r); err != nil {
							t.Fatalf("Acquire() = %v", err)
						}
						time.Sleep(time.Second)
						d -= time.Second
					}
				}
				load(2 * time.Minute)
				before := log.String()
				s.away.Store(true)
				load(away)
				during := strings.TrimPrefix(log.String(), before)
				s.away.Store(false)
				load(5 * time.Minute)
				if n := strings.Count(during, "\n"); n < 5 || n > 12 { // a partition is lost, too
					t.Errorf("%d lines in ten minutes:\n%s", n, during)
				}
				if s.spares == nil && strings.Count(during, "left_out") < 4 {
					t.Errorf("the lines do not say how many were left out:\n%s", during)
				}
				if back := log.Count("the store answers again"); (back == 1) != (s.spares == nil) || back > 1 {
					t.Errorf("%d lines report that the store answers again:\n%s", back, log)
				}
				if after := strings.TrimPrefix(log.String(), before+during); strings.Count(after, "\n") > 4 {
					t.Errorf("in the minutes after it:\n%s", after)
				}
				stop()
				check.Error(t, "Run()", <-ended)
				var sum zlimit.Quantity
				q := zlimit.UsageQuery{Entity: "e0", Resource: "gpt-4", Window: zlimit.WindowHourly}
				for _, s := range check.All(t, "Usage.Snapshots()", l.Usage.Snapshots(t.Context(), q)) {
					sum += s.Consumed["rpm"]
				}
				if sum.String() != "102" {
					t.Errorf("%v of 102 requests are counted when Run ends", sum)
				}
			})
		})
	}
}
