// Package store is the boundary between the rate limiter and the place where its items live. A [Store] reads items, and
// writes them under conditions that the caller states as [expr] templates. It makes no decisions, retries only what
// provably did not happen, and reports a failed condition as a result, not as an error.
//
// Three packages implement it: dynamo on a DynamoDB table, sqlite on an embedded database file, memory in the maps of a
// process.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// A Key is the primary key of an item.
type Key struct {
	PK, SK string
}

// KeyOf returns the primary key of an item that a store returned.
func KeyOf(item expr.Item) Key { return Key{item.Get(PK).Text(), item.Get(SK).Text()} }

// Join returns a new item of the key and the attributes of item, which may have key attributes of its own: they are
// replaced.
func (k Key) Join(item expr.Item) expr.Item {
	joined := make(expr.Item, 2, len(item)+2)
	joined[0] = expr.Attribute{Name: PK, Value: expr.S(k.PK)}
	joined[1] = expr.Attribute{Name: SK, Value: expr.S(k.SK)}
	for _, a := range item {
		if a.Name != PK && a.Name != SK {
			joined = append(joined, a)
		}
	}
	return joined
}

// Names of the attributes of the primary key.
const (
	PK = "PK"
	SK = "SK"
)

// Kind is the effect of a write when its condition holds.
type Kind uint8

// The kinds of write.
const (
	Update Kind = iota // change the item by the update of Expr, creating it when there is none
	Put                // replace the item by Item
	Delete             // delete the item
	Check              // write nothing; in a transaction, the condition alone counts
)

// A Write is one conditional write.
type Write struct {
	Kind Kind
	Key  Key
	Item expr.Item  // for Put: the whole item except its key
	Expr expr.Bound // the condition, and for Update the update
}

// Validate returns an error for a write without a meaning. Such are an Update without changes, a Check without
// conditions, and another write with an update. Each is a mistake in the program, and all stores refuse it alike.
func (w *Write) Validate() error {
	condition, update := false, false
	if w.Expr.Template != nil {
		condition, update = w.Expr.Condition() != "", w.Expr.Update() != ""
	}
	switch {
	case w.Kind == Update && !update:
		return errors.New("an Update without an update")
	case w.Kind != Update && update:
		return errors.New("an update in a write that is no Update")
	case w.Kind == Check && !condition:
		return errors.New("a Check without a condition")
	case w.Kind > Check:
		return fmt.Errorf("a write of kind %d", w.Kind)
	default:
		return nil
	}
}

// A Result is the answer to one write.
type Result struct {
	// Applied reports whether the condition held and the write was done.
	Applied bool
	// Item is the whole item with its key. When Applied, it is as an Update or a Put left it; when not, as the condition
	// found it. It is nil where the item does not exist, and after an applied Delete or Check.
	Item expr.Item
	// Forms are the forms of the item; nil where the store does not know them.
	Forms *expr.Forms
	// Loan belongs to an item lent by the store; nil for one that the caller may keep as well.
	Loan Loan
}

// Release allows the store to reuse the memory of the item, which nothing may look at any more. A result need not be
// released.
func (r *Result) Release() {
	if r.Loan != nil {
		r.Loan.Return()
	}
	r.Item, r.Forms, r.Loan = nil, nil, nil
}

// A Loan is an item that a store has lent to a caller.
type Loan interface {
	// Return ends the loan. It is called once.
	Return()
}

// A Query asks for the items of one partition of the table or of an index, in the order of their sort key.
type Query struct {
	Index   string // "" for the table, or the name of an index in [Table]
	PK      string
	Prefix  string // of the sort key; "" for all
	After   string // sort keys greater than this alone; "" for all
	UpTo    string // sort keys that are not greater than this alone; "" for all
	Reverse bool   // descending
	Limit   int    // items in a page at most; 0 leaves it to the store
	// Consistent asks for a read that sees every write returned before it. Global indexes have no such read.
	Consistent bool
	Continue   Cursor // where an earlier page of the same query ended; nil to start
}

// Validate returns an error for a query that DynamoDB would not take.
func (q *Query) Validate() error {
	if q.PK == "" {
		return errors.New("a query of no partition")
	}
	return nil
}

// pageItems is the number of items in a page of an embedded store that no limit ends.
const pageItems = 1000

// PageLimit returns the number of items in a page of an embedded store at most.
func (q *Query) PageLimit() int {
	if q.Limit > 0 {
		return min(pageItems, q.Limit)
	}
	return pageItems
}

// A Cursor is where a page ended: the key attributes of its last item. It is nil after the last page.
type Cursor expr.Item

// MaxRead and MaxDelete are the numbers of keys that [Store.Read] and [Store.Delete] take.
const (
	MaxRead   = 100
	MaxDelete = 25
)

// A Page is a part of a query's result. An index that projects keys alone yields items of keys alone.
type Page struct {
	Items []expr.Item
	Next  Cursor
}

// An Expirer is a store that deletes expired items on request, a few at a time, and not on its own.
type Expirer interface {
	// Expire looks at some items, and deletes those whose time of expiry is not after now, in epoch seconds.
	Expire(ctx context.Context, now int64) error
}

// An Immediate store answers every call immediately: it waits for no network, no file and no other process. A bound on the
// time of its calls, or on their number, would gain nothing.
type Immediate interface {
	Immediate()
}

// A Redialer keeps connections open between calls. They may be dead while new ones are answered.
type Redialer interface {
	// Redial closes the connections that no call uses, so that the next calls make new ones.
	Redial()
}

// A Store keeps items. It is safe for concurrent use. The returned items must not be changed: a store may give out its
// own. Appending to one leaves it as it is. Every method returns an error of package store, as [Error] says, or the
// context's error when the context ended before the call did anything.
//
// A store may implement more. Callers look for these interfaces, and need none of them:
//
//   - [Expirer], if it does not delete expired items on its own
//   - [Immediate], if no call waits
//   - [Redialer], if it keeps connections
//   - [Clock], if its replies carry the time
//   - [Scanner], if its items can be read without their keys
//   - [Indexer], if its table may lack indexes
//   - [Streamer], if it reports the changes of its items, and [Forgetter], if it then need not keep them
type Store interface {
	// Read returns the items at keys, in their order, nil if there is none. A consistent read sees every write that
	// returned before it. A repeated key is allowed. Read makes one call for up to MaxRead keys.
	Read(ctx context.Context, keys []Key, consistent bool) ([]expr.Item, error)

	// Write does one write.
	Write(ctx context.Context, w Write) (Result, error)

	// Transact does up to 100 writes to distinct items, all or none. All results are Applied, or at least one is not. A
	// write whose condition held in a transaction that was not applied has a nil image. Applied writes return no image.
	Transact(ctx context.Context, writes []Write) ([]Result, error)

	// Delete deletes the existing items at keys, with any content. It is not one write: any of them may be deleted when
	// it fails. No error of it is Unknown, since doing it again is safe. A repeated key is allowed. It makes one call
	// for up to MaxDelete keys.
	Delete(ctx context.Context, keys []Key) error

	// Query returns one page. An empty page may have a next one.
	Query(ctx context.Context, q Query) (Page, error)

	// Setup creates the table and its indexes, and waits until they can be used. A table or index that exists is left as
	// it is.
	Setup(ctx context.Context) error

	// Ping returns nil when the table exists and answers, ErrTableNotFound when it does not exist.
	Ping(ctx context.Context) error

	// Partitioned reports whether a single key has a limited write rate, so that hot items are worth splitting.
	Partitioned() bool

	// Close releases everything that the store opened itself. Calls after Close fail.
	Close() error
}
