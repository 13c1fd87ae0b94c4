package layout

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// Limits of DynamoDB on one expression.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
const (
	maxExpression = 4096 // characters
	maxOperators  = 300  // operators and functions
)

// operator matches the operators and functions of a condition.
var operator = regexp.MustCompile(`<=|>=| [<>=] |\b(?:AND|OR)\b|[a-z_]+\(`)

// longNames returns limits with names of 64 characters, the most that a name may have.
func longNames(first string, n int, scale int64) (params []bucket.Params) {
	for i := range n {
		name := fmt.Sprintf("%s%02d%s", first, i, strings.Repeat("x", 64-len(first)-2))
		params = append(params, bucket.Params{Name: name, Capacity: 100_000 * scale, RefillAmount: 1000 * scale, RefillPeriod: 1000})
	}
	return params
}

// TestWritesFitExpressions plans the largest writes of an item with as many limits as an item may have, and measures
// their expressions. The last item has as many as other versions of this program left in one.
func TestWritesFitExpressions(t *testing.T) {
	const now, configured = 1_000_000, 16 // the most limits that are configured together
	full := longNames("a", bucket.MaxLimits, 1)
	changed := longNames("a", bucket.MaxLimits, 2)
	of := func(params []bucket.Params, tokens int64) *bucket.State {
		s := &bucket.State{RefilledAt: now - 1500, Shards: 1}
		for _, p := range append([]bucket.Params{{Name: bucket.WriteUnits, Capacity: bucket.WriteCapacity, RefillAmount: bucket.WriteCapacity, RefillPeriod: 1000}}, params...) {
			s.Limits = append(s.Limits, bucket.Limit{Name: p.Name, Tokens: tokens, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod, Life: 1 << 32})
		}
		return s
	}
	times := check.Call(calendar.Parse("0 0 1 * *", "Europe/Berlin")).Must(t, "calendar.Parse()")
	quotas := func(s *bucket.State) *bucket.State {
		for i := range s.Limits[1:] {
			s.Limits[i+1].Rare, s.Limits[i+1].RefillAmount = &bucket.Rare{Times: times}, 0
		}
		s.ValidUntil, s.Notes = times.Next(s.RefilledAt), &bucket.Notes{Zone: "Asia/Tokyo"}
		return s
	}
	rationed := longNames("b", configured, 1)
	for i := range rationed {
		rationed[i].Times, rationed[i].RefillAmount = times, 0
	}
	each := func(params []bucket.Params, tokens int64) *bucket.Demand {
		d := &bucket.Demand{Life: 1 << 32}
		for _, p := range params {
			d.Amounts = append(d.Amounts, bucket.Amount{Limit: p.Name, Tokens: tokens})
		}
		return d
	}
	key := BucketKey{NS: "n", Entity: "e", Resource: "r"}
	for _, test := range []struct {
		name   string
		item   *bucket.State
		config bucket.Config
		demand *bucket.Demand
	}{
		{"a refill that is spent of all limits, all of which change", of(full, 50_000), bucket.Config{Params: changed, ExpiryFactor: 7}, each(changed, 1000)},
		{"full limits, all of which change", of(full, 100_000), bucket.Config{Params: changed, ExpiryFactor: 7}, each(changed, 1000)},
		{"other limits in place of all", of(full, 50_000), bucket.Config{Params: longNames("b", configured, 1), ExpiryFactor: 7}, each(longNames("b", configured, 1), 1000)},
		{"limits of a request beside those of others", of(longNames("c", bucket.MaxLimits-configured, 1), 50_000), bucket.Config{Params: longNames("b", configured, 1), Partial: true}, each(longNames("b", configured, 1), 1000)},
		{"quotas in place of all", of(full, 50_000), bucket.Config{Params: rationed, ExpiryFactor: 7}, each(rationed, 1000)},
		{"other limits in place of quotas", quotas(of(full, 50_000)), bucket.Config{Params: longNames("b", configured, 1), ExpiryFactor: 7}, each(longNames("b", configured, 1), 1000)},
		{"quotas piled up, which go", quotas(of(longNames("p", 99, 1), 100_000)), bucket.Config{Params: rationed, ExpiryFactor: 7}, each(rationed, 1000)},
		{"a settlement without a check", of(full, 50_000), bucket.Config{Params: full}, &bucket.Demand{Amounts: each(full, 90_000).Amounts, Unchecked: true, Life: 1 << 32}},
		{"an item with limits piled up, which go", of(longNames("p", 99, 1), 100_000), bucket.Config{Params: longNames("b", configured, 1), ExpiryFactor: 7}, each(longNames("b", configured, 1), 1000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var plan bucket.Plan
			plan.Decide(test.item, &test.config, test.demand, now)
			if plan.Kind != bucket.Advance {
				t.Fatalf("Decide() plans to %v, want an advance", plan.Kind)
			}
			w := check.Call(key.Write(&plan, Lineage{})).Must(t, "Write()")
			measure := func(of, text string, operators int) {
				t.Logf("%s: %d characters, %d operators", of, len(text), operators)
				if len(text) > maxExpression || operators > maxOperators {
					t.Errorf("the %s has %d characters and %d operators, want at most %d and %d", of, len(text), operators, maxExpression, maxOperators)
				}
			}
			measure("condition", w.Expr.Condition(), len(operator.FindAllString(w.Expr.Condition(), -1)))
			measure("update", w.Expr.Update(), len(w.Expr.Changes())) // each action counts as one
		})
	}
}
