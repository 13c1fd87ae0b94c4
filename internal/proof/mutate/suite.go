package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// users are the packages whose tests use the operations. Those whose tests are the fastest come first.
var users = []string{"./internal/layout", "./internal/protocol", "./zlimit", "./aggregator", "./internal/stream", "./cmd/zlimit/internal/migrate"}

// env names the variable with the number of the living mutant.
const env = "ZLIMIT_MUTANT"

// instrument returns source whose terms are arguments of a function mutant, with the numbers of the terms.
func instrument(source []byte, mutants []mutant) []byte {
	order := make([]int, len(mutants)) // that of the source
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(mutants[i].start, mutants[j].start) })
	var out []byte
	last := 0
	for _, i := range order {
		m := mutants[i]
		out = append(out, source[last:m.start]...)
		out = append(out, "mutant("+strconv.Itoa(i)+", "...)
		out = append(out, source[m.start:m.end]...)
		out = append(out, ')')
		last = m.end
	}
	return append(out, source[last:]...)
}

// function is the source of the function of instrument, in a package. It is called before any init function.
func function(pkg string) string {
	return `package ` + pkg + `

import (
	"os"
	"strconv"

	"github.com/zlimit/zlimit-go/internal/expr"
)

func mutant(number int, term expr.Condition) expr.Condition {
	if os.Getenv("` + env + `") != strconv.Itoa(number) {
		return term
	}
	return expr.Any(term, expr.Absent(expr.Attr("never")))
}
`
}

// suites are the tests of the users, with all mutants in place. A suite is built when it is first asked for.
type suites struct {
	dir, overlay string   // of the programs, and the file that the go command takes
	users        []string // by package
	built        map[string]*suite
}

// A suite is the tests of a package as a program.
type suite struct {
	program, dir string
	flags        []string        // that the tests of this package know
	sound        map[string]bool // the tests that passed without a mutant, each with whether all of it ran
}

// overlayOf returns an overlay with instrumented source in place of a file.
func overlayOf(file string, source []byte) map[string][]byte {
	dir := filepath.Dir(file)
	return map[string][]byte{file: source, filepath.Join(dir, "mutant.go"): []byte(function(filepath.Base(dir)))}
}

// newSuites returns the tests of the users with sources in place of files, and builds none of them yet.
func newSuites(dir string, sources map[string][]byte, users []string) (*suites, error) {
	overlay, err := writeOverlay(dir, sources)
	if err != nil {
		return nil, err
	}
	return &suites{dir: dir, overlay: overlay, users: users, built: map[string]*suite{}}, nil
}

// of returns the suite of a package.
func (all *suites) of(ctx context.Context, user string) (*suite, error) {
	if s, ok := all.built[user]; ok {
		return s, nil
	}
	s := &suite{program: filepath.Join(all.dir, strconv.Itoa(len(all.built))+".test"), dir: user, sound: map[string]bool{}}
	args := []string{"test", "-c", "-ldflags=-s -w", "-overlay", all.overlay, "-o", s.program, user}
	if output, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the tests of %s: %w\n%s", user, err, output)
	}
	// A failing test needs no smaller program, and must not leave one behind.
	rapid := []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"}
	if _, err := s.run(ctx, none, false, "^$", rapid...); err == nil {
		s.flags = rapid
	}
	all.built[user] = s
	return s, nil
}

// writeOverlay writes an overlay of sources by path into a directory, and returns the file that the Go command takes.
func writeOverlay(dir string, sources map[string][]byte) (file string, err error) {
	replace := map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(sources)) {
		whole, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		replace[whole] = filepath.Join(dir, strconv.Itoa(i)+".go")
		if err := os.WriteFile(replace[whole], sources[path], 0o600); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, content, 0o600)
}

// none is the mutant of tests without a mutant.
const none = "-1"

// run runs tests with a mutant alive. Without all only the short ones run, on the store in memory where tests
// run on every store.
func (s *suite) run(ctx context.Context, living string, all bool, tests string, flags ...string) (output []byte, err error) {
	args := []string{"-test.failfast", "-test.run", tests, "-test.timeout", "20m"}
	if !all {
		args = append(args, "-test.short", "-test.skip", ".*/^(dynamodb|sqlite)$")
	}
	cmd := exec.CommandContext(ctx, s.program, append(append(args, s.flags...), flags...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), env+"="+living)
	return cmd.CombinedOutput()
}

// notice returns a test that fails with a mutant alive, by itself too, and passes without it. It tries the one that is known first,
// and all others where it searches.
func (all *suites) notice(ctx context.Context, living string, known witness, searches bool) (witness, error) {
	if slices.Contains(all.users, known.pkg) {
		s, err := all.of(ctx, known.pkg)
		if err != nil {
			return witness{}, err
		}
		for _, whole := range []bool{false, true} {
			if _, err := s.run(ctx, living, whole, pattern(known.test)); err != nil {
				return known, s.confirm(ctx, known.test, whole)
			}
		}
	}
	if !searches {
		return witness{}, ctx.Err()
	}
	for _, whole := range []bool{false, true} {
		for _, pkg := range all.users {
			s, err := all.of(ctx, pkg)
			if err != nil {
				return witness{}, err
			}
			output, err := s.run(ctx, living, whole, ".")
			if err == nil {
				continue
			}
			by := witness{pkg, failed(output)}
			if by.test == "" {
				return witness{}, fmt.Errorf("the tests of %s fail without a name: %w\n%s", pkg, err, output)
			}
			if _, err := s.run(ctx, living, whole, pattern(by.test)); err == nil {
				continue // it failed by chance
			}
			return by, s.confirm(ctx, by.test, whole)
		}
	}
	return witness{}, ctx.Err()
}

// confirm returns an error when a test fails without a mutant too. A test that passed is not run again for the next mutant.
func (s *suite) confirm(ctx context.Context, test string, all bool) error {
	key := fmt.Sprint(test, " ", all)
	if s.sound[key] {
		return nil
	}
	if output, err := s.run(ctx, none, all, pattern(test)); err != nil {
		return fmt.Errorf("%s fails without a mutant: %w\n%s", test, err, output)
	}
	s.sound[key] = true
	return nil
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: .*\n(?:.*\n)*?.*\.(Test\w+)\(`)

// failed returns the innermost test that failed by the output of a suite, "" for none.
func failed(output []byte) (test string) {
	for _, found := range failure.FindAllSubmatch(output, -1) {
		test = string(found[1]) + string(found[2])
	}
	return test
}

// pattern returns the pattern of -test.run that selects a test alone.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}
