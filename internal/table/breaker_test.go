package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// A gone store is asked by a breaker. Each call takes a millisecond and then ends as err says, or is not answered.
type gone struct {
	mu     sync.Mutex
	err    error
	silent bool
	late   time.Duration // of each answer
	pings  int
	told   []error // by the breaker
	calls  int
	quiet  map[string]bool // keys that are not answered
	asked  int             // for keys
}

func (g *gone) counts() (calls, pings int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls, g.pings
}

func (g *gone) changes() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.told)
}

func (g *gone) set(silent bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent, g.err = silent, err
}

func (g *gone) call(ctx context.Context) error {
	g.mu.Lock()
	silent, err, late := g.silent, g.err, cmp.Or(g.late, time.Millisecond)
	g.calls++
	g.mu.Unlock()
	if silent || wait.For(ctx, late) != nil {
		<-ctx.Done()
		return &store.Error{Op: "call", Unavailable: true, Unknown: true, Err: ctx.Err()}
	}
	return err
}

// callOf is a call for a key.
func (g *gone) callOf(pk string) func(context.Context) error {
	return func(ctx context.Context) error {
		g.mu.Lock()
		silent := g.quiet[pk]
		g.mu.Unlock()
		if !silent {
			return g.call(ctx)
		}
		<-ctx.Done()
		return &store.Error{Op: "call", Unavailable: true, Err: ctx.Err()}
	}
}

func (g *gone) ask(ctx context.Context, pk string) error {
	g.mu.Lock()
	g.asked++
	g.mu.Unlock()
	return g.callOf(pk)(ctx)
}

// hush leaves the calls for some keys unanswered from now on, and returns how often the breaker asked for keys since it was called last.
func (g *gone) hush(keys ...string) (asked int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.quiet = map[string]bool{}
	for _, key := range keys {
		g.quiet[key] = true
	}
	asked, g.asked = g.asked, 0
	return asked
}

func (g *gone) ping(ctx context.Context) error {
	g.mu.Lock()
	g.pings++
	g.mu.Unlock()
	return g.call(ctx)
}

// withBreaker runs a test with a table and its breaker, which reports its changes of state.
func withBreaker(t *testing.T, test func(t *testing.T, table *Table, g *gone)) {
	t.Helper()
	withSilence(t, 0, test)
}

// withSilence is withBreaker for a time of silence.
func withSilence(t *testing.T, silence time.Duration, test func(t *testing.T, table *Table, g *gone)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &gone{}
		b := NewBreaker(BreakerOptions{
			Timeout: 2 * time.Second, Silence: silence, Ping: g.ping, Ask: g.ask, Changed: func(cause error, _ time.Duration) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.told = append(g.told, cause)
			},
		})
		b.Enter()
		test(t, New(nil, Options{Timeout: 2 * time.Second, Breaker: b}), g)
		b.Leave()
	})
}

// TestWhatOpensABreaker makes calls one after the other that end in the same way, each with a key of its own or all with one.
func TestWhatOpensABreaker(t *testing.T) {
	throttle := func(throttles ...store.Throttle) error {
		return &store.Error{Op: "call", Unavailable: true, Throttled: true, Throttles: throttles, Err: errors.New("slow down")}
	}
	for _, test := range []struct {
		name   string
		err    error
		oneKey bool
		opens  bool
	}{
		{"answers", nil, false, false},
		{"refused connections", &store.Error{Unavailable: true, Err: errors.New("refused")}, true, true},
		{"errors of the server", &store.Error{Unavailable: true, Unknown: true, Err: errors.New("500")}, false, true},
		{"throttles of the table", throttle(store.Throttle{Limit: store.OfTable}), false, true},
		{"throttles of the account", throttle(store.Throttle{Limit: store.OfAccount}), false, true},
		{"throttles of the table with one key", throttle(store.Throttle{Limit: store.OfTable}), true, false},
		{"throttles without a reason", throttle(), false, true},
		{"throttles of the items of one bucket without a reason", throttle(), true, false},
		{"throttles of keys", throttle(store.Throttle{Limit: store.OfKey}), false, false},
		{"throttles of an index", throttle(store.Throttle{Limit: store.OfTable, Index: true}), false, false},
		{"conflicts", &store.Error{Err: store.ErrConflict}, false, false},
		{"denied permission", &store.Error{Err: errors.New("denied")}, false, false},
		{"bad input", &store.Error{Invalid: true, Err: errors.New("too large")}, false, false},
		{"calls that were not made", &NotMade{&store.Error{Unavailable: true, Err: errors.New("no namespace")}}, false, false},
	} {
		withBreaker(t, func(t *testing.T, table *Table, g *gone) {
			g.set(false, test.err)
			for i := range 3 * failures {
				pk := fmt.Sprint("key#", i)
				if !test.oneKey {
					pk = fmt.Sprint("key", i)
				}
				err := table.call(t.Context(), pk, g.call)
				if want := i < failures || !test.opens; errors.Is(err, errOpen) == want {
					t.Errorf("%s: call %d = %v", test.name, i+1, err)
				}
			}
			if told := g.changes(); (len(told) == 1 && told[0] != nil) != test.opens {
				t.Errorf("%s: changes %v, want the breaker open: %t", test.name, g.changes(), test.opens)
			}
		})
	}
}

// TestSuccessesBetweenFailures keep a breaker closed, however many calls fail.
func TestSuccessesBetweenFailures(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		for i := range 20 * failures {
			g.set(false, &store.Error{Unavailable: true, Err: errors.New("refused")})
			if i%failures == 0 {
				g.set(false, nil)
			}
			_ = table.Call(t.Context(), g.call)
		}
		if _, pings := g.counts(); len(g.changes()) > 0 || pings > 0 {
			t.Errorf("the breaker told %v, and made %d probes", g.changes(), pings)
		}
	})
}

// In TestSilence, calls of many callers are swallowed. No timeout has passed when the breaker opens. Refused calls are no unknown outcome.
// It asks by itself until the store answers, and lets calls of no policy pass.
func TestSilence(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		for range 100 {
			_ = table.Call(t.Context(), g.call)
		}
		g.set(true, nil)
		began := time.Now()
		calls, _ := g.counts()
		for range silentCalls {
			go func() { _ = table.Call(t.Context(), g.call) }()
		}
		synctest.Wait()
		for len(g.changes()) == 0 && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
			if table.Refusal(t.Context()) == nil && time.Since(began) > 600*time.Millisecond {
				t.Fatal("calls are not refused")
			}
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the breaker opens after %v, want a quarter of the timeout", took)
		}
		err := table.Call(t.Context(), g.call)
		if store.OutcomeOf(err) != store.Unavailable || !errors.Is(err, errOpen) {
			t.Errorf("Call() = %v, want an outage in which nothing was sent", err)
		}
		if n := testing.AllocsPerRun(100, func() { _ = table.Refusal(t.Context()) }); n > 0 {
			t.Errorf("a refusal allocates %v times", n)
		}
		if err := table.Call(Insist(t.Context()), g.call); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Call() of a caller that insists = %v, want one that is made", err)
		}
		time.Sleep(time.Minute)
		if made, pings := g.counts(); pings < 20 || pings > 120 || made-calls != silentCalls+1+pings {
			t.Errorf("%d probes in a minute, %d calls", pings, made-calls)
		}
		g.set(false, nil)
		back := time.Now()
		for len(g.changes()) < 2 && time.Since(back) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(back); took > 2500*time.Millisecond {
			t.Errorf("the breaker closes after %v without a call", took)
		}
	})
}

// In TestSilenceRunsFromTheFirstCall, calls are swallowed one after the other. The time of silence runs from the first call, so that few
// calls a second are enough. The last of the calls that must be under way has half of that time.
func TestSilenceRunsFromTheFirstCall(t *testing.T) {
	const silence = 500 * time.Millisecond
	for _, test := range []struct {
		first, apart time.Duration // from the first call to the second, and between the others
		opens        time.Duration
	}{
		{0, 0, silence},
		{50 * time.Millisecond, 50 * time.Millisecond, silence},
		{60 * time.Millisecond, 60 * time.Millisecond, silence},
		{100 * time.Millisecond, 100 * time.Millisecond, 400*time.Millisecond + silence/2},
		{480 * time.Millisecond, 0, 480*time.Millisecond + silence/2},
	} {
		withBreaker(t, func(t *testing.T, table *Table, g *gone) {
			g.set(true, nil)
			began := time.Now()
			go func() {
				for i := range silentCalls {
					go func() { _ = table.Call(t.Context(), g.call) }()
					if time.Sleep(test.apart); i == 0 {
						time.Sleep(test.first - test.apart)
					}
				}
			}()
			for len(g.changes()) == 0 && time.Since(began) < time.Minute {
				_ = table.Refusal(t.Context())
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(began); took < test.opens || took > test.opens+2*time.Millisecond {
				t.Errorf("calls %v and then %v apart: the breaker opens after %v, want %v", test.first, test.apart, took, test.opens)
			}
		})
	}
}

// In TestDoubt, several calls in a row are lost while the store answers. The breaker asks before it opens, and stays closed. After lost
// calls that follow another answer it asks again, once for each silence.
func TestDoubt(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		var all sync.WaitGroup
		for range 3 {
			check.Error(t, "Call()", table.Call(t.Context(), g.call))
			for range 2 * silentCalls {
				all.Go(func() {
					_ = table.Call(t.Context(), func(ctx context.Context) error { return wait.For(ctx, 1900*time.Millisecond) })
				})
			}
			for range 200 {
				check.Fatal(t, "Refusal() while the store answers", table.Refusal(t.Context()))
				time.Sleep(10 * time.Millisecond)
			}
		}
		all.Wait()
		if _, pings := g.counts(); pings != 3*doubtPings || len(g.changes()) > 0 {
			t.Errorf("%d questions, and the breaker told %v", pings, g.changes())
		}
	})
}

// In TestBriefCalls, a store becomes slower than its callers wait, who give up soon. It is asked, and its answer shows how long calls take: that is no
// outage. When it answers nothing any more, the breaker opens.
func TestBriefCalls(t *testing.T) {
	for _, late := range []time.Duration{60 * time.Millisecond, 150 * time.Millisecond, 240 * time.Millisecond} {
		withSilence(t, 200*time.Millisecond, func(t *testing.T, table *Table, g *gone) {
			for range 20 {
				check.Fatal(t, "Call()", table.Call(t.Context(), g.call))
			}
			calls := func(d time.Duration) {
				for began := time.Now(); time.Since(began) < d && len(g.changes()) == 0; time.Sleep(10 * time.Millisecond) {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					_ = table.Call(ctx, g.call)
					cancel()
				}
			}
			g.mu.Lock()
			g.late = late
			g.mu.Unlock()
			if calls(10 * time.Second); len(g.changes()) > 0 {
				t.Errorf("replies %v late: the breaker told %v", late, g.changes())
			}
			g.set(true, nil)
			if calls(10 * time.Second); len(g.changes()) != 1 {
				t.Errorf("silence after replies %v late: the breaker told %v, want an outage", late, g.changes())
			}
		})
	}
}

// In TestAStoreThatAnswersQuestionsAlone, the calls of a store are swallowed, and its pings answered. One of them gives calls more time, and no
// second one.
func TestAStoreThatAnswersQuestionsAlone(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		began := time.Now()
		for len(g.changes()) == 0 && time.Since(began) < time.Minute {
			go func() {
				_ = table.Call(t.Context(), func(ctx context.Context) error { return wait.For(ctx, time.Minute) })
			}()
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took < 500*time.Millisecond || took > 800*time.Millisecond {
			t.Errorf("the breaker opens after %v", took)
		}
	})
}

// TestTrials sends a crowd to a store that has come back: a few calls at first, more with every answer, and none when a trial fails.
func TestTrials(t *testing.T) {
	for name, healthy := range map[string]bool{"healthy": true, "writes fail": false} {
		withBreaker(t, func(t *testing.T, table *Table, g *gone) {
			broken := &store.Error{Unavailable: true, Err: errors.New("refused")}
			g.set(false, broken)
			for range failures {
				_ = table.Call(t.Context(), g.call)
			}
			g.set(false, nil)
			state := func() breakerState {
				table.breaker.mu.Lock()
				defer table.breaker.mu.Unlock()
				return table.breaker.state
			}
			for state() != isHalfOpen {
				time.Sleep(time.Millisecond)
			}
			made := 0
			crowd := func() (sent int) {
				var all sync.WaitGroup
				before := made
				for range 1000 {
					all.Go(func() {
						_ = table.Call(t.Context(), func(context.Context) error {
							g.mu.Lock()
							made++
							g.mu.Unlock()
							time.Sleep(time.Millisecond)
							if !healthy {
								return broken
							}
							return nil
						})
					})
				}
				all.Wait()
				return made - before
			}
			want := []int{4, 8, 16, 32, 1000}
			if !healthy {
				want = []int{4, 0, 0, 0, 0}
			}
			for i, n := range want {
				if got := crowd(); got != n {
					t.Errorf("%s: crowd %d makes %d calls, want %d", name, i+1, got, n)
				}
			}
			if closed := len(g.changes()) == 2; closed != healthy {
				t.Errorf("%s: changes %v", name, g.changes())
			}
		})
	}
}

// In TestWaitingForATurn, more callers than turns ask a store that has become silent. Callers that wait for a turn when the breaker opens
// learn of the outage immediately, before the calls under way end and deadlines pass. A caller who insists waits on.
func TestWaitingForATurn(t *testing.T) {
	const turns, callers, timeout = 8, 40, 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		g := &gone{silent: true}
		b := NewBreaker(BreakerOptions{Timeout: timeout, Ping: g.ping})
		b.Enter()
		defer b.Leave()
		table := New(nil, Options{Timeout: timeout, Gate: store.NewGate(turns, b.Away), Breaker: b})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		var all sync.WaitGroup
		var left, late int
		call := func(ctx context.Context, ended func(error)) { all.Go(func() { ended(table.Call(ctx, g.call)) }) }
		for range turns {
			call(t.Context(), func(error) {})
		}
		synctest.Wait()
		var mu sync.Mutex
		for range callers {
			call(ctx, func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, errOpen) && store.OutcomeOf(err) == store.Unavailable {
					left++
				}
				if time.Since(began) > timeout/4 {
					late++
				}
			})
		}
		call(Insist(ctx), func(err error) {
			if store.OutcomeOf(err) != store.Ended || time.Since(began) != time.Second {
				t.Errorf("a caller who insists ended after %v: %v", time.Since(began), err)
			}
		})
		time.Sleep(timeout / 4)
		if table.Refusal(t.Context()) == nil {
			t.Error("the breaker is closed")
		}
		all.Wait()
		if left != callers || late > 0 {
			t.Errorf("of %d callers who waited for their turn %d learnt of the outage, and %d waited on", callers, left, late)
		}
		g.set(false, nil)
		time.Sleep(timeout/2 + 2*longestProbe) // a probe may be under way, the next one finds an answer, and the one after it closes
		for range callers {                    // they wait for their turns again
			call(t.Context(), func(err error) {
				if err != nil {
					t.Errorf("Call() after the return = %v", err)
				}
			})
		}
		all.Wait()
	})
}

// In TestLeavingEarly, callers give up calls that would have been answered. That is no silence.
func TestLeavingEarly(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		g.set(true, nil)
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_ = table.Call(ctx, g.call)
			cancel()
			time.Sleep(100 * time.Millisecond)
		}
		if len(g.changes()) > 0 {
			t.Errorf("the breaker told %v", g.changes())
		}
	})
}

// halfOpen opens the breaker of a table by refused connections, and waits until it is half open. Probes are answered from then on.
func halfOpen(table *Table, g *gone) {
	g.set(false, &store.Error{Unavailable: true, Err: errors.New("refused")})
	for range failures {
		_ = table.Call(context.Background(), g.call)
	}
	g.set(false, nil)
	for stateOf(table) != isHalfOpen {
		time.Sleep(time.Millisecond)
	}
}

func stateOf(table *Table) breakerState {
	table.breaker.mu.Lock()
	defer table.breaker.mu.Unlock()
	return table.breaker.state
}

// In TestTrialsThatAreNotAnswered, a store answers probes, and swallows the calls after them. The breaker opens again
// after the time of silence, and not after the call timeout. It counts from the first trial, or from the last answered
// one. Callers who leave soon do not change that.
func TestTrialsThatAreNotAnswered(t *testing.T) {
	const silence = 500 * time.Millisecond
	swallowed := func(ctx context.Context) error {
		<-ctx.Done()
		return &store.Error{Op: "call", Unavailable: true, Unknown: true, Err: ctx.Err()}
	}
	for name, test := range map[string]struct {
		patience time.Duration // of callers
		answered time.Duration // when one of the trials is; 0 for none
		opens    time.Duration
	}{
		"none is answered":             {time.Minute, 0, silence},
		"callers leave":                {silence / 2, 0, silence},
		"one is answered":              {time.Minute, 20 * time.Millisecond, 20*time.Millisecond + silence},
		"callers leave after a moment": {time.Millisecond, 0, 0},
	} {
		withBreaker(t, func(t *testing.T, table *Table, g *gone) {
			for range 100 {
				_ = table.Call(t.Context(), g.call)
			}
			halfOpen(table, g)
			opens, began := table.breaker.Away(t.Context()), time.Now()
			var all sync.WaitGroup
			for i := range firstTrials {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), test.patience)
					defer cancel()
					_ = table.Call(ctx, func(ctx context.Context) error {
						if i == 0 && test.answered > 0 {
							time.Sleep(test.answered)
							return nil
						}
						return swallowed(ctx)
					})
				})
			}
			opened := time.Duration(0)
			select { // a probe may find at the same moment that the store answers, so that the state shows nothing
			case <-opens:
				opened = time.Since(began)
			case <-time.After(1500 * time.Millisecond):
			}
			if opened < test.opens || opened > test.opens+2*time.Millisecond {
				t.Errorf("%s: the breaker opens again after %v, want %v", name, opened, test.opens)
			}
			g.set(false, nil)
			from := time.Now()
			for err := errOpen; errors.Is(err, errOpen); time.Sleep(10 * time.Millisecond) {
				err = table.Call(t.Context(), g.call)
			}
			if took := time.Since(from); took > time.Second {
				t.Errorf("%s: the first call after the return is made after %v", name, took)
			}
			all.Wait()
			if time.Sleep(2 * time.Second); stateOf(table) != isClosed || len(g.changes()) != 2 {
				t.Errorf("%s: the breaker is not closed, and told %v", name, g.changes())
			}
		})
	}
}

// TestCallsAllocateNothingForABreaker makes calls of a store with a breaker and without, and reads and writes of keys.
func TestCallsAllocateNothingForABreaker(t *testing.T) {
	b := NewBreaker(BreakerOptions{Timeout: time.Minute, Ask: func(context.Context, string) error { return nil }})
	b.Enter()
	defer b.Leave()
	allocations := func(b *Breaker) float64 {
		o := Options{Timeout: time.Minute, Breaker: b, Gate: store.NewGate(8, nil)}
		table := New(ready{}, o)
		w := store.Write{Key: store.Key{PK: "p", SK: "s"}}
		return testing.AllocsPerRun(1000, func() {
			if _, err := table.Write(t.Context(), w); err != nil {
				t.Fatalf("Write() = %v", err)
			}
		})
	}
	if without, with := allocations(nil), allocations(b); with > without || without > 4 { // the timer that bounds the call
		t.Errorf("a write allocates %v times with a breaker, and %v times without", with, without)
	}
}

// A ready store answers writes immediately.
type ready struct{ store.Store }

func (ready) Partitioned() bool { return true }

func (ready) Write(context.Context, store.Write) (store.Result, error) {
	return store.Result{Applied: true}, nil
}

// In TestCancelledInAnOutage, a caller has given up before its call. The error says so, also while the breaker refuses calls.
func TestCancelledInAnOutage(t *testing.T) {
	withBreaker(t, func(t *testing.T, table *Table, g *gone) {
		g.set(false, &store.Error{Op: "call", Unavailable: true, Err: errors.New("connection refused")})
		for len(g.changes()) == 0 {
			_ = table.Call(t.Context(), g.call)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := table.Call(ctx, g.call); !errors.Is(err, context.Canceled) {
			t.Errorf("Call() = %v, want that the caller gave up", err)
		}
		g.set(false, nil)
	})
}
