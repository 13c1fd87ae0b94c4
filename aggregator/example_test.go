package aggregator_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// The program of a Lambda function of one's own.
func ExampleHandler() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	a, err := aggregator.New(
		dynamo.New(dynamodb.NewFromConfig(cfg), "limits"),
		aggregator.WithArchive(aggregator.S3(s3.NewFromConfig(cfg), "my-archive", "")),
		aggregator.WithRetention(zlimit.WindowHourly, 0), // forever
		aggregator.WithLogger(slog.New(slog.NewJSONHandler(os.Stderr, nil))),
		aggregator.WithObserver(func(b aggregator.Batch) { log.Println(b.Counted, "changes counted in", b.Took) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(aggregator.Handler(a))
}

// A program sums up the usage of its own limiters, beside them.
func ExampleAggregator_Run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := zlimit.OpenStore(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer store.Close()
	a, err := aggregator.New(store, aggregator.WithPoll(10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	for len(a.Status().Partitions) == 0 { // until the changes of the store are logged
		time.Sleep(time.Millisecond)
	}

	limiter, err := zlimit.New(ctx, store)
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	_, err = limiter.Acquire(ctx, zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 500}, Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 10_000)},
	})
	fmt.Println(err)
	for counted := false; !counted; time.Sleep(time.Millisecond) {
		query := zlimit.UsageQuery{Entity: "alice", Resource: "gpt-4", Window: zlimit.WindowMonthly}
		for snapshot, err := range limiter.Usage.Snapshots(ctx, query) {
			fmt.Println(snapshot.Consumed, err)
			counted = true
		}
	}
	stop()
	fmt.Println(<-done)
	// Output:
	// <nil>
	// map[tpm:500] <nil>
	// <nil>
}
