//go:build linux

package local

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/zlimit"
)

// sweep deletes expired items again and again until the context ends, as DynamoDB does within days.
func sweep(ctx context.Context, s *State, every time.Duration, logger *slog.Logger) error {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion("local"), config.WithBaseEndpoint(s.Endpoint))
	if err != nil {
		return err
	}
	client := dynamodb.NewFromConfig(cfg)
	for {
		if err := wait.For(ctx, every); err != nil {
			return nil //nolint:nilerr // that is how it ends
		}
		switch n, err := Sweep(ctx, client, s.Table, time.Now()); {
		case err != nil && ctx.Err() == nil:
			logger.Error("zlimit: expired items could not be deleted", "error", err)
		case n > 0:
			logger.Info("zlimit: expired items are deleted", "items", n)
		}
	}
}

// Sweep deletes the items of a table that have expired at a time, and returns how many. An item whose time of expiry was
// moved meanwhile stays.
func Sweep(ctx context.Context, client *dynamodb.Client, table string, now time.Time) (deleted int, err error) {
	names := map[string]string{"#ttl": zlimit.TTLAttribute}
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
		TableName: &table, FilterExpression: aws.String("#ttl < :now"), ProjectionExpression: aws.String("PK, SK, #ttl"), ExpressionAttributeNames: names,
		ExpressionAttributeValues: map[string]types.AttributeValue{":now": &types.AttributeValueMemberN{Value: strconv.FormatInt(now.Unix(), 10)}},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return deleted, err
		}
		for _, item := range page.Items {
			_, err := client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName: &table, Key: map[string]types.AttributeValue{"PK": item["PK"], "SK": item["SK"]},
				ConditionExpression: aws.String("#ttl = :seen"), ExpressionAttributeNames: names,
				ExpressionAttributeValues: map[string]types.AttributeValue{":seen": item[zlimit.TTLAttribute]},
			})
			switch {
			case errors.As(err, new(*types.ConditionalCheckFailedException)):
			case err != nil:
				return deleted, err
			default:
				deleted++
			}
		}
	}
	return deleted, nil
}
