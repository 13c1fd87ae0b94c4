package expr

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// Kind is the type of a value, named as DynamoDB names it.
type Kind uint8

// The kinds of value that zlimit's records use.
const (
	KindNone Kind = iota // no value; the kind of the zero Value
	KindS                // string
	KindN                // number
	KindBool             // boolean
	KindNull             // null
	KindSS               // set of strings
	KindL                // list
	KindM                // map
)

var kindNames = [...]string{"none", "S", "N", "BOOL", "NULL", "SS", "L", "M"}

// String returns DynamoDB's name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// A Value is one attribute value. It is immutable; the zero Value is no value at all. Values are compared with
// [Value.Equal], not with ==.
//
// A value has three words, since a store copies every value of an item when one of them changes. The fields num and ref
// hold the value of every kind.
type Value struct {
	_    [0]func() // forbids ==
	kind Kind
	num  int64          // the number of a KindN that fits an int64, 1 for true, or the length of the text
	ref  unsafe.Pointer // the bytes of the text, or the *Item of the elements
}

// S returns a string value.
func S(s string) Value { return withText(KindS, s) }

// withText returns a value with a text: KindS, or a KindN outside int64 in canonical decimal form.
func withText(kind Kind, text string) Value {
	return Value{kind: kind, num: int64(len(text)), ref: unsafe.Pointer(unsafe.StringData(text))}
}

// withElements returns a value that holds values: KindSS (sorted), KindL or KindM.
func withElements(kind Kind, elements *Item) Value {
	return Value{kind: kind, ref: unsafe.Pointer(elements)}
}

// text returns the text of a value made by withText.
func (v Value) text() string { return unsafe.String((*byte)(v.ref), int(v.num)) }

// fits reports whether a KindN value fits an int64, so that it is in num.
func (v Value) fits() bool { return v.ref == nil }

// N returns a number value.
func N(n int64) Value { return Value{kind: KindN, num: n} }

// Decimal returns the number n·10^−places. places is from 0 to 18.
func Decimal(n int64, places int) Value {
	if unit := pow10(places); n%unit == 0 {
		return N(n / unit)
	}
	sign, size := "", uint64(n)
	if n < 0 {
		sign, size = "-", -size
	}
	digits := fmt.Sprintf("%0*d", places+1, size) // at least one before the point
	point := len(digits) - places
	return withText(KindN, sign+digits[:point]+"."+strings.TrimRight(digits[point:], "0"))
}

func pow10(exponent int) int64 {
	power := int64(1)
	for range exponent {
		power *= 10
	}
	return power
}

// Bool returns a boolean value.
func Bool(b bool) Value {
	v := Value{kind: KindBool}
	if b {
		v.num = 1
	}
	return v
}

// Null returns the null value.
func Null() Value { return Value{kind: KindNull} }

// Strings returns a string set of the distinct elements. DynamoDB has no empty sets; a store rejects one.
func Strings(elements ...string) Value {
	sorted := slices.Compact(slices.Sorted(slices.Values(elements)))
	set := make(Item, len(sorted))
	for i, s := range sorted {
		set[i].Value = S(s)
	}
	return withElements(KindSS, &set)
}

// List returns a list of values.
func List(elements ...Value) Value {
	list := make(Item, len(elements))
	for i, v := range elements {
		list[i].Value = v
	}
	return withElements(KindL, &list)
}

// Map returns a map value with the attributes of m, which the caller must not change afterwards.
func Map(m Item) Value { return withElements(KindM, &m) }

// The range of a DynamoDB number. Its precision is in significant decimal digits. Its magnitude is the digits before
// the point, or the zeros after it.
const (
	maxDigits  = 38
	maxInteger = 126 // less than 1E+126
	maxZeros   = 129 // at least 1E-130
)

// ErrNumber is wrapped by every error about a number that DynamoDB could not hold.
var ErrNumber = errors.New("expr: not a number that DynamoDB can hold")

// ParseNumber returns the number that a decimal text stands for, exactly.
func ParseNumber(text string) (Value, error) {
	if n, ok := parseShort(text); ok {
		return N(n), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return N(n), nil
	}
	if strings.ContainsAny(text, "/_xXpPbBoO") || len(text) > 200 { // accepted by big.Rat, or too costly
		return Value{}, fmt.Errorf("%w: %q", ErrNumber, text)
	}
	if _, exp, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		if e, err := strconv.Atoi(exp); err != nil || e < -200 || e > 200 {
			return Value{}, fmt.Errorf("%w: %q", ErrNumber, text)
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return Value{}, fmt.Errorf("%w: %q", ErrNumber, text)
	}
	return number(r)
}

// parseShort parses an integer of at most 18 digits, which does not overflow. Nearly all numbers of an item are such integers.
func parseShort(text string) (n int64, ok bool) {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for i := range len(digits) {
		d := digits[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = 10*n + int64(d)
	}
	if len(digits) < len(text) {
		n = -n
	}
	return n, true
}

// number returns a rational as a value, or an error when its decimal form is too long.
func number(r *big.Rat) (Value, error) {
	if r.IsInt() && r.Num().IsInt64() {
		return N(r.Num().Int64()), nil
	}
	digits, exact := r.FloatPrec()
	text := r.FloatString(digits)
	integer, fraction, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	significant := strings.Trim(integer+fraction, "0")
	zeros := 0
	if integer == "0" {
		zeros = len(fraction) - len(strings.TrimLeft(fraction, "0"))
	}
	if !exact || len(significant) > maxDigits || len(integer) > maxInteger || zeros > maxZeros {
		return Value{}, fmt.Errorf("%w: %s", ErrNumber, r.RatString())
	}
	return withText(KindN, text), nil
}

// Kind returns the type of the value.
func (v Value) Kind() Kind { return v.kind }

// Text returns the string of a KindS value and "" otherwise.
func (v Value) Text() string {
	if v.kind == KindS {
		return v.text()
	}
	return ""
}

// Int returns the number of a KindN value; false when it is of another kind or does not fit an int64.
func (v Value) Int() (int64, bool) {
	if v.kind != KindN || !v.fits() {
		return 0, false
	}
	return v.num, true
}

// Decimal returns n for a KindN value of n·10^−places. It returns false when the value is of another kind or has more
// decimal places, or n does not fit an int64. The range of places is 0 to 18.
func (v Value) Decimal(places int) (int64, bool) {
	integer, fraction, _ := strings.Cut(v.Number(), ".")
	if v.kind != KindN || len(fraction) > places {
		return 0, false
	}
	n, err := strconv.ParseInt(integer+fraction+strings.Repeat("0", places-len(fraction)), 10, 64)
	return n, err == nil
}

// Number returns the decimal form of a KindN value and "" otherwise.
func (v Value) Number() string {
	switch {
	case v.kind != KindN:
		return ""
	case v.fits():
		return strconv.FormatInt(v.num, 10)
	default:
		return v.text()
	}
}

// Low64 returns the low 64 bits of an integral KindN value of any size, in two's complement; false for other values.
// Counters that only differ matter of may be carried so: differences of neighbours stay exact when the counter wraps.
func (v Value) Low64() (int64, bool) {
	if v.kind != KindN {
		return 0, false
	}
	if v.fits() {
		return v.num, true
	}
	n, ok := new(big.Int).SetString(v.text(), 10)
	if !ok {
		return 0, false
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), 64)
	return int64(n.Mod(n, modulus).Uint64()), true // Mod is Euclidean: the result is in [0, 2^64)
}

// True reports whether the value is the boolean true.
func (v Value) True() bool { return v.kind == KindBool && v.num != 0 }

// Elements returns the elements of a list or a set, or the attributes of a map, and nil for other kinds. The result
// must not be changed.
func (v Value) Elements() Item {
	switch v.kind {
	case KindSS, KindL, KindM:
		return *(*Item)(v.ref)
	default:
		return nil
	}
}

// Equal reports whether two values are of one kind and equal, as DynamoDB's "=" does.
func (v Value) Equal(w Value) bool {
	if v.kind != w.kind || v.num != w.num {
		return false
	}
	switch v.kind {
	case KindS:
		return v.text() == w.text()
	case KindN:
		return v.fits() && w.fits() || !v.fits() && !w.fits() && v.text() == w.text()
	case KindSS, KindL:
		return slices.EqualFunc(v.Elements(), w.Elements(), func(a, b Attribute) bool { return a.Value.Equal(b.Value) })
	case KindM: // an empty map may be nil or not
		return len(v.Elements())+len(w.Elements()) == 0 || v.Elements().Equal(w.Elements())
	default:
		return true
	}
}

// compare orders two values of one ordered kind; false when they have no order.
func (v Value) compare(w Value) (int, bool) {
	switch {
	case v.kind == KindN && w.kind == KindN:
		if v.fits() && w.fits() {
			return cmp.Compare(v.num, w.num), true
		}
		return v.rat().Cmp(w.rat()), true
	case v.kind == KindS && w.kind == KindS:
		return cmp.Compare(v.text(), w.text()), true
	default:
		return 0, false
	}
}

// isInt reports whether a value is a number that fits an int64.
func (v *Value) isInt() bool { return v.kind == KindN && v.ref == nil }

// change adds the number that another value holds to the value, or with minus takes it away. It returns false, and does nothing, for what is
// left to [Value.plus]: other values, and results outside int64.
func (v *Value) change(by *Value, minus bool) bool {
	sum, grows := v.num+by.num, by.num >= 0
	if minus {
		sum, grows = v.num-by.num, by.num <= 0
	}
	if !v.isInt() || !by.isInt() || sum != v.num && (sum > v.num) != grows { // else it has wrapped
		return false
	}
	v.num = sum
	return true
}

// plus returns v + sign·w for numbers.
func (v Value) plus(w Value, sign int64) (Value, error) {
	if v.kind != KindN || w.kind != KindN {
		return Value{}, fmt.Errorf("%w: %v and %v", errOperand, v.kind, w.kind)
	}
	if v.fits() && w.fits() {
		sum, grows := v.num+w.num, w.num > 0
		if sign < 0 {
			sum, grows = v.num-w.num, w.num < 0
		}
		if w.num == 0 || (sum > v.num) == grows { // else it has wrapped
			return N(sum), nil
		}
	}
	operand := w.rat()
	if sign < 0 {
		operand.Neg(operand)
	}
	return number(operand.Add(v.rat(), operand))
}

// rat returns a number as a rational of its own.
func (v Value) rat() *big.Rat {
	if v.fits() {
		return new(big.Rat).SetInt64(v.num)
	}
	r, _ := new(big.Rat).SetString(v.text()) // canonical since number or ParseNumber made it
	return r
}

// union returns the set of the elements of both sets.
func (v Value) union(w Value) Value {
	all := make([]string, 0, len(v.Elements())+len(w.Elements()))
	for _, set := range []Item{v.Elements(), w.Elements()} {
		for _, e := range set {
			all = append(all, e.Value.text())
		}
	}
	return Strings(all...)
}

// without returns the set of the elements of v that are not in w.
func (v Value) without(w Value) Value {
	kept := make([]string, 0, len(v.Elements()))
	for _, e := range v.Elements() {
		if !slices.ContainsFunc(w.Elements(), func(a Attribute) bool { return a.Value.text() == e.Value.text() }) {
			kept = append(kept, e.Value.text())
		}
	}
	return Strings(kept...)
}

// String returns the value in a form for messages and test output.
func (v Value) String() string {
	switch v.kind {
	case KindS:
		return strconv.Quote(v.text())
	case KindN:
		return v.Number()
	case KindBool:
		return strconv.FormatBool(v.num != 0)
	case KindNull:
		return "null"
	case KindSS, KindL:
		parts := make([]string, len(v.Elements()))
		for i, e := range v.Elements() {
			parts[i] = e.Value.String()
		}
		open, closing := "[", "]"
		if v.kind == KindSS {
			open, closing = "{", "}"
		}
		return open + strings.Join(parts, ", ") + closing
	case KindM:
		return v.Elements().String()
	default:
		return "none"
	}
}
