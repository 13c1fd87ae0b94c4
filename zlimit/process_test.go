package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// workerEnv makes the test binary a worker of TestProcesses: it holds the name of the store and the time of the clock.
const workerEnv = "ZLIMIT_TEST_WORKER"

// work asks the usual bucket 1,000 times from 64 goroutines, prints how often it was admitted, and returns the exit code.
func work(job string) int {
	dsn, ms, _ := strings.Cut(job, " ")
	stopped, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l, err := zlimit.Open(context.Background(), dsn, zlimit.WithClock(func() time.Time { return time.UnixMilli(stopped) }))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var admitted, failed atomic.Int64
	var group sync.WaitGroup
	asked := atomic.Int64{}
	for range 64 {
		group.Go(func() {
			for asked.Add(1) <= 1000 {
				_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1}))
				switch {
				case err == nil:
					admitted.Add(1)
				case !errors.As(err, new(*zlimit.ExceededError)):
					failed.Add(1)
					fmt.Fprintln(os.Stderr, err)
				}
			}
		})
	}
	group.Wait()
	if err := l.Close(); err != nil || failed.Load() > 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(admitted.Load())
	return 0
}

// TestProcesses runs 4 processes of 64 goroutines on one bucket of capacity 1,000 with a stopped clock.
func TestProcesses(t *testing.T) {
	run := func(t *testing.T, dsn string, l *zlimit.RateLimiter, c *clock) {
		setSystem(t, l, zlimit.PerMinute("rpm", 1000))
		var admitted atomic.Int64
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				worker := exec.Command(os.Args[0], "-test.run=^$")
				worker.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", workerEnv, dsn, c.now().UnixMilli()))
				worker.Stderr = os.Stderr
				out, err := worker.Output()
				if err != nil {
					t.Errorf("worker: %v", err)
					return
				}
				n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
				if err != nil {
					t.Errorf("worker: %v", err)
				}
				admitted.Add(n)
			})
		}
		group.Wait()
		if admitted.Load() != 1000 {
			t.Errorf("admitted %d of 4000, want 1000", admitted.Load())
		}
		if got := limit(t, l, "rpm"); got.Tokens != 0 || got.Consumed != 1000_000 {
			t.Errorf("the item has %d and counts %d, want 0 and 1000000", got.Tokens, got.Consumed)
		}
	}
	t.Run("file", func(t *testing.T) {
		c, dsn := newClock(), newFile(t)
		run(t, dsn, newLimiter(t, openStore(t, dsn), zlimit.WithClock(c.now)), c)
	})
	t.Run("dynamodb", func(t *testing.T) {
		dsn := newDSN(t)
		c := newClock()
		l := check.Call(zlimit.Open(context.Background(), dsn, zlimit.WithClock(c.now))).Must(t, "zlimit.Open()")
		defer func() { check.Error(t, "Close()", l.Close()) }()
		run(t, dsn, l, c)
	})
}
