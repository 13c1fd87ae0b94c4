package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/dynamo" // stores named dynamodb:TABLE
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // stores named sqlite:PATH
)

// MemoryDSN is the store in memory.
const MemoryDSN = "memory:"

// DSN returns the store of the command, by --store or else by the environment.
func (sh *Shell) DSN() (string, error) {
	if dsn := cmp.Or(sh.Store, sh.Env("ZLIMIT_STORE")); dsn != "" {
		return dsn, nil
	}
	return "", Usagef("no store: give --store DSN or set ZLIMIT_STORE, such as sqlite:limits.db or dynamodb:TABLE")
}

// Lasting returns the store of a command about shared state, and notes once when the store is not shared.
func (sh *Shell) Lasting() (string, error) {
	dsn, err := sh.DSN()
	if dsn == MemoryDSN && !sh.noted {
		sh.noted = true
		sh.Note("note: what memory: holds is gone when this command ends; sqlite:PATH keeps it")
	}
	return dsn, err
}

// An Operation is the work of a command on a limiter.
type Operation[T any] func(context.Context, *zlimit.RateLimiter) (T, error)

// Do does an operation on the store, once it is known that none of its input breaks a rule.
func Do[T any](ctx context.Context, sh *Shell, do Operation[T], opts ...zlimit.Option) (none T, err error) {
	dsn, err := sh.Lasting()
	if err != nil {
		return none, err
	}
	if err := Rehearse(ctx, sh, do, opts...); err != nil {
		return none, err
	}
	return Perform(ctx, sh, dsn, do, opts...)
}

// Rehearse does an operation on an empty store in memory, and returns the rule that its input breaks. Bad input
// therefore creates nothing. How else it comes out there means nothing.
func Rehearse[T any](ctx context.Context, sh *Shell, do Operation[T], opts ...zlimit.Option) error {
	_, err := Perform(ctx, sh, MemoryDSN, do, opts...)
	if invalid, ok := errors.AsType[*zlimit.ValidationError](err); ok {
		return invalid
	}
	return nil
}

// Look does an operation that changes nothing, as Do does. It does not create a file if there is none.
func Look[T any](ctx context.Context, sh *Shell, do Operation[T], opts ...zlimit.Option) (none T, err error) {
	dsn, err := Prepare(ctx, sh, do, opts...)
	if err != nil {
		return none, err
	}
	return Perform(ctx, sh, dsn, do, opts...)
}

// Prepare returns the store for an operation. Its error is the rule that the input of the operation breaks, or that the
// file of the store is missing.
func Prepare[T any](ctx context.Context, sh *Shell, do Operation[T], opts ...zlimit.Option) (dsn string, err error) {
	if dsn, err = sh.Lasting(); err == nil {
		err = Rehearse(ctx, sh, do, opts...)
	}
	if err == nil {
		err = sh.CheckFile(dsn)
	}
	return dsn, err
}

// CheckFile returns that the file of the store is missing or empty, where the store has one.
func (sh *Shell) CheckFile(dsn string) error {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return sh.Advise(fmt.Errorf("%w: %w", zlimit.ErrTableNotFound, err), dsn)
		case err == nil && info.Mode().IsRegular() && info.Size() == 0: // SQLite takes it for a new database
			return sh.Advise(fmt.Errorf("%w: %s is empty", zlimit.ErrTableNotFound, path), dsn)
		}
	}
	return nil
}

// Perform does an operation on a store. A store in memory has every namespace, since no command before could register
// one.
func Perform[T any](
	ctx context.Context, sh *Shell, dsn string, do Operation[T], opts ...zlimit.Option,
) (result T, err error) {
	fixed := []zlimit.Option{zlimit.WithNamespace(sh.Namespace), zlimit.WithClock(sh.Now), zlimit.WithLogger(slog.New(&anonymous{sh: sh}))}
	if principal := cmp.Or(sh.Principal, sh.Env("ZLIMIT_PRINCIPAL")); principal != "" {
		fixed = append(fixed, zlimit.WithPrincipal(principal))
	}
	if dsn == MemoryDSN {
		fixed = append(fixed, zlimit.WithSetup())
	}
	l, err := zlimit.Open(ctx, dsn, append(fixed, opts...)...)
	if err != nil {
		return result, sh.Advise(err, dsn)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if result, err = do(ctx, l); errors.Is(err, zlimit.ErrNamespaceNotFound) {
		return result, err // another one than that of the command
	}
	return result, sh.Advise(err, dsn)
}

// An anonymous handler of logs notes that the author of a change is unknown, and nothing else. Failures are errors of
// the command.
type anonymous struct{ sh *Shell }

// Enabled implements [slog.Handler].
func (a *anonymous) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (a *anonymous) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "identity is unknown") {
		a.sh.Note("note: who makes this change is unknown, and its audit event names no one; --principal or ZLIMIT_PRINCIPAL names you")
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (a *anonymous) WithAttrs([]slog.Attr) slog.Handler { return a }

// WithGroup implements [slog.Handler].
func (a *anonymous) WithGroup(string) slog.Handler { return a }

// ofSDK is what the AWS SDK says of a call that has no reply, beside the cause.
var ofSDK = regexp.MustCompile(`operation error [A-Za-z]+( [A-Za-z]+)?: [A-Za-z]+, |https response error StatusCode: 0, RequestID: , |request send failed, `)

// Explain returns the text of an error. The AWS SDK's error about missing credentials mentions unrelated services. It is replaced by one
// with the remedy.
func Explain(err error) string {
	text := err.Error()
	if what, _, missing := strings.Cut(text, "get identity: get credentials: "); missing && strings.Contains(text, "no EC2 IMDS role found") {
		return what + "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, sign in with aws sso login, " +
			"or name a profile by --profile, or by ?profile= in the store"
	}
	if errors.As(err, new(*zlimit.UnavailableError)) || errors.As(err, new(*store.Error)) {
		text = ofSDK.ReplaceAllString(text, "")
	}
	return text
}

// Advise adds to an error what to do about it.
func (sh *Shell) Advise(err error, dsn string) error {
	switch {
	case errors.Is(err, zlimit.ErrTableNotFound):
		return fmt.Errorf("%w; create the table with: zlimit setup --store '%s'", err, dsn)
	case errors.Is(err, zlimit.ErrNamespaceNotFound):
		return fmt.Errorf("%w; register it with: zlimit setup --store '%s' --namespace '%s'", err, dsn, sh.Namespace)
	case errors.As(err, new(*zlimit.UnavailableError)) && strings.HasPrefix(dsn, "dynamodb:"):
		return fmt.Errorf("%w; the store is %s: check its region, its endpoint and the network", err, dsn)
	case errors.Is(err, zlimit.ErrNoLimits) && !errors.As(err, new(*zlimit.ValidationError)):
		return fmt.Errorf("%w; zlimit limits set --help shows how to configure some", err)
	default:
		return err
	}
}

// Collect returns all of a list.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for element, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, element)
	}
	return all, nil
}

// Resources returns the resources that have limits of their own.
func Resources(ctx context.Context, l *zlimit.RateLimiter) (names []string, err error) {
	for stored, err := range l.Limits.List(ctx, zlimit.LevelQuery{Source: zlimit.SourceResource, NamesOnly: true}) {
		if err != nil {
			return nil, err
		}
		names = append(names, stored.Level.Resource)
	}
	return names, nil
}
