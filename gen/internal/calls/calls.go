// Package calls is what the programs of zlimit ask of AWS, as a checked data model. [Load] reads it from YAML and reports
// everything that is wrong with it at once.
package calls

import (
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

// Calls are the actions of IAM that the programs of zlimit need. Actions have no prefix, and are sorted.
type Calls struct {
	Writes   []string // actions that change items
	Registry []string // by which a tenant finds its namespace
	Programs []*Program
}

// A Program is a kind of program, and what it does.
type Program struct {
	Name    string
	Doc     string
	Table   []string // on items of the table, of DynamoDB
	Indexes []string // on indexes of the table, of DynamoDB
	Bucket  []string // on objects of the stack's bucket, of S3
}

// Program returns a program by its name, nil when there is none.
func (c *Calls) Program(name string) *Program {
	for _, p := range c.Programs {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Load reads the calls. file is its name for messages. The error, if any, is a [document.Errors].
func Load(file string, text []byte) (*Calls, error) {
	l := loader{document.New(file)}
	c := &Calls{}
	if root := l.Parse(text, "the calls"); root != nil {
		l.Object(root, document.At(root), "the calls", document.Keys{
			"writes":   func(n *yaml.Node) { c.Writes = l.actions(n, "writes") },
			"registry": func(n *yaml.Node) { c.Registry = l.actions(n, "registry") },
			"programs": func(n *yaml.Node) {
				for _, p := range l.Pairs(n, "programs") {
					c.Programs = append(c.Programs, l.program(p))
				}
			},
		}, "writes", "registry", "programs")
	}
	return c, l.Err()
}

// loader turns nodes into calls.
type loader struct{ *document.Reader }

func (l *loader) program(pair document.Pair) *Program {
	what := "program " + pair.Key
	p := &Program{Name: pair.Key}
	l.Object(pair.Value, pair.Pos, what, document.Keys{
		"doc":     func(n *yaml.Node) { p.Doc = l.Doc(n, what) },
		"table":   func(n *yaml.Node) { p.Table = l.actions(n, what+": table") },
		"indexes": func(n *yaml.Node) { p.Indexes = l.actions(n, what+": indexes") },
		"bucket":  func(n *yaml.Node) { p.Bucket = l.actions(n, what+": bucket") },
	}, "doc", "table")
	return p
}

// action is the form of an action. A wildcard would allow actions without a review.
var action = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// actions reads a list of actions in the order of the alphabet.
func (l *loader) actions(n *yaml.Node, what string) []string {
	var names []string
	for _, element := range l.List(n, what) {
		name := l.Text(element, what)
		switch pos := document.At(document.Follow(element)); {
		case !action.MatchString(name):
			l.Errorf(pos, "%s: %q is not an action such as GetItem", what, name)
		case slices.Contains(names, name):
			l.Errorf(pos, "%s has %s twice", what, name)
		case len(names) > 0 && name < names[len(names)-1]:
			l.Errorf(pos, "%s: %s stands behind %s: sort the actions", what, name, names[len(names)-1])
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		l.Errorf(document.At(document.Follow(n)), "%s is empty", what)
	}
	return names
}
