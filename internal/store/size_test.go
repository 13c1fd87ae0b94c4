package store

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

func number(t testing.TB, text string) expr.Value {
	return check.Call(expr.ParseNumber(text)).Must(t, "expr.ParseNumber()")
}

func TestSize(t *testing.T) {
	for _, test := range []struct {
		value expr.Value
		want  int
	}{
		{expr.S(""), 0},
		{expr.S("žluť"), 6},
		{expr.N(0), 1},
		{expr.N(7), 2},
		{expr.N(-7), 3},
		{expr.N(1000), 2},
		{expr.N(1234), 3},
		{expr.N(12345), 4},
		{expr.N(1020), 3},
		{expr.N(-1e18), 3},
		{expr.N(math.MaxInt64), 11},
		{expr.N(math.MinInt64), 12},
		{number(t, "0.00012"), 2},
		{number(t, "-"+strings.Repeat("9", 38)), numberSize},
		{expr.Bool(false), 1},
		{expr.Null(), 1},
		{expr.Strings("a", "bcd"), 4},
		{expr.List(), 3},
		{expr.List(expr.S("ab"), expr.Null()), 3 + 3 + 2},
		{expr.Map(expr.Item{{Name: "key", Value: expr.S("v")}}), 3 + 1 + 3 + 1},
	} {
		if got := Size(expr.Item{{Name: "name", Value: test.value}}); got != 4+test.want {
			t.Errorf("Size of name: %v = %d, want %d", test.value, got, 4+test.want)
		}
	}
	fits := expr.Item{{Name: "text", Value: expr.S(strings.Repeat("x", 400<<10-4))}}
	if _, err := CheckSize(fits); err != nil {
		t.Errorf("CheckSize of 400 KiB = %v", err)
	}
	fits.Set("n", expr.Null())
	if _, err := CheckSize(fits); err == nil {
		t.Error("CheckSize took more than 400 KiB")
	}
}

// TestDigits counts the digits of numbers between the first and the last one that is not 0, and compares with their text.
func TestDigits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.Int64().Draw(r, "n")
		for unit := range rapid.IntRange(0, 18).Draw(r, "zeros") {
			n -= n % int64(powers[unit+1])
		}
		text := strings.Trim(strconv.FormatInt(n, 10), "-0")
		if digits, negative := significant(expr.N(n)); digits != len(text) || negative != (n < 0) {
			r.Errorf("significant(%d) = %d, %v, want %d", n, digits, negative, len(text))
		}
	})
	power := int64(1)
	for digits := 1; digits <= 18; digits++ {
		power *= 10
		if got, _ := significant(expr.N(power - 1)); got != digits {
			t.Errorf("significant(%d) = %d, want %d", power-1, got, digits)
		}
		if got, _ := significant(expr.N(power)); got != 1 {
			t.Errorf("significant(%d) = %d, want 1", power, got)
		}
	}
}

// TestGrowthBoundsUpdates adds, sets and removes, and compares sizes.
func TestGrowthBoundsUpdates(t *testing.T) {
	n, s, set := expr.Attr("n"), expr.Attr("s"), expr.Attr("set")
	op := &expr.Operation{Placeholders: 3, Update: []expr.Action{
		expr.Add(n, 0), expr.Set(s, 1), expr.Add(set, 2), expr.Set(expr.Attr("copy"), 1), expr.Minus(expr.Attr("m"), 0),
	}}
	rapid.Check(t, func(t *rapid.T) {
		item := expr.Item{{Name: "m", Value: expr.N(rapid.Int64().Draw(t, "m"))}}
		if rapid.Bool().Draw(t, "full") {
			item = append(item, expr.Attribute{Name: "n", Value: expr.N(rapid.Int64().Draw(t, "n"))},
				expr.Attribute{Name: "set", Value: expr.Strings("a", "b")})
		}
		b := check.Call(op.Call(expr.N(rapid.Int64().Draw(t, "operand")), expr.S(rapid.String().Draw(t, "text")),
			expr.Strings(rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "elements")...)).Bind()).Must(t, "Bind()")
		next := check.Call(b.Apply(item)).Must(t, "Apply()")
		if grown := Size(next) - Size(item); grown > Growth(&b) {
			t.Errorf("%v grows by %d to %v, at most %d were announced", item, grown, next, Growth(&b))
		}
	})
}
