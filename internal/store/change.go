package store

import (
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// A Sequence orders the changes of one item: a later change has a greater one. It is a decimal number of 40 digits, so
// that it is compared like a string. The zero value comes before all others.
type Sequence string

// A Change is one change of an item, as the change stream of a store tells it.
type Change struct {
	Key Key
	// Old and New are the whole item, with its key, before and after the change; nil where there was, or is, none.
	Old, New expr.Item
	Sequence Sequence
	// At is the time of the change by the clock of the store. DynamoDB tells whole seconds.
	At time.Time
	// Expired tells that the store deleted the item because its time had come.
	Expired bool
}
