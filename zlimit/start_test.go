package zlimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A crowdedStart is a store whose reads are throttled at first, or whose eventual reads find nothing.
type crowdedStart struct {
	*hooked
	throttled  int
	empty      bool
	consistent []bool // of the reads that were made
}

func (s *crowdedStart) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	s.consistent = append(s.consistent, consistent)
	if len(s.consistent) <= s.throttled {
		return nil, errThrottled
	}
	if s.empty && !consistent {
		return make([]expr.Item, len(keys)), nil
	}
	return s.hooked.Read(ctx, keys, consistent)
}

// TestStartsWait starts a limiter on a store that throttles its first reads. The limiter waits, with an eventual read, and looks
// once more for what that does not show.
func TestStartsWait(t *testing.T) {
	for _, test := range []struct {
		name      string
		throttled int
		empty     bool
		reads     int
		last      bool // whether the last one was consistent
		fails     bool
	}{
		{"at once", 0, false, 1, false, false},
		{"throttled", 6, false, 7, false, false},
		{"throttled for too long", 1000, false, 7, false, true},
		{"not seen yet", 0, true, 2, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &crowdedStart{hooked: hook(newSetUp(t)), throttled: test.throttled, empty: test.empty}
				began := time.Now()
				l, err := zlimit.New(t.Context(), zlimit.StoreOn(s))
				if failed := errors.As(err, new(*zlimit.UnavailableError)); failed != test.fails || !failed && err != nil {
					t.Fatalf("New() = %v", err)
				}
				if len(s.consistent) != test.reads || s.consistent[test.reads-1] != test.last {
					t.Errorf("New() read %v, want %d reads", s.consistent, test.reads)
				}
				if waited := time.Since(began); waited > 13*time.Second {
					t.Errorf("New() waited for %v", waited)
				}
				if err == nil && l.Close() != nil {
					t.Error("Close() failed")
				}
			})
		})
	}
}

// TestStartsFail starts a limiter on a store that does not answer, or has no such namespace: it fails immediately.
func TestStartsFail(t *testing.T) {
	s := &crowdedStart{hooked: hook(newSetUp(t))}
	if _, err := zlimit.New(t.Context(), zlimit.StoreOn(s), zlimit.WithNamespace("none")); !errors.Is(err, zlimit.ErrNamespaceNotFound) || len(s.consistent) != 2 {
		t.Errorf("New() = %v after %d reads, want ErrNamespaceNotFound after 2", err, len(s.consistent))
	}
}

// newSetUp returns a store in memory that is set up.
func newSetUp(t *testing.T) zlimit.Store {
	t.Helper()
	s := newMemory(t)
	newLimiter(t, s)
	return s
}
