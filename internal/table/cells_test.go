package table

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// In TestAPartBySeldomKeys, every second key is silent, each of which has one call: ten calls a second. Several in a row are silent by
// chance, and the calls of the others are made all the same. When no key answers, the store is silent soon.
func TestAPartBySeldomKeys(t *testing.T) {
	for seed := range uint64(20) {
		withBreaker(t, func(t *testing.T, table *Table, g *gone) {
			random := rand.New(rand.NewPCG(seed, 1))
			var all sync.WaitGroup
			for i := range 300 {
				pk := fmt.Sprint("k", i)
				if random.IntN(2) == 0 {
					all.Go(func() {
						_ = table.call(t.Context(), pk, func(ctx context.Context) error { return wait.For(ctx, time.Minute) })
					})
				} else {
					all.Go(func() {
						if err := table.call(t.Context(), pk, g.callOf(pk)); err != nil {
							t.Errorf("seed %d: call() of a key that answers = %v", seed, err)
						}
					})
				}
				time.Sleep(time.Duration(random.ExpFloat64() * float64(100*time.Millisecond)))
			}
			g.set(true, nil)
			from := time.Now()
			for i := 0; len(g.changes()) == 0 && time.Since(from) < 10*time.Second; i++ {
				all.Go(func() { _ = table.call(t.Context(), fmt.Sprint("l", i), g.call) })
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(from); took > mostSilent*100*time.Millisecond+time.Second {
				t.Errorf("seed %d: the store is silent after %v", seed, took)
			}
			all.Wait()
		})
	}
}

// In TestCallsOfBeforeTheReturn, calls of silent keys are under way when the keys answer again. That those calls are never answered says
// nothing of now.
func TestCallsOfBeforeTheReturn(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		var all sync.WaitGroup
		calls := func(pk string, n int) {
			for range n {
				all.Go(func() { _ = table.call(t.Context(), pk, g.callOf(pk)) })
			}
		}
		pass := func(d time.Duration) { // while others are answered
			for from := time.Now(); time.Since(from) < d; time.Sleep(50 * time.Millisecond) {
				calls("other", 1)
			}
		}
		g.hush("a", "b", "c")
		calls("a", cellCalls)
		pass(600 * time.Millisecond)
		calls("a", 1) // it is silent
		pass(300 * time.Millisecond)
		calls("b", 1)         // fails after the return
		calls("c", cellCalls) // silent, if they were not of before it
		pass(50 * time.Millisecond)
		g.hush()
		pass(time.Second) // the breaker asks for a
		check.Error(t, "call() after the return", table.call(t.Context(), "c", g.call))
		all.Wait()
		if quiet := table.breaker.keys.quiet.Load(); quiet != 0 {
			t.Errorf("%d keys count as silent", quiet)
		}
	})
}

// TestSilentKeysThatAreSeldomUsed makes a call of each key every four seconds. The first one waits, and the others are refused.
func TestSilentKeysThatAreSeldomUsed(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		var keys []string
		for i := range 12 {
			keys = append(keys, fmt.Sprint("k", i))
		}
		g.hush(keys...)
		var all sync.WaitGroup
		for i := range 3 * 40 {
			all.Go(func() {
				check.Error(t, "call() of a key that answers", table.call(t.Context(), "other", g.callOf("other")))
			})
			if at := i % 40; at < len(keys) {
				all.Go(func() {
					err := table.call(t.Context(), keys[at], g.callOf(keys[at]))
					if refused := i >= 40; errors.Is(err, errOpen) != refused {
						t.Errorf("call %d of silent key %d = %v", i/40+1, at, err)
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
		g.hush()
		time.Sleep(cellPause) // the breaker asks, though there are no calls
		for i, pk := range keys {
			if err := table.call(t.Context(), pk, g.callOf(pk)); err != nil {
				t.Errorf("call of silent key %d when all answer = %v", i, err)
			}
		}
		if len(g.changes()) > 0 {
			t.Errorf("the breaker told %v", g.changes())
		}
	})
}

// TestSilentKeys swallows the calls of some keys. Their calls are refused, and the breaker asks for them. Calls of other keys are made,
// also where they share a cell.
func TestSilentKeys(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		neighbour := ""
		for i := 0; neighbour == ""; i++ {
			if pk := fmt.Sprint("n", i); table.breaker.keys.cellOf(pk).cell == table.breaker.keys.cellOf("a").cell {
				neighbour = pk
			}
		}
		// traffic makes calls of keys for a time, one of each in 10 ms, and returns how many of each were refused, in which time.
		traffic := func(d time.Duration, keys ...string) (refused map[string]int, waited time.Duration) {
			refused = map[string]int{}
			var mu sync.Mutex
			var all sync.WaitGroup
			for from := time.Now(); time.Since(from) < d; time.Sleep(10 * time.Millisecond) {
				for _, pk := range keys {
					all.Go(func() {
						began := time.Now()
						if err := table.call(t.Context(), pk, g.callOf(pk)); errors.Is(err, errOpen) {
							mu.Lock()
							defer mu.Unlock()
							refused[pk]++
							waited += time.Since(began)
						}
					})
				}
			}
			all.Wait()
			return refused, waited
		}
		want := func(when string, refused map[string]int, of map[string]int) {
			t.Helper()
			for pk, n := range of {
				if got := refused[pk]; got < n-1 || got > n+1 {
					t.Errorf("%s: %d calls of %s are refused, want %d", when, got, pk, n)
				}
			}
		}
		g.hush("a")
		refused, waited := traffic(2*time.Second, "a", "b")
		want("a is silent", refused, map[string]int{"a": 200 - 50, "b": 0})
		if waited > 0 {
			t.Errorf("refused calls wait %v", waited)
		}
		refused, _ = traffic(10*time.Second, "a", "b", neighbour)
		want("a is still silent", refused, map[string]int{"a": 1000, "b": 0, neighbour: 0})
		asked := g.hush("a", neighbour)
		if refused, _ = traffic(2*time.Second, "a", "b", neighbour); refused[neighbour] < 140 || refused["a"] < 198 || refused["b"] > 0 {
			t.Errorf("of two silent keys that want one cell, and another one, %v calls are refused", refused)
		}
		g.hush("a")
		_, _ = traffic(2*time.Second, "b", neighbour)
		g.hush("a", "c", "d", "e")
		if asked < 11 || asked > 15 {
			t.Errorf("the breaker asked %d times in 12 s", asked)
		}
		_, _ = traffic(time.Second, "a", "b", "c", "d")
		go func() { _ = table.call(t.Context(), "e", g.callOf("e")) }()
		refused, _ = traffic(600*time.Millisecond, "a", "b")
		want("four are silent", refused, map[string]int{"a": 60, "b": 0})
		if err := table.call(t.Context(), "e", g.callOf("e")); !errors.Is(err, errOpen) {
			t.Errorf("call() of a fourth silent key, with one that is not answered = %v, want it refused", err)
		}
		g.hush()
		_, _ = traffic(time.Second, "a", "b", "c", "d", "e")
		refused, _ = traffic(time.Second, "a", "b", "c", "d", "e", neighbour)
		want("all answer", refused, map[string]int{"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, neighbour: 0})
		if quiet := table.breaker.keys.quiet.Load(); quiet != 0 {
			t.Errorf("%d keys count as silent", quiet)
		}

		var many []string
		cells := map[*cell]bool{table.breaker.keys.cellOf("b").cell: true}
		for i := 0; len(many) < 100; i++ {
			if c := table.breaker.keys.cellOf(fmt.Sprint("m", i)).cell; !cells[c] {
				cells[c], many = true, append(many, fmt.Sprint("m", i))
			}
		}
		g.hush(many...)
		_, _ = traffic(10*time.Second, append(many, "b")...)
		if asked := g.hush(many...); asked > 14 {
			t.Errorf("for a hundred silent keys the breaker asked %d times in ten seconds", asked)
		}
		g.hush("b")
		time.Sleep(cellPause)
		if refused, _ := traffic(100*time.Millisecond, many...); len(refused) > 0 {
			t.Errorf("%v calls of keys are refused, one of which was answered", refused)
		}
		if len(g.changes()) > 0 {
			t.Errorf("the breaker told %v", g.changes())
		}
	})
}

// TestAKeyThatIsBackBeforeItIsNoticed loses the calls of a key for less than the time of silence. The first one that is refused is the
// last one: the breaker asks immediately. A key that goes on losing calls is asked for once a second at most.
func TestAKeyThatIsBackBeforeItIsNoticed(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		var all sync.WaitGroup
		call := func(pk string) { all.Go(func() { _ = table.call(t.Context(), pk, g.callOf(pk)) }) }
		asked := 0
		for round := range 10 {
			asked += g.hush("a")
			for range cellCalls {
				call("a")
			}
			time.Sleep(450 * time.Millisecond)
			asked += g.hush()
			for range 3 {
				time.Sleep(20 * time.Millisecond)
				call("other")
			}
			if err := table.call(t.Context(), "a", g.callOf("a")); !errors.Is(err, errOpen) {
				t.Fatalf("round %d: call() of a silent key = %v, want it refused", round, err)
			}
			time.Sleep(2 * time.Millisecond) // that a question takes
			err := table.call(t.Context(), "a", g.callOf("a"))
			if round == 0 && err != nil {
				t.Fatalf("call() of a key that is back = %v", err)
			}
			for errors.Is(err, errOpen) {
				time.Sleep(10 * time.Millisecond)
				err = table.call(t.Context(), "a", g.callOf("a"))
			}
		}
		if asked += g.hush(); asked != 10 {
			t.Errorf("the breaker asked %d times for ten silences", asked)
		}
		if from := time.Since(table.breaker.traffic.started); from < 9*cellPause*4/5 {
			t.Errorf("the breaker asked ten times in %v", from)
		}
		all.Wait()
	})
}

// In TestKeysWithoutAnAnswer, the calls of some keys are swallowed while others are answered, one of each. Once those of several keys
// are silent, the second call of each is refused. One or two are lost replies, and refuse nothing.
func TestKeysWithoutAnAnswer(t *testing.T) {
	for silent := range 5 {
		withBreaker(t, func(t *testing.T, table *Table, g *gone) {
			var keys []string
			for i := range silent {
				keys = append(keys, fmt.Sprint("k", i))
			}
			g.hush(keys...)
			var all sync.WaitGroup
			call := func(pk string, refused bool) {
				all.Go(func() {
					if err := table.call(t.Context(), pk, g.callOf(pk)); errors.Is(err, errOpen) != refused {
						t.Errorf("%d silent keys: call() of %s = %v, want it refused: %v", silent, pk, err, refused)
					}
				})
			}
			for round := range 2 {
				for _, pk := range keys {
					call(pk, round > 0 && silent >= cellCalls)
				}
				for range 6 { // more than the time of silence
					call("other", false)
					time.Sleep(100 * time.Millisecond)
				}
			}
			all.Wait()
			if len(g.changes()) > 0 {
				t.Errorf("%d silent keys: the breaker told %v", silent, g.changes())
			}
		})
	}
}

// In TestAPartByChance, the first calls are of a part that is silent, while the others answer. The breaker opens, and learns immediately
// that the store answers. Calls of the part that are never answered do not open it again, since later ones are.
func TestAPartByChance(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		var all sync.WaitGroup
		silent := func(n int) {
			for i := range n {
				pk := fmt.Sprint("silent", i)
				all.Go(func() {
					_ = table.call(t.Context(), pk, func(ctx context.Context) error { <-ctx.Done(); return &store.Error{Unavailable: true, Err: ctx.Err()} })
				})
			}
		}
		silent(silentCalls)
		time.Sleep(500 * time.Millisecond)
		if table.Refusal(t.Context()) == nil {
			t.Error("the breaker is closed, though no call is answered")
		}
		refused := 0
		for i := range 50 { // the first trials are of the part, too
			if i == 1 {
				silent(firstTrials - 1)
			}
			time.Sleep(100 * time.Millisecond)
			if err := table.call(t.Context(), "other", g.call); err != nil {
				refused++
			}
		}
		if refused > 0 || len(g.changes()) != 2 {
			t.Errorf("%d calls of a key that answers are refused; the breaker told %v", refused, g.changes())
		}
		all.Wait()
	})
}

// TestAKeyThatIsSilentAlone loses a call of a key, and two more just before the time of silence is over. These have half of it.
func TestAKeyThatIsSilentAlone(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		g.hush("a")
		var all sync.WaitGroup
		lose := func() { all.Go(func() { _ = table.call(t.Context(), "a", g.callOf("a")) }) }
		lose()
		time.Sleep(480 * time.Millisecond)
		lose()
		lose()
		began := time.Now()
		for table.breaker.refusalOf(t.Context(), "a") == nil && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took != 250*time.Millisecond {
			t.Errorf("calls of the key are refused %v after the last ones, want half of the time of silence", took)
		}
		all.Wait()
	})
}

// TestFirstCallsOfAKeyAtOnce sends the first calls of a key by two goroutines. Both count, whichever makes the row and takes the cell.
func TestFirstCallsOfAKeyAtOnce(t *testing.T) {
	for i := range 5000 {
		watch := &NewBreaker(BreakerOptions{Timeout: time.Minute, Ask: func(context.Context, string) error { return nil }}).keys
		pk := fmt.Sprint("k", i)
		var come atomic.Int64
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				come.Add(1)
				for spins := 1; come.Load() < 2; spins++ {
					if spins%1000 == 0 {
						runtime.Gosched() // they may have one processor
					}
				}
				watch.sentTo(watch.cellOf(pk), 1)
			})
		}
		calls.Wait()
		c := watch.cellOf(pk)
		if n := c.begun.Load(); n != 2 {
			t.Fatalf("%d of two calls of key %d count", n, i)
		}
	}
}

// TestCellsAreMadeByNeed asks that a breaker has cells for the keys of its calls alone.
func TestCellsAreMadeByNeed(t *testing.T) {
	watch := &NewBreaker(BreakerOptions{Timeout: time.Minute, Ask: func(context.Context, string) error { return nil }}).keys
	for calls, pk := range []string{"", "a", "a"} {
		watch.sentTo(watch.cellOf(pk), 1)
		cells := 0
		for range watch.used() {
			cells++
		}
		if want := min(calls, 1) * rowCells; cells != want {
			t.Errorf("after %d calls with a key there are %d cells, want %d", calls, cells, want)
		}
	}
}

// In TestSilentKeysOfASilentStore, a store falls silent while keys of it are. A part says nothing of the whole from then on.
func TestSilentKeysOfASilentStore(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		b := table.breaker
		b.keys.mu.Lock()
		for _, pk := range []string{"a", "b", "c"} {
			c := b.keys.cellOf(pk)
			b.keys.sentTo(c, b.traffic.now())
			b.keys.hush(c.cell, pk)
		}
		b.keys.mu.Unlock()
		if quiet := b.keys.quiet.Load(); quiet != 3 {
			t.Fatalf("%d keys are silent, want 3", quiet)
		}
		g.set(false, &store.Error{Unavailable: true, Err: errors.New("refused")})
		for range failures {
			_ = table.call(t.Context(), "d", g.call)
		}
		if quiet := b.keys.quiet.Load(); stateOf(table) != isOpen || quiet != 0 {
			t.Errorf("%d keys are silent when the breaker opens", quiet)
		}
	})
}

func TestTasksThatAreEndedTakeNoMore(t *testing.T) {
	tasks := newTasks()
	tasks.end()
	if timer := tasks.after(0, func() { t.Error("a task ran") }); timer != nil {
		t.Error("after() takes a task")
	}
	tasks.running.Wait()
}
