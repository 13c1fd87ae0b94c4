package wire

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// A Habit is how DynamoDB wrote the items of recent replies. It mostly writes the next one alike, with other numbers and strings between the
// same texts. Then only those are read. Other items are read as if there were no Habit. The zero Habit is ready to use. It is safe for
// concurrent use.
type Habit struct {
	last   atomic.Pointer[pattern]
	unlike atomic.Uint32 // items that were not written like the last pattern
}

// relearn is the number of items unlike the pattern after which another pattern is learned.
const relearn = 16

// A pattern is an item as text, except its numbers and strings. It is immutable.
type pattern struct {
	forms *expr.Forms
	item  expr.Item // an item of the pattern
	gaps  []gap
	end   string // behind the last gap
}

// A gap is a number or a string between quotes.
type gap struct {
	before string // from the gap before, or from the start of the item
	at     int    // which attribute it is
}

// patternOf returns the pattern of an item that a [Scanner] has read, nil for one with lists, maps or sets.
func patternOf(item expr.Item) *pattern {
	p := &pattern{forms: expr.FormsOf(item), item: item.Clone()}
	text := "{"
	for i := range item {
		if i > 0 {
			text += ","
		}
		text += `"` + item[i].Name + `":` // no Scanner reads a name with escapes
		switch kind := item[i].Value.Kind(); kind {
		case expr.KindN, expr.KindS:
			p.gaps = append(p.gaps, gap{text + `{"` + kind.String() + `":"`, i})
			text = `"}`
		case expr.KindBool, expr.KindNull: // they seldom change
			text += string(AppendValue(nil, item[i].Value))
		default:
			return nil
		}
	}
	p.end = text + "}"
	return p
}

// A lent item has memory that later replies use.
type lent struct{ item expr.Item }

var lents = sync.Pool{New: func() any { return new(lent) }}

// Return implements [store.Loan].
func (l *lent) Return() { lents.Put(l) }

// item reads an item, of about size attributes. An item of the pattern is lent, and its forms are known. A nil Habit has no pattern.
func (h *Habit) item(s *Scanner, size int) (o Only, ok bool) {
	if h == nil {
		o.Item, ok = s.item(size, maxDepth)
		return o, ok
	}
	if last := h.last.Load(); last != nil {
		from, l := s.at, lents.Get().(*lent)
		if l.item = append(l.item[:0], last.item...); s.like(last, l.item) {
			return Only{Item: l.item, Forms: last.forms, Loan: l}, true
		}
		s.at = from
		l.Return()
	}
	o.Item, ok = s.item(size, maxDepth)
	if o.Item != nil && h.unlike.Add(1)%relearn == 1 {
		h.last.Store(patternOf(o.Item))
	}
	return o, ok
}

// like reads an item of a pattern, and nothing else. It puts the values into a copy of the item that the pattern was made of.
func (s *Scanner) like(p *pattern, item expr.Item) (ok bool) {
	for i := range p.gaps {
		g := &p.gaps[i]
		if !s.literal(g.before) {
			return false
		}
		value := &item[g.at].Value
		if value.Kind() == expr.KindN {
			if n, ok := s.digits(); ok {
				*value = expr.N(n)
				continue
			}
		}
		text, ok := s.untilQuote()
		if !ok {
			return false
		}
		if value.Kind() == expr.KindS {
			*value = expr.S(s.kept(text))
		} else if v, err := expr.ParseNumber(text); err == nil {
			*value = v
		} else {
			return false
		}
	}
	return s.literal(p.end)
}

// digits reads up to 18 digits before a quote, which do not overflow, as nearly all numbers are. It reads nothing else.
func (s *Scanner) digits() (n int64, ok bool) {
	rest := s.text[s.at:]
	rest = rest[:min(len(rest), 19)]
	for i := range len(rest) {
		d := rest[i] - '0'
		if d > 9 {
			ok = rest[i] == '"' && i > 0
			if ok {
				s.at += i
			}
			return n, ok
		}
		n = 10*n + int64(d)
	}
	return 0, false
}

// literal reads a text, without white space before it.
func (s *Scanner) literal(text string) bool {
	ok := strings.HasPrefix(s.text[s.at:], text)
	if ok {
		s.at += len(text)
	}
	return ok
}
