package store

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// numberSize is the most that a number takes, in bytes: 38 digits, two to a byte, a sign, and one more.
const numberSize = 21

// CheckSize returns the size of an item, and an error if it is too large for DynamoDB.
func CheckSize(item expr.Item) (int, error) {
	size := Size(item)
	if size > MaxItem {
		return size, fmt.Errorf("item of %d bytes: at most %d", size, MaxItem)
	}
	return size, nil
}

// Size returns the size of an item in bytes, names included, as DynamoDB counts it:
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html.
func Size(item expr.Item) int {
	size := 0
	for i := range item {
		size += len(item[i].Name) + valueSize(item[i].Value)
	}
	return size
}

// Growth returns the number of bytes that an update can add to an item at most.
func Growth(b *expr.Bound) int {
	growth := b.ChangedLength() + len(b.Changes())*numberSize
	if b.HasOnlyNumbers() {
		return growth
	}
	for _, v := range b.Values { // one may be set on several attributes
		if v.Kind() != expr.KindN {
			growth += len(b.Changes()) * valueSize(v)
		}
	}
	return growth
}

// significant returns the number of digits of a number without the zeros at both ends.
func significant(v expr.Value) (digits int, negative bool) {
	n, ok := v.Int()
	if !ok {
		text := v.Number()
		return len(strings.Trim(strings.Replace(text, ".", "", 1), "-0")), text[0] == '-'
	}
	size := uint64(n)
	if n < 0 {
		size = -size
	}
	if size == 0 {
		return 0, false
	}
	return digitsOf(withoutZeros(size)), n < 0
}

// withoutZeros returns a positive number without the zeros at its end: without 16 of them, 8, 4, 2, and 1.
func withoutZeros(n uint64) uint64 {
	if n%1e16 == 0 {
		n /= 1e16
	}
	if n%1e8 == 0 {
		n /= 1e8
	}
	if n%1e4 == 0 {
		n /= 1e4
	}
	if n%1e2 == 0 {
		n /= 1e2
	}
	if n%10 == 0 {
		n /= 10
	}
	return n
}

// digitsOf returns the number of decimal digits of a positive number: it has as many as its number of binary digits says, or one more.
func digitsOf(n uint64) int {
	digits := bits.Len64(n) * 1233 >> 12 // log10(2) is a little more than 1233/4096
	if n >= powers[digits] {
		digits++
	}
	return digits
}

// powers has 10 to the power of its index.
var powers = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = 10 * p[i-1]
	}
	return p
}()

func valueSize(v expr.Value) int {
	switch v.Kind() {
	case expr.KindS:
		return len(v.Text())
	case expr.KindN:
		digits, negative := significant(v)
		size := (digits+1)/2 + 1
		if negative {
			size++
		}
		return size
	case expr.KindSS:
		size := 0
		for _, e := range v.Elements() {
			size += len(e.Value.Text())
		}
		return size
	case expr.KindL, expr.KindM:
		size := 3
		for _, e := range v.Elements() {
			size += 1 + len(e.Name) + valueSize(e.Value)
		}
		return size
	default:
		return 1
	}
}
