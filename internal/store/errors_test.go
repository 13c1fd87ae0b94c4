package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/zlimit/zlimit-go/internal/store"
)

func TestOutcomeOf(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want store.Outcome
	}{
		{"no error", nil, store.Done},
		{"another error", errors.New("odd"), store.Refused},
		{"a closed store", store.ErrClosed, store.Refused},
		{"a missing table", &store.Error{Err: store.ErrTableNotFound}, store.Refused},
		{"a malformed write", &store.Error{Invalid: true, Err: errors.New("odd")}, store.Refused},
		{"a conflict", &store.Error{Err: fmt.Errorf("%w: said so", store.ErrConflict)}, store.Conflicted},
		{"a conflict after an attempt that was not answered", &store.Error{Unknown: true, Err: store.ErrConflict}, store.Unknown},
		{"a throttle", &store.Error{Unavailable: true, Throttled: true, Err: errors.New("slower")}, store.Throttled},
		{"a throttle after an attempt that was not answered", &store.Error{Unavailable: true, Throttled: true, Unknown: true, Err: errors.New("slower")}, store.Unknown},
		{"an outage", &store.Error{Unavailable: true, Err: errors.New("refused")}, store.Unavailable},
		{"an outage by a timeout", &store.Error{Unavailable: true, Err: context.DeadlineExceeded}, store.Unavailable},
		{"a lost reply", &store.Error{Unavailable: true, Unknown: true, Err: errors.New("reset")}, store.Unknown},
		{"a context that ended before the call", fmt.Errorf("UpdateItem: %w", context.Canceled), store.Ended},
		{"a context that ended during a read", &store.Error{Err: context.DeadlineExceeded}, store.Ended},
		{"a context that ended during a write", &store.Error{Unknown: true, Err: context.Canceled}, store.Unknown},
	} {
		if got := store.OutcomeOf(test.err); got != test.want {
			t.Errorf("OutcomeOf(%s) = %d, want %d", test.name, got, test.want)
		}
		if got := store.OutcomeOf(fmt.Errorf("wrapped: %w", test.err)); test.err != nil && got != test.want {
			t.Errorf("OutcomeOf(%s, wrapped) = %d, want %d", test.name, got, test.want)
		}
	}
}
