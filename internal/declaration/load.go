package declaration

import (
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// loader turns nodes into a declaration.
type loader struct {
	*document.Reader
	typed bool // for types in Go: each resource needs limits
}

// Load reads a declaration. file is its name for messages. The error, if any, is a [document.Errors].
func Load(file string, text []byte) (*Declaration, error) {
	l := &loader{Reader: document.New(file)}
	return l.load(file, text), l.Err()
}

// LoadForGo is [Load] for the generator of types: the declaration must have resources, whose names in Go differ.
func LoadForGo(file string, text []byte) (*Declaration, error) {
	l := &loader{Reader: document.New(file), typed: true}
	d := l.load(file, text, "resources")
	l.checkNames(d)
	return d, l.Err()
}

func (l *loader) load(file string, text []byte, required ...string) *Declaration {
	d := &Declaration{File: file}
	const what = "the declaration"
	root := l.Parse(text, what)
	if root == nil {
		return d
	}
	failed := l.Failed()
	defer func() {
		if l.Failed() == failed {
			l.checkWithin(d)
		}
	}()
	l.Object(root, document.At(root), what, document.Keys{
		"namespace": func(n *yaml.Node) { d.Namespace, d.NamespacePos = l.namespace(n), document.At(document.Follow(n)) },
		"system":    func(n *yaml.Node) { d.System = l.system(n) },
		"resources": func(n *yaml.Node) {
			for _, p := range l.entries(n, "resources") {
				d.Resources = append(d.Resources, l.resource(p))
			}
		},
		"entities": func(n *yaml.Node) {
			for _, p := range l.entries(n, "entities") {
				d.Entities = append(d.Entities, l.entity(p))
			}
		},
	}, required...)
	if l.Failed() == failed && d.System == nil && d.Resources == nil && d.Entities == nil {
		l.Errorf(document.At(root), "%s has neither system nor resources nor entities", what)
	}
	return d
}

// entries returns the content of a mapping, which must not be empty.
func (l *loader) entries(n *yaml.Node, what string) []document.Pair {
	pairs := l.Pairs(n, what)
	if n = document.Follow(n); n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		l.Errorf(document.At(n), "%s is empty", what)
	}
	return pairs
}

func (l *loader) namespace(n *yaml.Node) string {
	name := l.Text(n, "namespace")
	n = document.Follow(n)
	switch {
	case n.Kind != yaml.ScalarNode:
	case name == "" || document.IsNull(n):
		l.Errorf(document.At(n), "namespace is empty")
	case len(name) > maxNamespace:
		l.Errorf(document.At(n), "namespace %q must have at most %d bytes", name, maxNamespace)
	case name == "_":
		l.Errorf(document.At(n), "namespace %q is reserved", name)
	case strings.ContainsFunc(name, func(c rune) bool { return c == '#' || c < ' ' || c == 0x7f }):
		l.Errorf(document.At(n), "namespace %q must not hold # or control characters", name)
	}
	return name
}

// maxRetentionDays is the longest time for which package zlimit keeps audit events.
const maxRetentionDays = 36_500

func (l *loader) system(n *yaml.Node) *System {
	const what = "system"
	s := &System{Pos: document.At(n)}
	l.Object(n, document.At(n), what, document.Keys{
		"limits":         func(n *yaml.Node) { s.Limits = l.limits(n, what) },
		"on_unavailable": func(n *yaml.Node) { s.OnUnavailable = l.policy(n, what) },
		"audit_retention_days": func(n *yaml.Node) {
			const what = what + ": audit_retention_days"
			failed := l.Failed()
			s.RetentionDays = l.Count(n, what)
			if l.Failed() == failed && (s.RetentionDays < 1 || s.RetentionDays > maxRetentionDays) {
				l.Errorf(document.At(document.Follow(n)), "%s %d must be from 1 to %d", what, s.RetentionDays, maxRetentionDays)
			}
		},
	})
	if f := document.Follow(n); f.Kind == yaml.MappingNode && len(f.Content) == 0 {
		l.Errorf(document.At(f), "system is empty")
	}
	return s
}

func (l *loader) entity(p document.Pair) *Entity {
	what := "entity " + p.Key
	e := &Entity{Pos: p.Pos, ID: p.Key}
	l.entityID(p.Pos, p.Key)
	failed := l.Failed()
	l.Object(p.Value, p.Pos, what, document.Keys{
		"limits":         func(n *yaml.Node) { e.Limits = l.limits(n, what) },
		"on_unavailable": func(n *yaml.Node) { e.OnUnavailable = l.policy(n, what) },
		"cascade":        func(n *yaml.Node) { e.Cascade = l.cascade(n, what) },
		"resources": func(n *yaml.Node) {
			for _, p := range l.entries(n, what+": resources") {
				e.Resources = append(e.Resources, l.entityResource(what, p))
			}
		},
	})
	if l.Failed() == failed && e.Limits == nil && e.OnUnavailable == "" && e.Cascade == "" && e.Resources == nil {
		l.Errorf(p.Pos, "%s has neither limits nor on_unavailable nor cascade nor resources", what)
	}
	return e
}

func (l *loader) entityResource(owner string, p document.Pair) *Resource {
	what := owner + ": resource " + p.Key
	r := &Resource{Pos: p.Pos, Name: p.Key}
	l.resourceName(p.Pos, p.Key)
	l.resourceLevel(p, what, r, document.Keys{})
	return r
}

func (l *loader) resource(p document.Pair) *Resource {
	what := "resource " + p.Key
	r := &Resource{Pos: p.Pos, Name: p.Key, Go: Exported(p.Key)}
	var required []string
	if l.typed {
		required = []string{"limits"}
	}
	l.resourceName(p.Pos, p.Key)
	l.resourceLevel(p, what, r, document.Keys{
		"doc":    func(n *yaml.Node) { r.Doc = l.Doc(n, what) },
		"go":     func(n *yaml.Node) { r.Go = l.goName(n, what) },
		"within": func(n *yaml.Node) { r.Within = l.within(n, what) },
	}, required...)
	return r
}

// within reads the resource that another one lies within. An empty text, and null, stand for none.
func (l *loader) within(n *yaml.Node, what string) *Wider {
	name := l.Text(n, what+": within")
	n = document.Follow(n)
	w := &Wider{Pos: document.At(n)}
	if n.Kind == yaml.ScalarNode && !document.IsNull(n) && name != "" {
		w.Name = name
		l.resourceName(w.Pos, name)
	}
	return w
}

// checkWithin refuses resources that lie within themselves, or within too many others.
func (l *loader) checkWithin(d *Declaration) {
	wider, at := map[string]string{}, map[string]document.Pos{}
	for _, r := range d.Resources {
		if r.Within != nil {
			wider[r.Name], at[r.Name] = r.Within.Name, r.Within.Pos
		}
	}
	if chain := grammar.CheckWithin(wider, func(string) bool { return true }); chain != nil {
		l.Errorf(at[chain[0]], "resource %s: within makes a circle, or a chain of more than three resources: %s", chain[0], strings.Join(chain, " within "))
	}
}

// resourceLevel reads the content of a level for a resource, which must not be empty, and other keys that it may have.
func (l *loader) resourceLevel(p document.Pair, what string, r *Resource, keys document.Keys, required ...string) {
	keys["limits"] = func(n *yaml.Node) { r.Limits = l.limits(n, what) }
	keys["on_unavailable"] = func(n *yaml.Node) { r.OnUnavailable = l.policy(n, what) }
	keys["cascade"] = func(n *yaml.Node) { r.Cascade = l.cascade(n, what) }
	failed := l.Failed()
	l.Object(p.Value, p.Pos, what, keys, required...)
	if l.Failed() == failed && r.Limits == nil && r.OnUnavailable == "" && r.Cascade == "" && r.Within == nil {
		rest := ""
		if keys["within"] != nil {
			rest = " nor within"
		}
		l.Errorf(p.Pos, "%s has neither limits nor on_unavailable nor cascade%s", what, rest)
	}
}

// policy reads what happens to requests while the store is unavailable.
func (l *loader) policy(n *yaml.Node, what string) string {
	return l.Choice(n, what+": on_unavailable", "block", "allow")
}

func (l *loader) cascade(n *yaml.Node, what string) string {
	return l.Choice(n, what+": cascade", "always", "never", "inherit")
}

func (l *loader) limits(n *yaml.Node, what string) (limits []*Limit) {
	pairs := l.Pairs(n, what+": limits")
	for _, p := range pairs {
		limits = append(limits, l.limit(what, p))
	}
	switch n = document.Follow(n); {
	case len(pairs) > maxLimits:
		l.Errorf(document.At(n), "%s has %d limits, want at most %d", what, len(pairs), maxLimits)
	case n.Kind == yaml.MappingNode && len(n.Content) == 0:
		l.Errorf(document.At(n), "%s: limits is empty", what)
	}
	return limits
}

func (l *loader) limit(owner string, p document.Pair) *Limit {
	what := owner + ": limit " + p.Key
	limit := &Limit{Limit: grammar.Limit{Name: p.Key}, Pos: p.Pos, Go: Exported(p.Key), Unit: "tokens"}
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
		"burst": func(n *yaml.Node) { burst = l.tokens(n, what+": burst", limit.Name) },
		"unit":  func(n *yaml.Node) { limit.Unit = l.unit(n, what) },
	}, "rate")
	if burst > 0 {
		if limit.Resets != "" || limit.Session != 0 || limit.Term != 0 {
			l.Errorf(limit.Pos, "%s: burst is for limits that refill, and neither for quotas nor for slots", what)
		}
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
	rate, err := grammar.ParseRate(limit.Name, text)
	switch {
	case err != nil:
		l.Errorf(document.At(n), "%s: %q: %v", what, text, err)
	case rate.RefillPeriod%time.Second != 0 || rate.Term%time.Second != 0:
		l.Errorf(document.At(n), "%s: %q: the period must be whole seconds", what, text)
	}
	limit.Limit = rate
}

// tokens reads a positive amount of a limit, whose digits may be in groups: 10_000.
func (l *loader) tokens(n *yaml.Node, what, limit string) int64 {
	text := l.Text(n, what)
	n = document.Follow(n)
	if n.Kind != yaml.ScalarNode {
		return 0
	}
	tokens, err := grammar.ParseAmount(limit, text, 1)
	if err != nil {
		l.Errorf(document.At(n), "%s: %v", what, err)
	}
	return tokens
}
