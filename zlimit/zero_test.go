package zlimit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// TestZeroValuesAndNil passes nothing where something is asked for: errors, no panics.
func TestZeroValuesAndNil(t *testing.T) {
	ctx := context.Background()
	l := check.Call(zlimit.Open(ctx, "memory:")).Must(t, "zlimit.Open()")
	defer l.Close()
	setSystem(t, l, zlimit.PerDay("rpd", 5))
	one := zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1}}
	for name, call := range map[string]func() error{
		"no store":    func() error { _, err := zlimit.New(ctx, zlimit.Store{}); return err },
		"no client":   func() error { _, err := zlimit.New(ctx, dynamo.New(nil, "limits")); return err },
		"no option":   func() error { _, err := zlimit.Open(ctx, "memory:", nil); return err },
		"no function": func() error { return l.Do(ctx, one, nil) },
		"no request":  func() error { _, err := l.Acquire(ctx, zlimit.Request{}); return err },
	} {
		if err := call(); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: %v, want a ValidationError", name, err)
		}
	}
	statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
	if err != nil || len(statuses) != 1 || statuses[0].Available != 5 {
		t.Errorf("Available() = %+v, %v, want 5 of rpd: nothing was charged", statuses, err)
	}
	var lease zlimit.Lease
	var reservation zlimit.Reservation
	for name, err := range map[string]error{
		"Consume":  lease.Consume(ctx, zlimit.Amounts{"rpd": 1}),
		"Adjust":   lease.Adjust(zlimit.Amounts{"rpd": 1}),
		"Release":  lease.Release(zlimit.Amounts{"rpd": 1}),
		"Commit":   lease.Commit(ctx),
		"Rollback": lease.Rollback(ctx),
		"Cancel":   reservation.Cancel(ctx),
		"Wait":     waitReserved(ctx, &reservation),
	} {
		if !errors.Is(err, zlimit.ErrLeaseClosed) {
			t.Errorf("%s() of no lease = %v, want ErrLeaseClosed", name, err)
		}
	}
	if got := lease.Consumed(); len(got) > 0 || lease.Degraded() {
		t.Errorf("Consumed() = %v, Degraded() = %v", got, lease.Degraded())
	}
	if due := reservation.Due(); !due.IsZero() {
		t.Errorf("Due() of no reservation = %v, want the zero time", due)
	}
}

func waitReserved(ctx context.Context, r *zlimit.Reservation) error {
	_, err := r.Wait(ctx)
	return err
}
