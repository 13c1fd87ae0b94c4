package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// tokenOf hands a lease on.
func tokenOf(tb testing.TB, lease *zlimit.Lease) string {
	tb.Helper()
	return check.Call(lease.Token(time.Hour)).Must(tb, "Token()")
}

// A tokenCase is what happens between the admission of a request and its settlement.
type tokenCase struct {
	name      string
	request   zlimit.Request
	limits    []zlimit.Limit // in place of the usual ones
	shards    int
	before    func(ctx context.Context, l *zlimit.RateLimiter, c *clock) error
	meanwhile func(ctx context.Context, l *zlimit.RateLimiter, c *clock, lease *zlimit.Lease) error
	actual    zlimit.Amounts
}

func tokenCases(t *testing.T) []tokenCase {
	reset := func(ctx context.Context, l *zlimit.RateLimiter, _ *clock, _ *zlimit.Lease) error {
		_, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"})
		return err
	}
	usual := ask(zlimit.Amounts{"tpd": 100, "rpd": 1})
	limits := []zlimit.Limit{zlimit.Daily("tpd", 400, "UTC"), zlimit.PerDay("rpd", 50)}
	shadow := zlimit.PerDay("tpd", 50).Shadow()
	return []tokenCase{
		{name: "less", request: usual, actual: zlimit.Amounts{"tpd": 40}},
		{name: "more", request: usual, actual: zlimit.Amounts{"tpd": 140}},
		{name: "more of one limit, less of another", request: usual, actual: zlimit.Amounts{"tpd": 10, "rpd": 3}},
		{name: "more than there is", request: usual, actual: zlimit.Amounts{"tpd": 900}},
		{name: "nothing", request: usual, actual: zlimit.Amounts{"tpd": 0, "rpd": 0}},
		{name: "a limit that was not asked", request: ask(zlimit.Amounts{"tpd": 100}), actual: zlimit.Amounts{"rpd": 2}},
		{name: "of four parts, less", request: ask(zlimit.Amounts{"tpd": 250}), shards: 4, actual: zlimit.Amounts{"tpd": 30}},
		{name: "of four parts, more", request: ask(zlimit.Amounts{"tpd": 200}), shards: 4, actual: zlimit.Amounts{"tpd": 290}},
		{name: "after a period", request: usual, limits: limits, actual: zlimit.Amounts{"tpd": 40}, meanwhile: func(_ context.Context, _ *zlimit.RateLimiter, c *clock, _ *zlimit.Lease) error {
			c.sleep(30 * time.Hour)
			return nil
		}},
		{name: "after a refill", request: usual, actual: zlimit.Amounts{"tpd": 90}, meanwhile: func(_ context.Context, _ *zlimit.RateLimiter, c *clock, _ *zlimit.Lease) error {
			c.sleep(6 * time.Hour)
			return nil
		}},
		{name: "after a reset", request: usual, actual: zlimit.Amounts{"tpd": 40}, meanwhile: reset},
		{name: "after a reset, with more", request: usual, actual: zlimit.Amounts{"tpd": 140}, meanwhile: reset},
		{name: "of two lives", request: usual, actual: zlimit.Amounts{"tpd": 60}, meanwhile: func(ctx context.Context, l *zlimit.RateLimiter, c *clock, lease *zlimit.Lease) error {
			return errors.Join(reset(ctx, l, c, lease), lease.Consume(ctx, zlimit.Amounts{"tpd": 50}))
		}},
		{name: "of a bucket that is gone, less", request: usual, actual: zlimit.Amounts{"tpd": 40}, meanwhile: func(_ context.Context, l *zlimit.RateLimiter, _ *clock, _ *zlimit.Lease) error {
			drop(t, l)
			return nil
		}},
		{name: "of a bucket that is gone, more", request: usual, actual: zlimit.Amounts{"tpd": 140}, meanwhile: func(_ context.Context, l *zlimit.RateLimiter, _ *clock, _ *zlimit.Lease) error {
			drop(t, l)
			return nil
		}},
		{name: "of another parent by then", request: usual, actual: zlimit.Amounts{"tpd": 140}, meanwhile: func(ctx context.Context, l *zlimit.RateLimiter, _ *clock, _ *zlimit.Lease) error {
			_, err := l.Entities.SetParent(ctx, "key-1", "")
			return err
		}},
		{
			name: "after a grant", request: ask(zlimit.Amounts{"tpd": 300}), limits: limits, actual: zlimit.Amounts{"tpd": 0},
			before: func(ctx context.Context, l *zlimit.RateLimiter, c *clock) error {
				r := zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"tpd": 200}, Until: c.now().Add(time.Hour)}
				_, err := l.Limits.TopUp(ctx, r)
				return err
			},
			meanwhile: func(_ context.Context, l *zlimit.RateLimiter, c *clock, _ *zlimit.Lease) error {
				acquire(t, l, ask(zlimit.Amounts{"tpd": 90}))
				c.sleep(2 * time.Hour)
				return nil
			},
		},
		{name: "of a shadow limit", request: usual, limits: []zlimit.Limit{shadow, zlimit.PerDay("rpd", 50)}, actual: zlimit.Amounts{"tpd": 40}},
		{
			name: "with limits of the request", actual: zlimit.Amounts{"own": 2},
			request: zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"own": 5}, Limits: []zlimit.Limit{zlimit.PerDay("own", 10)}},
		},
		{name: "with a recorded correction", request: usual, actual: zlimit.Amounts{"rpd": 0}, meanwhile: func(_ context.Context, _ *zlimit.RateLimiter, _ *clock, lease *zlimit.Lease) error {
			return lease.Release(zlimit.Amounts{"tpd": 70})
		}},
	}
}

// TestTokensSettleLikeLeases settles each lease by itself, and in another process by its token. Both leave the same buckets, of the entity
// and of its parents.
func TestTokensSettleLikeLeases(t *testing.T) {
	ctx := context.Background()
	for _, test := range tokenCases(t) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			settle := func(how func(t *testing.T, l, other *zlimit.RateLimiter, lease *zlimit.Lease)) []string {
				s := newMemory(t)
				c := newClock()
				opts := []zlimit.Option{zlimit.WithClock(c.now), zlimit.WithTuning(zlimit.Tuning{MaxShards: 4})}
				l, other := newLimiter(t, s, opts...), newLimiter(t, s, opts...)
				putChain(t, l, "team", "key-1")
				limits := []zlimit.Limit{zlimit.PerDay("tpd", 400), zlimit.PerDay("rpd", 50)}
				if test.limits != nil {
					limits = test.limits
				}
				setSystem(t, l, limits...)
				if test.shards > 1 {
					acquire(t, l, ask(zlimit.Amounts{"tpd": 1}))
					for n := 1; n < test.shards; n *= 2 {
						split(t, l)
					}
				}
				if test.before != nil {
					check.Fatal(t, "before()", test.before(ctx, l, c))
				}
				lease := acquire(t, l, test.request)
				if test.meanwhile != nil {
					check.Fatal(t, "meanwhile()", test.meanwhile(ctx, l, c, lease))
				}
				how(t, l, other, lease)
				var left []string
				for _, entity := range []string{"key-1", "team"} {
					statuses, err := newLimiter(t, s, opts...).Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4"})
					check.Fatal(t, "Available()", err)
					for _, status := range statuses {
						left = append(left, status.String())
					}
					for _, name := range []string{"tpd", "rpd", "own"} {
						_, consumed, _ := total(storedShards(t, l, entity), name)
						left = append(left, fmt.Sprintf("%s counts %d", name, consumed))
					}
				}
				return left
			}
			want := settle(func(t *testing.T, _, _ *zlimit.RateLimiter, lease *zlimit.Lease) {
				taken := lease.Consumed()
				for name, tokens := range test.actual {
					check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{name: tokens - taken[name]}))
				}
				check.Fatal(t, "Commit()", lease.Commit(ctx))
			})
			for name, opts := range map[string][]zlimit.SettleOption{"claim": nil, "exactly": {zlimit.SettleExactly()}, "trusted": {zlimit.SettleTrusted()}} {
				got := settle(func(t *testing.T, _, other *zlimit.RateLimiter, lease *zlimit.Lease) {
					if err := other.Settle(ctx, tokenOf(t, lease), test.actual, opts...); err != nil {
						t.Fatalf("Settle() by %s = %v", name, err)
					}
				})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("settled by %s (-lease +token):\n%s", name, diff)
				}
			}
		})
	}
}

// TestTokensSettleOnce settles tokens again: with the same amounts nothing changes, with others it is an error.
func TestTokensSettleOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("tpd", 1000), zlimit.PerDay("rpd", 10))
		for i, test := range []struct {
			actual, again zlimit.Amounts
			opts          []zlimit.SettleOption
			settled       zlimit.Amounts
		}{
			{zlimit.Amounts{"tpd": 40}, zlimit.Amounts{"tpd": 40, "rpd": 1}, nil, zlimit.Amounts{"tpd": 40, "rpd": 1}},
			{zlimit.Amounts{"tpd": 140}, zlimit.Amounts{"tpd": 140}, nil, zlimit.Amounts{"tpd": 140, "rpd": 1}},
			{zlimit.Amounts{"tpd": 0, "rpd": 0}, zlimit.Amounts{"rpd": 0, "tpd": 0}, []zlimit.SettleOption{zlimit.SettleExactly()}, zlimit.Amounts{"tpd": 0, "rpd": 0}},
			{nil, zlimit.Amounts{"tpd": 100}, nil, zlimit.Amounts{"tpd": 100, "rpd": 1}},
		} {
			before := available(t, l, "tpd")
			lease := acquire(t, l, ask(zlimit.Amounts{"tpd": 100, "rpd": 1}))
			token := tokenOf(t, lease)
			if _, err := lease.Token(time.Hour); !errors.Is(err, zlimit.ErrLeaseClosed) {
				t.Errorf("%d: a second Token() = %v, want ErrLeaseClosed", i, err)
			}
			if err := errors.Join(lease.Commit(ctx), lease.Adjust(zlimit.Amounts{"tpd": 1})); !errors.Is(err, zlimit.ErrLeaseClosed) {
				t.Errorf("%d: Commit() after Token() = %v, want ErrLeaseClosed", i, err)
			}
			for n, by := range []*zlimit.RateLimiter{l, other, l} {
				actual := test.actual
				if n > 0 {
					actual = test.again
				}
				if err := by.Settle(ctx, token, actual, test.opts...); err != nil {
					t.Errorf("%d: Settle() number %d = %v", i, n, err)
				}
			}
			for _, opts := range [][]zlimit.SettleOption{nil, {zlimit.SettleExactly()}} {
				var settled *zlimit.SettledError
				err := other.Settle(ctx, token, zlimit.Amounts{"tpd": 77}, opts...)
				if !errors.As(err, &settled) || !errors.Is(err, zlimit.ErrSettled) || !cmp.Equal(settled.Amounts, test.settled) {
					t.Errorf("%d: Settle() with other amounts = %v, want a SettledError with %v", i, err, test.settled)
				}
			}
			if got, want := available(t, l, "tpd"), before-test.settled["tpd"]; got != want {
				t.Errorf("%d: tpd has %d, want %d", i, got, want)
			}
		}
		token, before := tokenOf(t, acquire(t, l, ask(zlimit.Amounts{"tpd": 100}))), available(t, l, "tpd")
		c.sleep(time.Hour)
		if err := other.Settle(ctx, token, zlimit.Amounts{"tpd": 0}); !errors.Is(err, zlimit.ErrTokenExpired) {
			t.Errorf("Settle() an hour later = %v, want ErrTokenExpired", err)
		}
		if got := available(t, l, "tpd"); got < before || got > before+1000/24+1 {
			t.Errorf("tpd has %d after an expired token, want %d and the refill", got, before)
		}
	})
}

// In TestTokensOfManyProcesses, several processes settle one token at the same time, with different amounts. The amounts of one of them hold.
func TestTokensOfManyProcesses(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		var processes []*zlimit.RateLimiter
		for range 4 {
			processes = append(processes, newLimiter(t, s, zlimit.WithClock(c.now)))
		}
		setSystem(t, processes[0], zlimit.PerDay("tpd", 10_000))
		for round := range 8 {
			before := available(t, processes[0], "tpd")
			token := tokenOf(t, acquire(t, processes[round%4], ask(zlimit.Amounts{"tpd": 100})))
			var mu sync.Mutex
			var group sync.WaitGroup
			held := map[int64]int{}
			for i := range 12 {
				group.Go(func() {
					actual := []int64{40, 130, 0}[i%3]
					var opts []zlimit.SettleOption
					if i%2 == 0 {
						opts = append(opts, zlimit.SettleExactly())
					}
					err := processes[i%4].Settle(ctx, token, zlimit.Amounts{"tpd": actual}, opts...)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						held[actual]++
					case !errors.Is(err, zlimit.ErrSettled):
						t.Errorf("Settle() = %v, want nil or ErrSettled", err)
					}
				})
			}
			group.Wait()
			if len(held) != 1 {
				t.Fatalf("amounts %v were settled, want one amount", held)
			}
			for actual := range held {
				if got := before - available(t, processes[0], "tpd"); got != actual {
					t.Errorf("tpd has %d less after a settlement of %d", got, actual)
				}
			}
		}
	})
}

// TestTokensOfKilledProcesses kills a process at each call of a settlement. Another one settles the token again with the same amounts.
// Nothing is given back twice. A correction is lost only where it follows its record.
func TestTokensOfKilledProcesses(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		name   string
		actual int64
		opts   []zlimit.SettleOption
		loses  bool
	}{
		{"less", 40, nil, true},
		{"more", 140, nil, false},
		{"less, exactly", 40, []zlimit.SettleOption{zlimit.SettleExactly()}, false},
	} {
		for _, how := range []faulttest.Crash{faulttest.Before, faulttest.After} {
			t.Run(fmt.Sprintf("%s, killed %s", test.name, how), func(t *testing.T) {
				lost := 0
				for at := 1; ; at++ {
					w := newWitness(store.Of(newMemory(t)))
					m := faulttest.NewMortal(w)
					c := newClock()
					survivor := newLimiter(t, zlimit.StoreOn(w), zlimit.WithClock(c.now))
					setSystem(t, survivor, zlimit.PerDay("tpd", 400))
					token := tokenOf(t, acquire(t, survivor, ask(zlimit.Amounts{"tpd": 100})))
					victim := newLimiter(t, zlimit.StoreOn(m), zlimit.WithClock(c.now))
					m.Kill(at, how)
					_ = victim.Settle(ctx, token, zlimit.Amounts{"tpd": test.actual}, test.opts...)
					died := m.Died()
					m.Kill(0, "")
					if err := survivor.Settle(ctx, token, zlimit.Amounts{"tpd": test.actual}, test.opts...); err != nil {
						t.Errorf("call %d: Settle() by another process = %v", at, err)
					}
					switch got := 400 - available(t, survivor, "tpd"); {
					case got == test.actual:
					case got == 100 && test.loses:
						lost++
					default:
						t.Errorf("call %d: %d are taken, want %d", at, got, test.actual)
					}
					if err := w.verdict(); err != nil {
						t.Errorf("call %d: %v", at, err)
					}
					if !died {
						break
					}
				}
				if lost > 2 {
					t.Errorf("the correction is lost by a kill at %d calls, want one or two", lost)
				}
			})
		}
	}
}

// In TestSettlementIsWithdrawn, the correction of a settlement fails. The next settlement of the token corrects, whatever its amounts are.
func TestSettlementIsWithdrawn(t *testing.T) {
	ctx := context.Background()
	s := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("tpd", 400))
	token := tokenOf(t, acquire(t, l, ask(zlimit.Amounts{"tpd": 100})))
	s.set(func(w ...store.Write) error {
		if w[0].Kind == store.Update {
			return &store.Error{Op: "Write", Err: errors.New("access denied")}
		}
		return nil
	})
	if err := l.Settle(ctx, token, zlimit.Amounts{"tpd": 40}); err == nil {
		t.Error("Settle() of a bucket that refuses writes = nil")
	}
	s.unset()
	if got := available(t, l, "tpd"); got != 300 {
		t.Errorf("tpd has %d after a failed settlement, want 300", got)
	}
	check.Error(t, "Settle() afterwards", l.Settle(ctx, token, zlimit.Amounts{"tpd": 30}))
	if got := available(t, l, "tpd"); got != 370 {
		t.Errorf("tpd has %d after the settlement, want 370", got)
	}
}

// TestInvalidTokens settles what is no token of the namespace, and hands on leases that cannot be.
func TestInvalidTokens(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	l := newLimiter(t, s)
	setSystem(t, l, zlimit.PerDay("tpd", 400), zlimit.Slots("calls", 2))
	other := check.Call(l.Namespace(ctx, "other", zlimit.WithSetup())).Must(t, "Namespace()")
	defer func() { _ = other.Close() }()
	token := tokenOf(t, acquire(t, l, ask(zlimit.Amounts{"tpd": 100})))
	altered := func(at int) string {
		b := []byte(token)
		if b[at]++; b[at] > 'y' {
			b[at] = 'A'
		}
		return string(b)
	}
	for name, text := range map[string]string{
		"no token": "", "another prefix": "x" + token, "a cut token": token[:len(token)-4], "a longer token": token + "AAAA",
		"an altered token": altered(len(token) / 2), "a huge token": token + strings.Repeat("A", zlimit.MaxTokenSize),
	} {
		if err := l.Settle(ctx, text, nil); invalid(err).Field != "token" {
			t.Errorf("Settle() of %s = %v, want a ValidationError", name, err)
		}
	}
	for name, err := range map[string]error{
		"another namespace":  other.Settle(ctx, token, nil),
		"an unknown limit":   l.Settle(ctx, token, zlimit.Amounts{"rpd": 1}),
		"a negative amount":  l.Settle(ctx, token, zlimit.Amounts{"tpd": -1}),
		"a limit of slots":   l.Settle(ctx, token, zlimit.Amounts{"calls": 1}),
		"both options":       l.Settle(ctx, token, nil, zlimit.SettleExactly(), zlimit.SettleTrusted()),
		"too much to count":  l.Settle(ctx, token, zlimit.Amounts{"tpd": math.MaxInt64}),
		"no lifetime":        tokenError(acquire(t, l, ask(zlimit.Amounts{"tpd": 1})).Token(0)),
		"a long lifetime":    tokenError(acquire(t, l, ask(zlimit.Amounts{"tpd": 1})).Token(zlimit.MaxTokenTime + 1)),
		"a lease with slots": tokenError(acquire(t, l, ask(zlimit.Amounts{"calls": 1})).Token(time.Hour)),
	} {
		if !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: %v, want a ValidationError", name, err)
		}
	}
	if err := tokenError(new(zlimit.Lease).Token(time.Hour)); !errors.Is(err, zlimit.ErrLeaseClosed) {
		t.Errorf("Token() of the zero value = %v, want ErrLeaseClosed", err)
	}
	check.Error(t, "Settle() afterwards", l.Settle(ctx, token, zlimit.Amounts{"tpd": 50}))
}

func tokenError(_ string, err error) error { return err }

// FuzzTokens settles any text.
func FuzzTokens(f *testing.F) {
	l := newLimiter(f, newMemory(f))
	setSystem(f, l, zlimit.PerDay("tpd", 1<<40))
	f.Add(tokenOf(f, acquire(f, l, ask(zlimit.Amounts{"tpd": 100}))))
	f.Add("zl1.")
	f.Fuzz(func(t *testing.T, token string) {
		err := l.Settle(context.Background(), token, zlimit.Amounts{"tpd": 50})
		if err != nil && !errors.As(err, new(*zlimit.ValidationError)) && !errors.Is(err, zlimit.ErrTokenExpired) && !errors.Is(err, zlimit.ErrSettled) {
			t.Errorf("Settle(%q) = %v", token, err)
		}
	})
}
