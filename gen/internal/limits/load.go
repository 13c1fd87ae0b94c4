package limits

import (
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// loader turns nodes into a declaration.
type loader struct{ *document.Reader }

// Load reads a declaration. file is its name for messages. The error, if any, is a [document.Errors].
func Load(file string, text []byte) (*Declaration, error) {
	l := loader{document.New(file)}
	d := &Declaration{}
	if root := l.Parse(text, "the declaration"); root != nil {
		l.Object(root, document.At(root), "the declaration", document.Keys{
			"resources": func(n *yaml.Node) {
				for _, p := range l.Pairs(n, "resources") {
					d.Resources = append(d.Resources, l.resource(p))
				}
				if n = document.Follow(n); n.Kind == yaml.MappingNode && len(n.Content) == 0 {
					l.Errorf(document.At(n), "resources is empty")
				}
			},
		}, "resources")
		l.checkNames(d)
	}
	return d, l.Err()
}

func (l *loader) resource(p document.Pair) *Resource {
	what := "resource " + p.Key
	r := &Resource{Pos: p.Pos, Name: p.Key, Go: Exported(p.Key)}
	l.resourceName(p.Pos, p.Key)
	l.Object(p.Value, p.Pos, what, document.Keys{
		"doc": func(n *yaml.Node) { r.Doc = l.Doc(n, what) },
		"go":  func(n *yaml.Node) { r.Go = l.goName(n, what) },
		"limits": func(n *yaml.Node) {
			pairs := l.Pairs(n, what+": limits")
			for _, p := range pairs {
				r.Limits = append(r.Limits, l.limit(what, p))
			}
			switch n = document.Follow(n); {
			case len(pairs) > maxLimits:
				l.Errorf(document.At(n), "%s has %d limits, want at most %d", what, len(pairs), maxLimits)
			case n.Kind == yaml.MappingNode && len(n.Content) == 0:
				l.Errorf(document.At(n), "%s: limits is empty", what)
			}
		},
	}, "limits")
	return r
}

func (l *loader) limit(owner string, p document.Pair) *Limit {
	what := owner + ": limit " + p.Key
	limit := &Limit{Pos: p.Pos, Name: p.Key, Go: Exported(p.Key), Unit: "tokens"}
	l.limitName(p.Pos, what, p.Key)
	if document.Follow(p.Value).Kind == yaml.ScalarNode {
		l.rate(p.Value, what, limit)
		return limit
	}
	var burst int64
	l.Object(p.Value, p.Pos, what, document.Keys{
		"doc":   func(n *yaml.Node) { limit.Doc = l.Doc(n, what) },
		"go":    func(n *yaml.Node) { limit.Go = l.goName(n, what) },
		"rate":  func(n *yaml.Node) { l.rate(n, what+": rate", limit) },
		"burst": func(n *yaml.Node) { burst = l.tokens(n, what+": burst") },
		"unit":  func(n *yaml.Node) { limit.Unit = l.unit(n, what) },
	}, "rate")
	if burst > 0 {
		limit.Capacity = burst
	}
	return limit
}

// goName returns a name of the user's own in Go.
func (l *loader) goName(n *yaml.Node, what string) string {
	name := l.Text(n, what+": go")
	if document.Follow(n).Kind == yaml.ScalarNode && !goName.MatchString(name) {
		l.Errorf(document.At(document.Follow(n)), "%s: go %q is not an exported name of letters and digits", what, name)
	}
	return name
}

var unitForm = regexp.MustCompile(`^\pL[\pL\pN -]*$`)

func (l *loader) unit(n *yaml.Node, what string) string {
	unit := l.Text(n, what+": unit")
	if document.Follow(n).Kind == yaml.ScalarNode && !unitForm.MatchString(unit) {
		l.Errorf(document.At(document.Follow(n)), "%s: unit %q is not made of words", what, unit)
	}
	return unit
}

// rate reads what flows into a limit, such as 500/min, or the whole of it, such as 1000:500/min.
func (l *loader) rate(n *yaml.Node, what string, limit *Limit) {
	text := l.Text(n, what)
	n = document.Follow(n)
	if n.Kind != yaml.ScalarNode {
		return
	}
	rate, err := grammar.ParseRate(text)
	switch {
	case err != nil:
		l.Errorf(document.At(n), "%s: %q: %v", what, text, err)
	case rate.Period%time.Second != 0:
		l.Errorf(document.At(n), "%s: %q: the period must be whole seconds", what, text)
	}
	limit.Capacity, limit.Refill, limit.Period = rate.Capacity, rate.Refill, rate.Period
}

// tokens reads a positive number, whose digits may be in groups: 10_000.
func (l *loader) tokens(n *yaml.Node, what string) int64 {
	text := l.Text(n, what)
	n = document.Follow(n)
	if n.Kind != yaml.ScalarNode {
		return 0
	}
	tokens, err := grammar.ParseTokens(text, 1)
	if err != nil {
		l.Errorf(document.At(n), "%s: %v", what, err)
	}
	return tokens
}
