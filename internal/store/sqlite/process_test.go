package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// workerEnv makes the test binary a worker: "PATH|STEPS|GOROUTINES".
const workerEnv = "ZLIMIT_SQLITE_WORKER"

func TestMain(m *testing.M) {
	if job := os.Getenv(workerEnv); job != "" {
		if err := work(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// work sets the store up, waits for a line of input, and counts an item up in steps. Each step holds only if no other
// process counted since. It prints a line for each step that was done.
func work(job string) error {
	parts := strings.Split(job, "|")
	steps, _ := strconv.Atoi(parts[1])
	goroutines, _ := strconv.Atoi(parts[2])
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := sqlite.Open(parts[0], storetest.Table)
	if err != nil {
		return err
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if err := s.Setup(ctx); err != nil {
		return err
	}
	n := expr.Attr("n")
	step := &expr.Operation{Name: "step", Placeholders: 2, Where: []expr.Condition{expr.Any(expr.Absent(n), expr.EQ(n, 0))}, Update: []expr.Action{expr.Add(n, 1)}}
	var group errgroup.Group
	for range goroutines {
		group.Go(func() error {
			seen := int64(0)
			for done := 0; done < steps; {
				b, err := step.Call(expr.N(seen), expr.N(1)).Bind()
				if err != nil {
					return err
				}
				r, err := s.Write(ctx, store.Write{Key: bucketKey, Expr: b})
				if err != nil {
					return err
				}
				if seen, _ = r.Item.Get("n").Int(); r.Applied {
					done++
					fmt.Println(seen)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.Close()
}

// worker starts a process that works on the file once go is called.
func worker(t *testing.T, path string, steps, goroutines int) (process *exec.Cmd, start io.WriteCloser, output *strings.Builder) {
	t.Helper()
	executable, err := os.Executable()
	check.Fatal(t, "os.Executable()", err)
	process = exec.CommandContext(t.Context(), executable, "-test.run=^$")
	process.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d|%d", workerEnv, path, steps, goroutines))
	output = &strings.Builder{}
	process.Stdout, process.Stderr = output, os.Stderr
	if start, err = process.StdinPipe(); err != nil {
		t.Fatalf("StdinPipe() = %v", err)
	}
	check.Fatal(t, "Start()", process.Start())
	return process, start, output
}

// begin lets a worker go.
func begin(t *testing.T, start io.Writer) {
	t.Helper()
	if _, err := fmt.Fprintln(start); err != nil {
		t.Fatalf("fmt.Fprintln() = %v", err)
	}
}

// TestProcessesShareAFile runs several processes that set up one file at the same time and count one item up in it.
// No step is lost, and none is done twice.
func TestProcessesShareAFile(t *testing.T) {
	const processes, goroutines, steps = 4, 2, 40
	path := filepath.Join(t.TempDir(), "items.db")
	var waits []func() error
	var starts []io.WriteCloser
	var outputs []*strings.Builder
	for range processes {
		process, start, output := worker(t, path, steps, goroutines)
		waits, starts, outputs = append(waits, process.Wait), append(starts, start), append(outputs, output)
	}
	for _, start := range starts {
		begin(t, start)
	}
	seen := map[string]bool{}
	for i, wait := range waits {
		if err := wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
		for line := range strings.Lines(outputs[i].String()) {
			if seen[line] {
				t.Errorf("two processes counted to %s", line)
			}
			seen[line] = true
		}
	}
	s := open(t)(sqlite.Open(path, storetest.Table))
	items := check.Call(s.Read(t.Context(), []store.Key{bucketKey}, true)).Must(t, "Read()")
	const want = processes * goroutines * steps
	if n, _ := items[0].Get("n").Int(); n != want || len(seen) != want {
		t.Errorf("counted to %d in %d steps, want %d", n, len(seen), want)
	}
}

// TestKilledProcessLosesNothing kills a process at work: what it said was done is done, and others go on immediately.
func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "items.db")
	s := open(t)(sqlite.Open(path, storetest.Table))
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	process, start, output := worker(t, path, 1_000_000, 2)
	begin(t, start)
	n := func() int64 {
		items := check.Call(s.Read(t.Context(), []store.Key{bucketKey}, true)).Must(t, "Read()")
		n, _ := items[0].Get("n").Int()
		return n
	}
	for deadline := time.Now().Add(20 * time.Second); n() < 200; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process does not count")
		}
	}
	check.Fatal(t, "Process.Kill()", process.Process.Kill())
	_ = process.Wait() // killed
	lines := strings.Split(strings.TrimSpace(output.String()), "\n")
	last, _ := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if left := n(); left < last {
		t.Errorf("the process said that it counted to %d, and the file says %d", last, left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Write(ctx, countUp(t)); err != nil {
		t.Errorf("Write after the process was killed = %v", err)
	}
}
