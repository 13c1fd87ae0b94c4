package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/zlimit/zlimit-go/aggregator"
)

// Lambda serves as the program of an AWS Lambda function that aggregates. It returns when its configuration is invalid,
// with the process's exit code.
func Lambda(ctx context.Context, stderr io.Writer, env func(string) string) int {
	logger := slog.New(slog.NewJSONHandler(stderr, nil))
	if err := aggregator.Serve(ctx, env, logger); err != nil {
		logger.Error("zlimit: the function cannot start", "error", err)
	}
	return 1
}
