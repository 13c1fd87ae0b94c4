package leasetoken_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// TestHeld: a lease is open until it is settled, or ended, by whichever of its tokens.
func TestHeld(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	open := leasetoken.NewHeld(func() time.Time { return now })
	held := func() (n int64) {
		for _, l := range open.Of("production", "gpt") {
			n += l.Amounts["tpm"]
		}
		return n
	}
	claims := func(tokens ...string) *leasetoken.Claims {
		c := &leasetoken.Claims{Namespace: "production", Expires: now.Add(5 * time.Minute)}
		for _, text := range tokens {
			c.Leases = append(c.Leases, leasetoken.Lease{Token: text, Entity: "alice", Resource: "gpt", Amounts: map[string]int64{"tpm": 100}})
		}
		return c
	}
	open.Add(claims("a"))
	open.Add(claims("b"))
	open.Add(claims("slots.x", "slots.x")) // of one request
	if got := held(); got != 400 {
		t.Errorf("%d are held, want 400", got)
	}
	if other := append(open.Of("production", "other"), open.Of("test", "gpt")...); len(other) > 0 {
		t.Errorf("another resource or namespace has %v", other)
	}
	open.Settled("a")
	open.Settled("slots.x")
	if got := held(); got != 100 {
		t.Errorf("%d are held after settlements, want 100", got)
	}
	now = now.Add(4 * time.Minute)
	open.Extend(claims("b", "of another replica"))
	now = now.Add(4 * time.Minute)
	if got := held(); got != 100 {
		t.Errorf("%d are held of an extended lease, want 100", got)
	}
	now = now.Add(2 * time.Minute)
	if got := held(); got != 0 {
		t.Errorf("%d are held after the end of all leases, want 0", got)
	}
	var none *leasetoken.Held
	none.Add(claims("a"))
	none.Extend(claims("a"))
	none.Settled("a")
	if got := none.Of("production", "gpt"); got != nil {
		t.Errorf("no leases are %v", got)
	}
}

// TestHeldOfOneLease knows the tokens of a request that was repeated as one lease.
func TestHeldOfOneLease(t *testing.T) {
	l := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "zlimit.Open()")
	t.Cleanup(func() { _ = l.Close() })
	var tokens []string
	for i := range 2 {
		lease, err := l.Acquire(t.Context(), zlimit.Request{
			ID: "once", Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)},
		})
		check.Fatal(t, "Acquire()", err)
		text := check.Call(lease.Token(time.Duration(i+1)*time.Hour)).Must(t, "Token()")
		tokens = append(tokens, text)
	}
	if tokens[0] == tokens[1] {
		t.Fatal("the tokens are one")
	}
	open := leasetoken.NewHeld(nil)
	open.Add(&leasetoken.Claims{Expires: time.Now().Add(time.Hour), Leases: []leasetoken.Lease{{Token: tokens[0], Resource: "gpt"}}})
	open.Settled(tokens[1])
	if left := open.Of("", "gpt"); len(left) > 0 {
		t.Errorf("%v is open, want that the other token of the lease settles it", left)
	}
}

// TestHeldIsBounded does not grow with leases that nobody settles.
func TestHeldIsBounded(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	open := leasetoken.NewHeld(func() time.Time { return now })
	add := func(name string) {
		open.Add(&leasetoken.Claims{Expires: now.Add(time.Minute), Leases: []leasetoken.Lease{{Token: name, Resource: "gpt"}}})
	}
	const most = 65536
	for i := range most + 100 {
		add(fmt.Sprint(i))
	}
	if n := len(open.Of("", "gpt")); n != most {
		t.Errorf("%d leases are open, want %d", n, most)
	}
	now = now.Add(time.Minute)
	add("later")
	if n := len(open.Of("", "gpt")); n != 1 {
		t.Errorf("%d leases are open after their end, want the later one", n)
	}
}
