package store

import (
	"fmt"
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
func Growth(b expr.Bound) int {
	growth := 0
	for _, name := range b.Changes() {
		growth += len(name) + numberSize
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
	for size != 0 && size%10 == 0 {
		size /= 10
	}
	for ; size != 0; size /= 10 {
		digits++
	}
	return digits, n < 0
}

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
