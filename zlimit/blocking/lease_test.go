package blocking

import (
	"errors"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestLeaseClose closes leases in every state.
func TestLeaseClose(t *testing.T) {
	tests := []struct {
		name   string
		before func(*Lease) error
		taken  int64 // of 600, after Close
	}{
		{"an open lease stays charged", func(*Lease) error { return nil }, 600},
		{"what was recorded is written", func(le *Lease) error { return le.Adjust(zlimit.Amounts{"tpm": 300}) }, 900},
		{"a committed lease is left alone", func(le *Lease) error { return le.Commit() }, 600},
		{"a lease that was rolled back is left alone", func(le *Lease) error { return le.Rollback() }, 0},
		{"a closed lease is left alone", func(le *Lease) error { return le.Close() }, 600},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := open(t, "memory:", zlimit.WithClock(stopped))
			lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 600}))
			check.Fatal(t, "before()", test.before(lease))
			check.Error(t, "Close()", lease.Close())
			if got := left(t, l, "tpm"); got != 1000-test.taken {
				t.Errorf("tpm = %d, want %d", got, 1000-test.taken)
			}
			for name, err := range map[string]error{
				"Consume": lease.Consume(zlimit.Amounts{"tpm": 1}), "Adjust": lease.Adjust(zlimit.Amounts{"tpm": 1}),
				"Commit": lease.Commit(), "Rollback": lease.Rollback(),
			} {
				if !errors.Is(err, zlimit.ErrLeaseClosed) {
					t.Errorf("%s() after Close = %v, want ErrLeaseClosed", name, err)
				}
			}
		})
	}
}

// TestLeaseCloseAfterPanic closes leases in a defer while a panic is under way, directly and in a function: what was taken
// and recorded stays charged.
func TestLeaseCloseAfterPanic(t *testing.T) {
	forms := map[string]func(lease *Lease){
		"defer lease.Close()": func(lease *Lease) {
			defer lease.Close()
			panic("the work failed")
		},
		"defer func() { lease.Close() }()": func(lease *Lease) {
			defer func() { check.Error(t, "Close()", lease.Close()) }()
			panic("the work failed")
		},
	}
	for name, work := range forms {
		t.Run(name, func(t *testing.T) {
			l := open(t, "memory:", zlimit.WithClock(stopped))
			lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 600}))
			check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": 100}))
			func() {
				defer func() {
					if got := recover(); got != "the work failed" {
						t.Errorf("recover() = %v, want what the work panicked with", got)
					}
				}()
				work(lease)
			}()
			if got := left(t, l, "tpm"); got != 300 {
				t.Errorf("tpm = %d, want 300: the lease was settled", got)
			}
			if err := lease.Commit(); !errors.Is(err, zlimit.ErrLeaseClosed) {
				t.Errorf("Commit() = %v, want ErrLeaseClosed", err)
			}
		})
	}
}

// TestLeaseCloseTriesAgain closes leases after a commit and a rollback that did not come through.
func TestLeaseCloseTriesAgain(t *testing.T) {
	for name, test := range map[string]struct {
		settle func(*Lease) error
		taken  int64
	}{
		"commit":   {(*Lease).Commit, 900},
		"rollback": {(*Lease).Rollback, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, faults := newTable(t, zlimit.WithClock(stopped))
			lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 600}))
			check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": 300}))
			faults.Inject(enginetest.Fault{Kind: enginetest.Refused})
			var outage *zlimit.UnavailableError
			for what, err := range map[string]error{name: test.settle(lease), "close": lease.Close()} {
				if !errors.As(err, &outage) || outage.Unknown {
					t.Errorf("%s during an outage = %v, want an UnavailableError", what, err)
				}
			}
			faults.Clear()
			check.Error(t, "Close()", lease.Close())
			if got := left(t, l, "tpm"); got != 1000-test.taken {
				t.Errorf("tpm = %d, want %d", got, 1000-test.taken)
			}
		})
	}
}
