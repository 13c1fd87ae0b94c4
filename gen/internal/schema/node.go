package schema

import (
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

// loader turns nodes into a schema.
type loader struct {
	*document.Reader
	fields   map[string]*Field
	indexes  map[string]*Index
	features map[string]*Feature
	records  map[string]*Record
	members  map[*yaml.Node]*Members // by the node that aliases share
	schema   *Schema
	legacy   bool // it reads records of older layouts
}

// maxScale is the number of decimal places that leaves a digit before the point in an int64.
const maxScale = 18

// scale returns a number of decimal places.
func (l *loader) scale(n *yaml.Node, what string) int {
	places, err := strconv.Atoi(l.Text(n, what))
	if n = document.Follow(n); n.Kind == yaml.ScalarNode && (err != nil || places < 1 || places > maxScale) {
		l.Errorf(document.At(n), "%s is %q, want a number from 1 to %d", what, n.Value, maxScale)
		return 0
	}
	return places
}

var (
	snakeName     = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	attributeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	indexName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
	typeName      = regexp.MustCompile(`^([a-z][a-z0-9]*\.[A-Z][A-Za-z0-9]*|[A-Z][A-Za-z0-9]*)$`)
)

// name checks a name of the schema's own.
func (l *loader) name(pos document.Pos, what, name string) {
	if !snakeName.MatchString(name) {
		l.Errorf(pos, "%s %q is not in snake case", what, name)
	}
}

func (l *loader) attributeName(pos document.Pos, name string) {
	if !attributeName.MatchString(name) {
		l.Errorf(pos, "attribute name %q is not made of letters, digits and underscores", name)
	}
}
