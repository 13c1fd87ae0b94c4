// Package document reads YAML documents for generators: nodes become texts, lists and mappings, and everything that is
// wrong with them is reported at once, with line and column.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// A Pos is a place in the document, counted from 1.
type Pos struct {
	Line, Column int
}

// A Reader reads one document and collects what is wrong with it. What it returns for a node of the wrong form is empty.
type Reader struct {
	file string
	errs Errors
}

// New returns a reader of a document. file is its name for messages.
func New(file string) *Reader { return &Reader{file: file} }

// Errorf reports something that is wrong at a place.
func (r *Reader) Errorf(pos Pos, format string, args ...any) {
	r.errs = append(r.errs, Error{r.file, pos, fmt.Sprintf(format, args...)})
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

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// Parse returns the top node of the only document, which is called what in messages; nil when there is none.
func (r *Reader) Parse(text []byte, what string) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	switch {
	case errors.Is(err, io.EOF):
		r.Errorf(Pos{1, 1}, "%s is empty", what)
		return nil
	case err == nil:
		if err := decoder.Decode(&second); err == nil {
			r.Errorf(At(&second), "there is a second document")
		} else if !errors.Is(err, io.EOF) {
			r.syntaxError(err)
		}
		if len(document.Content) == 0 {
			r.Errorf(Pos{1, 1}, "%s is empty", what)
			return nil
		}
		return document.Content[0]
	default:
		r.syntaxError(err)
		return nil
	}
}

// syntaxError reports an error of the YAML library, which counts lines from 0 in errors of its parser, and from 1 in those
// of its scanner.
func (r *Reader) syntaxError(err error) {
	pos := Pos{1, 1}
	text := yamlLine.ReplaceAllString(err.Error(), "")
	if m := yamlLine.FindStringSubmatch(err.Error()); len(m) == 2 && m[1] != "" {
		pos.Line, _ = strconv.Atoi(m[1]) // the pattern has digits alone
		if strings.HasPrefix(text, "did not find expected") {
			pos.Line++
		}
	}
	r.Errorf(pos, "%s", text)
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

// Pairs returns what a mapping holds.
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

// Object reads a mapping with fixed keys, and reports those of the required ones that it lacks at pos.
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
