package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// forEachStream runs a test on every kind of store, each with its change stream.
func forEachStream(t *testing.T, test func(t *testing.T, s zlimit.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, newMemory(t)) })
	t.Run("file", func(t *testing.T) {
		s := check.Call(zlimit.OpenStore(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "zlimit.db"))).Must(t, "zlimit.OpenStore()")
		t.Cleanup(func() { closeStore(t, s) })
		test(t, s)
	})
	t.Run("dynamodb", func(t *testing.T) {
		engine := enginetest.Fresh(t) // streams slow an engine down for all
		s := dynamo.New(engine.Client(), engine.Table(t), dynamo.WithStreams(engine.Streams()))
		setUp(t, s)
		test(t, s)
	})
}

// begin runs an aggregator; stop ends it, and fails the test when it does not end well.
func begin(t *testing.T, s zlimit.Store, opts ...Option) (a *Aggregator, stop func()) {
	t.Helper()
	a = check.Call(New(s, append([]Option{WithPoll(20 * time.Millisecond)}, opts...)...)).Must(t, "New()")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return a, func() {
		t.Helper()
		cancel()
		check.Error(t, "Run()", <-done)
	}
}

// spent returns the requests of an entity that the snapshots of hours count.
func spent(t *testing.T, l *zlimit.RateLimiter) string {
	t.Helper()
	q := zlimit.UsageQuery{Entity: "alice", Resource: "gpt-4", Window: zlimit.WindowHourly}
	var sum zlimit.Quantity
	for _, s := range check.All(t, "Usage.Snapshots()", l.Usage.Snapshots(t.Context(), q)) {
		sum += s.Consumed["rpm"]
	}
	return sum.String()
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20s", what)
		}
	}
}

// TestRun acquires while aggregators come and go. The snapshot has the acquired amounts.
func TestRun(t *testing.T) {
	forEachStream(t, func(t *testing.T, s zlimit.Store) {
		l := check.Call(zlimit.New(t.Context(), s, zlimit.WithSetup())).Must(t, "zlimit.New()")
		defer l.Close()
		take := func(n int) {
			t.Helper()
			for range n {
				r := zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerHour("rpm", 1000)}}
				if _, err := l.Acquire(t.Context(), r); err != nil {
					t.Fatalf("Acquire() = %v", err)
				}
			}
		}
		a, stop := begin(t, s, WithName("first"))
		eventually(t, "healthy", func() bool { return a.Status().Healthy && len(a.Status().Partitions) == 1 })
		take(5)
		eventually(t, "five requests counted, and known to be", func() bool {
			return spent(t, l) == "5" && a.Status().Partitions[0].Applied >= 5
		})
		status := a.Status()
		if p := status.Partitions[0]; status.Name != "first" || len(p.Position) != 40 || p.Applied < 5 || time.Since(p.LastChange) > time.Minute {
			t.Errorf("Status() = %+v", status)
		}
		reply := httptest.NewRecorder()
		a.ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
		var reported Status
		if err := json.Unmarshal(reply.Body.Bytes(), &reported); err != nil || reply.Code != http.StatusOK || len(reported.Partitions) != 1 || !reported.Healthy {
			t.Errorf("health check = %d %s, %v", reply.Code, reply.Body, err)
		}
		stop()
		take(3)
		if got := spent(t, l); got != "5" {
			t.Errorf("counted while nobody ran = %s, want 5", got)
		}
		_, stop = begin(t, s)
		eventually(t, "eight requests counted", func() bool { return spent(t, l) == "8" })
		stop()
	})
}

// TestBatches checks that batches take a minute if writes are paid for, unless options say otherwise.
func TestBatches(t *testing.T) {
	paid := func(t *testing.T) zlimit.Store { s, _, _ := newTable(t); return s }
	for name, test := range map[string]struct {
		store func(*testing.T) zlimit.Store
		opts  []Option
		poll  time.Duration
		batch int
	}{
		"memory":                {func(t *testing.T) zlimit.Store { return newMemory(t) }, nil, time.Second, 10_000},
		"dynamodb":              {paid, nil, time.Minute, 10_000},
		"dynamodb with options": {paid, []Option{WithPoll(5 * time.Second), WithBatch(500)}, 5 * time.Second, 500},
	} {
		t.Run(name, func(t *testing.T) {
			a := check.Call(New(test.store(t), test.opts...)).Must(t, "New()")
			if got := a.consumer.Config; got.Poll != test.poll || got.Batch != test.batch {
				t.Errorf("New() polls every %v for batches of %d, want %v and %d", got.Poll, got.Batch, test.poll, test.batch)
			}
		})
	}
}

// TestRunReadsOver applies changes of buckets alone: those of the snapshots would fill its batches.
func TestRunReadsOver(t *testing.T) {
	s := newMemory(t)
	startStream(t, s)
	l := newLimiter(t, s)
	var applied atomic.Int64
	_, stop := begin(t, s, WithoutTending(), WithObserver(func(b Batch) { applied.Add(int64(b.Changes)) }))
	for n := 1; n <= 3; n++ {
		r := zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerHour("rpm", 1000)}}
		if _, err := l.Acquire(t.Context(), r); err != nil {
			t.Fatalf("Acquire() = %v", err)
		}
		eventually(t, "counted", func() bool { return spent(t, l) == fmt.Sprint(n) })
	}
	stop()
	if got := applied.Load(); got != 3 {
		t.Errorf("the aggregator was given %d changes, want those of the bucket, 3", got)
	}
}

func TestRunWithoutStream(t *testing.T) {
	engine := enginetest.Start(t)
	s, _, _ := newTable(t)
	for name, test := range map[string]struct {
		store zlimit.Store
		want  error
	}{
		"a table without a stream":  {s, ErrNoStream},
		"no client of streams":      {dynamo.New(engine.Client(), engine.Table(t)), ErrNoStream},
		"a table that is not there": {dynamo.New(engine.Client(), engine.Table(t), dynamo.WithStreams(engine.Streams())), zlimit.ErrTableNotFound},
	} {
		a := check.Call(New(test.store)).Must(t, "New()")
		if err := a.Run(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("Run() on %s = %v, want %v", name, err, test.want)
		}
		reply := httptest.NewRecorder()
		a.ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
		if reply.Code != http.StatusServiceUnavailable {
			t.Errorf("health check on %s = %d, want 503", name, reply.Code)
		}
	}
}

func TestIsRefusal(t *testing.T) {
	cause := errors.New("cause")
	invalid := &store.Error{Op: "UpdateItem", Invalid: true, Err: cause}
	outage := &store.Error{Op: "UpdateItem", Unavailable: true, Err: cause}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"an invalid write":    {invalid, true},
		"two invalid writes":  {errors.Join(errors.Join(nil, invalid), fmt.Errorf("count: %w", invalid)), true},
		"one of two writes":   {errors.Join(invalid, outage), false},
		"one of three writes": {errors.Join(errors.Join(invalid, outage), invalid), false},
		"denied permission":   {&store.Error{Op: "UpdateItem", Err: cause}, false},
		"an outage":           {outage, false},
		"a conflict":          {&store.Error{Op: "TransactWriteItems", Err: store.ErrConflict}, false},
		"no table":            {&store.Error{Op: "UpdateItem", Err: store.ErrTableNotFound}, false},
		"an ended context":    {context.Canceled, false},
		"another error":       {cause, false},
	} {
		if got := isRefusal(test.err); got != test.want {
			t.Errorf("isRefusal(%s) = %t, want %t", name, got, test.want)
		}
	}
}

// In TestDeniedPermissionIsNoRefusal, a table denies a permission that can be given later, and then refuses
// permanently.
func TestDeniedPermissionIsNoRefusal(t *testing.T) {
	s, _, faults := newTable(t)
	a := newAggregator(t, s)
	faults.Inject(enginetest.Fault{Kind: enginetest.AccessDenied, Operation: "UpdateItem"})
	if errs := a.apply(t.Context(), busy(1)); errs == nil || isRefusal(errs[0]) {
		t.Errorf("apply() without permission = %v, want what may pass", errs)
	}
	faults.Clear()
	long := change(1, noon, nil, map[string]int64{"rpm": 1000})
	long.Key.PK = keyOf(layout.BucketKey{NS: "n", Entity: strings.Repeat("e", 2050), Resource: "r"}).PK
	if errs := a.apply(t.Context(), []store.Change{long}); errs == nil || !isRefusal(errs[0]) {
		t.Errorf("apply() of a key that is too long = %v, want a refusal", errs)
	}
}
