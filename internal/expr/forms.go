package expr

import (
	"slices"
	"sync"
	"unsafe"
)

// A Form is the name of an attribute, and the kind of its value.
type Form struct {
	Name string
	Kind Kind
}

// Forms are the forms of the attributes of an item, in their order. Items of a store mostly have the same ones, and refer to one Forms. So it
// takes one look to see that two items are alike, and not one at each attribute. Forms are immutable.
type Forms struct{ all []Form }

// maxForms is the number of Forms that are remembered.
const maxForms = 64

// latest are the Forms that were made last.
var latest struct {
	mu   sync.Mutex
	all  [maxForms]*Forms
	made int
}

// FormsOf returns the forms of an item. It mostly returns the same Forms for items that are alike. It looks at every attribute, and is for
// what many items have in common.
func FormsOf(item Item) *Forms {
	latest.mu.Lock()
	defer latest.mu.Unlock()
	for _, f := range latest.all {
		if f != nil && f.Fit(item) {
			return f
		}
	}
	f := &Forms{make([]Form, len(item))}
	for i := range item {
		f.all[i] = Form{item[i].Name, item[i].Value.kind}
	}
	latest.all[latest.made%maxForms] = f
	latest.made++
	return f
}

// Fit reports whether an item has attributes of these forms, in this order.
func (f *Forms) Fit(item Item) bool {
	if len(item) != len(f.all) {
		return false
	}
	forms := f.all[:len(item)]
	for i := range item {
		a, form := &item[i], &forms[i]
		if unsafe.StringData(a.Name) == unsafe.StringData(form.Name) && len(a.Name) == len(form.Name) && a.Value.kind == form.Kind {
			continue // the same string in memory, as usual in a store
		}
		if a.Value.kind != form.Kind || a.Name != form.Name {
			return false
		}
	}
	return true
}

// places returns where an item of these forms has attributes of some names, -1 for those that it does not have.
func (f *Forms) places(names []string) []int {
	places := make([]int, len(names))
	for i, name := range names {
		places[i] = slices.IndexFunc(f.all, func(form Form) bool { return form.Name == name })
	}
	return places
}
