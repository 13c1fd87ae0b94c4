package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// users are the packages whose tests use the operations.
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

// suites are the tests of the users, built with all mutants.
type suites map[string]suite

// A suite is the tests of a package as a program.
type suite struct {
	program, dir string
	flags        []string // that the tests of this package know
}

// build builds the tests of the users, with instrumented source in place of a file.
func build(ctx context.Context, dir, file string, source []byte) (suites, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	mutated, helper, overlay := filepath.Join(dir, "terms.go"), filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	pkg := filepath.Base(filepath.Dir(path))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {
		path: mutated, filepath.Join(filepath.Dir(path), "mutant.go"): helper,
	}})
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		os.WriteFile(mutated, source, 0o600), os.WriteFile(helper, []byte(function(pkg)), 0o600), os.WriteFile(overlay, replace, 0o600),
	)
	if err != nil {
		return nil, err
	}
	all := suites{}
	for i, user := range users {
		s := suite{program: filepath.Join(dir, strconv.Itoa(i)+".test"), dir: user}
		if output, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", s.program, user).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", user, err, output)
		}
		// A failing test needs no smaller program, and must not leave one behind.
		rapid := []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"}
		if _, err := s.run(ctx, -1, false, "^$", rapid...); err == nil {
			s.flags = rapid
		}
		all[user] = s
	}
	return all, nil
}

// run runs tests with a mutant alive, -1 for none. Without all only the short ones run, on the store in memory where tests
// run on every store.
func (s suite) run(ctx context.Context, number int, all bool, tests string, flags ...string) (output []byte, err error) {
	args := []string{"-test.failfast", "-test.run", tests, "-test.timeout", "20m"}
	if !all {
		args = append(args, "-test.short", "-test.skip", ".*/^(dynamodb|sqlite)$")
	}
	cmd := exec.CommandContext(ctx, s.program, append(append(args, s.flags...), flags...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), env+"="+strconv.Itoa(number))
	return cmd.CombinedOutput()
}

// notice returns a test that fails with a mutant alive, by itself too, and passes without it. It tries the one that is known first.
func (all suites) notice(ctx context.Context, number int, known witness) (witness, error) {
	if s, ok := all[known.pkg]; ok {
		for _, whole := range []bool{false, true} {
			if _, err := s.run(ctx, number, whole, pattern(known.test)); err != nil {
				return known, s.confirm(ctx, known.test, whole)
			}
		}
	}
	for _, whole := range []bool{false, true} {
		for _, pkg := range users {
			s := all[pkg]
			output, err := s.run(ctx, number, whole, ".")
			if err == nil {
				continue
			}
			by := witness{pkg, failed(output)}
			if by.test == "" {
				return witness{}, fmt.Errorf("the tests of %s fail without a name: %w\n%s", pkg, err, output)
			}
			if _, err := s.run(ctx, number, whole, pattern(by.test)); err == nil {
				continue // it failed by chance
			}
			return by, s.confirm(ctx, by.test, whole)
		}
	}
	return witness{}, ctx.Err()
}

// confirm returns an error when a test fails without a mutant too.
func (s suite) confirm(ctx context.Context, test string, all bool) error {
	if output, err := s.run(ctx, -1, all, pattern(test)); err != nil {
		return fmt.Errorf("%s fails without a mutant: %w\n%s", test, err, output)
	}
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
