package zlimit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestErrorsOfMoney breaks rules with amounts of a limit in money, and reads them in dollars.
func TestErrorsOfMoney(t *testing.T) {
	const dollar = 1_000_000_000
	ctx := t.Context()
	l, _ := zlimittest.New(t, zlimit.Monthly("usd", 25*dollar, "UTC"))
	entity := zlimit.Level{Entity: "acme", Resource: "api"}
	set := func(limit zlimit.Limit) error {
		return l.Limits.Set(ctx, entity, zlimit.Config{Limits: []zlimit.Limit{limit}})
	}
	acquire := func(n int64) (*zlimit.Lease, error) {
		return l.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "api", Consume: zlimit.Amounts{"usd": n}})
	}
	lease := check.Call(acquire(2*dollar)).Must(t, "acquire()")
	topUp := func(resource, limit string, n int64) error {
		_, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "acme", Resource: resource, Amounts: zlimit.Amounts{limit: n}})
		return err
	}
	_, negative := acquire(-dollar)
	other, _ := zlimittest.New(t)
	setLimits(t, other, zlimit.Level{Entity: "team", Resource: "models"}, zlimit.Prepaid("usd", dollar))
	_, none := other.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key", Resource: "models", Amounts: zlimit.Amounts{"usd": dollar}})
	for _, test := range []struct {
		what string
		err  error
		want string
	}{
		{"capacity", set(zlimit.Monthly("usd", -25*dollar, "UTC")), `[usd] capacity "-$25": must be from $0.000000001 to $9223372.036854775`},
		{"capacity of tokens", set(zlimit.Monthly("tpm", 0, "UTC")), `[tpm] capacity "0": must be from 1 to 9223372036854775 tokens`},
		{"carry", set(zlimit.Monthly("usd", 25*dollar, "UTC").CarryOver(2501 * dollar)), `carry "$2501": must be at most 100 times the capacity $25`},
		{"windows", set(zlimit.PerMinute("usd", 9_000_000*dollar).When("* 9-17 * * *", "x2")), `the multiplier x2 makes more than $9223372.036854775 of the limit`},
		{"windows of tokens", set(zlimit.PerMinute("tpm", 9_000_000*dollar).When("* 9-17 * * *", "x2")), `the multiplier x2 makes more than 9223372036854775 tokens of the limit`},
		{"consume", negative, `consume[usd] "-$1": must be from $0 to $9223372.036854775`},
		{"top up", topUp("api", "usd", 0), `amounts[usd] "$0": must be from $0.000000001 to $9223372.036854775`},
		{"top up beyond what a limit holds", topUp("api", "usd", 9_223_372*dollar), `amounts[usd] "$9223372": is too much beside what is there: a limit holds up to $9223372.036854775807`},
		{"top up of another limit", topUp("api", "rpm", 1), `amounts "rpm": no limit of that name is configured for acme/api, which has usd`},
		{"top up without limits", none, `amounts "usd": no limit of that name is configured for key/models, which has no limits`},
		{"adjust", lease.Adjust(zlimit.Amounts{"usd": -3 * dollar}), `adjust[usd] "-$3": would leave the lease with less than nothing`},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.what, test.err, test.want)
		}
	}
	if err := lease.Rollback(ctx); err != nil && !errors.Is(err, zlimit.ErrLeaseClosed) {
		t.Fatalf("Rollback() = %v", err)
	}
}
