package aggregator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	zdynamo "github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// The environment of the Lambda function.
const (
	envTable     = "ZLIMIT_TABLE"
	envArchive   = "ZLIMIT_ARCHIVE"
	envAll       = "ZLIMIT_ALL_WINDOWS"
	envRetention = "ZLIMIT_RETENTION_" // and the window: HOURLY, DAILY or MONTHLY
)

// Serve serves as the program of a Lambda function, and ends with the process unless its configuration is invalid. It
// takes that from the environment:
//
//	ZLIMIT_TABLE              the table
//	ZLIMIT_ARCHIVE            s3://BUCKET or s3://BUCKET/PREFIX: where expired audit events go; nowhere by default
//	ZLIMIT_ALL_WINDOWS        true writes days and months with each batch; see [WithoutRollUp]
//	ZLIMIT_RETENTION_HOURLY   how long snapshots are kept, such as 2160h, and for _DAILY and _MONTHLY; see [WithRetention]
func Serve(ctx context.Context, env func(string) string, logger *slog.Logger) error {
	a, err := fromEnv(ctx, env, logger)
	if err != nil {
		return fmt.Errorf("aggregator: %w", err)
	}
	lambda.StartWithOptions(Handler(a), lambda.WithContext(ctx))
	return nil
}

func fromEnv(ctx context.Context, env func(string) string, logger *slog.Logger) (*Aggregator, error) {
	table := env(envTable)
	if table == "" {
		return nil, errors.New(envTable + " is not set")
	}
	opts := []Option{WithLogger(logger), ofTable(table)}
	for _, w := range windows {
		name := envRetention + strings.ToUpper(string(w))
		text := env(name)
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		opts = append(opts, WithRetention(w, d))
	}
	if text := env(envAll); text != "" {
		all, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envAll, err)
		}
		if all {
			opts = append(opts, WithoutRollUp())
		}
	}
	if archive := env(envArchive); archive != "" {
		sink, err := openSink(ctx, archive)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", envArchive, err)
		}
		opts = append(opts, WithArchive(sink))
	}
	if _, err := newOptions(opts); err != nil {
		return nil, err
	}
	client, err := dynamo.NewClient(ctx, dynamo.ClientConfig{})
	if err != nil {
		return nil, err
	}
	return New(zdynamo.New(client, table), opts...)
}

func openSink(ctx context.Context, text string) (Sink, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not of the form s3://BUCKET/PREFIX", text)
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	return S3(s3.NewFromConfig(cfg), u.Host, strings.Trim(u.Path, "/")), nil
}
