package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			name          string
			pause, giveUp time.Duration
			want          error
			took          time.Duration
		}{
			{"the time passes", time.Second, time.Minute, nil, time.Second},
			{"the context ends first", time.Hour, time.Minute, context.DeadlineExceeded, time.Minute},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), test.giveUp)
			began := time.Now()
			if err := wait.For(ctx, test.pause); !errors.Is(err, test.want) {
				t.Errorf("%s: For() = %v, want %v", test.name, err, test.want)
			}
			if took := time.Since(began); took != test.took {
				t.Errorf("%s: For() took %v, want %v", test.name, took, test.took)
			}
			cancel()
		}
	})
}

func TestBackoff(t *testing.T) {
	longest := func(n time.Duration) time.Duration { return n - 1 }
	b := wait.Backoff{First: time.Millisecond, Longest: 50 * time.Millisecond, Random: longest}
	for _, test := range []struct {
		try  int
		want time.Duration
	}{
		{0, time.Millisecond},
		{1, 2 * time.Millisecond},
		{5, 32 * time.Millisecond},
		{6, 50 * time.Millisecond},
		{62, 50 * time.Millisecond},
		{1000, 50 * time.Millisecond},
	} {
		if got := b.Pause(test.try); got != test.want-1 {
			t.Errorf("Pause(%d) = %v, want %v, the end of its range", test.try, got, test.want-1)
		}
	}
	b.Least = 5 * time.Millisecond
	if got := b.Pause(5); got != 32*time.Millisecond-1 {
		t.Errorf("with a least pause, Pause(5) = %v, want the same end of its range", got)
	}
	b.First, b.Random = 10*time.Millisecond, func(time.Duration) time.Duration { return 0 }
	if got := b.Pause(0); got != b.Least {
		t.Errorf("Pause(0) = %v, want the least, %v", got, b.Least)
	}
	b = wait.Backoff{First: time.Millisecond, Longest: 50 * time.Millisecond}
	shortest, widest := b.Longest, time.Duration(0)
	for range 1000 {
		pause := b.Pause(6)
		shortest, widest = min(shortest, pause), max(widest, pause)
	}
	if shortest < 0 || shortest > 5*time.Millisecond || widest < 45*time.Millisecond || widest >= b.Longest {
		t.Errorf("1000 pauses are from %v to %v, want a spread over [0, %v)", shortest, widest, b.Longest)
	}
}
