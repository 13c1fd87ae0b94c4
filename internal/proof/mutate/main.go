// Command mutate makes each term of each condition of the schema's operations always true, one at a time. It runs the
// tests of the packages that use them on each. It prints the test that noticed. It fails when none did, or when the
// test also fails without the mutant.
//
// The tests are built once. In that build all terms are in place, and the environment of a test chooses the one to make
// true. The source is an overlay, so that no file changes. The file noticed.txt says which test noticed each mutant
// last. That test is tried first, and then the short tests on the store in memory. All tests run only on mutants missed
// by both.
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
	"time"
)

func main() {
	var c config
	flag.StringVar(&c.file, "file", "internal/layout/exprs_gen.go", "generated expressions")
	flag.StringVar(&c.noticed, "noticed", "internal/proof/mutate/noticed.txt", "which test noticed each mutant last; rewritten")
	flag.StringVar(&c.only, "only", "", "the mutants to try: a regular expression on their names")
	flag.DurationVar(&c.budget, "budget", 0, "give up after this time; 0 for no end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mutate(ctx, os.Stdout, c); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1) //nolint:gocritic // the signal handler ends with the process
	}
}

// config holds the flags.
type config struct {
	file, noticed, only string
	budget              time.Duration
}

func mutate(ctx context.Context, out io.Writer, c config) error {
	wanted, err := regexp.Compile(c.only)
	if err != nil {
		return err
	}
	source, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	mutants, err := find(c.file, source)
	if err != nil {
		return err
	}
	known, err := readNoticed(c.noticed)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "zlimit-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of the temporary directory
	suites, err := build(ctx, dir, c.file, instrument(source, mutants))
	if err != nil {
		return err
	}
	if c.budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.budget)
		defer cancel()
	}
	failed := 0
	for i, m := range mutants {
		if !wanted.MatchString(m.name) {
			continue
		}
		by, err := suites.notice(ctx, i, known[m.name])
		text := by.String()
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("the budget of %v is over at term %d of %d", c.budget, i+1, len(mutants))
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			failed++
			text = err.Error()
		case by == (witness{}):
			failed++
			text = "NOTHING"
		default:
			known[m.name] = by
		}
		if err := writeNoticed(c.noticed, mutants, known); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%-60s %s\n", m.name, text); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("no test tells %d terms from true", failed)
	}
	return nil
}
