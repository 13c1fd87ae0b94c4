package zlimit

import (
	"context"
	"errors"
	"testing"
)

// TestZeroValuesAndNil passes nothing where something is asked for: errors, no panics.
func TestZeroValuesAndNil(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, PerDay("rpd", 5))
	for name, call := range map[string]func() error{
		"no store":    func() error { _, err := New(ctx, Store{}); return err },
		"no client":   func() error { _, err := New(ctx, DynamoDB(nil, "limits")); return err },
		"no option":   func() error { _, err := Open(ctx, "memory:", nil); return err },
		"no function": func() error { return l.Do(ctx, ask(Amounts{"rpd": 1}), nil) },
		"no request":  func() error { _, err := l.Acquire(ctx, Request{}); return err },
	} {
		var invalid *ValidationError
		if err := call(); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want a ValidationError", name, err)
		}
	}
	if got := available(t, l, "rpd"); got != 5 {
		t.Errorf("Available() = %d, want 5: nothing was charged", got)
	}
	var lease Lease
	for name, err := range map[string]error{
		"Consume":  lease.Consume(ctx, Amounts{"rpd": 1}),
		"Adjust":   lease.Adjust(Amounts{"rpd": 1}),
		"Release":  lease.Release(Amounts{"rpd": 1}),
		"Commit":   lease.Commit(ctx),
		"Rollback": lease.Rollback(ctx),
	} {
		if !errors.Is(err, ErrLeaseClosed) {
			t.Errorf("%s() of no lease = %v, want ErrLeaseClosed", name, err)
		}
	}
	if got := lease.Consumed(); len(got) > 0 || lease.Degraded() {
		t.Errorf("Consumed() = %v, Degraded() = %v", got, lease.Degraded())
	}
}
