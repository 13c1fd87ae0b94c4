package store

import (
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// Limits of DynamoDB. Embedded stores keep them too, so a program tried on one works on DynamoDB.
const (
	MaxTransaction  = 100       // writes of a transaction
	MaxDepth        = 32        // lists and maps in each other
	MaxItem         = 400 << 10 // bytes, as [Size] counts them
	maxPartitionKey = 2048      // bytes
	maxSortKey      = 1024      // bytes
)

// A Schema is a [Table] as an embedded store asks for it. It is immutable.
type Schema struct {
	Table
	indexes map[string]*Index // by name
	keys    map[string]bool   // the key attributes of the indexes, except the attributes of the table's own key
	lengths uint64            // bit n: a key attribute, of the table or of an index, has n bytes; n is capped at 63
}

// NewSchema returns the schema of a table. It returns an error for two indexes of one name.
func NewSchema(t Table) (*Schema, error) {
	s := &Schema{Table: t, indexes: make(map[string]*Index), keys: make(map[string]bool)}
	s.addKey(PK)
	s.addKey(SK)
	for i := range t.Indexes {
		x := &t.Indexes[i]
		if s.indexes[x.Name] != nil {
			return nil, fmt.Errorf("two indexes %q", x.Name)
		}
		s.indexes[x.Name] = x
		s.addKey(x.PK)
		s.addKey(x.SK)
	}
	return s, nil
}

func (s *Schema) addKey(name string) {
	s.lengths |= 1 << min(len(name), 63)
	if !isKey(name) {
		s.keys[name] = true
	}
}

// isKey reports whether an attribute is of the table's own key.
func isKey(name string) bool { return name == PK || name == SK }

// Indexed reports whether an attribute is a key of an index and not of the table's own key.
func (s *Schema) Indexed(name string) bool {
	return s.lengths&(1<<min(len(name), 63)) != 0 && s.keys[name]
}

// primary is the table's own key as an index.
var primary = &Index{PK: PK, SK: SK, Local: true}

// Lookup returns the index that a query reads, or for the table itself one of the table's own key. It returns an error
// for a query that DynamoDB would not take.
func (s *Schema) Lookup(q *Query) (*Index, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if q.Index == "" {
		return primary, nil
	}
	x := s.indexes[q.Index]
	if x == nil {
		return nil, fmt.Errorf("no index %q", q.Index)
	}
	if q.Consistent && !x.Local {
		return nil, fmt.Errorf("a consistent read of the global index %q", q.Index)
	}
	return x, nil
}

// KeyItem returns the key attributes of an item in the table and in the index, whose own keys are pk and sk.
func (x *Index) KeyItem(k Key, pk, sk string) expr.Item {
	item := k.Join(nil)
	item.Set(x.PK, expr.S(pk))
	item.Set(x.SK, expr.S(sk))
	return item
}

// Moves reports whether two states of an item may differ in an attribute that an index is keyed by. It is quick where
// attributes kept their places, as [expr.Bound.Apply] leaves them.
func (s *Schema) Moves(old, next expr.Item) bool {
	shared := min(len(old), len(next))
	for i := range shared {
		if old[i].Name != next[i].Name {
			if s.Indexed(old[i].Name) || s.Indexed(next[i].Name) {
				return true
			}
		} else if s.Indexed(old[i].Name) && !old[i].Value.Equal(next[i].Value) {
			return true
		}
	}
	for _, tail := range []expr.Item{old[shared:], next[shared:]} {
		for i := range tail {
			if s.Indexed(tail[i].Name) {
				return true
			}
		}
	}
	return false
}

// ExpiredAt reports whether an item's time of expiry is not after now, in epoch seconds.
func (s *Schema) ExpiredAt(item expr.Item, now int64) bool {
	at, ok := item.Get(s.TTL).Int()
	return ok && at > 0 && at <= now
}

// Validate returns an error for a key that DynamoDB does not take.
func (k Key) Validate() error {
	switch {
	case k.PK == "" || k.SK == "":
		return errors.New("an empty key attribute")
	case len(k.PK) > maxPartitionKey || len(k.SK) > maxSortKey:
		return errors.New("a key attribute that is too long")
	default:
		return nil
	}
}

// ValidateTransaction returns an error for writes that DynamoDB does not take as one transaction.
func ValidateTransaction(writes []Write) error {
	if len(writes) > MaxTransaction {
		return fmt.Errorf("%d writes: at most %d in a transaction", len(writes), MaxTransaction)
	}
	seen := make(map[Key]bool, len(writes))
	for i := range writes {
		k := writes[i].Key
		if seen[k] {
			return fmt.Errorf("two writes to the item %q %q in a transaction", k.PK, k.SK)
		}
		seen[k] = true
	}
	return nil
}

// ValidateRead returns an error for keys that a [Store.Read] does not take.
func ValidateRead(keys []Key) error {
	if len(keys) > MaxRead {
		return fmt.Errorf("%d keys: at most %d", len(keys), MaxRead)
	}
	return validateKeys(keys)
}

// DistinctKeys returns keys for a [Store.Delete], each once, and an error for those that it does not take.
func DistinctKeys(keys []Key) ([]Key, error) {
	if err := validateKeys(keys); err != nil {
		return nil, err
	}
	distinct := make([]Key, 0, len(keys))
	known := make(map[Key]bool, len(keys))
	for _, k := range keys {
		if !known[k] {
			known[k] = true
			distinct = append(distinct, k)
		}
	}
	if len(distinct) > MaxDelete {
		return nil, fmt.Errorf("%d keys: at most %d", len(distinct), MaxDelete)
	}
	return distinct, nil
}

func validateKeys(keys []Key) error {
	for _, k := range keys {
		if err := k.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// checkItem returns an error for an item that DynamoDB does not take, except its size.
func (s *Schema) checkItem(item expr.Item) error {
	for i := range item {
		a := &item[i]
		if a.Name == "" {
			return errors.New("an attribute without a name")
		}
		if err := checkValue(a.Value, 0); err != nil {
			return fmt.Errorf("attribute %q: %w", a.Name, err)
		}
		if s.Indexed(a.Name) && a.Value.Text() == "" {
			return fmt.Errorf("attribute %q: an index key must be a string that is not empty, not %v %v", a.Name, a.Value.Kind(), a.Value)
		}
	}
	return nil
}

func checkValue(v expr.Value, depth int) error {
	switch v.Kind() {
	case expr.KindNone:
		return errors.New("no value")
	case expr.KindSS:
		if len(v.Elements()) == 0 {
			return errors.New("an empty set")
		}
	case expr.KindL, expr.KindM:
		if depth == MaxDepth {
			return errors.New("lists and maps nested too deep")
		}
		for _, e := range v.Elements() {
			if err := checkValue(e.Value, depth+1); err != nil {
				return err
			}
		}
	default: // any other value will do
	}
	return nil
}
