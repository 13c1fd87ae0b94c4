package quota_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

func TestWaitSendsWhenTheWindowHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 2}}})
		start := time.Now()
		for i, want := range []time.Duration{0, 0, time.Minute, time.Minute, 2 * time.Minute} {
			if _, err := l.Wait(t.Context(), quota.Request{Model: "m"}); err != nil {
				t.Fatalf("Wait %d = %v", i, err)
			}
			if got := time.Since(start); got != want {
				t.Errorf("Wait %d returned after %v, want %v", i, got, want)
			}
		}
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxTPM: 100}}})
		check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "m", 100, 0))
		served := make(chan int, 8)
		sizes := []int{90, 5, 5, 60, 40}
		for i, size := range sizes {
			go func() {
				if _, err := l.Wait(t.Context(), quota.Request{Model: "m", Input: size}); err != nil {
					t.Errorf("Wait(%d) = %v", size, err)
				}
				served <- i
			}()
			synctest.Wait()
		}
		var got []int
		start := time.Now()
		for range sizes {
			got = append(got, <-served)
			if len(got) == 3 && time.Since(start) != time.Minute {
				t.Errorf("the first three were served after %v, want a minute", time.Since(start))
			}
		}
		slices.Sort(got[:3]) // served at the same instant
		slices.Sort(got[3:])
		if !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Errorf("served in order %v, want the large first one not overtaken", got)
		}
		if d := time.Since(start); d != 2*time.Minute {
			t.Errorf("the last was served after %v, want 2m", d)
		}
	})
}

func TestWaitWakesWhenSomethingIsGivenBack(t *testing.T) {
	for name, give := range map[string]func(ctx context.Context, l *quota.Limiter, r *quota.Reservation) error{
		"cancelled":        func(ctx context.Context, _ *quota.Limiter, r *quota.Reservation) error { return r.Cancel(ctx) },
		"settled for less": func(ctx context.Context, _ *quota.Limiter, r *quota.Reservation) error { return r.Settle(ctx, 1, 0) },
		"a raised quota": func(ctx context.Context, l *quota.Limiter, _ *quota.Reservation) error {
			return l.SetQuota(ctx, "m", quota.ModelQuota{MaxTPM: 500})
		},
		"a reset":        func(ctx context.Context, l *quota.Limiter, _ *quota.Reservation) error { return l.Reset(ctx, "m") },
		"a reset of all": func(ctx context.Context, l *quota.Limiter, _ *quota.Reservation) error { return l.ResetAll(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxTPM: 100}}})
				r := check.Call(l.Reserve(t.Context(), quota.Request{Model: "m", Input: 100})).Must(t, "Reserve()")
				start := time.Now()
				time.AfterFunc(7*time.Second, func() {
					check.Error(t, "giving back", give(t.Context(), l, &r))
				})
				if _, err := l.Wait(t.Context(), quota.Request{Model: "m", Input: 50}); err != nil || time.Since(start) != 7*time.Second {
					t.Errorf("Wait = %v after %v, want nil after 7s", err, time.Since(start))
				}
			})
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 1}}})
		check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "m", 1, 1))
		cause := errors.New("the user went away")
		gone, leave := context.WithCancelCause(t.Context())
		first := make(chan error)
		go func() { _, err := l.Wait(gone, quota.Request{Model: "m"}); first <- err }()
		synctest.Wait()
		impatient := errors.New("waited long enough")
		waiting, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { stop(impatient) })
		second := make(chan error)
		go func() { _, err := l.Wait(waiting, quota.Request{Model: "m"}); second <- err }()
		third := make(chan error)
		synctest.Wait()
		go func() { _, err := l.Wait(t.Context(), quota.Request{Model: "m"}); third <- err }()
		start := time.Now()

		if err := <-second; !errors.Is(err, impatient) || time.Since(start) != 5*time.Second {
			t.Errorf("Wait behind another = %v after %v, want its cause after 5s", err, time.Since(start))
		}
		leave(cause)
		err := <-first
		var denied *quota.ExceededError
		if !errors.Is(err, cause) || !errors.As(err, &denied) || denied.Limit != quota.LimitRPM {
			t.Errorf("Wait = %v, want the cause and the limit", err)
		}
		if err := <-third; err != nil || time.Since(start) != time.Minute {
			t.Errorf("third Wait = %v after %v, want nil after a minute", err, time.Since(start))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Wait(ended, quota.Request{Model: "idle"}); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait with an ended context = %v, want context.Canceled", err)
		}
		if st, _ := l.Stats(t.Context(), "idle"); st.RPM != 0 {
			t.Errorf("RPM after that = %d, want nothing recorded", st.RPM)
		}
	})
}

func TestWaitRefusesTheImpossibleAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quota.Config{
			Quotas:          map[string]quota.ModelQuota{"m": {MaxTPM: 100}},
			DefaultKeyQuota: quota.ModelQuota{MaxOutputTPM: 10},
		})
		start := time.Now()
		for _, r := range []quota.Request{{Model: "m", Input: 101}, {Model: "m", Key: "k", Output: 11}} {
			_, err := l.Wait(t.Context(), r)
			var denied *quota.ExceededError
			if !errors.As(err, &denied) || !denied.Impossible || time.Since(start) != 0 {
				t.Errorf("Wait(%+v) = %v after %v, want impossible at once", r, err, time.Since(start))
			}
			if _, err := l.TimeUntil(t.Context(), r); !errors.As(err, &denied) || !denied.Impossible {
				t.Errorf("TimeUntil(%+v) = %v, want impossible", r, err)
			}
		}
	})
}

// TestWaitersOfOtherKeysPass checks that a key at its limit holds up only itself.
func TestWaitersOfOtherKeysPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, DefaultKeyQuota: quota.ModelQuota{MaxRPM: 1}})
		if _, err := l.Wait(t.Context(), quota.Request{Model: "m", Key: "slow"}); err != nil {
			t.Fatalf("Wait() = %v", err)
		}
		done := make(chan error)
		go func() { _, err := l.Wait(t.Context(), quota.Request{Model: "m", Key: "slow"}); done <- err }()
		synctest.Wait()
		start := time.Now()
		if _, err := l.Wait(t.Context(), quota.Request{Model: "m", Key: "fast"}); err != nil || time.Since(start) != 0 {
			t.Errorf("Wait of another key = %v after %v, want at once", err, time.Since(start))
		}
		if err := <-done; err != nil || time.Since(start) != time.Minute {
			t.Errorf("Wait of the key at its limit = %v after %v, want a minute", err, time.Since(start))
		}
	})
}

// TestWaitFailsAtOnceWhenTheDeadlineIsTooNear: also behind others, who can only
// make it later.
func TestWaitFailsAtOnceWhenTheDeadlineIsTooNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 1, MaxTPM: 100}}})
		check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "m", 1, 1))
		start := time.Now()
		short := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := l.Wait(ctx, quota.Request{Model: "m"})
			return err
		}
		wantTooLate := func(where string) {
			t.Helper()
			err := short()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
				t.Errorf("Wait %s = %v after %v, want its deadline at once", where, err, time.Since(start))
			}
		}
		wantTooLate("with no time to spare")
		var denied *quota.ExceededError
		if err := short(); !errors.As(err, &denied) || denied.Limit != quota.LimitRPM {
			t.Errorf("Wait = %v, want the limit that stands in the way", err)
		}
		done := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute+1)
			defer cancel()
			_, err := l.Wait(ctx, quota.Request{Model: "m"})
			done <- err
		}()
		synctest.Wait()
		wantTooLate("behind another")
		if _, err := l.Wait(t.Context(), quota.Request{Model: "m", Input: 101}); !errors.As(err, &denied) || !denied.Impossible || time.Since(start) != 0 {
			t.Errorf("Wait behind another = %v after %v, want impossible at once", err, time.Since(start))
		}
		if err := <-done; err != nil || time.Since(start) != time.Minute {
			t.Errorf("Wait with just enough time = %v after %v, want nil after a minute", err, time.Since(start))
		}
	})
}
