package sqlite

import (
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Limits of DynamoDB, in bytes. They hold here too, so that what is tried on this store works on the other.
const (
	maxPartitionKey = 2048
	maxSortKey      = 1024
	maxItem         = 400 << 10
)

// checkKey returns an error for a key that DynamoDB does not take.
func checkKey(k store.Key) error {
	switch {
	case k.PK == "" || k.SK == "":
		return errors.New("an empty key attribute")
	case len(k.PK) > maxPartitionKey || len(k.SK) > maxSortKey:
		return errors.New("a key attribute that is too long")
	default:
		return nil
	}
}

// checkItem returns an error for an item that DynamoDB does not take.
func (l *layout) checkItem(item expr.Item) error {
	for i := range item {
		a := &item[i]
		if a.Name == "" {
			return errors.New("an attribute without a name")
		}
		if err := checkValue(a.Value, 0); err != nil {
			return fmt.Errorf("attribute %q: %w", a.Name, err)
		}
		if l.indexed(a.Name) && a.Value.Text() == "" {
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
		if depth == maxDepth {
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
