package unsettled

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/tool/seldom"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Missing writes a line a minute at most for requests that are refused since limits are missing. Their callers get an answer like
// that for a wrong key, and can do nothing about it. The zero value is ready. It is safe for concurrent use.
type Missing struct{ line seldom.Line }

// Warn writes a line if an error is of missing limits: who asked, for what, and the command that stores such limits.
func (m *Missing) Warn(ctx context.Context, logger *slog.Logger, text string, r *zlimit.Request, err error) {
	if !errors.Is(err, zlimit.ErrNoLimits) {
		return
	}
	resource := r.Resource
	if typed, ok := r.Consume.(interface{ Resource() string }); ok && resource == "" {
		resource = typed.Resource()
	}
	m.line.Log(ctx, logger, slog.LevelWarn, text, "entity", r.Entity, "resource", resource, "remedy", remedy(resource, r, err), "error", err)
}

// remedy returns a command that stores the limits which a request misses, with figures as an example.
func remedy(resource string, r *zlimit.Request, err error) string {
	command := "zlimit limits set --resource " + quoted(resource)
	if unknown, ok := errors.AsType[*zlimit.ValidationError](err); ok {
		return "zlimit limits patch --resource " + quoted(resource) + " --limit " + example(unknown.Value)
	}
	if r.Consume != nil {
		for _, a := range r.Consume.AppendAmounts(nil) {
			command += " --limit " + example(a.Limit)
		}
	}
	return command
}

// example returns a limit of a name, as an example.
func example(limit string) string {
	if limit == grammar.Money {
		return limit + "=25/month@UTC"
	}
	return quoted(limit) + "=60/min"
}

// quoted returns a name as a shell reads it.
func quoted(name string) string {
	if grammar.CheckLimitName(name) == "" {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
