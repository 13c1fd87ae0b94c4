package page

import (
	"errors"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/zlimit"
)

// first returns the first values of a sequence, of which there are at most this many; all of them for 0.
func first[T any](most int, all iter.Seq2[T, error]) (values []T, err error) {
	for v, err := range all {
		if err != nil {
			return nil, err
		}
		if values = append(values, v); len(values) == most {
			break
		}
	}
	return values, nil
}

// each8 calls f for 0 to n-1, eight at a time, and returns the first error.
func each8(n int, f func(int) error) error {
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}

func isNotFound(err error) bool { return errors.Is(err, zlimit.ErrEntityNotFound) }

func isNoLimits(err error) bool { return errors.Is(err, zlimit.ErrNoLimits) }
