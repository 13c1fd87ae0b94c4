package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/gen/internal/emit"
	"github.com/zlimit/zlimit-go/gen/internal/schema"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
)

// TestRename gives another name to every index, and to every attribute but the primary key. Names on the wire stand in the schema
// alone: what is generated compiles with the rest of the module, and the limiter works. Tests of what is on the wire repeat names,
// so that these run with the new ones, except one that compares texts of errors.
func TestRename(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the module")
	}
	s := check.Call(schema.Load(specFile, readFile(t, specFile))).Must(t, "schema.Load()")
	rename(s)
	files := check.Call(emit.Files(s)).Must(t, "emit.Files()")
	o := newOverlay(t)
	for path, content := range files {
		// The names of public functions have the names of indexes, and examples call them.
		if strings.HasSuffix(path, ".go") && path != "zlimit/keys_gen.go" {
			o.add(t, path, string(content))
		}
	}
	tests := check.Call(filepath.Glob("../internal/layout/*_test.go")).Must(t, "filepath.Glob()")
	for _, path := range tests {
		if !strings.HasSuffix(path, "_gen_test.go") {
			o.add(t, strings.TrimPrefix(filepath.ToSlash(path), "../"), renamed(t, s, string(readFile(t, path))))
		}
	}
	if err := o.check(t, "./aggregator", "./cmd/zlimit"); err != nil {
		t.Errorf("the module with other names: %v", err)
	}
	if soak.Runs() { // with its tests
		if output, err := o.run(t, "vet", "./internal/...", "./zlimit/...", "./aggregator/...", "./stack/...", "./cmd/..."); err != nil {
			t.Errorf("the module with other names: %v\n%s", err, output)
		}
	}
	if output, err := o.run(t, "test", "-short", "-vet=off", "-skip", "^TestItemsThatAreMalformed$", "./internal/layout"); err != nil {
		t.Errorf("go test: %v\n%s", err, output)
	}
}

// renamed returns the text of a test with the new names of attributes and indexes in its strings.
func renamed(t *testing.T, s *schema.Schema, text string) string {
	t.Helper()
	names := map[string]bool{}
	for _, x := range s.Indexes {
		names[x.Name], names[x.PK], names[x.SK] = true, true, true
	}
	for _, r := range s.Records {
		for _, a := range r.Attributes {
			names[a.Name] = true
		}
	}
	return regexp.MustCompile(`"[A-Za-z0-9_#]+"`).ReplaceAllStringFunc(text, func(literal string) string {
		name := strings.Trim(literal, `"`)
		if names["x"+name] {
			return `"x` + name + `"`
		}
		for _, m := range s.Members {
			if member, ok := strings.CutPrefix("x"+name, m.Prefix); ok && m.Prefix != "" {
				if at := strings.LastIndexByte(member, '_'); at > 0 && m.PerAttr {
					member = member[:at+1] + "x" + member[at+1:]
				}
				return `"` + m.Prefix + member + `"`
			}
		}
		return literal
	})
}

// rename puts a letter in front of the names of indexes and attributes.
func rename(s *schema.Schema) {
	as := func(name *string) { *name = "x" + *name }
	as(&s.TTL)
	for _, x := range s.Indexes {
		as(&x.Name)
		if !x.Local {
			as(&x.PK)
		}
		as(&x.SK)
	}
	for _, r := range s.Records {
		for _, a := range r.Attributes {
			as(&a.Name)
		}
		for _, a := range r.Refused {
			if a.Prefix == "" {
				as(&a.Name)
			} else { // its name is that of a member's field
				as(&a.Prefix)
			}
		}
	}
	for _, m := range s.Members {
		if m.Prefix != "" {
			as(&m.Prefix)
		}
		for _, a := range slices.Concat(m.Fields, m.Refused) {
			as(&a.Name)
		}
	}
	for _, op := range s.Operations {
		renameTerms(op.Where, op.Actions, as)
		for _, c := range op.Clauses {
			renameTerms(c.Where, c.Actions, as)
		}
	}
}

// renameTerms renames the attributes of terms.
func renameTerms(where []*schema.Condition, actions []*schema.Action, as func(*string)) {
	ref := func(r *schema.Ref) {
		if r.Name != "PK" && r.Name != "SK" && r.Name != "" {
			as(&r.Name)
		}
	}
	for _, c := range where {
		ref(&c.Attr)
		renameTerms(c.Args, nil, as)
	}
	for _, a := range actions {
		ref(&a.Attr)
		ref(&a.From)
	}
}
