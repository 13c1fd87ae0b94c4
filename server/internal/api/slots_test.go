package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newRender returns a service with two slots and some tokens.
func newRender(t *testing.T) *service {
	t.Helper()
	s := newService(t)
	err := s.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "render"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.Slots("workers", 2), zlimit.PerMonth("tokens", 1000)}})
	check.Fatal(t, "Limits.Set()", err)
	return s
}

func (s *service) render(t *testing.T, lease string) client.Acquired {
	t.Helper()
	return ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, fmt.Sprintf(`{"entity":"alice","resource":"render","consume":{"workers":1,"tokens":100},"lease":%q}`, lease))
}

func TestSlots(t *testing.T) {
	s := newRender(t)
	first, second := s.render(t, "10m"), s.render(t, "10m")
	if first.Fence <= 0 || second.Fence <= first.Fence {
		t.Errorf("the fences are %d and %d, want growing ones", first.Fence, second.Fence)
	}
	fails(t, s, http.StatusTooManyRequests, "exceeded", "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"render","consume":{"workers":1},"lease":"1m"}`)
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/acquire", keyOfGateway, `{"entity":"bob","resource":"render","consume":{"workers":1}}`)
	if left := s.left(t, "bob", "render", "workers"); left != 2 {
		t.Errorf("slots without a lease leave %d workers, want 2", left)
	}
	settle := fmt.Sprintf(`{"lease":%q,"actual":{"tokens":30}}`, first.Lease)
	for range 2 {
		ok[client.Settled](t, s, "POST", "/v1/settle", keyOfGateway, settle)
		if workers, tokens := s.left(t, "alice", "render", "workers"), s.left(t, "alice", "render", "tokens"); workers != 1 || tokens != 870 {
			t.Errorf("after settle %d workers and %d tokens are left, want 1 and 870", workers, tokens)
		}
	}
	p := fails(t, s, http.StatusConflict, "settled", "POST", "/v1/rollback", keyOfGateway, fmt.Sprintf(`{"lease":%q}`, first.Lease))
	if p.Amounts["tokens"] != 30 {
		t.Errorf("the amounts that stand = %v, want 30 tokens", p.Amounts)
	}
	fails(t, s, http.StatusGone, "expired", "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"1m"}`, first.Lease))

	other := New(s.options)
	fails(t, other, http.StatusMisdirectedRequest, "held_elsewhere", "POST", "/v1/rollback", keyOfGateway, fmt.Sprintf(`{"lease":%q}`, second.Lease))
	fails(t, other, http.StatusMisdirectedRequest, "held_elsewhere", "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"1m"}`, second.Lease))
	longer := ok[client.Extended](t, s, "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"1h"}`, second.Lease))
	ok[client.Settled](t, s, "POST", "/v1/rollback", keyOfGateway, fmt.Sprintf(`{"lease":%q}`, longer.Lease))
	if workers, tokens := s.left(t, "alice", "render", "workers"), s.left(t, "alice", "render", "tokens"); workers != 2 || tokens != 970 {
		t.Errorf("after rollback %d workers and %d tokens are left, want 2 and 970", workers, tokens)
	}
}

// TestSlotsEnd leaves one lease with slots alone, and extends another: the slots of the first one are free, and its tokens stay taken.
func TestSlotsEnd(t *testing.T) {
	s := newRender(t)
	left, kept := s.render(t, "1s"), s.render(t, "1s")
	longer := ok[client.Extended](t, s, "POST", "/v1/heartbeat", keyOfGateway, fmt.Sprintf(`{"lease":%q,"for":"1h"}`, kept.Lease))
	for range 1000 {
		if s.left(t, "alice", "render", "workers") > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if workers, tokens := s.left(t, "alice", "render", "workers"), s.left(t, "alice", "render", "tokens"); workers != 1 || tokens != 800 {
		t.Errorf("after a lease has ended %d workers and %d tokens are left, want 1 and 800", workers, tokens)
	}
	fails(t, s, http.StatusGone, "expired", "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tokens":0}}`, left.Lease))
	ok[client.Settled](t, s, "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"adjust":{"tokens":5}}`, longer.Lease))
	if workers, tokens := s.left(t, "alice", "render", "workers"), s.left(t, "alice", "render", "tokens"); workers != 2 || tokens != 795 {
		t.Errorf("after settle %d workers and %d tokens are left, want 2 and 795", workers, tokens)
	}
}

// TestSlotsAndAlso takes slots and tokens of two resources together.
func TestSlotsAndAlso(t *testing.T) {
	s := newRender(t)
	got := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"tpm":500},"also":[{"entity":"alice","resource":"render","consume":{"workers":2}}],"lease":"1m"}`)
	ok[client.Settled](t, s, "POST", "/v1/settle", keyOfGateway, fmt.Sprintf(`{"lease":%q,"actual":{"tpm":100}}`, got.Lease))
	if workers, tpm := s.left(t, "alice", "render", "workers"), s.left(t, "alice", "gpt-4", "tpm"); workers != 2 || tpm != 9900 {
		t.Errorf("after settle %d workers and %d tpm are left, want 2 and 9900", workers, tpm)
	}
}
