package expr

import (
	"slices"
	"strings"
	"unsafe"
)

// An Attribute is a named value.
type Attribute struct {
	Name  string
	Value Value
}

// Is reports whether the attribute has a name. It is quick where both are the same string in memory, as usual in a store.
func (a *Attribute) Is(name string) bool {
	return len(a.Name) == len(name) && (unsafe.StringData(a.Name) == unsafe.StringData(name) || a.Name == name)
}

// An Item is a set of attributes with distinct names, in no particular order. A nil Item is an item that does not exist.
type Item []Attribute

// Index returns the place of an attribute, negative when the item has none of that name.
func (it Item) Index(name string) int {
	for i := range it {
		if it[i].Name == name {
			return i
		}
	}
	return -1
}

// Lookup returns the value of an attribute; false when the item has none of that name.
func (it Item) Lookup(name string) (Value, bool) {
	if i := it.Index(name); i >= 0 {
		return it[i].Value, true
	}
	return Value{}, false
}

// Get returns the value of an attribute, and the zero Value when the item has none of that name.
func (it Item) Get(name string) Value {
	v, _ := it.Lookup(name)
	return v
}

// Set replaces or appends an attribute.
func (it *Item) Set(name string, v Value) {
	for i := range *it {
		if (*it)[i].Name == name {
			(*it)[i].Value = v
			return
		}
	}
	*it = append(*it, Attribute{name, v})
}

// Remove deletes an attribute, if the item has it.
func (it *Item) Remove(name string) {
	*it = slices.DeleteFunc(*it, func(a Attribute) bool { return a.Name == name })
}

// Clone returns a copy that can be changed without changing the original.
func (it Item) Clone() Item { return slices.Clone(it) }

// Equal reports whether both items exist, or neither, and have the same attributes. It is quick if they have them in
// the same places.
func (it Item) Equal(other Item) bool {
	if (it == nil) != (other == nil) || len(it) != len(other) {
		return false
	}
	for i, a := range it {
		v, ok := other[i].Value, true
		if other[i].Name != a.Name {
			v, ok = other.Lookup(a.Name)
		}
		if !ok || !v.Equal(a.Value) {
			return false
		}
	}
	return true
}

// String returns the attributes in the order of their names, in a form for messages and test output.
func (it Item) String() string {
	parts := make([]string, len(it))
	for i, a := range it {
		parts[i] = a.Name + ": " + a.Value.String()
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ", ") + "}"
}
