package schema

import (
	"fmt"
	"strings"

	"github.com/zlimit/zlimit-go/internal/document"
)

// template reads the form of a key string. resolve returns a field by its name.
func (l *loader) template(pos document.Pos, text string, resolve func(name string) *Field) *Template {
	t := &Template{Pos: pos, Text: text, broken: true}
	for rest := text; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			l.Errorf(pos, "key %q has a } without a {", text)
			return t
		}
		if literal != "" {
			t.Parts = append(t.Parts, Part{Literal: literal})
		}
		if !found {
			break
		}
		name, next, closed := strings.Cut(after, "}")
		if !closed {
			l.Errorf(pos, "key %q has a { without a }", text)
			return t
		}
		field := resolve(name)
		if field == nil {
			l.Errorf(pos, "key %q: unknown field %q", text, name)
			return t
		}
		t.Parts = append(t.Parts, Part{Field: field})
		rest = next
	}
	if text == "" {
		l.Errorf(pos, "a key string is empty")
		return t
	}
	before := l.Failed()
	l.checkReadable(t)
	t.broken = l.Failed() > before
	return t
}

// checkReadable reports a form whose keys cannot be taken apart again: the end of every field must show.
func (l *loader) checkReadable(t *Template) {
	seen := map[*Field]bool{}
	for i, p := range t.Parts {
		if p.Field == nil {
			continue
		}
		if seen[p.Field] {
			l.Errorf(t.Pos, "key %q has field %s twice", t.Text, p.Field.Name)
		}
		seen[p.Field] = true
		if i+1 == len(t.Parts) {
			continue
		}
		next := t.Parts[i+1]
		if next.Field != nil {
			l.Errorf(t.Pos, "key %q: nothing separates field %s from field %s", t.Text, p.Field.Name, next.Field.Name)
			continue
		}
		if separator := []rune(next.Literal)[0]; p.Field.allows(separator) {
			l.Errorf(t.Pos, "key %q: field %s may contain the %q that ends it", t.Text, p.Field.Name, separator)
		}
	}
}

// symbol is one step of a key form: a character of a set, once or at least once.
type symbol struct {
	char  rune
	field *Field // the set is the one of the field; nil for the single character
}

func (t *Template) symbols() []symbol {
	var symbols []symbol
	for _, p := range t.Parts {
		if p.Field != nil {
			symbols = append(symbols, symbol{field: p.Field})
			continue
		}
		for _, c := range p.Literal {
			symbols = append(symbols, symbol{char: c})
		}
	}
	return symbols
}

// meets reports whether one character may stand for both symbols.
func (s symbol) meets(o symbol) bool {
	switch {
	case s.field == nil && o.field == nil:
		return s.char == o.char
	case s.field == nil:
		return o.field.allows(s.char)
	case o.field == nil:
		return s.field.allows(o.char)
	case s.field.Int || o.field.Int:
		for digit := '0'; digit <= '9'; digit++ {
			if s.field.allows(digit) && o.field.allows(digit) {
				return true
			}
		}
		return false
	default:
		return true // two strings, each of which lacks only a few characters
	}
}

// overlaps reports whether one string may be of both forms. It takes any run of digits for an int.
func (t *Template) overlaps(o *Template) bool {
	a, b := t.symbols(), o.symbols()
	// reached[i][j]: one string may have led to the start of a[i] and of b[j].
	reached := make([][]bool, len(a)+1)
	for i := range reached {
		reached[i] = make([]bool, len(b)+1)
	}
	reached[0][0] = true
	for i := range a {
		for j := range b {
			if !reached[i][j] || !a[i].meets(b[j]) {
				continue
			}
			reached[i+1][j+1] = true
			if a[i].field != nil {
				reached[i][j+1] = true
			}
			if b[j].field != nil {
				reached[i+1][j] = true
			}
		}
	}
	return reached[len(a)][len(b)]
}

// checkShapes reports two records that could have the same primary key.
func (l *loader) checkShapes(records []*Record) {
	for i, r := range records {
		for _, earlier := range records[:i] {
			if r.readable() && earlier.readable() && r.PK.overlaps(earlier.PK) && r.SK.overlaps(earlier.SK) {
				l.Errorf(r.PK.Pos, "record %s can have the key of record %s: %s", r.Name, earlier.Name, shape(r))
			}
		}
	}
}

func (r *Record) readable() bool { return !r.PK.broken && !r.SK.broken }

func shape(r *Record) string { return fmt.Sprintf("%q, %q", r.PK.Text, r.SK.Text) }
