package aggregator_test

import (
	"context"
	"log"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/zlimit"
)

// The program of a Lambda function of one's own.
func ExampleHandler() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	a, err := aggregator.New(
		zlimit.DynamoDB(dynamodb.NewFromConfig(cfg), "limits"),
		aggregator.WithArchive(aggregator.S3(s3.NewFromConfig(cfg), "my-archive", "")),
		aggregator.WithRetention(zlimit.Hourly, 0), // for ever
		aggregator.WithLogger(slog.New(slog.NewJSONHandler(os.Stderr, nil))),
		aggregator.WithObserver(func(b aggregator.Batch) { log.Println(b.Counted, "changes counted in", b.Took) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(aggregator.Handler(a))
}
