package blocking

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestLimiter(t *testing.T) {
	forEachStore(t, func(t *testing.T, l *RateLimiter) {
		check.Error(t, "Ping()", l.Ping())
		lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 500}))
		if err := errors.Join(
			lease.Consume(zlimit.Amounts{"tpm": 100}), lease.Adjust(zlimit.Amounts{"tpm": 50}),
			lease.Release(zlimit.Amounts{"tpm": 20}), lease.Commit(),
		); err != nil {
			t.Errorf("settling = %v", err)
		}
		if diff := cmp.Diff(zlimit.Amounts{"rpm": 1, "tpm": 630}, lease.Consumed()); diff != "" || lease.Degraded() {
			t.Errorf("Consumed() differs (-want +got):\n%s", diff)
		}
		if got := left(t, l, "tpm"); got < 370 || got > 900 {
			t.Errorf("tpm = %d, want 370 and what came back since", got)
		}
		var exceeded *zlimit.ExceededError
		if _, err := l.Acquire(ask(zlimit.Amounts{"rpm": 11})); !errors.As(err, &exceeded) || exceeded.Possible() {
			t.Errorf("Acquire of more than the capacity = %v, want an ExceededError", err)
		}
		if wait, err := l.TimeUntil(ask(zlimit.Amounts{"rpm": 10})); err != nil || wait <= 0 || wait > time.Minute {
			t.Errorf("TimeUntil() = %v, %v; want up to a minute", wait, err)
		}
		if got := l.Stats(); got.Admitted != 1 || got.Rejected != 1 {
			t.Errorf("Stats() = %+v, want 1 admitted and 1 rejected", got)
		}
	})
}

func TestDo(t *testing.T) {
	forEachStore(t, func(t *testing.T, l *RateLimiter) {
		request, failed := ask(zlimit.Amounts{"tpm": 600}), errors.New("failed")
		t.Run("an error gives the tokens back", func(t *testing.T) {
			if err := l.Do(request, func(*Lease) error { return failed }); !errors.Is(err, failed) {
				t.Errorf("Do() = %v, want the function's error", err)
			}
			if got := left(t, l, "tpm"); got != 1000 {
				t.Errorf("tpm = %d, want 1000", got)
			}
		})
		t.Run("a panic gives the tokens back and goes on", func(t *testing.T) {
			func() {
				defer func() {
					if got := recover(); got != failed { //nolint:errorlint // the value itself
						t.Errorf("recover() = %v, want what the function panicked with", got)
					}
				}()
				_ = l.Do(request, func(*Lease) error { panic(failed) })
			}()
			if got := left(t, l, "tpm"); got != 1000 {
				t.Errorf("tpm = %d, want 1000", got)
			}
		})
		t.Run("success writes what was recorded", func(t *testing.T) {
			err := l.Do(request, func(lease *Lease) error { return lease.Adjust(zlimit.Amounts{"tpm": 400}) })
			check.Error(t, "Do()", err)
			if got := left(t, l, "tpm"); got > 500 {
				t.Errorf("tpm = %d, want 0 and what came back since", got)
			}
		})
		t.Run("a rejection does not call the function", func(t *testing.T) {
			err := l.Do(ask(zlimit.Amounts{"tpm": 1001}), func(*Lease) error { panic("called") })
			if !errors.As(err, new(*zlimit.ExceededError)) {
				t.Errorf("Do() = %v, want an ExceededError", err)
			}
		})
	})
}

// TestLists compares every list as a slice and as an iterator.
func TestLists(t *testing.T) {
	forEachStore(t, func(t *testing.T, l *RateLimiter) {
		create := func(e zlimit.Entity) {
			t.Helper()
			if _, err := l.Entities.Create(e); err != nil {
				t.Fatalf("Create(%s) = %v", e.ID, err)
			}
		}
		create(zlimit.Entity{ID: "team"})
		create(zlimit.Entity{ID: "b", ParentID: "team"})
		create(zlimit.Entity{ID: "a", ParentID: "team"})
		limits := []zlimit.Limit{zlimit.PerMinute("rpm", 5)}
		if err := errors.Join(l.Limits.Set(zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}), l.Limits.Set(zlimit.Level{Entity: "a", Resource: "gpt-4"}, zlimit.Config{Limits: limits})); err != nil {
			t.Fatalf("Limits.Set() = %v", err)
		}
		acquire(t, l, zlimit.Request{Entity: "a", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
		gone, err := l.Namespaces.Register("gone")
		if err == nil {
			_, err = l.Namespaces.Delete("gone")
		}
		check.Fatal(t, "Namespaces.Register()", err)

		children, err := l.Entities.Children("team")
		checkSeq(t, "Children", children, err, l.Entities.ChildrenSeq("team"), func(e zlimit.Entity) string { return e.ID }, "a", "b")
		buckets, err := l.Entities.Buckets("a")
		checkSeq(t, "Buckets", buckets, err, l.Entities.BucketsSeq("a"), func(b zlimit.Bucket) string { return b.Resource }, "gpt-4")
		for range 100 { // on DynamoDB it enters the index in the background
			if buckets, err = l.Usage.Buckets("gpt-4"); err != nil || len(buckets) > 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		checkSeq(t, "Usage.Buckets", buckets, err, l.Usage.BucketsSeq("gpt-4"), func(b zlimit.Bucket) string { return b.Resource }, "gpt-4")
		level := func(s zlimit.Stored) string { return s.Level.String() }
		q := zlimit.LevelQuery{Resource: "gpt-4"}
		levels, err := l.Limits.List(q)
		checkSeq(t, "Limits.List", levels, err, l.Limits.ListSeq(q), level, "resource gpt-4", "entity a, resource gpt-4")
		name := func(ns zlimit.Namespace) string { return ns.Name }
		namespaces, err := l.Namespaces.List()
		checkSeq(t, "List", namespaces, err, l.Namespaces.ListSeq(), name, zlimit.DefaultNamespace)
		namespaces, err = l.Namespaces.Orphans()
		checkSeq(t, "Orphans", namespaces, err, l.Namespaces.OrphansSeq(), name, gone.Name)
		action := func(e zlimit.AuditEvent) string { return string(e.Action) }
		events, err := l.Audit.Events("a", zlimit.AuditQuery{})
		checkSeq(t, "Events", events, err, l.Audit.EventsSeq("a", zlimit.AuditQuery{}), action, "entity_created", "limits_set")

		if children, err := l.Entities.Children("no#entity"); children != nil || !isInvalid(err) {
			t.Errorf("Children of what is no entity = %v, %v; want a ValidationError alone", children, err)
		}
		for _, err := range l.Entities.ChildrenSeq("no#entity") {
			if !isInvalid(err) {
				t.Errorf("ChildrenSeq of what is no entity yields %v, want a ValidationError", err)
			}
		}
		for range l.Entities.ChildrenSeq("team") {
			break
		}
	})
}

func isInvalid(err error) bool { return errors.As(err, new(*zlimit.ValidationError)) }

// check compares a list and what an iterator yields with the names of what they should hold.
func checkSeq[T any](t *testing.T, what string, list []T, err error, seq iter.Seq2[T, error], name func(T) string, want ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("%s() = %v", what, err)
	}
	var yielded []T
	for element, err := range seq {
		if err != nil {
			t.Errorf("%sSeq yields %v", what, err)
		}
		yielded = append(yielded, element)
	}
	if diff := cmp.Diff(list, yielded); diff != "" {
		t.Errorf("%s and %[1]sSeq differ (-%[1]s +%[1]sSeq):\n%s", what, diff)
	}
	var names []string
	for _, element := range list {
		names = append(names, name(element))
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s() = %v, want %v", what, names, want)
	}
}

// TestPages lists more than a page of events.
func TestPages(t *testing.T) {
	l := open(t, "memory:")
	for i := range 120 {
		if err := l.Limits.Set(zlimit.Level{Entity: "a", Resource: fmt.Sprintf("r-%03d", i)}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 5)}}); err != nil {
			t.Fatalf("Limits.Set() = %v", err)
		}
	}
	events, err := l.Audit.Events("a", zlimit.AuditQuery{})
	if err != nil || len(events) != 120 {
		t.Errorf("Events() = %d events, %v; want 120", len(events), err)
	}
}

func TestNamespaces(t *testing.T) {
	l := open(t, "memory:")
	if _, err := l.Namespace("other"); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
		t.Errorf("Namespace() = %v, want ErrNamespaceNotFound", err)
	}
	other := check.Call(l.Namespace("other", zlimit.WithSetup())).Must(t, "Namespace()")
	if _, err := other.Acquire(ask(zlimit.Amounts{"rpm": 1})); !errors.Is(err, zlimit.ErrNoLimits) {
		t.Errorf("Acquire() in another namespace = %v, want ErrNoLimits", err)
	}
	deleted := check.Call(l.Namespaces.Delete("other")).Must(t, "Delete()")
	check.Error(t, "Close()", other.Close())
	done := 0
	err := l.Within(0).Namespaces.Purge(deleted.ID, func(p zlimit.PurgeProgress) { done = p.Deleted })
	if err != nil {
		t.Errorf("Purge() = %v after %d items", err, done)
	}
}

// TestWrap shares a limiter between code with contexts and code without.
func TestWrap(t *testing.T) {
	core := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "zlimit.Open()")
	l := prepared(t, Wrap(core))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 4}))
	statuses, err := core.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
	if s, _ := statuses.Limit("rpm"); err != nil || s.Available != 6 {
		t.Errorf("Available() of the core = %v, %v; want 6 rpm", statuses, err)
	}
	if got := time.Duration(l.timeout); got != DefaultTimeout {
		t.Errorf("the timeout is %v, want %v", got, DefaultTimeout)
	}
}

func TestOpenErrors(t *testing.T) {
	if l, err := Open("nowhere:"); l != nil || !isInvalid(err) {
		t.Errorf("Open of an unknown store = %v, %v; want a ValidationError", l, err)
	}
	if l, err := New(zlimit.Store{}); l != nil || !isInvalid(err) {
		t.Errorf("New on the zero store = %v, %v; want a ValidationError", l, err)
	}
	l := open(t, "memory:")
	check.Error(t, "Close()", l.Within(time.Second).Close())
	if lease, err := l.Acquire(ask(zlimit.Amounts{"rpm": 1})); lease != nil || !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("Acquire() on a closed limiter = %v, %v; want ErrClosed", lease, err)
	}
}

// TestNoGoroutines counts goroutines while calls and loops are under way.
func TestNoGoroutines(t *testing.T) {
	l := open(t, "memory:")
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	if _, err := l.Entities.Create(zlimit.Entity{ID: "a"}); err != nil {
		t.Fatalf("Entities.Create() = %v", err)
	}
	before := goroutines()
	err := l.Do(ask(zlimit.Amounts{"rpm": 1}), func(*Lease) error {
		for _, err := range l.Audit.EventsSeq("a", zlimit.AuditQuery{}) {
			if err != nil {
				return err
			}
			if during := goroutines(); during > before {
				t.Errorf("%d goroutines, want the %d that were there before", during, before)
			}
		}
		return nil
	})
	check.Error(t, "Do()", err)
}

// goroutines counts goroutines once those that are about to end have ended.
func goroutines() int {
	least := runtime.NumGoroutine()
	for range 20 {
		time.Sleep(time.Millisecond)
		least = min(least, runtime.NumGoroutine())
	}
	return least
}
