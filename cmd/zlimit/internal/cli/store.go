package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // stores named sqlite:PATH
)

const memoryDSN = "memory:"

// dsn returns the store that the command works on: --store, else what the environment says.
func (a *app) dsn() (string, error) {
	if dsn := cmp.Or(a.store, a.env("ZLIMIT_STORE")); dsn != "" {
		return dsn, nil
	}
	return "", usagef("no store: give --store DSN or set ZLIMIT_STORE, such as sqlite:limits.db or dynamodb:TABLE")
}

// lasting returns the store of a command that is about what other processes share, and notes where there is no such
// thing.
func (a *app) lasting() (string, error) {
	dsn, err := a.dsn()
	if dsn == memoryDSN {
		a.note("note: what memory: holds is gone when this command ends; sqlite:PATH keeps it")
	}
	return dsn, err
}

// An operation is what a command does on a limiter.
type operation[T any] func(context.Context, *zlimit.RateLimiter) (T, error)

// on does an operation on a store, once it is known that none of its input breaks a rule.
func on[T any](ctx context.Context, a *app, dsn string, do operation[T], opts ...zlimit.Option) (T, error) {
	if err := rehearse(ctx, a, do, opts...); err != nil {
		var none T
		return none, err
	}
	return perform(ctx, a, dsn, do, opts...)
}

// rehearse does an operation on an empty store in memory, and returns the rule that its input breaks. Bad input
// therefore creates nothing. How else it comes out there means nothing.
func rehearse[T any](ctx context.Context, a *app, do operation[T], opts ...zlimit.Option) error {
	_, err := perform(ctx, a, memoryDSN, do, opts...)
	var invalid *zlimit.ValidationError
	if errors.As(err, &invalid) {
		return invalid
	}
	return nil
}

// look does an operation that changes nothing, as on does. It does not create a file where there is none.
func look[T any](ctx context.Context, a *app, dsn string, do operation[T], opts ...zlimit.Option) (T, error) {
	if err := prepare(ctx, a, dsn, do, opts...); err != nil {
		var none T
		return none, err
	}
	return perform(ctx, a, dsn, do, opts...)
}

// prepare returns the rule that the input of an operation breaks, or that the file of the store is missing.
func prepare[T any](ctx context.Context, a *app, dsn string, do operation[T], opts ...zlimit.Option) error {
	if err := rehearse(ctx, a, do, opts...); err != nil {
		return err
	}
	return a.checkFile(dsn)
}

// checkFile returns that the file of the store is missing, where the store has one.
func (a *app) checkFile(dsn string) error {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return a.advise(fmt.Errorf("%w: %w", zlimit.ErrTableNotFound, err), dsn)
		}
	}
	return nil
}

// perform does an operation on a store. A store in memory has every namespace, since no command before could register
// one.
func perform[T any](
	ctx context.Context, a *app, dsn string, do operation[T], opts ...zlimit.Option,
) (result T, err error) {
	fixed := []zlimit.Option{zlimit.WithNamespace(a.namespace), zlimit.WithClock(a.now)}
	if dsn == memoryDSN {
		fixed = append(fixed, zlimit.WithSetup())
	}
	l, err := zlimit.Open(ctx, dsn, append(fixed, opts...)...)
	if err != nil {
		return result, a.advise(err, dsn)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if result, err = do(ctx, l); errors.Is(err, zlimit.ErrNamespaceNotFound) {
		return result, err // another one than that of the command
	}
	return result, a.advise(err, dsn)
}

// advise adds to an error what to do about it.
func (a *app) advise(err error, dsn string) error {
	switch {
	case errors.Is(err, zlimit.ErrTableNotFound):
		return fmt.Errorf("%w; create the table with: zlimit setup --store '%s'", err, dsn)
	case errors.Is(err, zlimit.ErrNamespaceNotFound):
		return fmt.Errorf("%w; register it with: zlimit setup --store '%s' --namespace '%s'", err, dsn, a.namespace)
	case errors.Is(err, zlimit.ErrNoLimits):
		return fmt.Errorf("%w; zlimit limits set --help shows how to configure some", err)
	default:
		return err
	}
}
