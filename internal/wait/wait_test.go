package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/wait"
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
