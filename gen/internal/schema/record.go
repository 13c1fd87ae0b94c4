package schema

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

func (l *loader) record(p document.Pair) {
	what := "record " + p.Key
	r := &Record{Pos: p.Pos, Name: p.Key, PK: &Template{Pos: p.Pos, broken: true}, SK: &Template{Pos: p.Pos, broken: true}}
	l.name(p.Pos, "record", p.Key)
	var entries []document.Pair
	primary := func(part **Template) func(*yaml.Node) {
		return func(n *yaml.Node) {
			*part = l.template(document.At(document.Follow(n)), l.Text(n, what), func(name string) *Field { return l.fields[name] })
		}
	}
	var stamp *yaml.Node
	known := document.Keys{
		"doc":      func(n *yaml.Node) { r.Doc = l.Doc(n, what) },
		"stamp":    func(n *yaml.Node) { stamp = n },
		"pk":       primary(&r.PK),
		"sk":       primary(&r.SK),
		"internal": func(n *yaml.Node) { r.Internal = l.Bool(n, what+": internal") },
		"indexes":  func(n *yaml.Node) { entries = l.Pairs(n, what+": indexes") },
		"attributes": func(n *yaml.Node) {
			for _, p := range l.Pairs(n, what+": attributes") {
				if a := l.attribute(what, p); a.Refuse != nil {
					r.Refused = append(r.Refused, &Refused{a, ""})
				} else {
					r.Attributes = append(r.Attributes, a)
				}
			}
		},
		"families": func(n *yaml.Node) {
			for _, p := range l.Pairs(n, what+": families") {
				m := l.family(what, p)
				for _, a := range m.Refused {
					r.Refused = append(r.Refused, &Refused{a, m.Prefix})
				}
				if len(m.Fields) > 0 || len(m.Refused) == 0 {
					r.Families = append(r.Families, &Family{p.Pos, p.Key, m})
				}
			}
		},
	}
	if l.legacy {
		known["nested"] = func(n *yaml.Node) {
			r.Nested = l.Text(n, what+": nested")
			l.attributeName(document.At(document.Follow(n)), r.Nested)
			if slices.Contains(l.schema.KeyAttributes(), r.Nested) {
				l.Errorf(document.At(document.Follow(n)), "%s: nested: attribute %s is part of a key", what, r.Nested)
			}
		}
	}
	l.Object(p.Value, p.Pos, what, known, "doc", "pk", "sk")
	for _, f := range r.SK.Fields() {
		if slices.Contains(r.PK.Fields(), f) {
			l.Errorf(r.SK.Pos, "%s has field %s in both parts of its key", what, f.Name)
		}
	}
	for _, e := range entries {
		l.entry(r, e)
	}
	if stamp != nil {
		name := l.Text(stamp, what+": stamp")
		at := slices.IndexFunc(r.Attributes, func(a *Attribute) bool { return a.Name == name && a.Type == N })
		if at < 0 {
			l.Errorf(document.At(document.Follow(stamp)), "%s: stamp names %q, which is no number of the record", what, name)
		} else {
			r.Stamp = r.Attributes[at]
		}
	}
	l.checkAttributes(r)
	l.checkFamilies(r)
	l.records[r.Name] = r
	l.schema.Records = append(l.schema.Records, r)
}

// entry reads the key of a record in an index.
func (l *loader) entry(r *Record, p document.Pair) {
	what := "record " + r.Name + ": index " + p.Key
	x := l.indexes[p.Key]
	if x == nil {
		l.Errorf(p.Pos, "%s is not declared", what)
		return
	}
	e := &Entry{Pos: p.Pos, Index: x, PK: r.PK, SK: &Template{Pos: p.Pos}}
	keyFields := r.KeyFields()
	borrowed := false // the key has the field that when names
	var pk, sk *yaml.Node
	l.Object(p.Value, p.Pos, what, document.Keys{
		"pk": func(n *yaml.Node) { pk = n },
		"sk": func(n *yaml.Node) { sk = n },
		"when": func(n *yaml.Node) {
			name := l.Text(n, what+": when")
			i := slices.IndexFunc(r.Attributes, func(a *Attribute) bool { return a.Go == name })
			switch {
			case l.fields[name] == nil || i < 0:
				l.Errorf(document.At(document.Follow(n)), "%s: when names %q, which is not a field and an attribute of the record", what, name)
			case r.Attributes[i].Type != S || l.fields[name].Int:
				l.Errorf(document.At(document.Follow(n)), "%s: when names %s, which is not a string", what, name)
			case slices.Contains(keyFields, l.fields[name]):
				l.Errorf(document.At(document.Follow(n)), "%s: when names %s, which is never empty", what, name)
			default:
				e.When = r.Attributes[i]
			}
		},
		"later": func(n *yaml.Node) { e.Later = l.Doc(n, what+": later") },
	}, "sk")
	read := func(n *yaml.Node) *Template {
		return l.template(document.At(document.Follow(n)), l.Text(n, what), func(name string) *Field {
			f := l.fields[name]
			switch {
			case f == nil || slices.Contains(keyFields, f):
			case e.When != nil && e.When.Go == name:
				borrowed = true
			default:
				l.Errorf(document.At(document.Follow(n)), "%s: field %s is not in the record's key, nor named by when", what, name)
			}
			return f
		})
	}
	switch {
	case x.Local && pk != nil:
		l.Errorf(p.Pos, "%s is local: its pk is that of the record", what)
	case !x.Local && pk == nil:
		l.Errorf(p.Pos, "%s has no pk", what)
	case !x.Local:
		e.PK = read(pk)
	}
	if sk != nil {
		e.SK = read(sk)
	}
	if e.When != nil && !borrowed {
		l.Errorf(p.Pos, "%s: when names %s, which is not in its key", what, e.When.Go)
	}
	r.Entries = append(r.Entries, e)
}

// attribute reads an attribute of a record, or of the members of a family.
func (l *loader) attribute(owner string, p document.Pair) *Attribute {
	what := owner + ": attribute " + p.Key
	a := &Attribute{Pos: p.Pos, Name: p.Key, Go: p.Key}
	l.attributeName(p.Pos, p.Key)
	var empty, unless *yaml.Node
	goName := p.Pos
	l.Object(p.Value, p.Pos, what, document.Keys{
		"type": func(n *yaml.Node) { a.Type = Type(l.Choice(n, what+": type", "S", "N", "BOOL", "SS", "L", "M", "any")) },
		"from": func(n *yaml.Node) {
			name := l.Text(n, what+": from")
			if a.From = l.fields[name]; a.From == nil {
				l.Errorf(document.At(document.Follow(n)), "%s: unknown field %q", what, name)
			}
		},
		"go": func(n *yaml.Node) {
			a.Go, goName, a.Noted = l.Text(n, what+": go"), document.At(document.Follow(n)), true
		},
		"refuse": func(n *yaml.Node) {
			name := l.Text(n, what+": refuse")
			if a.Refuse = l.features[name]; a.Refuse == nil {
				l.Errorf(document.At(document.Follow(n)), "%s: unknown feature %q", what, name)
			}
		},
		"unless": func(n *yaml.Node) {
			unless = document.Follow(n)
			for _, e := range l.List(n, what+": unless") {
				a.Unless = append(a.Unless, l.Text(e, what+": unless"))
			}
		},
		"empty": func(n *yaml.Node) {
			empty = document.Follow(n)
			a.Empty = Empty(l.Choice(n, what+": empty", string(Zero), string(Omit), string(Null), string(Never)))
			if empty.Tag == "!!null" {
				l.Errorf(document.At(empty), `%s: write "null" in quotes`, what)
			}
		},
		"wrap":   func(n *yaml.Node) { a.Wrap = l.Bool(n, what+": wrap") },
		"method": func(n *yaml.Node) { a.Method = l.Bool(n, what+": method") },
		"clamp":  func(n *yaml.Node) { a.Clamp = l.Bool(n, what+": clamp") },
		"scale":  func(n *yaml.Node) { a.Scale = l.scale(n, what+": scale") },
		"doc":    func(n *yaml.Node) { a.Doc = l.Doc(n, what) },
	}, "type", "doc")
	l.name(goName, what+": go name", a.Go)
	l.checkKind(a, what, empty, unless)
	if a.Wrap && a.Type != N {
		l.Errorf(p.Pos, "%s: wrap is for numbers", what)
	}
	if a.Clamp && (a.Type != N || a.Wrap) {
		l.Errorf(p.Pos, "%s: clamp is for numbers that do not wrap", what)
	}
	if a.Method && (a.Type != S && a.Type != N || a.Empty != Omit) {
		l.Errorf(p.Pos, "%s: method is for texts and numbers that are omitted where they are empty", what)
	}
	if a.Scale > 0 && (a.Clamp || a.Type != N || a.Wrap || a.From != nil) {
		l.Errorf(p.Pos, "%s: scale is for numbers that neither wrap, are clamped, nor follow from the key", what)
	}
	return a
}

// checkKind reports forbidden fields of attributes that are rejected, are computed from the key, or are sets. The nodes are the values of
// empty and unless, nil for none.
func (l *loader) checkKind(a *Attribute, what string, empty, unless *yaml.Node) {
	switch {
	case a.Refuse == nil && unless != nil:
		l.Errorf(document.At(unless), "%s: unless is for attributes that are refused", what)
	case a.Refuse != nil && (a.From != nil || empty != nil || a.Wrap || a.Clamp || a.Scale > 0):
		l.Errorf(a.Pos, "%s is refused, and neither read nor written: it has a type, go, unless and a doc alone", what)
	case a.From != nil && empty != nil:
		l.Errorf(document.At(empty), "%s follows from the key and is never empty", what)
	case a.From != nil && a.From.Int != (a.Type == N), a.From != nil && a.Type != N && a.Type != S:
		l.Errorf(a.Pos, "%s is of type %s, not of that of field %s", what, a.Type, a.From.Name)
	case a.Refuse == nil && a.Type == Any && a.Empty != Omit:
		l.Errorf(a.Pos, "%s: a value of any type has no zero value, and needs empty: omit", what)
	case a.Refuse == nil && a.Type == SS && (a.Empty == Required || a.Empty == Zero):
		l.Errorf(a.Pos, "%s: an empty set cannot be stored: say empty: omit or null", what)
	}
}

// checkAttributes reports attributes that contradict the key.
func (l *loader) checkAttributes(r *Record) {
	what := "record " + r.Name
	for _, a := range r.Attributes {
		if a.Method {
			l.Errorf(a.Pos, "%s: attribute %s: method is for members of families", what, a.Name)
		}
		if a.From != nil && !slices.Contains(r.KeyFields(), a.From) {
			l.Errorf(a.Pos, "%s: attribute %s comes from field %s, which is not in the key", what, a.Name, a.From.Name)
		}
		if slices.Contains(l.schema.KeyAttributes(), a.Name) {
			l.Errorf(a.Pos, "%s: attribute %s is part of a key", what, a.Name)
		}
		if a.Name == l.schema.TTL && a.Type != N {
			l.Errorf(a.Pos, "%s: attribute %s is the time of expiry, which is of type N", what, a.Name)
		}
		if a.Name == l.schema.TTL && a.Scale > 0 {
			l.Errorf(a.Pos, "%s: attribute %s is the time of expiry, which has no decimal places", what, a.Name)
		}
	}
}

// family reads a family, or returns the form that another alias of the same node has led to.
func (l *loader) family(owner string, p document.Pair) *Members {
	what := owner + ": family " + p.Key
	l.name(p.Pos, "family", p.Key)
	node := document.Follow(p.Value)
	if m := l.members[node]; m != nil {
		return m
	}
	m := &Members{Pos: document.At(node)}
	typePos, patternPos := p.Pos, p.Pos
	l.Object(node, p.Pos, what, document.Keys{
		"pattern": func(n *yaml.Node) { patternPos = document.At(document.Follow(n)); l.pattern(n, what, m) },
		"type": func(n *yaml.Node) {
			m.Type, typePos = l.Text(n, what+": type"), document.At(document.Follow(n))
			if !typeName.MatchString(m.Type) {
				l.Errorf(typePos, "%s: type %q is neither pkg.Type nor an exported type", what, m.Type)
			}
		},
		"held": func(n *yaml.Node) { m.Held = l.heldType(n, what) },
		"doc":  func(n *yaml.Node) { m.Doc = l.Doc(n, what) },
		"fields": func(n *yaml.Node) {
			for _, p := range l.Pairs(n, what+": fields") {
				if a := l.attribute(what, p); a.Refuse != nil {
					m.Refused = append(m.Refused, a)
				} else {
					m.Fields = append(m.Fields, a)
				}
			}
		},
	}, "pattern", "doc", "fields")
	l.checkRefused(m, p.Pos, what, patternPos)
	for _, a := range slices.Concat(m.Fields, m.Refused) {
		if a.From != nil {
			l.Errorf(a.Pos, "%s: attribute %s: from is for attributes of records", what, a.Name)
		}
		if a.Method && !strings.Contains(m.Type, ".") {
			l.Errorf(a.Pos, "%s: attribute %s: method is for members of an imported type", what, a.Name)
		}
		if m.PerAttr && strings.Contains(a.Name, "_") {
			l.Errorf(a.Pos, "%s: field %s has an underscore, which separates it from the name of the member", what, a.Name)
		}
	}
	if m.Var != nil && !m.PerAttr {
		if len(m.Fields) != 1 {
			l.Errorf(patternPos, "%s: pattern %q is for one field, not for %d", what, m.Pattern, len(m.Fields))
		}
		for _, a := range m.Fields {
			if a.Empty == Null { // it would read as an attribute that is not a member
				l.Errorf(a.Pos, "%s: pattern %q is for a field that is never NULL", what, m.Pattern)
			}
		}
	}
	if len(m.Fields) > 0 && !slices.ContainsFunc(m.Fields, (*Attribute).always) {
		l.Errorf(p.Pos, "%s: a member whose fields are all zero would not be written at all; make one of them required or zero", what)
	}
	l.members[node] = m
	if len(m.Fields) == 0 && len(m.Refused) > 0 { // it has no members for programs
		return m
	}
	for _, other := range l.schema.Members {
		if other.Type == m.Type && m.Type != "" {
			l.Errorf(typePos, "%s: type %s is declared in line %d already; share the family through an alias",
				what, m.Type, other.Pos.Line)
			return m
		}
	}
	if m.Type != "" {
		l.schema.Members = append(l.schema.Members, m)
	}
	return m
}

// heldType reads the type that holds the members of a family.
func (l *loader) heldType(n *yaml.Node, what string) string {
	name := l.Text(n, what+": held")
	if !strings.Contains(name, ".") || !typeName.MatchString(name) {
		l.Errorf(document.At(document.Follow(n)), "%s: held %q is not pkg.Type", what, name)
	}
	return name
}

// checkRefused reports a family without its type, and refused attributes that are no fields of members.
func (l *loader) checkRefused(m *Members, pos document.Pos, what string, patternPos document.Pos) {
	alone := len(m.Fields) == 0 && len(m.Refused) > 0
	switch {
	case alone && m.Type != "":
		l.Errorf(pos, "%s: all fields are refused, so that there is no type", what)
	case !alone && m.Type == "":
		l.Errorf(pos, "%s has no type", what)
	}
	if len(m.Refused) > 0 && m.Var != nil && (!m.PerAttr || m.Prefix == "") {
		l.Errorf(patternPos, "%s: fields can be refused where the pattern has a prefix and {field}", what)
	}
	for _, a := range m.Refused {
		if a.Noted {
			l.Errorf(a.Pos, "%s: attribute %s is refused, and has no go name", what, a.Name)
		}
	}
}

// always reports whether a zero value is written.
func (a *Attribute) always() bool { return a.Empty != Omit && a.Empty != Never }

// pattern reads the form of the attribute names of a family.
func (l *loader) pattern(n *yaml.Node, what string, m *Members) {
	m.Pattern = l.Text(n, what+": pattern")
	prefix, rest, _ := strings.Cut(m.Pattern, "{")
	name, suffix, _ := strings.Cut(rest, "}")
	m.Var = l.fields[name]
	switch {
	case m.Var == nil || m.Var.Int || suffix != "" && suffix != "_{field}":
		l.Errorf(document.At(document.Follow(n)), "%s: pattern %q is not a prefix, {x} with a string field x, and _{field} or nothing",
			what, m.Pattern)
		m.Var = nil
	case prefix != "":
		l.attributeName(document.At(document.Follow(n)), strings.TrimSuffix(prefix, "#"))
	}
	m.Prefix, m.PerAttr = prefix, suffix != ""
}

// checkFamilies reports attribute names that could be read in two ways.
func (l *loader) checkFamilies(r *Record) {
	for i, f := range r.Families {
		what := "record " + r.Name + ": family " + f.Name
		for _, other := range r.Families[:i] {
			if f.Var == nil || other.Var == nil {
				continue // reported already
			}
			if f.meets(other.Members) {
				l.Errorf(f.Pos, "%s: attribute names may also belong to family %s", what, other.Name)
			}
		}
		if f.Prefix == "" {
			continue
		}
		for _, a := range r.Attributes {
			if f.reads(a.Name) {
				l.Errorf(a.Pos, "%s: attribute %s reads as one of the family", what, a.Name)
			}
		}
		for _, name := range l.schema.KeyAttributes() {
			if f.reads(name) {
				l.Errorf(f.Pos, "%s: key attribute %s reads as one of the family", what, name)
			}
		}
	}
}

// meets reports whether an attribute name may have the forms of both families. A family without a prefix reads the
// attributes that no other reads, and no name of its members has a "#".
func (m *Members) meets(other *Members) bool {
	if m.Prefix == "" || other.Prefix == "" {
		return !strings.HasSuffix(m.Prefix+other.Prefix, "#")
	}
	return strings.HasPrefix(m.Prefix, other.Prefix) || strings.HasPrefix(other.Prefix, m.Prefix)
}

// reads reports whether an attribute name has the form of the family.
func (m *Members) reads(name string) bool {
	rest, ok := strings.CutPrefix(name, m.Prefix)
	if !m.PerAttr {
		return ok && rest != ""
	}
	i := strings.LastIndexByte(rest, '_')
	named := func(a *Attribute) bool { return a.Name == rest[i+1:] }
	return ok && i > 0 && (slices.ContainsFunc(m.Fields, named) || slices.ContainsFunc(m.Refused, named))
}
