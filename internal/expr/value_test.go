package expr

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

func TestParseNumber(t *testing.T) {
	nines := strings.Repeat("9", 38)
	for _, test := range []struct {
		text string
		want string // "" for an error
	}{
		{"0", "0"},
		{"-0", "0"},
		{"+7", "7"},
		{"007", "7"},
		{"-12", "-12"},
		{"0.0", "0"},
		{"999999999999999999", "999999999999999999"},
		{"-999999999999999999", "-999999999999999999"},
		{"1000000000000000000", "1000000000000000000"},
		{"9223372036854775807", "9223372036854775807"},
		{"-9223372036854775808", "-9223372036854775808"},
		{"9223372036854775808", "9223372036854775808"},
		{"1.50", "1.5"},
		{"-0.25", "-0.25"},
		{"1e3", "1000"},
		{"1.5E+3", "1500"},
		{"12E-1", "1.2"},
		{nines, nines},
		{"-" + nines, "-" + nines},
		{"0." + nines, "0." + nines},
		{nines + "000", nines + "000"},
		{"0.000" + nines, "0.000" + nines},
		{nines + "9", ""},
		{"0.1" + nines, ""},
		{"1" + strings.Repeat("0", 38) + ".1", ""},
		{"1E125", "1" + strings.Repeat("0", 125)},
		{"1E126", ""},
		{"-1E126", ""},
		{"1E-130", "0." + strings.Repeat("0", 129) + "1"},
		{"1E-131", ""},
		{"1E-200", ""},
		{"1E1000000000", ""},
		{"1E-1000000000", ""},
		{strings.Repeat("1", 300), ""},
		{"", ""},
		{"-", ""},
		{"1:", ""},
		{" 1", ""},
		{"1 ", ""},
		{"abc", ""},
		{"1_000", ""},
		{"0x10", ""},
		{"1p4", ""},
		{"1/3", ""},
		{"Inf", ""},
		{"NaN", ""},
		{"1e", ""},
		{"--1", ""},
		{"1.2.3", ""},
	} {
		v, err := ParseNumber(test.text)
		if got := v.Number(); got != test.want {
			t.Errorf("ParseNumber(%q) = %q, want %q", test.text, got, test.want)
		}
		if (err != nil) != (test.want == "") || err != nil && !errors.Is(err, ErrNumber) {
			t.Errorf("ParseNumber(%q) error = %v", test.text, err)
		}
	}
}

func TestArithmeticIsExact(t *testing.T) {
	integer := rapid.OneOf(
		rapid.Int64(),
		rapid.SampledFrom([]int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1}),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := integer.Draw(t, "a"), integer.Draw(t, "b")
		for _, sign := range []int64{1, -1} {
			got, err := N(a).plus(N(b), sign)
			want := new(big.Int).Mul(big.NewInt(b), big.NewInt(sign))
			want.Add(want, big.NewInt(a))
			if err != nil || got.Number() != want.String() {
				t.Errorf("%d + %d·%d = %v, %v; want %v", a, sign, b, got, err, want)
			}
			if _, fits := got.Int(); fits != want.IsInt64() {
				t.Errorf("%v.Int() fits = %t", got, fits)
			}
			if back, err := got.plus(N(b), -sign); err != nil || !back.Equal(N(a)) {
				t.Errorf("%v - %d·%d = %v, %v; want %d", got, sign, b, back, err, a)
			}
		}
		if order, ok := N(a).compare(N(b)); !ok || order != big.NewInt(a).Cmp(big.NewInt(b)) {
			t.Errorf("compare(%d, %d) = %d, %t", a, b, order, ok)
		}
	})
}

func TestArithmeticBeyond38Digits(t *testing.T) {
	parse := func(text string) Value { return check.Call(ParseNumber(text)).Must(t, "ParseNumber()") }
	for _, test := range []struct{ a, b, want string }{
		{"0.1", "0.2", "0.3"},
		{"99999999999999999999999999999999999999", "1", "1" + strings.Repeat("0", 38)},
		{"99999999999999999999999999999999999999", "-99999999999999999999999999999999999998", "1"},
		{"99999999999999999999999999999999999999", "0.1", ""},
		{"1E38", "1", ""},
		{"9E125", "9E125", ""},
	} {
		got, err := parse(test.a).plus(parse(test.b), 1)
		if got.Number() != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s + %s = %v, %v; want %q", test.a, test.b, got, err, test.want)
		}
	}
}

func TestLow64(t *testing.T) {
	for _, test := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"5", 5, true},
		{"-5", -5, true},
		{"9223372036854775808", math.MinInt64, true}, // one past the largest
		{"-9223372036854775809", math.MaxInt64, true},
		{"18446744073709551616", 0, true},
		{"18446744073709551617", 1, true},
		{"-18446744073709551617", -1, true},
		{"36893488147419103233", 1, true},
		{"1E+100", 0, true},
		{"1.5", 0, false},
	} {
		v := check.Call(ParseNumber(test.text)).Must(t, "ParseNumber()")
		if got, ok := v.Low64(); got != test.want || ok != test.ok {
			t.Errorf("%s: Low64() = %d, %t; want %d, %t", test.text, got, ok, test.want, test.ok)
		}
	}
	if _, ok := S("1").Low64(); ok {
		t.Error("a string has low bits")
	}
	// A counter that only grows keeps exact differences where it leaves int64.
	rapid.Check(t, func(t *rapid.T) {
		start, step := rapid.Int64Min(math.MaxInt64-1000).Draw(t, "start"), rapid.Int64Range(0, 1<<40).Draw(t, "step")
		after := check.Call(N(start).plus(N(step), 1)).Must(t, "plus()")
		if low, ok := after.Low64(); !ok || low-start != step {
			t.Errorf("Low64(%d + %d) - %[1]d = %d", start, step, low-start)
		}
	})
}

func TestDecimal(t *testing.T) {
	for _, test := range []struct {
		n      int64
		places int
		text   string
	}{
		{0, 3, "0"},
		{12_000, 3, "12"},
		{12_500, 3, "12.5"},
		{12_050, 3, "12.05"},
		{1, 3, "0.001"},
		{-1, 3, "-0.001"},
		{-12_500, 3, "-12.5"},
		{7, 0, "7"},
		{math.MinInt64, 18, "-9.223372036854775808"},
		{math.MaxInt64, 3, "9223372036854775.807"},
	} {
		v := Decimal(test.n, test.places)
		parsed, err := ParseNumber(test.text)
		if err != nil || v.Number() != test.text || !v.Equal(parsed) {
			t.Errorf("Decimal(%d, %d) = %v, want %s", test.n, test.places, v, test.text)
		}
		if got, ok := v.Decimal(test.places); got != test.n || !ok {
			t.Errorf("%v.Decimal(%d) = %d, %t; want %d", v, test.places, got, ok, test.n)
		}
	}
	for name, v := range map[string]Value{
		"too many decimal places": Decimal(1, 4),
		"too large":               N(math.MaxInt64 / 999),
		"a string":                S("1"),
		"no value":                {},
	} {
		if got, ok := v.Decimal(3); ok {
			t.Errorf("%s: Decimal(3) = %d", name, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Range(-1<<62, 1<<62).Draw(t, "a"), rapid.Int64Range(-1<<61, 1<<61).Draw(t, "b")
		places := rapid.IntRange(0, 18).Draw(t, "places")
		sum, err := Decimal(a, places).plus(Decimal(b, places), 1)
		if err != nil || !sum.Equal(Decimal(a+b, places)) {
			t.Errorf("%v + %v = %v, %v", Decimal(a, places), Decimal(b, places), sum, err)
		}
	})
}

// TestValueIsSmall pins what a store copies for each attribute of an item when it changes one.
func TestValueIsSmall(t *testing.T) {
	if got, want := unsafe.Sizeof(Value{}), 3*unsafe.Sizeof(uintptr(0)); got > want {
		t.Errorf("a Value takes %d bytes, want at most %d", got, want)
	}
}

func TestSets(t *testing.T) {
	abc := Strings("c", "a", "b", "a")
	if got := abc.String(); got != `{"a", "b", "c"}` {
		t.Errorf("Strings(c, a, b, a) = %s", got)
	}
	if !abc.Equal(Strings("b", "c", "a")) || abc.Equal(Strings("a", "b")) || abc.Equal(List(S("a"), S("b"), S("c"))) {
		t.Error("sets are equal by their elements")
	}
	if got := abc.union(Strings("d", "b")); !got.Equal(Strings("a", "b", "c", "d")) {
		t.Errorf("union = %v", got)
	}
	if got := abc.without(Strings("b", "x")); !got.Equal(Strings("a", "c")) {
		t.Errorf("without = %v", got)
	}
}

func TestEqual(t *testing.T) {
	big, _ := ParseNumber("1E+30")
	same, _ := ParseNumber("1000000000000000000000000000000.0")
	for _, test := range []struct {
		a, b Value
		want bool
	}{
		{N(1), N(1), true},
		{N(1), N(2), false},
		{big, same, true},
		{big, N(int64(len(big.Number()))), false},
		{S("ab"), S("cd"), false},
		{N(0), Bool(false), false},
		{N(0), Null(), false},
		{S("1"), N(1), false},
		{S(""), Null(), false},
		{Value{}, Null(), false},
		{List(N(1), N(2)), List(N(1), N(2)), true},
		{List(N(1), N(2)), List(N(2), N(1)), false},
		{Map(Item{{"a", N(1)}, {"b", N(2)}}), Map(Item{{"b", N(2)}, {"a", N(1)}}), true},
		{Map(Item{{"a", N(1)}}), Map(Item{{"b", N(1)}}), false},
		{Map(nil), Map(Item{}), true},
		{List(), Map(nil), false},
	} {
		if got := test.a.Equal(test.b); got != test.want {
			t.Errorf("%v.Equal(%v) = %t", test.a, test.b, got)
		}
	}
}

// FuzzParseNumber compares a number with its text, and with the text that it has itself.
func FuzzParseNumber(f *testing.F) {
	for _, text := range []string{"0", "-1", "1.50", "1E+30", "-9223372036854775809", "0.00012345", "9.99E125", "1E-130", "1e999", "١"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseNumber(text)
		if err != nil {
			if !errors.Is(err, ErrNumber) || v.Kind() != KindNone {
				t.Fatalf("ParseNumber(%q) = %v, %v", text, v, err)
			}
			return
		}
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("ParseNumber(%q) = %v, which is no number", text, v)
		}
		if back, ok := new(big.Rat).SetString(v.Number()); !ok || back.Cmp(exact) != 0 {
			t.Fatalf("ParseNumber(%q) = %v", text, v)
		}
		again, err := ParseNumber(v.Number())
		if err != nil || !again.Equal(v) {
			t.Fatalf("ParseNumber(%q) = %v, and of that %v, %v", text, v, again, err)
		}
		if n, fits := v.Int(); fits != (exact.IsInt() && exact.Num().IsInt64()) || fits && strconv.FormatInt(n, 10) != v.Number() {
			t.Fatalf("ParseNumber(%q).Int() = %d, %t", text, n, fits)
		}
	})
}

// TestChange compares sums of numbers at the ends of int64 with those that are computed without a bound.
func TestChange(t *testing.T) {
	ends := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, a := range ends {
		for _, b := range ends {
			for _, sign := range []int64{1, -1} {
				got, by := N(a), N(b)
				done := got.change(&by, sign < 0)
				want := new(big.Int).Add(big.NewInt(a), new(big.Int).Mul(big.NewInt(b), big.NewInt(sign)))
				if done != want.IsInt64() || done && got.num != want.Int64() || !done && got.num != a {
					t.Errorf("%d + %d·%d = %v, %t, want %v", a, sign, b, got, done, want)
				}
			}
		}
	}
	if text, by := S("x"), N(1); text.change(&by, false) || by.change(&text, false) {
		t.Error("a sum of a text and a number")
	}
}
