package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newChains makes entities of which each cascades to the next one, and gives all of them a limit.
func newChains(tb testing.TB, l *zlimit.RateLimiter, chains ...[]string) {
	tb.Helper()
	ctx := context.Background()
	for _, chain := range chains {
		parent := ""
		for _, id := range chain {
			if _, err := l.Entities.Ensure(ctx, zlimit.Entity{ID: id, ParentID: parent, Cascade: parent != ""}); err != nil {
				tb.Fatalf("Entities.Ensure() = %v", err)
			}
			parent = id
		}
	}
	setSystem(tb, l, zlimit.PerDay("rpd", 1000))
}

// used returns what the buckets of entities for gpt-4 have consumed.
func used(tb testing.TB, l *zlimit.RateLimiter, entities ...string) []int64 {
	tb.Helper()
	all := make([]int64, len(entities))
	for i, id := range entities {
		all[i] = consumed(tb, l, id, "rpd")
	}
	return all
}

// TestSetParent moves an entity. Another process, whose limits are in memory for a minute, charges the new parent with its next request. A
// lease from before gives back to the parent that it charged.
func TestSetParent(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithPrincipal("alice")), newLimiter(t, s, zlimit.WithClock(c.now))
		newChains(t, l, []string{"one", "key-1"}, []string{"two"})
		before, at := acquire(t, other, ask(zlimit.Amounts{"rpd": 10})), c.now().UnixMilli()
		report, err := l.Entities.SetParent(ctx, "key-1", "two")
		if err != nil || report.Buckets != 1 || !report.Everywhere.After(c.now()) {
			t.Fatalf("SetParent() = %+v, %v", report, err)
		}
		if oldest := (versioned{t, store.Of(s)}).read()[1]; oldest != "0.17.0" {
			t.Errorf("the table asks for clients from %s on", oldest)
		}
		acquire(t, other, ask(zlimit.Amounts{"rpd": 3}))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 4}))
		if got, want := fmt.Sprint(used(t, l, "key-1", "one", "two")), "[17 10 7]"; got != want {
			t.Errorf("consumed are %s, want %s", got, want)
		}
		check.Fatal(t, "Adjust() and Commit()", errors.Join(before.Adjust(zlimit.Amounts{"rpd": -4}), before.Commit(ctx)))
		if got, want := fmt.Sprint(used(t, l, "key-1", "one", "two")), "[13 6 7]"; got != want {
			t.Errorf("consumed are %s after a lease gave back, want %s", got, want)
		}
		for parent, want := range map[string]string{"one": "[]", "two": "[key-1]"} {
			ids := []string{}
			for _, e := range collect(t, "Entities.Children()", l.Entities.Children(ctx, parent)) {
				ids = append(ids, e.ID)
			}
			if fmt.Sprint(ids) != want {
				t.Errorf("the children of %s are %v, want %s", parent, ids, want)
			}
		}
		moved, err := l.Entities.Get(ctx, "key-1")
		if err != nil || moved.ParentID != "two" || !moved.Cascade || moved.Version != 1 {
			t.Errorf("Get() = %+v, %v", moved, err)
		}
		if err := l.Entities.Delete(ctx, "one"); err != nil {
			t.Errorf("the former parent is not deleted: %v", err)
		}
		if err := l.Entities.Delete(ctx, "two"); !errors.Is(err, zlimit.ErrEntityHasChildren) {
			t.Errorf("the new parent is deleted: %v", err)
		}
		found, _, err := layout.ReadBucket(item(t, l))
		if err != nil || found.Lineage() != (layout.Lineage{Cascade: true, Parent: "two", Generation: at, Incarnation: layout.FormatTime(moved.CreatedAt)}) {
			t.Errorf("the bucket copies %+v, %v", found.Lineage(), err)
		}
		if _, err := l.Entities.SetParent(ctx, "key-1", "two"); err != nil {
			t.Errorf("a repeated move: %v", err)
		}
		if _, err := l.Entities.SetParent(ctx, "key-1", ""); err != nil {
			t.Fatalf("Entities.SetParent() = %v", err)
		}
		acquire(t, other, ask(zlimit.Amounts{"rpd": 5}))
		if got, want := fmt.Sprint(used(t, l, "key-1", "two")), "[18 7]"; got != want {
			t.Errorf("consumed are %s without a parent, want %s", got, want)
		}
		if found, _, err := layout.ReadBucket(item(t, l)); err != nil || found.Parent != "" || found.Cascade || found.Moved != at+1 {
			t.Errorf("the bucket copies %+v, %v", found.Lineage(), err)
		}
		moved.Name, moved.ParentID, moved.Version = "Key", "", 2
		if moved, err = l.Entities.Update(ctx, moved); err != nil || moved.Name != "Key" || moved.Version != 3 {
			t.Errorf("Update() = %+v, %v", moved, err)
		}
		var told []string
		for _, e := range collect(t, "Audit.Events()", l.Audit.Events(ctx, "key-1", zlimit.AuditQuery{})) {
			if e.Action == zlimit.ActionEntityMoved {
				told = append(told, fmt.Sprintf("%v %v %v %v %v", e.Principal, e.Details["old_parent_id"], e.Details["parent_id"], e.Details["pgen"], e.Details["before"]))
			}
		}
		if got, want := strings.Join(told, "; "), fmt.Sprintf("alice one two %d map[parent_id:one]; alice two <nil> %d map[parent_id:two]", at, at+1); got != want {
			t.Errorf("the audit tells %v, want %s", got, want)
		}
	})
}

// In TestMovesByOthers, another program moves an entity, as zae-limiter does: it changes the record and the copy in the bucket, and marks
// nothing. A process whose limits are in memory for a minute charges the new parent once it has seen the bucket.
func TestMovesByOthers(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	newChains(t, l, []string{"one", "key-1"}, []string{"two"})
	acquire(t, other, ask(zlimit.Amounts{"rpd": 10}))
	for _, key := range []store.Key{layout.EntityKey{NS: l.NS(), Entity: "key-1"}.Key(), keyOfBucket(l)} {
		next := stored(t, l, key)
		next.Set("parent_id", expr.S("two"))
		next.Set("pgen", expr.N(1))
		put(t, l, key, next)
	}
	acquire(t, other, ask(zlimit.Amounts{"rpd": 3})) // planned from the image before
	acquire(t, other, ask(zlimit.Amounts{"rpd": 4}))
	if got, want := fmt.Sprint(used(t, l, "key-1", "one", "two")), "[17 13 4]"; got != want {
		t.Errorf("consumed are %s, want %s", got, want)
	}
}

// In TestMovesOfAnotherLife, an entity moves as often as a former one of its id. A process with the former record in memory learns of the
// move by the bucket nevertheless.
func TestMovesOfAnotherLife(t *testing.T) {
	ctx, c := context.Background(), newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	newChains(t, l, []string{"one", "key-1"}, []string{"two"})
	move := func(to string) {
		if _, err := l.Entities.SetParent(ctx, "key-1", to); err != nil {
			t.Fatalf("Entities.SetParent() = %v", err)
		}
	}
	move("two")
	acquire(t, other, ask(zlimit.Amounts{"rpd": 10})) // reads the record
	check.Fatal(t, "Entities.Delete()", l.Entities.Delete(ctx, "key-1"))
	c.sleep(10 * time.Second)
	create(t, l, zlimit.Entity{ID: "key-1", ParentID: "two", Cascade: true})
	move("one")
	acquire(t, l, ask(zlimit.Amounts{"rpd": 3})) // makes a bucket, which the move has not marked
	acquire(t, other, ask(zlimit.Amounts{"rpd": 4}))
	if got, want := fmt.Sprint(used(t, l, "key-1", "one", "two")), "[7 7 10]"; got != want {
		t.Errorf("consumed are %s, want %s", got, want)
	}
}

// TestSetParentRefuses refuses moves that break a rule, the obvious ones before any call.
func TestSetParentRefuses(t *testing.T) {
	ctx := context.Background()
	s := newMemory(t)
	l := newLimiter(t, s)
	newChains(t, l, []string{"a", "b", "c", "d", "e", "f", "g", "h"}, []string{"x", "y", "z"}, []string{"lone"})
	for _, test := range []struct{ entity, parent, want string }{
		{"a#", "b", "entity"},
		{"a", "b#", "parent"},
		{"a", "a", "must not be the entity itself"},
		{"a", "h", "is below the entity itself: h < g < f < e < d < c < b < a"},
		{"y", "z", "is below the entity itself: z < y"},
		{"lone", "h", "makes a chain of more than 8 entities"},
		{"x", "f", "makes a chain of more than 8 entities"},
	} {
		if _, err := l.Entities.SetParent(ctx, test.entity, test.parent); !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("SetParent(%q, %q) = %v, want %q", test.entity, test.parent, err, test.want)
		}
	}
	for _, test := range [][2]string{{"nobody", "a"}, {"lone", "nobody"}, {"nobody", ""}} {
		if _, err := l.Entities.SetParent(ctx, test[0], test[1]); !errors.Is(err, zlimit.ErrEntityNotFound) {
			t.Errorf("SetParent(%q, %q) = %v, want ErrEntityNotFound", test[0], test[1], err)
		}
	}
	for _, test := range [][2]string{{"x", "e"}, {"lone", "g"}, {"h", "d"}, {"e", ""}, {"z", "lone"}} {
		if _, err := l.Entities.SetParent(ctx, test[0], test[1]); err != nil {
			t.Errorf("SetParent(%q, %q) = %v", test[0], test[1], err)
		}
	}
	check.Fatal(t, "Close()", l.Close())
	if _, err := l.Entities.SetParent(ctx, "a", "x"); !errors.Is(err, zlimit.ErrClosed) {
		t.Errorf("a closed limiter: %v", err)
	}
}

// TestMovesMakeNoCircle moves an entity below another one, while that one, or an entity above it, is moved below the first.
func TestMovesMakeNoCircle(t *testing.T) {
	ctx := context.Background()
	for _, parent := range []string{"b", "b1"} {
		before := hook(newMemory(t))
		l, other := newLimiter(t, zlimit.StoreOn(before)), newLimiter(t, zlimit.StoreOn(before.Store))
		newChains(t, l, []string{"a"}, []string{"b", "b1"})
		var first error
		before.once(func() { _, first = other.Entities.SetParent(ctx, "b", "a") })
		_, err := l.Entities.SetParent(ctx, "a", parent)
		if first != nil || !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), "below the entity itself") {
			t.Errorf("%s: SetParent() = %v after %v, want it refused", parent, err, first)
		}
	}
}

// TestMovesMeetRequests moves an entity before each write of a lease that takes, takes more, gives back and is committed. The parents have
// together what the entity has, and after the move the former one gets no more.
func TestMovesMeetRequests(t *testing.T) {
	ctx := context.Background()
	for _, correction := range []int64{-9, -5, 0, 6} {
		for step := 0; ; step++ {
			c := newClock()
			at, moved := step, false
			before := hookBuckets(store.Of(newMemory(t)))
			l, other := newLimiter(t, zlimit.StoreOn(before), zlimit.WithClock(c.now)), newLimiter(t, zlimit.StoreOn(before.Store), zlimit.WithClock(c.now))
			newChains(t, l, []string{"one", "key-1"}, []string{"top", "two"})
			acquire(t, l, ask(zlimit.Amounts{"rpd": 100}))
			var move func()
			move = func() {
				if at--; at >= 0 {
					before.once(move)
					return
				}
				if _, err := other.Entities.SetParent(ctx, "key-1", "two"); err != nil {
					t.Fatalf("Entities.SetParent() = %v", err)
				}
				moved = true
			}
			before.once(move)
			lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 7}))
			c.sleep(time.Minute) // the next write is a refill
			check.Fatal(t, "Consume()", lease.Consume(ctx, zlimit.Amounts{"rpd": 4}))
			check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": correction}), lease.Commit(ctx)))
			got := used(t, l, "key-1", "one", "two", "top")
			if want := 111 + correction; got[0] != want || got[1]+got[2] != want || got[2] != got[3] {
				t.Errorf("correction %d, moved before write %d: consumed are %v, want %d, and as much by the parents", correction, step, got, want)
			}
			former, since := got[1], moved
			acquire(t, l, ask(zlimit.Amounts{"rpd": 50}))
			if got := used(t, l, "one"); since && got[0] != former {
				t.Errorf("correction %d, moved before write %d: the former parent is charged after the move", correction, step)
			}
			if !moved {
				if step < 4 {
					t.Errorf("a lease makes %d writes", step)
				}
				break
			}
		}
	}
}

// In TestMovesMeetNewBuckets, a process with the former record in memory makes a bucket after a move, which no mark could reach. It
// charges the former parent until the move holds everywhere, at the reported time, and not later. A process that meets the bucket in
// between uses the record. The same move again mends the copy in the bucket.
func TestMovesMeetNewBuckets(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		newChains(t, l, []string{"one", "key-1"}, []string{"two"})
		acquire(t, other, zlimit.Request{Entity: "key-1", Resource: "whisper", Consume: zlimit.Amounts{"rpd": 1}}) // reads the record
		moved := c.now().UnixMilli()
		report, err := l.Entities.SetParent(ctx, "key-1", "two")
		if err != nil || report.Buckets != 1 {
			t.Fatalf("SetParent() = %+v, %v", report, err)
		}
		acquire(t, other, ask(zlimit.Amounts{"rpd": 10}))
		stale := used(t, l, "one")[0]
		acquire(t, l, ask(zlimit.Amounts{"rpd": 3}))
		if got := used(t, l, "one"); got[0] != stale {
			t.Errorf("a process that knows the move has charged the former parent")
		}
		c.sleep(report.Everywhere.Sub(c.now()))
		before := used(t, l, "one", "two")
		acquire(t, other, ask(zlimit.Amounts{"rpd": 5}))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 7}))
		if got := used(t, l, "one", "two"); got[0] != before[0] || got[1] != before[1]+12 {
			t.Errorf("parents have consumed %v after %v, want 12 more of the new one", got, before)
		}
		if _, err := l.Entities.SetParent(ctx, "key-1", "two"); err != nil { // marks what came into being meanwhile
			t.Fatalf("Entities.SetParent() = %v", err)
		}
		if found, _, err := layout.ReadBucket(item(t, l)); err != nil || found.Parent != "two" || found.Moved != moved {
			t.Errorf("the bucket copies %+v, %v", found.Lineage(), err)
		}
	})
}
