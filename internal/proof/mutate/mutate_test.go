package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
)

const source = `package p

var spendOperation = expr.Operation{
	Name: "spend",
	Where: []expr.Condition{
		expr.GE(expr.Attr("rf"), 0),
	},
	Clauses: []expr.Clause{
		take: {
			Name:  "take",
			Where: []expr.Condition{expr.GE(expr.Of("b_", "_tk"), 0), expr.Exists(expr.Attr("PK"))},
		},
	},
}
`

func TestFind(t *testing.T) {
	mutants := check.Call(find("p.go", []byte(source))).Must(t, "find()")
	var names []string
	for _, m := range mutants {
		names = append(names, m.name)
	}
	want := []string{"spend take: GE((b_, _tk), 0)", "spend take: Exists((PK))", "spend: GE((rf), 0)"}
	compare.Equal(t, "find()", want, names)
	got := string(instrument([]byte(source), mutants))
	for _, term := range []string{
		`mutant(2, expr.GE(expr.Attr("rf"), 0)),`,
		`{mutant(0, expr.GE(expr.Of("b_", "_tk"), 0)), mutant(1, expr.Exists(expr.Attr("PK")))},`,
	} {
		if strings.Count(got, term) != 1 {
			t.Errorf("instrument() has no %s:\n%s", term, got)
		}
	}
	if _, err := find("p.go", []byte("package p\n")); err == nil {
		t.Error("find() of a file without conditions = nil, want an error")
	}
}

// TestNoticedHasEveryTerm finds terms of the schema that make mutate has not been run on.
func TestNoticedHasEveryTerm(t *testing.T) {
	file := "../../layout/exprs_gen.go"
	content := check.Call(os.ReadFile(file)).Must(t, "os.ReadFile()")
	mutants := check.Call(find(file, content)).Must(t, "find()")
	known := check.Call(readNoticed("noticed.txt")).Must(t, "readNoticed()")
	for _, m := range mutants {
		by := known[m.name]
		if by == (witness{}) {
			t.Errorf("no test is known to notice %q: run make mutate", m.name)
		} else if !slices.Contains(users, by.pkg) {
			t.Errorf("%q is noticed by a test of %s, which make mutate does not run", m.name, by.pkg)
		}
	}
	if len(known) != len(mutants) {
		t.Errorf("noticed.txt has %d terms, the schema %d", len(known), len(mutants))
	}
	rewritten := filepath.Join(t.TempDir(), "noticed.txt")
	check.Fatal(t, "writeNoticed()", writeNoticed(rewritten, mutants, known))
	before := check.Call(os.ReadFile("noticed.txt")).Must(t, "os.ReadFile()")
	after, err := os.ReadFile(rewritten)
	if diff := cmp.Diff(string(before), string(after)); diff != "" || err != nil {
		t.Errorf("writeNoticed() = %v, differs from what was read (-want +got):\n%s", err, diff)
	}
}

// TestChosenMutants chooses by name and by the package of the known test. A mutant without a known test is always of the latter.
func TestChosenMutants(t *testing.T) {
	c := trial{wanted: regexp.MustCompile("^spend"), by: regexp.MustCompile("layout$")}
	for m, want := range map[living]bool{
		{name: "spend take", known: witness{"./internal/layout", "TestA"}}: true,
		{name: "spend take"}: true,
		{name: "spend take", known: witness{"./zlimit", "TestA"}}:      false,
		{name: "insert", known: witness{"./internal/layout", "TestA"}}: false,
	} {
		if got := c.chooses(m); got != want {
			t.Errorf("chooses(%v) = %t, want %t", m, got, want)
		}
	}
}

func TestFailed(t *testing.T) {
	for output, want := range map[string]string{
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/memory (0.00s)\n        a_test.go:1: no\nFAIL\n": "TestA/memory",
		"ok\n": "",
		"panic: no\n\ngoroutine 7 [running]:\npkg.TestB(0x1)\n": "TestB",
	} {
		if got := failed([]byte(output)); got != want {
			t.Errorf("failed(%q) = %q, want %q", output, got, want)
		}
	}
	if got, want := pattern("TestA/a.b"), `^TestA$/^a\.b$`; got != want {
		t.Errorf("pattern() = %q, want %q", got, want)
	}
}

// TestRulesAreInPlace finds rules whose source has changed: make rules breaks them no more.
func TestRulesAreInPlace(t *testing.T) {
	overlay := check.Call(breakRules("../../..", rules)).Must(t, "breakRules()")
	for file, source := range overlay {
		if _, err := parser.ParseFile(token.NewFileSet(), file, source, 0); err != nil {
			t.Errorf("with all mutants in place: %v", err)
		}
	}
	names := map[string]bool{}
	for _, r := range rules {
		if names[r.name] {
			t.Errorf("two rules are named %q", r.name)
		}
		if names[r.name] = true; !slices.Contains(ruleUsers, r.witness().pkg) {
			t.Errorf("%q is noticed by a test of %s, which make rules does not run", r.name, r.witness().pkg)
		}
	}
	if _, err := breakRules("../../..", []rule{{name: "none", file: rules[0].file, old: "no such source"}}); err == nil {
		t.Error("breakRules() of source that is not there = nil, want an error")
	}
}
