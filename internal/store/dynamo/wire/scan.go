package wire

import (
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Scanner reads the reply of DynamoDB as DynamoDB usually writes it: without escapes in strings, without nulls,
// without members that it does not know. Its methods return false for everything else, valid or not, which is then for
// the SDK's deserializer to judge. Every text accepted by the Scanner has the same meaning to that deserializer.
type Scanner struct {
	text  string
	at    int
	large bool
}

// largeText is the length of a reply whose strings are copied out of it. Strings of a smaller one share its text, which one of them keeps
// alive.
const largeText = 8 << 10

// maxDepth is how deep lists and maps may be nested in what a [Scanner] takes. DynamoDB's own bound is 32.
const maxDepth = 32

// Scan returns a scanner of a reply.
func Scan(text string) Scanner { return Scanner{text: text, large: len(text) > largeText} }

// Object reads an object. member reads the value of each member, and returns false for a name that it does not know.
func (s *Scanner) Object(member func(name string) bool) bool {
	if !s.skip('{') {
		return false
	}
	if s.skip('}') {
		return true
	}
	for {
		name, ok := s.raw()
		if !ok || !s.skip(':') || !member(name) {
			return false
		}
		if !s.skip(',') {
			return s.skip('}')
		}
	}
}

// Array reads an array, whose elements element reads.
func (s *Scanner) Array(element func() bool) bool {
	if !s.skip('[') {
		return false
	}
	if s.skip(']') {
		return true
	}
	for {
		if !element() {
			return false
		}
		if !s.skip(',') {
			return s.skip(']')
		}
	}
}

// End reports whether nothing is left to read.
func (s *Scanner) End() bool {
	s.space()
	return s.at == len(s.text)
}

// Bool reads a truth value.
func (s *Scanner) Bool() (truth, ok bool) {
	truth = s.word("true")
	return truth, truth || s.word("false")
}

// Item reads an item, nil for one without attributes.
func (s *Scanner) Item() (expr.Item, bool) { return s.item(16, maxDepth) }

// An Only is what a reply with at most one item holds.
type Only struct {
	Item  expr.Item
	Forms *expr.Forms // of the item; nil if they are not known
	Loan  store.Loan  // of the item; nil if it is not lent
	Units float64     // that the call consumed
}

// OnlyItem reads a reply with at most one item, with attributes, as the member of that name. Beside it the reply may
// hold the capacity units that the call consumed. The habit is that of such replies, nil for none.
func OnlyItem(text, member string, habit *Habit) (o Only, ok bool) {
	s, units := Scan(text), 0.0
	ok = s.Object(func(name string) (ok bool) {
		switch {
		case name == member && o.Item == nil:
			o, ok = habit.item(&s, strings.Count(text, "{")-2) // each attribute is an object, in two others
			ok = ok && o.Item != nil
		case name == "ConsumedCapacity" && units == 0:
			units, ok = s.Consumed()
		}
		return ok
	}) && s.End()
	o.Units = units
	return o, ok
}

// Consumed reads the capacity units that a call consumed in all. It returns false if they are listed by index.
func (s *Scanner) Consumed() (units float64, ok bool) {
	ok = s.Object(func(name string) (ok bool) {
		switch name {
		case "TableName":
			_, ok = s.raw()
		case "CapacityUnits":
			units, ok = s.decimal()
		}
		return ok
	})
	return units, ok
}

// decimal reads a number without sign and exponent.
func (s *Scanner) decimal() (float64, bool) {
	s.space()
	from := s.at
	for s.at < len(s.text) && (s.text[s.at] == '.' || '0' <= s.text[s.at] && s.text[s.at] <= '9') {
		s.at++
	}
	text := s.text[from:s.at]
	if whole, _, _ := strings.Cut(text, "."); whole == "" || len(whole) > 1 && whole[0] == '0' || text[len(text)-1] == '.' {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// Key reads the key attributes of an item that has no others.
func (s *Scanner) Key() (k store.Key, ok bool) {
	item, ok := s.item(2, 1)
	k = store.KeyOf(item)
	return k, ok && len(item) == 2 && k.PK != "" && k.SK != ""
}

// item reads an item of about size attributes.
func (s *Scanner) item(size, depth int) (expr.Item, bool) {
	if !s.skip('{') {
		return nil, false
	}
	if s.skip('}') {
		return nil, true
	}
	item := make(expr.Item, 0, max(size, 1))
	for {
		name, ok := s.string()
		if !ok || !s.skip(':') {
			return nil, false
		}
		v, ok := s.value(depth)
		if !ok {
			return nil, false
		}
		item = append(item, expr.Attribute{Name: name, Value: v})
		if !s.skip(',') {
			return item, s.skip('}')
		}
	}
}

// value reads an attribute value.
func (s *Scanner) value(depth int) (v expr.Value, ok bool) {
	if depth == 0 {
		return v, false
	}
	if v, ok = s.plainNumber(); ok {
		return v, true
	}
	if !s.skip('{') {
		return v, false
	}
	kind, ok := s.raw()
	if !ok || !s.skip(':') {
		return v, false
	}
	switch kind {
	case "N":
		v, ok = s.number()
	case "S":
		var text string
		text, ok = s.string()
		v = expr.S(text)
	case "BOOL":
		var truth bool
		truth, ok = s.Bool()
		v = expr.Bool(truth)
	case "NULL":
		ok = s.word("true")
		v = expr.Null()
	case "SS":
		var elements []string
		ok = s.Array(func() bool {
			text, ok := s.string()
			elements = append(elements, text)
			return ok
		})
		v = expr.Strings(elements...)
	case "L":
		var elements []expr.Value
		ok = s.Array(func() bool {
			e, ok := s.value(depth - 1)
			elements = append(elements, e)
			return ok
		})
		v = expr.List(elements...)
	case "M":
		var m expr.Item
		m, ok = s.item(4, depth-1)
		v = expr.Map(m)
	default: // a kind that no record of zlimit has
		return v, false
	}
	return v, ok && s.skip('}')
}

// plainNumber reads a number without spaces around it, as DynamoDB writes most values of an item. It reads nothing else.
func (s *Scanner) plainNumber() (v expr.Value, ok bool) {
	rest, ok := strings.CutPrefix(s.text[s.at:], `{"N":"`)
	end := strings.IndexByte(rest, '"')
	if !ok || end < 0 || !strings.HasPrefix(rest[end:], `"}`) {
		return v, false
	}
	v, err := expr.ParseNumber(rest[:end])
	if err != nil {
		return v, false
	}
	s.at = len(s.text) - len(rest) + end + len(`"}`)
	return v, true
}

func (s *Scanner) number() (expr.Value, bool) {
	text, ok := s.raw()
	if !ok {
		return expr.Value{}, false
	}
	v, err := expr.ParseNumber(text)
	return v, err == nil
}

// string reads a string that outlives the scanner.
func (s *Scanner) string() (string, bool) {
	text, ok := s.raw()
	return s.kept(text), ok
}

// kept returns a part of the text that outlives the scanner.
func (s *Scanner) kept(text string) string {
	if s.large {
		return strings.Clone(text)
	}
	return text
}

// raw reads a string as a part of the text.
func (s *Scanner) raw() (string, bool) {
	if !s.skip('"') {
		return "", false
	}
	text, ok := s.untilQuote()
	if ok {
		s.at++
	}
	return text, ok
}

// untilQuote reads the rest of a string as a part of the text, without the quote at its end.
func (s *Scanner) untilQuote() (string, bool) {
	rest := s.text[s.at:]
	for i := range len(rest) {
		switch c := rest[i]; {
		case c == '"':
			s.at += i
			return rest[:i], true
		case c < ' ' || c == '\\':
			return "", false
		}
	}
	return "", false
}

// word reads a word if it comes next.
func (s *Scanner) word(word string) bool {
	s.space()
	if !strings.HasPrefix(s.text[s.at:], word) {
		return false
	}
	s.at += len(word)
	return true
}

// skip reads a byte if it comes next.
func (s *Scanner) skip(c byte) bool {
	s.space()
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *Scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}
