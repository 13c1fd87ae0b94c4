package layout

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// decoder reads the attributes of an item and keeps the first thing that is wrong with it.
type decoder struct {
	record string
	found  int // required attributes so far, members included
	err    *store.ItemError

	refused []Refusal
}

// A Feature is something that other programs limit by, and this one does not.
type Feature struct {
	Name  string `json:"name"`
	Since string `json:"since"` // version of the first program that knows it
}

// A Refusal is an attribute of a feature that an item has.
type Refusal struct {
	Feature   *Feature
	Attribute string
}

// A RefusedError reports an attribute by which other programs limit, and this one does not. The decoded item is whole
// unless Err is set. It is to be shown and counted, and neither obeyed nor written.
type RefusedError struct {
	Key     store.Key
	Refused []Refusal // at least one
	Err     error     // what else is wrong with the item
}

// Error names the item, and each feature with one of its attributes.
func (e *RefusedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: ", e.Key.PK, e.Key.SK)
	separator := ""
	for i, r := range e.Refused {
		if !slices.ContainsFunc(e.Refused[:i], func(earlier Refusal) bool { return earlier.Feature == r.Feature }) {
			fmt.Fprintf(&b, "%s%s (attribute %s, of zae-limiter %s or later)", separator, r.Feature.Name, r.Attribute, r.Feature.Since)
			separator = ", "
		}
	}
	b.WriteString(" is not known to this program")
	return b.String()
}

// Unwrap returns what else is wrong with the item.
func (e *RefusedError) Unwrap() error { return e.Err }

// A refusal is an attribute by which items of a record are refused.
type refusal struct {
	prefix, name string // of the attribute; with a prefix, the name is that of a field of members
	feature      *Feature
	unless       []string // values that do not matter
}

type refusals []refusal

// find returns the refusal to which an attribute may belong, by its name alone; nil for none.
func (r refusals) find(name string) *refusal {
	for i := range r {
		if x := &r[i]; x.prefix == "" && x.name == name {
			return x
		} else if rest, ok := strings.CutPrefix(name, x.prefix); ok && x.prefix != "" {
			if _, field := cutMember(rest); field == x.name {
				return x
			}
		}
	}
	return nil
}

// matters reports whether a value is none of those that do not matter.
func (r *refusal) matters(v expr.Value) bool {
	var text string
	switch v.Kind() {
	case expr.KindS:
		text = v.Text()
	case expr.KindN:
		text = v.Number()
	case expr.KindBool:
		text = strconv.FormatBool(v.True())
	default:
		return true
	}
	return !slices.Contains(r.unless, text)
}

// refuse notes an attribute by which an item is refused.
func (d *decoder) refuse(by refusals, a *expr.Attribute) {
	if x := by.find(a.Name); x != nil && x.matters(a.Value) {
		d.refused = append(d.refused, Refusal{x.feature, a.Name})
	}
}

// outcome returns the mistake in the item of a key.
func (d *decoder) outcome(key store.Key) error {
	if len(d.refused) > 0 {
		return &RefusedError{Key: key, Refused: d.refused, Err: d.failure(key)}
	}
	return d.failure(key)
}

// failure returns the mistake in the item of a key, nil for none.
func (d *decoder) failure(key store.Key) error {
	if d.err == nil {
		return nil
	}
	d.err.Key = key
	return d.err
}

// failf reports a mistake in an attribute, or in the item where the attribute is "".
func (d *decoder) failf(attribute, format string, args ...any) {
	if d.err == nil {
		d.err = &store.ItemError{Attribute: attribute, Err: fmt.Errorf("%s item: "+format, append([]any{d.record}, args...)...)}
	}
}

func (d *decoder) want(a *expr.Attribute, kind expr.Kind) {
	if a.Value.Kind() != kind {
		d.failf(a.Name, "attribute %s: want %v, got %v", a.Name, kind, a.Value.Kind())
	}
}

func (d *decoder) text(a *expr.Attribute) string {
	d.want(a, expr.KindS)
	return a.Value.Text()
}

func (d *decoder) number(a *expr.Attribute) int64 {
	n, ok := a.Value.Int()
	if !ok {
		d.notInt(a)
	}
	return n
}

func (d *decoder) notInt(a *expr.Attribute) {
	d.want(a, expr.KindN)
	d.failf(a.Name, "attribute %s: want an integer of 64 bits, got %s", a.Name, a.Value.Number())
}

// decimal reads a number with at most places decimal places, in units of the last one. A sum beyond 64 bits is read as
// the largest or the smallest number.
func (d *decoder) decimal(a *expr.Attribute, places int) int64 { //nolint:unparam // the schema says how many
	n, ok := a.Value.Decimal(places)
	if ok {
		return n
	}
	d.want(a, expr.KindN)
	integer, fraction, _ := strings.Cut(a.Value.Number(), ".")
	switch {
	case len(fraction) > places:
		d.failf(a.Name, "attribute %s: want a number with up to %d decimal places, got %s", a.Name, places, a.Value.Number())
	case strings.HasPrefix(integer, "-"):
		return math.MinInt64
	}
	return math.MaxInt64
}

// wrapped reads an integer of any size modulo 2^64.
func (d *decoder) wrapped(a *expr.Attribute) int64 {
	n, ok := a.Value.Int()
	if !ok {
		n = d.low64(a)
	}
	return n
}

func (d *decoder) low64(a *expr.Attribute) int64 {
	n, ok := a.Value.Low64()
	if !ok {
		return d.notInteger(a)
	}
	return n
}

// clamped reads an integer of any size as the nearest of 64 bits.
func (d *decoder) clamped(a *expr.Attribute) int64 {
	n, ok := a.Value.Int()
	if !ok {
		n = d.nearest(a)
	}
	return n
}

func (d *decoder) nearest(a *expr.Attribute) int64 {
	if _, ok := a.Value.Low64(); !ok {
		return d.notInteger(a)
	}
	n, _ := strconv.ParseInt(a.Value.Number(), 10, 64) // saturates beyond its range
	return n
}

func (d *decoder) notInteger(a *expr.Attribute) int64 {
	d.want(a, expr.KindN)
	d.failf(a.Name, "attribute %s: want an integer, got %s", a.Name, a.Value.Number())
	return 0
}

func (d *decoder) flag(a *expr.Attribute) bool {
	d.want(a, expr.KindBool)
	return a.Value.True()
}

func (*decoder) value(a *expr.Attribute) expr.Value { return a.Value }

func (d *decoder) set(a *expr.Attribute) []string {
	d.want(a, expr.KindSS)
	var set []string
	for _, e := range a.Value.Elements() {
		set = append(set, e.Value.Text())
	}
	return set
}

func (d *decoder) list(a *expr.Attribute) []expr.Value {
	d.want(a, expr.KindL)
	var list []expr.Value
	for _, e := range a.Value.Elements() {
		list = append(list, e.Value)
	}
	return list
}

func (d *decoder) fields(a *expr.Attribute) expr.Item {
	d.want(a, expr.KindM)
	return a.Value.Elements()
}

// needs reports the first of the attributes that the item lacks.
func (d *decoder) needs(item expr.Item, attributes ...string) {
	for _, name := range attributes {
		if _, ok := item.Lookup(name); !ok {
			d.failf(name, "lacks %s", name)
		}
	}
}

// needsFields reports the first of the fields, named by the suffixes of their attributes, that a member of a family lacks.
//
//nolint:unparam // noun is the schema's: so far it has limits alone
func (d *decoder) needsFields(item expr.Item, noun, prefix, member string, suffixes ...string) {
	for _, suffix := range suffixes {
		if _, ok := item.Lookup(prefix + member + suffix); !ok {
			d.failf(prefix+member+suffix, "%s %q lacks %s", noun, member, strings.TrimPrefix(suffix, "_"))
		}
	}
}

// misplaced reports a key that is not of the record's form.
func (d *decoder) misplaced(key store.Key) {
	d.failf("", "key %q, %q is of another form", key.PK, key.SK)
}

// cutMember splits the name of a family's attribute, without its prefix, at the last underscore into the member and its
// field. The field is "" when the name has another form.
func cutMember(name string) (member, field string) {
	i := strings.LastIndexByte(name, '_')
	if i <= 0 {
		return name, ""
	}
	return name[:i], name[i+1:]
}

// room returns an empty slice with room for as many members of a family as the attributes may belong to.
func room[T any](attributes, perMember int) []T {
	return slices.Grow[[]T](nil, max(0, attributes/perMember))
}

// lift returns an item with the attributes of a map in place of the map, as older layouts are read. An attribute that the
// item has besides counts.
//
//nolint:unparam // the name is that of legacy.yaml
func lift(item expr.Item, name string) expr.Item {
	nested, ok := item.Lookup(name)
	if !ok || nested.Kind() != expr.KindM {
		return item
	}
	lifted := make(expr.Item, 0, len(item)+len(nested.Elements()))
	for _, a := range item {
		if a.Name != name {
			lifted = append(lifted, a)
		}
	}
	for _, a := range nested.Elements() {
		if _, ok := lifted.Lookup(a.Name); !ok {
			lifted = append(lifted, a)
		}
	}
	return lifted
}

// orNull returns NULL in place of a value that is empty.
func orNull(empty bool, v expr.Value) expr.Value {
	if empty {
		return expr.Null()
	}
	return v
}
