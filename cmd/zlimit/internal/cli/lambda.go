package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/deploy/customresource"
)

// Lambda serves as the program of an AWS Lambda function: one that aggregates, or with the handler named limits the one of
// Custom::ZlimitLimits. It returns when its configuration is invalid, with the process's exit code.
func Lambda(ctx context.Context, stderr io.Writer, env func(string) string) int {
	logger := slog.New(slog.NewJSONHandler(stderr, nil))
	serve := aggregator.Serve
	if env("_HANDLER") == "limits" { // as the function's configuration says
		serve = customresource.Serve
	}
	if err := serve(ctx, env, logger); err != nil {
		logger.Error("zlimit: the function cannot start", "error", err)
	}
	return 1
}
