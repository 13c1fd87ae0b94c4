package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

// queueEnv makes the test binary a process whose callers wait: it holds queuers as JSON.
const queueEnv = "ZLIMIT_TEST_QUEUERS"

var queueSleeps = flag.Bool("queue.sleeps", false, "callers of processes sleep until their tokens are there, with 10,000 in short tests as well")

// Queuers are callers of one process that wait at the same time.
type queuers struct {
	DSN     string
	Stopped int64 // the time of the clock, epoch milliseconds; 0 for the clock of the machine
	Callers int
}

// queueLimit is the limit that they wait for.
var queueLimit = []zlimit.Limit{zlimit.PerSecond("rpm", queueRate)}

const queueRate = 1000 // a place is a millisecond

// queueFor asks for tokens of the usual bucket.
func queueFor(tokens int64) zlimit.Request {
	r := ask(zlimit.Amounts{"rpm": tokens})
	r.Limits = queueLimit
	return r
}

// A stay is what a caller reports, in epoch microseconds.
type stay struct{ From, To, Due, Admitted int64 }

// A queueReport is what the callers of a process report, and how many writes they cost.
type queueReport struct {
	Stays          []stay
	Writes, Cancel int64
}

// runQueuers is such a process. It waits for its standard input before each step. It returns the exit code, which reports goroutines
// that are left as well.
func runQueuers(job string) int {
	var c queuers
	err := json.Unmarshal([]byte(job), &c)
	if err == nil {
		var s zlimit.Store
		if s, err = zlimit.OpenStore(context.Background(), c.DSN); err == nil {
			next := func() error {
				_, err := os.Stdin.Read(make([]byte, 1))
				return err
			}
			err = errors.Join(c.run(context.Background(), s, json.NewEncoder(os.Stdout), next), s.Close(), goleak.Find())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run makes all callers reserve at the same time. With a stopped clock they then cancel at the same time. Otherwise they wait, and then
// give up a second wait at the same time.
func (c *queuers) run(ctx context.Context, s zlimit.Store, out *json.Encoder, next func() error) (err error) {
	var report queueReport
	var writes atomic.Int64
	opts := []zlimit.Option{zlimit.WithCallTimeout(time.Minute), zlimit.WithObserver(func(_ context.Context, e zlimit.Event) {
		if e.Kind == zlimit.EventStore && e.Operation == "write" {
			writes.Add(1)
		}
	})}
	if c.Stopped > 0 {
		stopped := new(clock)
		stopped.ms.Store(c.Stopped)
		opts = append(opts, zlimit.WithClock(stopped.now), zlimit.WithHooks(hooks.Limiter{Sleeper: frozen{stopped}}))
	}
	l, err := zlimit.New(ctx, s, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	request := queueFor(1)
	reservations := make([]*zlimit.Reservation, c.Callers)
	report.Stays = make([]stay, c.Callers)
	all := func(do func(i int) error) error {
		errs := make([]error, c.Callers)
		var group sync.WaitGroup
		for i := range c.Callers {
			group.Go(func() { errs[i] = do(i) })
		}
		group.Wait()
		return errors.Join(errs...)
	}
	if err := errors.Join(out.Encode("ready"), next()); err != nil {
		return err
	}
	if _, err := l.Available(ctx, zlimit.AvailableQuery{Entity: request.Entity, Resource: request.Resource, Limits: queueLimit}); err != nil {
		return err
	}
	writes.Store(0)
	if err := all(func(i int) (err error) {
		from := time.Now().UnixMicro()
		if reservations[i], err = l.Reserve(ctx, request, zlimit.MaxWait(time.Hour)); err != nil {
			return err
		}
		report.Stays[i] = stay{from, time.Now().UnixMicro(), reservations[i].Due().UnixMicro(), 0}
		if c.Stopped == 0 {
			_, err = reservations[i].Wait(ctx)
			report.Stays[i].Admitted = time.Now().UnixMicro()
		}
		return err
	}); err != nil {
		return err
	}
	report.Writes = writes.Swap(0)
	if err := errors.Join(out.Encode(report), next()); err != nil {
		return err
	}
	if c.Stopped > 0 {
		return errors.Join(all(func(i int) error { return reservations[i].Cancel(ctx) }), out.Encode("gone"))
	}
	storm, end := context.WithCancel(ctx) // in a queue that others have made longer
	defer end()
	go func() {
		for l.Stats().Waiting < int64(c.Callers) {
			time.Sleep(time.Millisecond)
		}
		end()
	}()
	return errors.Join(all(func(int) error {
		if _, err := l.Wait(storm, request, zlimit.MaxWait(time.Hour)); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("Wait() in a storm = %w", err)
		}
		return nil
	}), out.Encode("gone"))
}

// In TestProcessesWaitInOneQueue, callers of four processes reserve at the same time, on each store; those on the store
// in memory are four limiters. Each has a place of its own, in the order of the writes, and no place is left out. The
// last is due when the tokens of all have flowed in. Then all of them cancel at the same time: the balance is what it
// was, and no goroutine is left.
func TestProcessesWaitInOneQueue(t *testing.T) {
	callers := 200
	if soak.Runs() || *queueSleeps {
		callers = 10_000
	}
	t.Run("memory", func(t *testing.T) {
		s := newMemory(t)
		testQueuers(t, s, callers, func(c queuers) (*json.Decoder, io.WriteCloser, func() error) {
			lines, out := io.Pipe()
			steps, step := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- c.run(context.Background(), s, json.NewEncoder(out), func() error {
					_, err := steps.Read(make([]byte, 1))
					return err
				})
				_ = out.Close()
			}()
			return json.NewDecoder(lines), step, func() error { return <-done }
		})
	})
	for name, dsn := range map[string]func(testing.TB) string{
		"file":     newFile,
		"dynamodb": newDSN,
	} {
		t.Run(name, func(t *testing.T) {
			dsn := dsn(t)
			testQueuers(t, openStore(t, dsn), callers, func(c queuers) (*json.Decoder, io.WriteCloser, func() error) {
				c.DSN = dsn
				job := check.Call(json.Marshal(c)).Must(t, "json.Marshal()")
				process := exec.Command(os.Args[0], "-test.run=^$")
				process.Env = append(os.Environ(), queueEnv+"="+string(job))
				process.Stderr = os.Stderr
				in := check.Call(process.StdinPipe()).Must(t, "StdinPipe()")
				out, err := process.StdoutPipe()
				if err == nil {
					err = process.Start()
				}
				check.Fatal(t, "StdoutPipe()", err)
				return json.NewDecoder(out), in, process.Wait
			})
		})
	}
}

// testQueuers tests the queue with callers of four processes. start starts a process, and returns its output, its input for the next step,
// and a function that waits for its end.
func testQueuers(t *testing.T, s zlimit.Store, callers int, start func(queuers) (*json.Decoder, io.WriteCloser, func() error)) {
	const processes = 4
	stopped := newClock()
	opts, job := []zlimit.Option{zlimit.WithClock(stopped.now), zlimit.WithHooks(hooks.Limiter{Sleeper: frozen{stopped}})}, queuers{"", stopped.now().UnixMilli(), callers / processes}
	if *queueSleeps {
		opts, job.Stopped = nil, 0
	}
	l := newLimiter(t, s, opts...)
	lines, steps, ends := [processes]*json.Decoder{}, [processes]io.WriteCloser{}, [processes]func() error{}
	for i := range processes {
		lines[i], steps[i], ends[i] = start(job)
	}
	hear := func(into func(i int) any) {
		t.Helper()
		for i := range processes {
			if err := lines[i].Decode(into(i)); err != nil {
				t.Fatalf("process %d: %v", i, err)
			}
		}
	}
	step := func() {
		t.Helper()
		for i := range processes {
			if _, err := steps[i].Write([]byte{'\n'}); err != nil {
				t.Fatalf("process %d: %v", i, err)
			}
		}
	}
	taken := int64(0)
	lead := func(requests int) (due int64) { // of what flows in within so many seconds, before others come
		t.Helper()
		for range requests {
			r := check.Call(l.Reserve(t.Context(), queueFor(queueRate), zlimit.MaxWait(time.Hour))).Must(t, "Reserve()")
			due, taken = r.Due().UnixMicro(), taken+queueRate
		}
		return due
	}
	hear(func(int) any { return new(string) })
	first := lead(6) // the bucket is full at first
	step()
	reports := [processes]queueReport{}
	hear(func(i int) any { return &reports[i] })
	var stays []stay
	writes := int64(0)
	for _, r := range reports {
		stays, writes = append(stays, r.Stays...), writes+r.Writes
	}
	checkStays(t, stays, first)
	t.Logf("%d callers cost %d writes", len(stays), writes)
	if most := int64(callers); writes > most {
		t.Errorf("%d callers cost %d writes", callers, writes)
	}
	checkTaken := func(when string) {
		t.Helper()
		if got := limit(t, l, "rpm"); got.Consumed != taken*1000 || !*queueSleeps && got.Tokens != (queueRate-taken)*1000 {
			t.Errorf("%s: %d millitokens are consumed, and the balance is %d, want those of %d tokens", when, got.Consumed, got.Tokens, taken)
		}
	}
	taken += int64(callers)
	checkTaken("all have reserved")
	if *queueSleeps {
		lead(5)
	} else {
		taken -= int64(callers)
	}
	step()
	hear(func(int) any { return new(string) })
	for i := range processes {
		if err := ends[i](); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	checkTaken("all have cancelled")
}

// checkStays checks three rules. Each caller has a place of its own behind the first caller. No one is admitted early. A
// caller who comes after a reservation has a later place than it.
func checkStays(t *testing.T, stays []stay, first int64) {
	t.Helper()
	slices.SortFunc(stays, func(a, b stay) int { return int(a.Due - b.Due) })
	const place, tick, late = 1_000_000 / queueRate, 1000, 100_000 // microseconds; a busy machine reads clocks late
	for i, s := range stays {
		off := s.Due - first - int64(i+1)*place
		if off != 0 && (s.Admitted == 0 || off < -2*tick || off > late) {
			t.Fatalf("place %d is due %d µs after the ideal time", i, off)
		}
		if early := s.Due - s.Admitted; s.Admitted > 0 && early > 0 {
			t.Fatalf("place %d is admitted %d µs early", i, early)
		}
	}
	began := int64(0)
	for _, s := range stays { // no one is behind a caller who came when its own reservation was there
		if s.To < began {
			t.Fatalf("a caller whose reservation was there at %d is behind one who came at %d", s.To, began)
		}
		began = max(began, s.From)
	}
}
