// Package document reads YAML documents strictly. Nodes become texts, numbers, lists and mappings, and nothing in a
// document is passed over. It reports all errors of a document, with line and column.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A Pos is a place in the document, counted from 1.
type Pos struct {
	Line, Column int
}

// A Reader reads one document and collects its mistakes. For a node of the wrong form it returns an empty value.
type Reader struct {
	file  string
	plain bool
	errs  Errors
}

// New returns a reader of a document. file is its name for messages.
func New(file string) *Reader { return &Reader{file: file} }

// NewPlain returns a reader of a document without aliases, which can make a short document a long one. They are errors.
func NewPlain(file string) *Reader { return &Reader{file: file, plain: true} }

// Errorf reports something that is wrong at a place.
func (r *Reader) Errorf(pos Pos, format string, args ...any) {
	r.Fail(pos, fmt.Errorf(format, args...))
}

// Fail reports an error at a place.
func (r *Reader) Fail(pos Pos, err error) {
	r.errs = append(r.errs, Error{r.file, pos, err.Error(), err})
}

// Failed returns the number of errors so far.
func (r *Reader) Failed() int { return len(r.errs) }

// Err returns everything that was wrong, an [Errors]; nil when nothing was.
func (r *Reader) Err() error {
	if len(r.errs) == 0 {
		return nil
	}
	return r.errs.sorted()
}

// Parse returns the top node of the only document, nil when there is none. Messages call the node what.
func (r *Reader) Parse(text []byte, what string) *yaml.Node {
	failed := r.Failed()
	top := r.ParseOptional(text)
	if top == nil && r.Failed() == failed {
		r.Errorf(Pos{1, 1}, "%s is empty", what)
	}
	return top
}

// ParseOptional is Parse for a document that may be empty: the node is nil then too, without an error.
func (r *Reader) ParseOptional(text []byte) *yaml.Node {
	if !r.checkText(text) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if !errors.Is(err, io.EOF) {
			r.syntaxError(err)
		}
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		r.Errorf(At(&second), "there is a second document")
	} else if !errors.Is(err, io.EOF) {
		r.syntaxError(err)
	}
	if len(document.Content) == 0 || r.plain && !r.checkPlain(document.Content[0]) {
		return nil
	}
	return document.Content[0]
}

// checkText reports the first byte that is not UTF-8 text.
func (r *Reader) checkText(text []byte) bool {
	pos := Pos{1, 1}
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		switch {
		case c == utf8.RuneError && size <= 1:
			r.Errorf(pos, "byte %#x is not UTF-8", text[i])
			return false
		case c < ' ' && c != '\t' && c != '\r' && c != '\n', c >= 0x7f && c < 0xa0 && c != 0x85:
			r.Errorf(pos, "control character %#x", c)
			return false
		}
		i += size
		if pos.Column++; c == '\n' {
			pos = Pos{pos.Line + 1, 1}
		}
	}
	return true
}

// checkPlain reports the aliases below a node.
func (r *Reader) checkPlain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		r.Errorf(At(n), "*%s is an alias, write out what it stands for", n.Value)
		return false
	}
	ok := true
	for _, below := range n.Content {
		ok = r.checkPlain(below) && ok
	}
	return ok
}

var (
	yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	// Errors of the library's parser, which counts lines from 0. Its scanner counts from 1.
	parserErrors = regexp.MustCompile(`^(did not find expected|found undefined tag|found duplicate|found incompatible)`)
)

func (r *Reader) syntaxError(err error) {
	line := 0
	text := yamlLine.ReplaceAllString(err.Error(), "")
	if m := yamlLine.FindStringSubmatch(err.Error()); len(m) == 2 && m[1] != "" {
		line, _ = strconv.Atoi(m[1]) // the pattern has digits alone
	}
	if parserErrors.MatchString(text) {
		line++
	}
	r.Errorf(Pos{max(line, 1), 1}, "%s", text)
}

// Follow returns the node that an alias stands for.
func Follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// At returns the place of a node.
func At(n *yaml.Node) Pos { return Pos{n.Line, n.Column} }

// A Pair is a key of a mapping with its value.
type Pair struct {
	Pos   Pos
	Key   string
	Value *yaml.Node
}

// Pairs returns the entries of a mapping.
func (r *Reader) Pairs(n *yaml.Node, what string) []Pair {
	n = Follow(n)
	if n.Kind != yaml.MappingNode {
		r.Errorf(At(n), "%s is not a mapping", what)
		return nil
	}
	var pairs []Pair
	seen := map[string]Pos{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			r.Errorf(At(key), "a key of %s is not a name", what)
			continue
		}
		if first, ok := seen[key.Value]; ok {
			r.Errorf(At(key), "%s has %s twice; the first is in line %d", what, key.Value, first.Line)
			continue
		}
		seen[key.Value] = At(key)
		pairs = append(pairs, Pair{At(key), key.Value, n.Content[i+1]})
	}
	return pairs
}

// Keys says how to read the values of a mapping with fixed keys.
type Keys map[string]func(*yaml.Node)

// Object reads a mapping with fixed keys, and reports required ones that are missing at pos.
func (r *Reader) Object(n *yaml.Node, pos Pos, what string, read Keys, required ...string) {
	present := map[string]bool{}
	for _, p := range r.Pairs(n, what) {
		present[p.Key] = true
		if f, ok := read[p.Key]; ok {
			f(p.Value)
		} else {
			r.Errorf(p.Pos, "%s has an unknown key %s", what, p.Key)
		}
	}
	if Follow(n).Kind != yaml.MappingNode {
		return
	}
	for _, key := range required {
		if !present[key] {
			r.Errorf(pos, "%s has no %s", what, key)
		}
	}
}

// Text returns the value of a scalar.
func (r *Reader) Text(n *yaml.Node, what string) string {
	n = Follow(n)
	if n.Kind != yaml.ScalarNode {
		r.Errorf(At(n), "%s is not a text", what)
		return ""
	}
	return n.Value
}

// Doc returns a text for readers.
func (r *Reader) Doc(n *yaml.Node, what string) string {
	doc := strings.TrimSpace(r.Text(n, what+": doc"))
	switch {
	case Follow(n).Kind != yaml.ScalarNode:
	case doc == "" || Follow(n).Tag == "!!null":
		r.Errorf(At(Follow(n)), "%s has an empty doc", what)
	case strings.ContainsFunc(doc, func(c rune) bool { return c < ' ' }):
		r.Errorf(At(Follow(n)), "%s: doc has several lines", what)
	case strings.ContainsFunc(doc, func(c rune) bool { return !unicode.IsGraphic(c) }):
		r.Errorf(At(Follow(n)), "%s: doc has a character that cannot be seen", what)
	}
	return doc
}

// IsNull reports whether a node stands for nothing.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Count returns a whole number of zero or more.
func (r *Reader) Count(n *yaml.Node, what string) int64 {
	n = Follow(n)
	var v int64
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag != "!!int":
		r.Errorf(At(n), "%s must be a whole number, not %q", what, clip(n.Value))
	case n.Decode(&v) != nil:
		r.Errorf(At(n), "%s %q is out of range", what, clip(n.Value))
	case v < 0:
		r.Errorf(At(n), "%s %d must not be negative", what, v)
	default:
		return v
	}
	return 0
}

// Time returns a timestamp, in UTC.
func (r *Reader) Time(n *yaml.Node, what string) time.Time {
	n = Follow(n)
	var t time.Time
	if n.Kind != yaml.ScalarNode || IsNull(n) || n.Decode(&t) != nil {
		r.Errorf(At(n), "%s must be a timestamp, not %q", what, clip(n.Value))
		return time.Time{}
	}
	return t.UTC()
}

// clip shortens a value for a message.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Bool returns a value that is true or false.
func (r *Reader) Bool(n *yaml.Node, what string) bool {
	n = Follow(n)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		r.Errorf(At(n), "%s is neither true nor false", what)
	}
	return n.Value == "true"
}

// Choice returns one of the choices.
func (r *Reader) Choice(n *yaml.Node, what string, choices ...string) string {
	got := r.Text(n, what)
	for _, c := range choices {
		if got == c {
			return got
		}
	}
	if Follow(n).Kind == yaml.ScalarNode {
		last := len(choices) - 1
		r.Errorf(At(Follow(n)), "%s is %q, want %s or %s", what, got, strings.Join(choices[:last], ", "), choices[last])
	}
	return ""
}

// List returns the elements of a sequence.
func (r *Reader) List(n *yaml.Node, what string) []*yaml.Node {
	n = Follow(n)
	if n.Kind != yaml.SequenceNode {
		r.Errorf(At(n), "%s is not a list", what)
		return nil
	}
	elements := make([]*yaml.Node, len(n.Content))
	for i, e := range n.Content {
		elements[i] = Follow(e)
	}
	return elements
}
