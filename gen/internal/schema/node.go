package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// loader turns nodes into a schema and collects what is wrong with them.
type loader struct {
	file    string
	errs    Errors
	fields  map[string]*Field
	indexes map[string]*Index
	records map[string]*Record
	members map[*yaml.Node]*Members // by the node that aliases share
	schema  *Schema
}

func (l *loader) errorf(pos Pos, format string, args ...any) {
	l.errs = append(l.errs, Error{l.file, pos, fmt.Sprintf(format, args...)})
}

// follow returns the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func at(n *yaml.Node) Pos { return Pos{n.Line, n.Column} }

// pair is a key of a mapping with its value.
type pair struct {
	pos   Pos
	key   string
	value *yaml.Node
}

// pairs returns what a mapping holds.
func (l *loader) pairs(n *yaml.Node, what string) []pair {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		l.errorf(at(n), "%s is not a mapping", what)
		return nil
	}
	var pairs []pair
	seen := map[string]Pos{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			l.errorf(at(key), "a key of %s is not a name", what)
			continue
		}
		if first, ok := seen[key.Value]; ok {
			l.errorf(at(key), "%s has %s twice; the first is in line %d", what, key.Value, first.Line)
			continue
		}
		seen[key.Value] = at(key)
		pairs = append(pairs, pair{at(key), key.Value, n.Content[i+1]})
	}
	return pairs
}

// keys says how to read the values of a mapping with fixed keys.
type keys map[string]func(*yaml.Node)

// object reads a mapping with fixed keys, and reports those of the required ones that it lacks at pos.
func (l *loader) object(n *yaml.Node, pos Pos, what string, read keys, required ...string) {
	present := map[string]bool{}
	for _, p := range l.pairs(n, what) {
		present[p.key] = true
		if f, ok := read[p.key]; ok {
			f(p.value)
		} else {
			l.errorf(p.pos, "%s has an unknown key %s", what, p.key)
		}
	}
	if follow(n).Kind != yaml.MappingNode {
		return
	}
	for _, key := range required {
		if !present[key] {
			l.errorf(pos, "%s has no %s", what, key)
		}
	}
}

// text returns the value of a scalar.
func (l *loader) text(n *yaml.Node, what string) string {
	n = follow(n)
	if n.Kind != yaml.ScalarNode {
		l.errorf(at(n), "%s is not a text", what)
		return ""
	}
	return n.Value
}

// doc returns a text for readers.
func (l *loader) doc(n *yaml.Node, what string) string {
	doc := strings.TrimSpace(l.text(n, what+": doc"))
	switch {
	case follow(n).Kind != yaml.ScalarNode:
	case doc == "" || follow(n).Tag == "!!null":
		l.errorf(at(follow(n)), "%s has an empty doc", what)
	case strings.ContainsFunc(doc, func(r rune) bool { return r < ' ' }):
		l.errorf(at(follow(n)), "%s: doc has several lines", what)
	}
	return doc
}

func (l *loader) bool(n *yaml.Node, what string) bool {
	n = follow(n)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		l.errorf(at(n), "%s is neither true nor false", what)
	}
	return n.Value == "true"
}

// maxScale is the number of decimal places that leaves a digit before the point in an int64.
const maxScale = 18

// scale returns a number of decimal places.
func (l *loader) scale(n *yaml.Node, what string) int {
	places, err := strconv.Atoi(l.text(n, what))
	if n = follow(n); n.Kind == yaml.ScalarNode && (err != nil || places < 1 || places > maxScale) {
		l.errorf(at(n), "%s is %q, want a number from 1 to %d", what, n.Value, maxScale)
		return 0
	}
	return places
}

// choice returns one of the choices.
func (l *loader) choice(n *yaml.Node, what string, choices ...string) string {
	got := l.text(n, what)
	for _, c := range choices {
		if got == c {
			return got
		}
	}
	if follow(n).Kind == yaml.ScalarNode {
		last := len(choices) - 1
		l.errorf(at(follow(n)), "%s is %q, want %s or %s", what, got, strings.Join(choices[:last], ", "), choices[last])
	}
	return ""
}

// list returns the elements of a sequence.
func (l *loader) list(n *yaml.Node, what string) []*yaml.Node {
	n = follow(n)
	if n.Kind != yaml.SequenceNode {
		l.errorf(at(n), "%s is not a list", what)
		return nil
	}
	elements := make([]*yaml.Node, len(n.Content))
	for i, e := range n.Content {
		elements[i] = follow(e)
	}
	return elements
}

var (
	snakeName     = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	attributeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	indexName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
	typeName      = regexp.MustCompile(`^([a-z][a-z0-9]*\.[A-Z][A-Za-z0-9]*|[a-z][A-Za-z0-9]*)$`)
)

// name checks a name of the schema's own.
func (l *loader) name(pos Pos, what, name string) {
	if !snakeName.MatchString(name) {
		l.errorf(pos, "%s %q is not in snake case", what, name)
	}
}

func (l *loader) attributeName(pos Pos, name string) {
	if !attributeName.MatchString(name) {
		l.errorf(pos, "attribute name %q is not made of letters, digits and underscores", name)
	}
}
