package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/wait"
)

// setupPoll is the pause between two looks at a table that is being created, at first; the longest is 16 times that.
const setupPoll = 125 * time.Millisecond

// Setup creates the table if it does not exist, and waits until the table and its indexes can be used. It turns on the
// expiry of items unless that is on. An existing table is left as it is otherwise. It makes one DescribeTable and one
// DescribeTimeToLive call on a finished table. Without a table it makes one CreateTable, some DescribeTable and one
// UpdateTimeToLive call more. Several processes may run it at once.
func (s *Store) Setup(ctx context.Context) error {
	active, err := s.active(ctx)
	if errors.Is(err, store.ErrTableNotFound) {
		err = s.createTable(ctx)
	}
	for pause := setupPoll; err == nil && !active; pause = min(2*pause, 16*setupPoll) {
		if active, err = s.active(ctx); errors.Is(err, store.ErrTableNotFound) {
			err = nil // created a moment ago: it may take some time to be seen
		}
		if err == nil && !active {
			err = wait.For(ctx, pause)
		}
	}
	if err != nil {
		return err
	}
	return s.expire(ctx)
}

// active reports whether the table and all of its indexes can be used.
func (s *Store) active(ctx context.Context) (bool, error) {
	const op = "DescribeTable"
	if err := s.begin(ctx, op); err != nil {
		return false, err
	}
	out, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.name}, reading...)
	if err != nil {
		return false, failure(ctx, op, err, false, false)
	}
	if status := out.Table.TableStatus; status != types.TableStatusActive && status != types.TableStatusUpdating {
		return false, nil
	}
	for i := range out.Table.GlobalSecondaryIndexes {
		if out.Table.GlobalSecondaryIndexes[i].IndexStatus == types.IndexStatusCreating {
			return false, nil
		}
	}
	return true, nil
}

// createTable starts the creation of the table, unless another process has.
func (s *Store) createTable(ctx context.Context) error {
	const op = "CreateTable"
	_, err := s.client.CreateTable(ctx, s.create(s.name), reading...) // repeatable: a second one finds it in use
	var exists *types.ResourceInUseException
	if err == nil || errors.As(err, &exists) {
		return nil
	}
	return failure(ctx, op, err, true, false)
}

// expire turns on the expiry of items, unless it is on or the engine does not know it.
func (s *Store) expire(ctx context.Context) error {
	if s.schema.TTL == "" {
		return nil
	}
	now, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.name}, reading...)
	switch {
	case hasCode(err, "UnknownOperationException"):
		return nil
	case err != nil:
		return failure(ctx, "DescribeTimeToLive", err, false, false)
	}
	if d := now.TimeToLiveDescription; d != nil && (d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling) {
		return nil
	}
	enabled := true
	_, err = s.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &s.name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &s.schema.TTL, Enabled: &enabled},
	}, reading...)
	switch {
	case err == nil, hasCode(err, "UnknownOperationException"), hasCode(err, "ResourceInUseException"):
		return nil // in use: another process is doing the same
	case hasCode(err, "ValidationException"):
		// DynamoDB's answer where expiry is on already, by another process or by an earlier attempt of this one.
		now, again := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.name}, reading...)
		if again == nil && now.TimeToLiveDescription != nil && now.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusDisabled {
			return nil
		}
	}
	return failure(ctx, "UpdateTimeToLive", err, true, false)
}

// hasCode reports whether err is an answer of DynamoDB with that code.
func hasCode(err error, code string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == code
}
