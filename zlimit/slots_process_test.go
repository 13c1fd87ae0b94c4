package zlimit_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// holderEnv names the variable that makes the test binary a process that holds slots of a bucket. Its value is the data source.
const holderEnv = "ZLIMIT_TEST_HOLDER"

// holdSlots takes slots and gives them back in two goroutines, until the standard input ends. It writes when it holds one: the time after it
// was taken and the time before it is given back, in epoch nanoseconds.
func holdSlots(dsn string) int {
	ctx := context.Background()
	l, err := zlimit.Open(ctx, dsn, zlimit.WithRejectionCache(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stopped := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stopped)
	}()
	var group sync.WaitGroup
	for i := range 2 {
		group.Go(func() {
			for {
				select {
				case <-stopped:
					return
				case <-time.After(10 * time.Millisecond):
				}
				lease, err := l.Acquire(ctx, oneSlot)
				if err != nil {
					continue
				}
				fmt.Println("hold", i, time.Now().UnixNano())
				select {
				case <-lease.Lost():
				case <-time.After(time.Duration(100+200*i) * time.Millisecond):
				}
				fmt.Println("leave", i, time.Now().UnixNano())
				_ = lease.Commit(ctx)
			}
		})
	}
	group.Wait()
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A holding is a change of how many slots are held, as an outside observer counts them.
type holding struct {
	at      int64 // epoch nanoseconds
	by      int   // +1 or -1
	process int
}

// A holder is a process that holds slots.
type holder struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when its output ended

	mu   sync.Mutex
	held map[string]bool // by goroutine
	seen []holding
}

// startHolder starts a process, and reads what it reports.
func startHolder(t *testing.T, number int, dsn string) *holder {
	t.Helper()
	h := &holder{cmd: exec.Command(os.Args[0], "-test.run=^$"), held: map[string]bool{}, done: make(chan struct{})}
	h.cmd.Env = append(os.Environ(), holderEnv+"="+dsn)
	h.cmd.Stderr = os.Stderr
	stdin := check.Call(h.cmd.StdinPipe()).Must(t, "StdinPipe()")
	h.stdin = stdin
	stdout := check.Call(h.cmd.StdoutPipe()).Must(t, "StdoutPipe()")
	check.Fatal(t, "Start()", h.cmd.Start())
	go func() {
		defer close(h.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var what, goroutine string
			var at int64
			if n, _ := fmt.Sscan(lines.Text(), &what, &goroutine, &at); n != 3 {
				continue // cut off in the middle
			}
			h.mu.Lock()
			h.held[goroutine] = what == "hold"
			h.seen = append(h.seen, holding{at, map[bool]int{true: 1, false: -1}[what == "hold"], number})
			h.mu.Unlock()
		}
	}()
	return h
}

// holds returns how many slots the process holds.
func (h *holder) holds() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, held := range h.held {
		if held {
			n++
		}
	}
	return n
}

// TestSlotsOfAKilledProcess kills one of three processes that hold slots. The others have its slots within two terms, and an outside
// observer never counts more than there are.
func TestSlotsOfAKilledProcess(t *testing.T) {
	t.Parallel() // it waits for two terms
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n, term = 3, time.Second
	dsn := newFile(t)
	l := newLimiter(t, openStore(t, dsn))
	setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, zlimit.Slots("slots", n, zlimit.Term(term)))
	var holders []*holder
	for i := range 3 {
		holders = append(holders, startHolder(t, i, dsn))
	}
	victim := holders[0]
	for end := time.Now().Add(20 * time.Second); victim.holds() == 0 || holders[1].holds()+holders[2].holds() == 0; {
		if time.Sleep(time.Millisecond); time.Now().After(end) {
			t.Fatal("the processes hold no slots")
		}
	}
	killed := time.Now().UnixNano()
	check.Fatal(t, "Process.Kill()", victim.cmd.Process.Kill())
	_ = victim.cmd.Wait() // it was killed
	<-victim.done
	lost := victim.holds()
	time.Sleep(term * 26 / 10)
	for _, h := range holders[1:] {
		check.Error(t, "Close()", h.stdin.Close())
		<-h.done
		check.Error(t, "Wait()", h.cmd.Wait())
	}
	var all []holding
	for _, h := range holders {
		all = append(all, h.seen...)
	}
	for range lost {
		all = append(all, holding{killed, -1, 0})
	}
	slices.SortFunc(all, func(a, b holding) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	held, back := 0, int64(0)
	for _, c := range all {
		if held += c.by; held > n {
			t.Errorf("%d slots are held %v after the process was killed", held, time.Duration(c.at-killed))
		}
		if held == n && c.at > killed && back == 0 {
			back = c.at - killed
		}
	}
	if lost == 0 || back == 0 || time.Duration(back) > term*22/10 {
		t.Errorf("the killed process held %d slots; all %d are held again after %v", lost, n, time.Duration(back))
	}
	t.Logf("%d changes; the killed process held %d slots, all are held again after %v", len(all), lost, time.Duration(back))
}
