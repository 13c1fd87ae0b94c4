package dynamo

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// setupPoll is the first pause between two looks at a table that is being created. The longest is 16 times as long.
const setupPoll = 125 * time.Millisecond

// A setup creates a table, and adds what an older one misses.
type setup struct {
	*handle
	create func(table string) *dynamodb.CreateTableInput
	logger *slog.Logger
}

// Setup creates the table if it does not exist, and waits until the table and its indexes can be used. It turns on the
// expiry of items and the stream unless they are on. An existing table is left as it is otherwise. Several processes may
// run it concurrently.
//
// On a finished table it makes one DescribeTable and one DescribeTimeToLive call. Without a table it makes one
// CreateTable, some DescribeTable and one UpdateTimeToLive call more. A table whose stream is off, as after a restore,
// takes one UpdateTable call.
func (s *setup) Setup(ctx context.Context) error {
	return s.SetupWith(ctx, store.TableSettings{}, s.logger)
}

// SetupWith is [Store.Setup] of a table that is created with settings. It logs a warning where the table exists with
// other ceilings, or without a wanted protection, and leaves the table as it is.
func (s *setup) SetupWith(ctx context.Context, settings store.TableSettings, logger *slog.Logger) error {
	in := s.create(s.name)
	s.apply(&settings, in)
	table, err := s.describe(ctx)
	if errors.Is(err, store.ErrTableNotFound) {
		err = s.createTable(ctx, in)
	} else if err == nil {
		s.compare(table, in, logger)
	}
	for pause := setupPoll; err == nil && !usable(table); pause = min(2*pause, 16*setupPoll) {
		if table, err = s.describe(ctx); errors.Is(err, store.ErrTableNotFound) {
			err = nil // created a moment ago: it may take some time to be seen
		}
		if err == nil && !usable(table) {
			err = wait.For(ctx, pause)
		}
	}
	if err == nil && settings.MixedFleet {
		err = s.checkMixed(table)
	}
	if err == nil {
		err = s.expire(ctx)
	}
	if err == nil {
		err = s.turnOnStream(ctx, table, in, logger)
	}
	return err
}

// mixed reports whether an index holds whole items in a table that is made for a mixed fleet.
func (s *setup) mixed(index *string) bool {
	return slices.ContainsFunc(s.schema.Indexes, func(x store.Index) bool { return x.Mixed && x.Name == aws.ToString(index) })
}

// checkMixed returns a [*store.ProjectionError] for a table with an index of keys alone, where a mixed fleet needs whole
// items.
func (s *setup) checkMixed(table *types.TableDescription) error {
	for i := range table.GlobalSecondaryIndexes {
		x := &table.GlobalSecondaryIndexes[i]
		if s.mixed(x.IndexName) && x.Projection != nil && x.Projection.ProjectionType != types.ProjectionTypeAll {
			return &store.ProjectionError{Table: s.name, Index: aws.ToString(x.IndexName), Projection: string(x.Projection.ProjectionType)}
		}
	}
	return nil
}

// apply puts settings into the input that a table is created with. Its indexes are as warm as the table, since a new
// bucket is in several of them. Queries of an index have the same bound as reads of the table, and its writes the same as writes of
// the table.
func (s *setup) apply(settings *store.TableSettings, in *dynamodb.CreateTableInput) {
	for i := range in.GlobalSecondaryIndexes {
		if x := &in.GlobalSecondaryIndexes[i]; settings.MixedFleet && s.mixed(x.IndexName) {
			x.Projection = &types.Projection{ProjectionType: types.ProjectionTypeAll}
		}
	}
	if settings.DeletionProtection {
		in.DeletionProtectionEnabled = aws.Bool(true)
	}
	if settings.WarmReadUnits != 0 || settings.WarmWriteUnits != 0 {
		in.WarmThroughput = &types.WarmThroughput{
			ReadUnitsPerSecond:  aws.Int64(max(settings.WarmReadUnits, store.LeastWarmReads)),
			WriteUnitsPerSecond: aws.Int64(max(settings.WarmWriteUnits, store.LeastWarmWrites)),
		}
	}
	if settings.MaxReadUnits != 0 || settings.MaxWriteUnits != 0 {
		in.OnDemandThroughput = &types.OnDemandThroughput{}
		if n := settings.MaxReadUnits; n != 0 {
			in.OnDemandThroughput.MaxReadRequestUnits = &n
		}
		if n := settings.MaxWriteUnits; n != 0 {
			in.OnDemandThroughput.MaxWriteRequestUnits = &n
		}
	}
	for i := range in.GlobalSecondaryIndexes {
		x := &in.GlobalSecondaryIndexes[i]
		x.WarmThroughput = in.WarmThroughput
		if n := settings.MaxReadUnits; n != 0 {
			x.OnDemandThroughput = &types.OnDemandThroughput{MaxReadRequestUnits: &n}
		}
	}
}

// usable reports whether a table and all of its indexes can be used. The table is nil when it was not seen.
func usable(table *types.TableDescription) bool {
	if table == nil || table.TableStatus != types.TableStatusActive && table.TableStatus != types.TableStatusUpdating {
		return false
	}
	for i := range table.GlobalSecondaryIndexes {
		if table.GlobalSecondaryIndexes[i].IndexStatus == types.IndexStatusCreating {
			return false
		}
	}
	return true
}

// compare warns of settings of an existing table that are not those it would be created with.
func (s *setup) compare(table *types.TableDescription, in *dynamodb.CreateTableInput, logger *slog.Logger) {
	var differs []string
	if aws.ToBool(in.DeletionProtectionEnabled) && !aws.ToBool(table.DeletionProtectionEnabled) {
		differs = append(differs, "deletion protection")
	}
	if want := in.OnDemandThroughput; want != nil {
		has := table.OnDemandThroughput
		if has == nil || aws.ToInt64(has.MaxReadRequestUnits) != aws.ToInt64(want.MaxReadRequestUnits) ||
			aws.ToInt64(has.MaxWriteRequestUnits) != aws.ToInt64(want.MaxWriteRequestUnits) {
			differs = append(differs, "ceilings of reads and writes")
		}
	}
	if len(differs) > 0 {
		logger.Warn("zlimit: the table exists and is left as it is; aws dynamodb update-table changes its settings",
			"table", s.name, "different", differs)
	}
}

// createTable starts the creation of the table, unless another process has.
func (s *setup) createTable(ctx context.Context, in *dynamodb.CreateTableInput) error {
	const op = "CreateTable"
	_, err := s.client.CreateTable(ctx, in, s.retries.reading...) // repeatable: a second one finds it in use
	if err == nil || errors.As(err, new(*types.ResourceInUseException)) {
		return nil
	}
	return failure(ctx, op, err, true, false)
}

// expire turns on the expiry of items, unless it is on or the engine does not know it.
func (s *setup) expire(ctx context.Context) error {
	if s.schema.TTL == "" {
		return nil
	}
	now, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.name}, s.retries.reading...)
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
	}, s.retries.reading...)
	switch {
	case err == nil, hasCode(err, "UnknownOperationException"), hasCode(err, "ResourceInUseException"):
		return nil // in use: another process is doing the same
	case hasCode(err, "ValidationException"):
		// DynamoDB's answer where expiry is on already, by another process or by an earlier attempt of this one.
		now, again := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.name}, s.retries.reading...)
		if again == nil && now.TimeToLiveDescription != nil && now.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusDisabled {
			return nil
		}
	}
	return failure(ctx, "UpdateTimeToLive", err, true, false)
}

// turnOnStream turns on the stream of a table without one, such as a table restored from a backup. Without the
// permission to do so it logs a warning: limits work without a stream.
func (s *setup) turnOnStream(ctx context.Context, table *types.TableDescription, in *dynamodb.CreateTableInput, logger *slog.Logger) error {
	if in.StreamSpecification == nil || table.StreamSpecification != nil && aws.ToBool(table.StreamSpecification.StreamEnabled) {
		return nil
	}
	_, err := s.client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &s.name, StreamSpecification: in.StreamSpecification}, s.retries.reading...)
	switch {
	case err == nil, hasCode(err, "UnknownOperationException"), hasCode(err, "ResourceInUseException"):
		return nil // in use: another process is doing the same
	case hasCode(err, "AccessDeniedException"):
		logger.Warn("zlimit: the stream of the table is off, and may not be turned on; usage is not summed up", "table", s.name, "error", err)
		return nil
	default:
		return failure(ctx, "UpdateTable", err, true, false)
	}
}

// hasCode reports whether err is an answer of DynamoDB with that code.
func hasCode(err error, code string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == code
}
