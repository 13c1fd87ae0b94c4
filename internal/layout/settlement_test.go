package layout

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestWithdrawalAsksForTheWriter removes records of settlements: a call removes its own alone.
func TestWithdrawalAsksForTheWriter(t *testing.T) {
	own := check.Call(WithdrawSettlement("aa")).Must(t, "WithdrawSettlement()")
	record := func(writer string) expr.Item {
		return (&Settlement{Key: SettlementKey{NS: "ns", Entity: "e", Resource: "r", Lease: "00ff"}, Writer: writer, ExpiresAt: 1}).Encode()
	}
	for _, test := range []struct {
		name  string
		item  expr.Item
		holds bool
	}{
		{"its own record", record("aa"), true}, {"the record of another call", record("bb"), false}, {"no record", nil, false},
	} {
		if got := own.Holds(test.item); got != test.holds {
			t.Errorf("%s: the removal holds: %t, want %t", test.name, got, test.holds)
		}
	}
}
