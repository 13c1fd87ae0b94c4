package blocking

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// stopped is a clock that stands still.
func stopped() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func TestCallTimeout(t *testing.T) {
	for _, none := range []callTimeout{0, -1} {
		ctx, cancel := none.context()
		cancel()
		if _, ok := ctx.Deadline(); ok || ctx.Err() != nil {
			t.Errorf("the context of %d has a deadline or has ended", none)
		}
	}
	ctx, cancel := callTimeout(time.Hour).context()
	if _, ok := ctx.Deadline(); !ok || ctx.Err() != nil {
		t.Error("the context of an hour has no deadline, or has ended")
	}
	if cancel(); ctx.Err() == nil {
		t.Error("the context goes on after its call")
	}
}

// TestTimeoutIsHandedOn asks the services, leases and other namespaces of a limiter for its timeout.
func TestTimeoutIsHandedOn(t *testing.T) {
	l := open(t, "memory:").Within(time.Hour)
	expect := func(what string, got callTimeout) {
		t.Helper()
		if got != callTimeout(time.Hour) {
			t.Errorf("the timeout of %s is %v, want that of the limiter", what, time.Duration(got))
		}
	}
	limiter, services := reflect.ValueOf(l).Elem(), 0
	for field, value := range limiter.Fields() {
		if field.IsExported() {
			services++
			expect(field.Name, callTimeout(value.Elem().FieldByName("timeout").Int()))
		}
	}
	if services < 5 {
		t.Errorf("%d services, want all", services)
	}
	expect("a lease", acquire(t, l, ask(zlimit.Amounts{"rpm": 1})).timeout)
	err := l.Do(ask(zlimit.Amounts{"rpm": 1}), func(lease *Lease) error {
		expect("the lease of a function", lease.timeout)
		return nil
	})
	check.Error(t, "Do()", err)
	other := check.Call(l.Namespace("other", zlimit.WithSetup())).Must(t, "Namespace()")
	expect("another namespace", other.timeout)
}

// TestTimeouts makes calls of a store that does not answer. It would be an outage after 10 seconds.
func TestTimeouts(t *testing.T) {
	l, faults := newTable(t, zlimit.WithCallTimeout(10*time.Second))
	lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	short := l.Within(100 * time.Millisecond)
	hasty := &Lease{lease.core, short.timeout}
	for name, call := range map[string]func() error{
		"Acquire": func() error { _, err := short.Acquire(ask(zlimit.Amounts{"rpm": 1})); return err },
		"Do":      func() error { return short.Do(ask(zlimit.Amounts{"rpm": 1}), func(*Lease) error { return nil }) },
		"Consume": func() error { return hasty.Consume(zlimit.Amounts{"rpm": 1}) },
		"Ping":    short.Ping,
		"Setup":   short.Setup,
		"Create":  func() error { _, err := short.Entities.Create(zlimit.Entity{ID: "a"}); return err },
		"Events":  func() error { _, err := short.Audit.Events("a", zlimit.AuditQuery{}); return err },
		"EventsSeq": func() (last error) {
			for _, last = range short.Audit.EventsSeq("a", zlimit.AuditQuery{}) {
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults.Clear()
			faults.Reset()
			faults.Inject(enginetest.Fault{Kind: enginetest.Hang})
			err := call()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.As(err, new(*zlimit.UnavailableError)) {
				t.Errorf("%s() = %v, want the deadline's error", name, err)
			}
			if faults.Injected(enginetest.Hang) == 0 {
				t.Errorf("%s() did not reach the store", name)
			}
		})
	}
}

// TestNoTimeout waits for a store that does not answer until that is an outage.
func TestNoTimeout(t *testing.T) {
	l, faults := newTable(t, zlimit.WithCallTimeout(500*time.Millisecond))
	faults.Inject(enginetest.Fault{Kind: enginetest.Hang})
	if _, err := l.Within(0).Acquire(ask(zlimit.Amounts{"rpm": 1})); !errors.As(err, new(*zlimit.UnavailableError)) {
		t.Errorf("Acquire() = %v, want an UnavailableError", err)
	}
}

// TestSecondPage lists events of which the second page does not come: what is on the first has been yielded.
func TestSecondPage(t *testing.T) {
	l, faults := newTable(t, zlimit.WithCallTimeout(10*time.Second))
	for i := range 105 {
		if err := l.Limits.Set(zlimit.Level{Entity: "a", Resource: fmt.Sprintf("r-%03d", i)}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 5)}}); err != nil {
			t.Fatalf("Limits.Set() = %v", err)
		}
	}
	l = l.Within(time.Second)
	faults.Inject(enginetest.Fault{Kind: enginetest.Hang, Operation: "Query", Skip: 1})
	yielded, last := 0, error(nil)
	for _, err := range l.Audit.EventsSeq("a", zlimit.AuditQuery{}) {
		if last = err; err == nil {
			yielded++
		}
	}
	if yielded != 100 || !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("EventsSeq yields %d events and ends with %v, want 100 and the deadline's error", yielded, last)
	}
}
