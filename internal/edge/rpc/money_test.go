package rpc_test

import (
	"errors"
	"testing"

	"github.com/zlimit/zlimit-go/internal/edge/rpc"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// In TestViolationsInMoney, a budget refuses a request. People read dollars, and programs billionths.
func TestViolationsInMoney(t *testing.T) {
	l, _ := zlimittest.New(t, zlimit.USD("usd", 25, zlimit.PerMonth))
	_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: "api", Consume: zlimit.Amounts{"usd": 30_500_000_000}})
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		t.Fatalf("Acquire() = %v", err)
	}
	v := rpc.Violations(exceeded)
	if len(v) != 1 || v[0].Description != "$30.5 requested, $25 of $25 available" || v[0].QuotaValue != 25_000_000_000 {
		t.Errorf("Violations() = %+v", v)
	}
}
