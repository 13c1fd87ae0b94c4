package schema

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

// Load reads a schema. file is its name for messages. The error, if any, is a [document.Errors].
func Load(file string, text []byte) (*Schema, error) { return read(file, text, false) }

// LoadLegacy reads the records of older layouts, which are read and never written. Such a schema has no version,
// indexes, queries and operations, and its records may be nested.
func LoadLegacy(file string, text []byte) (*Schema, error) { return read(file, text, true) }

func read(file string, text []byte, legacy bool) (*Schema, error) {
	l := &loader{
		legacy:   legacy,
		Reader:   document.New(file),
		fields:   map[string]*Field{},
		indexes:  map[string]*Index{},
		features: map[string]*Feature{},
		records:  map[string]*Record{},
		members:  map[*yaml.Node]*Members{},
		schema:   &Schema{},
	}
	if root := l.Parse(text, "the schema"); root != nil {
		l.load(root)
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	return l.schema, nil
}

// load reads the sections in the order in which they refer to each other.
func (l *loader) load(root *yaml.Node) {
	sections := map[string]*yaml.Node{}
	section := func(name string) func(*yaml.Node) {
		return func(n *yaml.Node) { sections[name] = n }
	}
	s := l.schema
	known := document.Keys{
		"ttl": func(n *yaml.Node) {
			s.TTL = l.Text(n, "ttl")
			l.attributeName(document.At(document.Follow(n)), s.TTL)
		},
		"fields":  section("fields"),
		"records": section("records"),
	}
	required := []string{"ttl", "fields", "records"}
	if !l.legacy {
		known["version"] = func(n *yaml.Node) { s.Version = l.version(n, "version") }
		known["client_min_version"] = func(n *yaml.Node) { s.ClientMinVersion = l.version(n, "client_min_version") }
		for _, name := range []string{"features", "indexes", "queries", "operations"} {
			known[name] = section(name)
		}
		required = append([]string{"version", "client_min_version"}, required...)
	}
	l.Object(root, document.At(root), "the schema", known, required...)
	for _, read := range []struct {
		section string
		entry   func(document.Pair)
	}{
		{"fields", l.field},
		{"features", l.feature},
		{"indexes", l.index},
		{"records", l.record},
		{"queries", l.query},
		{"operations", l.operation},
	} {
		if n := sections[read.section]; n != nil {
			for _, p := range l.Pairs(n, read.section) {
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
	version := l.Text(n, what)
	if document.Follow(n).Kind == yaml.ScalarNode && !versionForm.MatchString(version) {
		l.Errorf(document.At(document.Follow(n)), "%s %q is not of the form 1.2.3", what, version)
	}
	return version
}

func (l *loader) field(p document.Pair) {
	what := "field " + p.Key
	f := &Field{Pos: p.Pos, Name: p.Key}
	l.name(p.Pos, "field", p.Key)
	if p.Key == "field" {
		l.Errorf(p.Pos, "the name field is taken by the patterns of families")
	}
	l.Object(p.Value, p.Pos, what, document.Keys{
		"type":   func(n *yaml.Node) { f.Int = l.Choice(n, what+": type", "string", "int") == "int" },
		"forbid": func(n *yaml.Node) { f.Forbid = l.forbid(n, what) },
		"doc":    func(n *yaml.Node) { f.Doc = l.Doc(n, what) },
	}, "type", "doc")
	if f.Int && f.Forbid != "" {
		l.Errorf(p.Pos, "%s is an int and has digits alone: forbid does not apply", what)
	}
	l.fields[f.Name] = f
	l.schema.Fields = append(l.schema.Fields, f)
}

func (l *loader) feature(p document.Pair) {
	what := "feature " + p.Key
	f := &Feature{Pos: p.Pos, Name: p.Key}
	l.name(p.Pos, "feature", p.Key)
	l.Object(p.Value, p.Pos, what, document.Keys{
		"since": func(n *yaml.Node) { f.Since = l.version(n, what+": since") },
		"doc":   func(n *yaml.Node) { f.Doc = l.Doc(n, what) },
	}, "since", "doc")
	l.features[f.Name] = f
	l.schema.Features = append(l.schema.Features, f)
}

// forbid reads characters that keys use as separators: visible ones of ASCII, each once.
func (l *loader) forbid(n *yaml.Node, what string) string {
	chars := l.Text(n, what+": forbid")
	for i, c := range chars {
		switch {
		case c <= ' ' || c > '~':
			l.Errorf(document.At(document.Follow(n)), "%s: forbid has a character that is not visible ASCII", what)
		case c == '#':
			l.Errorf(document.At(document.Follow(n)), "%s: # is forbidden in every field", what)
		case strings.ContainsRune(chars[:i], c):
			l.Errorf(document.At(document.Follow(n)), "%s: forbid has %q twice", what, c)
		}
	}
	return chars
}

func (l *loader) index(p document.Pair) {
	what := "index " + p.Key
	x := &Index{Pos: p.Pos, Name: p.Key, PK: "PK"}
	if !indexName.MatchString(p.Key) {
		l.Errorf(p.Pos, "index %q is not made of letters and digits", p.Key)
	}
	global := false
	attribute := func(part *string) func(*yaml.Node) {
		return func(n *yaml.Node) {
			*part = l.Text(n, what)
			l.attributeName(document.At(document.Follow(n)), *part)
		}
	}
	l.Object(p.Value, p.Pos, what, document.Keys{
		"pk": func(n *yaml.Node) { global = true; attribute(&x.PK)(n) },
		"sk": attribute(&x.SK),
		"project": func(n *yaml.Node) {
			project := l.Choice(n, what+": project", "all", "keys", "mixed")
			x.KeysOnly, x.Mixed = project != "all", project == "mixed"
		},
		"go": func(n *yaml.Node) {
			x.Go = l.Text(n, what+": go")
			l.name(document.At(document.Follow(n)), what+": go name", x.Go)
		},
		"internal": func(n *yaml.Node) { x.Internal = l.Bool(n, what+": internal") },
		"doc":      func(n *yaml.Node) { x.Doc = l.Doc(n, what) },
	}, "sk", "project", "doc")
	x.Local = !global
	taken := []string{"PK", "SK", l.schema.TTL}
	for _, other := range l.schema.Indexes {
		taken = append(taken, other.PK, other.SK)
	}
	for _, name := range []string{x.PK, x.SK} {
		if slices.Contains(taken, name) && (global || name != "PK") {
			l.Errorf(p.Pos, "%s: attribute %s is taken", what, name)
		}
		taken = append(taken, name)
	}
	l.indexes[x.Name] = x
	l.schema.Indexes = append(l.schema.Indexes, x)
}
