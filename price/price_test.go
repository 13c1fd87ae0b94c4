package price_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/price"
)

const classes = len(price.Usage{})

func rat(text string) *big.Rat { return price.PerMillion(text) }

func table(t *testing.T, m price.Model) *price.Table {
	t.Helper()
	return check.Call(price.NewTable(map[string]price.Model{"m": m})).Must(t, "price.NewTable()")
}

// usual returns made-up prices for each kind of rate.
func usual() price.Model {
	return price.Model{
		Rates: price.Rates{price.Input: rat("2.50"), price.Output: rat("10"), price.CacheRead: rat("0.3333"), price.Search: big.NewRat(1, 100)},
		Long:  []price.Tier{{Above: 1000, Rates: price.Rates{price.Input: rat("5")}}, {Above: 9000, Rates: price.Rates{price.Output: rat("40")}}},
		Services: map[string]price.Service{
			"batch": {Factor: big.NewRat(1, 2)},
			"flex":  {Rates: price.Rates{price.Input: rat("1.01")}, Factor: big.NewRat(2, 3)},
		},
	}
}

// TestCost computes costs manually.
func TestCost(t *testing.T) {
	prices := table(t, usual())
	for name, test := range map[string]struct {
		service string
		usage   price.Usage
		want    string
	}{
		"nothing":                {"", price.Usage{}, "0"},
		"a token":                {"", price.Usage{price.Input: 1}, "0.0000025"},
		"input and output":       {"", price.Usage{price.Input: 100, price.Output: 10}, "0.00035"},
		"cached":                 {"", price.Usage{price.CacheRead: 10}, "0.000003333"},
		"rounded up":             {"", price.Usage{price.CacheRead: 1}, "0.000000334"},
		"written like input":     {"", price.Usage{price.CacheWriteHour: 2}, "0.000005"},
		"thinking like output":   {"", price.Usage{price.Reasoning: 2}, "0.00002"},
		"a search":               {"", price.Usage{price.Search: 3, price.Request: 1}, "0.03"},
		"not long":               {"", price.Usage{price.Input: 900, price.AudioInput: 100}, "0.0025"},
		"long":                   {"", price.Usage{price.Input: 1001}, "0.005005"},
		"long by what is cached": {"", price.Usage{price.Input: 1, price.CacheRead: 1000}, "0.0003383"},
		"longer":                 {"", price.Usage{price.Input: 9001, price.Output: 1}, "0.0225425"},
		"half":                   {"batch", price.Usage{price.Input: 100, price.Output: 10}, "0.000175"},
		"half and long":          {"batch", price.Usage{price.Input: 2000}, "0.005"},
		"a rate of its own":      {"flex", price.Usage{price.Input: 2000, price.Output: 3}, "0.00204"},
		"a service of others":    {"standard", price.Usage{price.Input: 1}, "0.0000025"},
	} {
		if got, err := prices.Cost("m", test.service, test.usage); err != nil || got.String() != test.want {
			t.Errorf("%s: Cost() = %v, %v, want %s", name, got, err, test.want)
		}
	}
}

// TestCostIsExact holds random calls against the sum in rational numbers, rounded up once.
func TestCostIsExact(t *testing.T) {
	calls := 50_000
	if testing.Short() {
		calls = 10_000
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range calls / 1000 {
		rates := price.Rates{}
		for class := range classes {
			rates[price.Class(class)] = big.NewRat(random.Int64N(1_000_000), 1_000_000_000_000)
			if class < 2 { // the least common denominator has bounds
				rates[price.Class(class)] = big.NewRat(random.Int64N(1000), 1+random.Int64N(1000))
			}
		}
		if round%2 == 0 { // more digits than 64 bits hold
			rates[price.Search] = big.NewRat(999_999_999_999, 1_000_000_000)
			rates[price.Input] = big.NewRat(random.Int64N(1_000_000), 1_000_000_000_000_000_000)
			rates[price.Output] = big.NewRat(random.Int64N(1_000_000), 1_000_000_000_000_000_000)
		}
		prices := check.Call(price.NewTable(map[string]price.Model{"m": {Rates: rates}})).Must(t, "price.NewTable()")
		for range 1000 {
			var u price.Usage
			want := new(big.Rat)
			for class := range u {
				u[class] = random.Int64N(1 << random.IntN(40))
				want.Add(want, new(big.Rat).Mul(rates[price.Class(class)], big.NewRat(u[class], 1)))
			}
			want.Mul(want, big.NewRat(int64(price.Dollar), 1))
			whole, rest := new(big.Int).QuoRem(want.Num(), want.Denom(), new(big.Int))
			if rest.Sign() > 0 {
				whole.Add(whole, big.NewInt(1))
			}
			got, err := prices.Cost("m", "", u)
			if whole.IsInt64() != (err == nil) || err == nil && int64(got) != whole.Int64() {
				t.Fatalf("Cost(%v) = %d, %v, want %s nano-dollars", u, int64(got), err, whole)
			}
		}
	}
}

// TestCostErrors asks for what has no cost.
func TestCostErrors(t *testing.T) {
	prices := table(t, usual())
	if _, err := prices.Cost("other", "", price.Usage{}); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("Cost() of an unknown model = %v", err)
	}
	if _, err := prices.Cost("m", "", price.Usage{price.Search: -1}); err == nil || !strings.Contains(err.Error(), "-1 units of search") {
		t.Errorf("Cost() of a negative count = %v", err)
	}
	var most price.Usage
	for class := range most {
		most[class] = math.MaxInt64
	}
	if _, err := prices.Cost("m", "", most); !errors.Is(err, price.ErrOverflow) || !strings.HasSuffix(err.Error(), "costs more than an amount can hold") {
		t.Errorf("Cost() of all there is = %v", err)
	}
}

// TestBadModels makes tables of models with mistakes.
func TestBadModels(t *testing.T) {
	whole := price.Rates{price.Input: rat("1"), price.Output: rat("1")}
	for want, m := range map[string]price.Model{
		"the rate of output is missing":                                   {Rates: price.Rates{price.Input: rat("1")}},
		"the rate of input is -1/1000000 dollars: must be 0 or more":      {Rates: price.Rates{price.Input: rat("-1"), price.Output: rat("1")}},
		"the rate of output is 1000 dollars: must be":                     {Rates: price.Rates{price.Input: rat("1"), price.Output: big.NewRat(1000, 1)}},
		"the rate of output has too many digits":                          {Rates: price.Rates{price.Input: big.NewRat(1, 1<<62-57), price.Output: big.NewRat(1, 1<<61-1)}},
		"long prompts above 5 tokens: must be above 0, and be given once": {Rates: whole, Long: []price.Tier{{Above: 5}, {Above: 5}}},
		"long prompts above 0 tokens":                                     {Rates: whole, Long: []price.Tier{{}}},
		"long prompts above 7 tokens: the rate of search is -1":           {Rates: whole, Long: []price.Tier{{7, price.Rates{price.Search: big.NewRat(-1, 1)}}}},
		"a service has no name":                                           {Rates: whole, Services: map[string]price.Service{"": {}}},
		`service "batch": the factor must not be negative`:                {Rates: whole, Services: map[string]price.Service{"batch": {Factor: big.NewRat(-1, 2)}}},
		`service "flex": the rate of reasoning is 5000`:                   {Rates: whole, Services: map[string]price.Service{"flex": {Rates: price.Rates{price.Reasoning: big.NewRat(5000, 1)}}}},
	} {
		if _, err := price.NewTable(map[string]price.Model{"m": m}); err == nil || !strings.Contains(err.Error(), `model "m": `+want) && !strings.Contains(err.Error(), "too many digits") {
			t.Errorf("NewTable() = %v, want %q", err, want)
		}
	}
}

// TestNanoDollars writes amounts.
func TestNanoDollars(t *testing.T) {
	for n, want := range map[price.NanoDollars]string{
		0: "0", 1: "0.000000001", -5: "-0.000000005", 25 * price.Dollar: "25", price.Dollar / 2: "0.5", math.MaxInt64: "9223372036.854775807",
	} {
		if got := n.String(); got != want {
			t.Errorf("String() of %d = %s, want %s", int64(n), got, want)
		}
	}
}

// TestNoFloats reads the package: money never goes through a floating-point number.
func TestNoFloats(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source := check.Call(os.ReadFile(name)).Must(t, "os.ReadFile()")
		fset := token.NewFileSet()
		file := check.Call(parser.ParseFile(fset, name, source, 0)).Must(t, "parser.ParseFile()")
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if n.Name == "float64" || n.Name == "float32" || n.Name == "Float64" || n.Name == "SetFloat64" {
					t.Errorf("%s: %s", fset.Position(n.Pos()), n.Name)
				}
			case *ast.BasicLit:
				if n.Kind == token.FLOAT {
					t.Errorf("%s: %s", fset.Position(n.Pos()), n.Value)
				}
			}
			return true
		})
	}
}

// TestCostAllocatesNothing counts allocations.
func TestCostAllocatesNothing(t *testing.T) {
	prices := table(t, usual())
	if n := testing.AllocsPerRun(100, func() {
		if _, err := prices.Cost("m", "flex", price.Usage{price.Input: 5000, price.Output: 3}); err != nil {
			t.Fatalf("Cost() = %v", err)
		}
	}); n != 0 {
		t.Errorf("Cost() makes %v allocations", n)
	}
}
