package schema

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Load reads a schema. file is its name for messages. The error, if any, is an [Errors].
func Load(file string, text []byte) (*Schema, error) {
	l := &loader{
		file:    file,
		fields:  map[string]*Field{},
		indexes: map[string]*Index{},
		records: map[string]*Record{},
		members: map[*yaml.Node]*Members{},
		schema:  &Schema{},
	}
	if root := l.parse(text); root != nil {
		l.load(root)
	}
	if len(l.errs) > 0 {
		return nil, l.errs.sorted()
	}
	return l.schema, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse returns the top node of the only document.
func (l *loader) parse(text []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	switch {
	case errors.Is(err, io.EOF):
		l.errorf(Pos{1, 1}, "the schema is empty")
		return nil
	case err == nil:
		if err := decoder.Decode(&second); err == nil {
			l.errorf(at(&second), "there is a second document")
		} else if !errors.Is(err, io.EOF) {
			l.syntaxError(err)
		}
		if len(document.Content) == 0 {
			l.errorf(Pos{1, 1}, "the schema is empty")
			return nil
		}
		return document.Content[0]
	default:
		l.syntaxError(err)
		return nil
	}
}

// syntaxError reports an error of the YAML library, which counts lines from 0 in errors of its parser, and from 1 in those
// of its scanner.
func (l *loader) syntaxError(err error) {
	pos := Pos{1, 1}
	text := yamlLine.ReplaceAllString(err.Error(), "")
	if m := yamlLine.FindStringSubmatch(err.Error()); len(m) == 2 && m[1] != "" {
		pos.Line, _ = strconv.Atoi(m[1]) // the pattern has digits alone
		if strings.HasPrefix(text, "did not find expected") {
			pos.Line++
		}
	}
	l.errorf(pos, "%s", text)
}

// load reads the sections in the order in which they refer to each other.
func (l *loader) load(root *yaml.Node) {
	sections := map[string]*yaml.Node{}
	section := func(name string) func(*yaml.Node) {
		return func(n *yaml.Node) { sections[name] = n }
	}
	s := l.schema
	l.object(root, at(root), "the schema", keys{
		"version":            func(n *yaml.Node) { s.Version = l.version(n, "version") },
		"client_min_version": func(n *yaml.Node) { s.ClientMinVersion = l.version(n, "client_min_version") },
		"ttl": func(n *yaml.Node) {
			s.TTL = l.text(n, "ttl")
			l.attributeName(at(follow(n)), s.TTL)
		},
		"fields":     section("fields"),
		"indexes":    section("indexes"),
		"records":    section("records"),
		"queries":    section("queries"),
		"operations": section("operations"),
	}, "version", "client_min_version", "ttl", "fields", "records")
	for _, read := range []struct {
		section string
		entry   func(pair)
	}{
		{"fields", l.field},
		{"indexes", l.index},
		{"records", l.record},
		{"queries", l.query},
		{"operations", l.operation},
	} {
		if n := sections[read.section]; n != nil {
			for _, p := range l.pairs(n, read.section) {
				read.entry(p)
			}
		}
		if read.section == "records" {
			l.checkShapes(s.Records)
		}
	}
	l.checkNames()
}

var versionForm = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

func (l *loader) version(n *yaml.Node, what string) string {
	version := l.text(n, what)
	if follow(n).Kind == yaml.ScalarNode && !versionForm.MatchString(version) {
		l.errorf(at(follow(n)), "%s %q is not of the form 1.2.3", what, version)
	}
	return version
}

func (l *loader) field(p pair) {
	what := "field " + p.key
	f := &Field{Pos: p.pos, Name: p.key}
	l.name(p.pos, "field", p.key)
	if p.key == "field" {
		l.errorf(p.pos, "the name field is taken by the patterns of families")
	}
	l.object(p.value, p.pos, what, keys{
		"type":   func(n *yaml.Node) { f.Int = l.choice(n, what+": type", "string", "int") == "int" },
		"forbid": func(n *yaml.Node) { f.Forbid = l.forbid(n, what) },
		"doc":    func(n *yaml.Node) { f.Doc = l.doc(n, what) },
	}, "type", "doc")
	if f.Int && f.Forbid != "" {
		l.errorf(p.pos, "%s is an int and has digits alone: forbid does not apply", what)
	}
	l.fields[f.Name] = f
	l.schema.Fields = append(l.schema.Fields, f)
}

// forbid reads characters that keys use as separators: visible ones of ASCII, each once.
func (l *loader) forbid(n *yaml.Node, what string) string {
	chars := l.text(n, what+": forbid")
	for i, c := range chars {
		switch {
		case c <= ' ' || c > '~':
			l.errorf(at(follow(n)), "%s: forbid has a character that is not visible ASCII", what)
		case c == '#':
			l.errorf(at(follow(n)), "%s: # is forbidden in every field", what)
		case strings.ContainsRune(chars[:i], c):
			l.errorf(at(follow(n)), "%s: forbid has %q twice", what, c)
		}
	}
	return chars
}

func (l *loader) index(p pair) {
	what := "index " + p.key
	x := &Index{Pos: p.pos, Name: p.key, PK: "PK"}
	if !indexName.MatchString(p.key) {
		l.errorf(p.pos, "index %q is not made of letters and digits", p.key)
	}
	global := false
	attribute := func(part *string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			*part = l.text(n, what)
			l.attributeName(at(follow(n)), *part)
		}
	}
	l.object(p.value, p.pos, what, keys{
		"pk":      func(n *yaml.Node) { global = true; attribute(&x.PK)(n) },
		"sk":      attribute(&x.SK),
		"project": func(n *yaml.Node) { x.KeysOnly = l.choice(n, what+": project", "all", "keys") == "keys" },
		"doc":     func(n *yaml.Node) { x.Doc = l.doc(n, what) },
	}, "sk", "project", "doc")
	x.Local = !global
	taken := []string{"PK", "SK", l.schema.TTL}
	for _, other := range l.schema.Indexes {
		taken = append(taken, other.PK, other.SK)
	}
	for _, name := range []string{x.PK, x.SK} {
		if slices.Contains(taken, name) && (global || name != "PK") {
			l.errorf(p.pos, "%s: attribute %s is taken", what, name)
		}
		taken = append(taken, name)
	}
	l.indexes[x.Name] = x
	l.schema.Indexes = append(l.schema.Indexes, x)
}
