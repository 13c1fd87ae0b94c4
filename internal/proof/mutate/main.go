// Command mutate makes each term of each condition of the schema's operations always true, one at a time. It runs the
// tests of the packages that use them on each. It prints the test that noticed. It fails when none did, or when the
// test also fails without the mutant.
//
// With -rules it breaks the rules of waiting, of rollover, of stalls and of slots instead, each as rules.go says.
//
// The tests of a package are built once, when a mutant needs them. In that build all terms are in place, and the
// environment of a test chooses the one to make true. The source is an overlay, so that no file changes. The file
// noticed.txt says which test noticed each mutant last. That test is tried first, and then the short tests on the store in
// memory. All tests run only on mutants missed by both. With -by, only the mutants are tried whose known test is in one
// of the packages.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"time"
)

func main() {
	var c config
	flag.StringVar(&c.file, "file", "internal/layout/exprs_gen.go", "generated expressions")
	flag.StringVar(&c.noticed, "noticed", "internal/proof/mutate/noticed.txt", "which test noticed each mutant last; rewritten")
	flag.BoolVar(&c.rules, "rules", false, "break the rules of waiting, of rollover, of stalls and of slots, in place of the terms")
	flag.StringVar(&c.only, "only", "", "the mutants to try: a regular expression on their names")
	flag.StringVar(&c.by, "by", "", "the mutants to try: those whose known test is in a package that matches a regular expression, or without a known test")
	flag.DurationVar(&c.budget, "budget", 0, "give up after this time; 0 for no end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mutate(ctx, os.Stdout, c); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1) //nolint:gocritic // the signal handler ends with the process
	}
}

type config struct {
	file, noticed, only, by string
	rules                   bool
	budget                  time.Duration
}

func mutate(ctx context.Context, out io.Writer, c config) error {
	t := trial{out: out}
	var err error
	if t.wanted, err = regexp.Compile(c.only); err != nil {
		return err
	}
	if t.by, err = regexp.Compile(c.by); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "zlimit-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of the temporary directory
	var mutants []living
	if c.rules {
		mutants, t.suites, err = livingRules(dir)
	} else {
		t.noticed = c.noticed
		mutants, t.suites, err = t.livingTerms(c.file, dir)
	}
	if err != nil {
		return err
	}
	if c.budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.budget)
		defer cancel()
	}
	return t.try(ctx, mutants)
}

// A living mutant is one that the tests have, and the environment brings to life.
type living struct {
	name, env string
	known     witness
}

// A trial runs tests on mutants.
type trial struct {
	*suites
	out     io.Writer
	wanted  *regexp.Regexp // names of mutants
	by      *regexp.Regexp // packages of known tests
	noticed string         // the file of witnesses; "" for none
	terms   []mutant
	known   map[string]witness
}

// livingTerms returns the terms of a file, and the tests with them.
func (t *trial) livingTerms(file, dir string) (all []living, tests *suites, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if t.terms, err = find(file, source); err != nil {
		return nil, nil, err
	}
	if t.known, err = readNoticed(t.noticed); err != nil {
		return nil, nil, err
	}
	for i, m := range t.terms {
		all = append(all, living{m.name, strconv.Itoa(i), t.known[m.name]})
	}
	tests, err = newSuites(dir, overlayOf(file, instrument(source, t.terms)), users)
	return all, tests, err
}

// livingRules returns the rules, and the tests with all of them broken.
func livingRules(dir string) (all []living, tests *suites, err error) {
	overlay, err := breakRules(".", rules)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rules {
		all = append(all, living{r.name, r.name, r.witness()})
	}
	tests, err = newSuites(dir, overlay, ruleUsers)
	return all, tests, err
}

// chooses reports whether a mutant is tried.
func (t *trial) chooses(m living) bool {
	return t.wanted.MatchString(m.name) && (m.known == (witness{}) || t.by.MatchString(m.known.pkg))
}

// try runs the tests on mutants, and prints what noticed each of them.
func (t *trial) try(ctx context.Context, mutants []living) error {
	tried, failed := 0, 0
	for i, m := range mutants {
		if !t.chooses(m) {
			continue
		}
		tried++
		by, err := t.notice(ctx, m.env, m.known, t.noticed != "")
		text := by.String()
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("the budget is over at mutant %d of %d", i+1, len(mutants))
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed++
			text = err.Error()
		case by == (witness{}):
			failed++
			text = "NOTHING"
		case t.noticed != "":
			t.known[m.name] = by
			if err := writeNoticed(t.noticed, t.terms, t.known); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(t.out, "%-60s %s\n", m.name, text); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("no test notices %d mutants", failed)
	}
	if tried == 0 {
		return errors.New("no mutant is chosen")
	}
	_, err := fmt.Fprintf(t.out, "%d of %d mutants are noticed\n", tried, len(mutants))
	return err
}
