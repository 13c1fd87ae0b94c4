// Package calls has the AWS calls of zlimit's programs, as a checked data model. [Load] reads it from YAML and
// reports every mistake, not just the first.
package calls

import (
	"maps"
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

// A Program is a kind of program, with its actions.
type Program struct {
	Name    string
	Doc     string
	Reads   []string            // on items of the table, of DynamoDB
	Writes  map[string][]string // on items of the table, of DynamoDB, by the name of the record
	Indexes []string            // on indexes of the table, of DynamoDB
	Bucket  []string            // on objects of the stack's bucket, of S3

	pos document.Pos
}

// Records returns the names of the records that the program writes, sorted.
func (p *Program) Records() []string { return slices.Sorted(maps.Keys(p.Writes)) }

// Changes returns the actions by which the program writes, sorted.
func (p *Program) Changes() []string {
	var all []string
	for _, actions := range p.Writes {
		all = append(all, actions...)
	}
	slices.Sort(all)
	return slices.Compact(all)
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
	for _, p := range c.Programs {
		l.sides(c.Writes, p)
	}
	return c, l.Err()
}

// loader turns nodes into calls.
type loader struct{ *document.Reader }

func (l *loader) program(pair document.Pair) *Program {
	what := "program " + pair.Key
	p := &Program{Name: pair.Key, pos: pair.Pos}
	l.Object(pair.Value, pair.Pos, what, document.Keys{
		"doc":   func(n *yaml.Node) { p.Doc = l.Doc(n, what) },
		"reads": func(n *yaml.Node) { p.Reads = l.actions(n, what+": reads") },
		"writes": func(n *yaml.Node) {
			p.Writes = map[string][]string{}
			for _, record := range l.Pairs(n, what+": writes") {
				p.Writes[record.Key] = l.actions(record.Value, what+": writes of "+record.Key)
			}
		},
		"indexes": func(n *yaml.Node) { p.Indexes = l.actions(n, what+": indexes") },
		"bucket":  func(n *yaml.Node) { p.Bucket = l.actions(n, what+": bucket") },
	}, "doc", "reads")
	return p
}

// sides reports actions of a program that are on the wrong side: policies bound writes by keys, and reads not.
func (l *loader) sides(writes []string, p *Program) {
	for _, a := range p.Reads {
		if slices.Contains(writes, a) {
			l.Errorf(p.pos, "program %s: %s among the reads changes items", p.Name, a)
		}
	}
	for _, a := range p.Changes() {
		if !slices.Contains(writes, a) {
			l.Errorf(p.pos, "program %s: %s among the writes is none of %v", p.Name, a, writes)
		}
	}
}

// action is the form of an action. A wildcard would allow actions without a review.
var action = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

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
