package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

const (
	// readInterval keeps to the five reads per second that DynamoDB takes of a shard.
	readInterval = 200 * time.Millisecond
	// describeInterval keeps a process below the ten DescribeStream calls per second that DynamoDB takes.
	describeInterval = 150 * time.Millisecond
	// maxRecords is the most that a GetRecords takes.
	maxRecords = 1000
	// maxIterators is how often one reading asks for an iterator: the first, and in place of those that cannot be used.
	maxIterators = 4
	// sequenceDigits is the least that the API takes of a sequence number.
	sequenceDigits = 21

	// janitor is the principal that deletes expired items.
	janitor = "dynamodb.amazonaws.com"
)

// A StreamsClient makes the calls of the DynamoDB Streams API that a [Store] needs to read the changes of its items. A
// *dynamodbstreams.Client is one.
type StreamsClient interface {
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

// Streams gives the store access to the table's stream. Without it there is none.
func Streams(client StreamsClient) Option { return func(s *Store) { s.streams = client } }

// ReadInterval sets the least time between two reads of one shard. It is 200 ms by default, since DynamoDB takes five
// reads per second.
func ReadInterval(d time.Duration) Option { return func(s *Store) { s.interval = d } }

// A stream reads the changes of a table.
type stream struct {
	*handle
	streams  StreamsClient // nil if there is none
	interval time.Duration

	mu     sync.Mutex
	prefix string               // of the ARNs of the table's streams, up to their labels; "" until it is known
	next   map[string]time.Time // when a partition may be read again, and the shards be listed under ""

	unfiltered atomic.Bool // the service refuses filters of shards
}

// StartStream looks whether the table has a stream of old and new images: one DescribeTable. It does not create one.
func (s *stream) StartStream(ctx context.Context) error {
	_, err := s.streamARN(ctx)
	return err
}

func (s *stream) streamARN(ctx context.Context) (string, error) {
	const op = "DescribeTable"
	if err := s.begin(ctx, op); err != nil {
		return "", err
	}
	without := func(reason string) (string, error) {
		return "", &store.Error{Op: op, Err: fmt.Errorf("%w: %s", store.ErrNoStream, reason)}
	}
	if s.streams == nil {
		return without("the store has no client of DynamoDB Streams")
	}
	table, err := s.describe(ctx)
	if err != nil {
		return "", err
	}
	spec, arn := table.StreamSpecification, value(table.LatestStreamArn)
	cut := strings.LastIndexByte(arn, '/') + 1
	switch {
	case spec == nil || spec.StreamEnabled == nil || !*spec.StreamEnabled || cut == 0:
		return without("the table has none")
	case spec.StreamViewType != types.StreamViewTypeNewAndOldImages:
		return without(fmt.Sprintf("the table's is one of %s, not of %s", spec.StreamViewType, types.StreamViewTypeNewAndOldImages))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prefix = arn[:cut]
	return arn, nil
}

// Partitions makes one DescribeTable call and a DescribeStream call for every hundred shards. Calls that describe cost
// nothing. DynamoDB takes ten of them per second, so a store makes one in 150 ms. The id of a partition is the label of
// the stream, which is its time of creation, and the id of the shard.
func (s *stream) Partitions(ctx context.Context) ([]store.Partition, error) {
	const op = "DescribeStream"
	arn, err := s.streamARN(ctx)
	if err != nil {
		return nil, err
	}
	label := arn[strings.LastIndexByte(arn, '/')+1:]
	partitions, err := s.listShards(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: &arn}, label)
	switch {
	case hasCode(err, "ResourceNotFoundException"):
		return nil, &store.Error{Op: op, Err: fmt.Errorf("%w: %w", store.ErrNoStream, err)}
	case err != nil:
		return nil, failure(ctx, op, err, false, false)
	}
	return partitions, nil
}

// Children makes one DescribeStream call with a filter, and another one for every further hundred shards. A service may not know the
// filter and list all shards: the others are dropped here. If it rejects the filter, all shards are listed.
func (s *stream) Children(ctx context.Context, partition string) ([]store.Partition, error) {
	const op = "DescribeStream"
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	label, shard, ok := strings.Cut(partition, "/")
	if !ok {
		return nil, nil
	}
	arn, err := s.arnOf(ctx, label)
	if err != nil {
		return nil, err
	}
	in := dynamodbstreams.DescribeStreamInput{StreamArn: &arn}
	var listed []store.Partition
	if !s.unfiltered.Load() {
		filtered := in
		filtered.ShardFilter = &streamtypes.ShardFilter{Type: streamtypes.ShardFilterTypeChildShards, ShardId: &shard}
		listed, err = s.listShards(ctx, &filtered, label)
		if hasCode(err, "ValidationException") || hasCode(err, "SerializationException") {
			s.unfiltered.Store(true)
		}
	}
	if s.unfiltered.Load() {
		listed, err = s.listShards(ctx, &in, label)
	}
	switch {
	case hasCode(err, "ResourceNotFoundException"):
		return nil, nil
	case err != nil:
		return nil, failure(ctx, op, err, false, false)
	}
	return slices.DeleteFunc(listed, func(p store.Partition) bool { return p.Parent != partition }), nil
}

// listShards returns the shards of a call and its further pages, as partitions of the stream with a label.
func (s *stream) listShards(ctx context.Context, in *dynamodbstreams.DescribeStreamInput, label string) (partitions []store.Partition, err error) {
	label += "/"
	for {
		if err := s.pace(ctx, "", describeInterval); err != nil {
			return nil, err
		}
		out, err := s.streams.DescribeStream(ctx, in, s.retries.streaming...)
		if err != nil {
			return nil, err
		}
		for i := range out.StreamDescription.Shards {
			shard := &out.StreamDescription.Shards[i]
			p := store.Partition{ID: label + value(shard.ShardId)}
			if shard.ParentShardId != nil {
				p.Parent = label + *shard.ParentShardId
			}
			partitions = append(partitions, p)
		}
		in.ExclusiveStartShardId = out.StreamDescription.LastEvaluatedShardId
		if in.ExclusiveStartShardId == nil {
			return partitions, nil
		}
	}
}

// Changes makes one GetRecords call, and a GetShardIterator call where the position has no iterator or one that is too
// old. A GetRecords call costs a streams read unit, a quarter of the price of a read unit or less, for any number of
// records.
func (s *stream) Changes(ctx context.Context, partition string, at store.Position, limit int) (store.ChangePage, error) {
	const op = "GetRecords"
	if err := s.begin(ctx, op); err != nil {
		return store.ChangePage{}, err
	}
	label, shard, ok := strings.Cut(partition, "/")
	if !ok {
		return forgotten(at), nil
	}
	arn, err := s.arnOf(ctx, label)
	if err != nil {
		return store.ChangePage{}, err
	}
	if err := s.pace(ctx, partition, s.interval); err != nil {
		return store.ChangePage{}, &store.Error{Op: op, Err: err}
	}
	records := int32(min(limit, maxRecords))
	page := store.ChangePage{Next: at}
	var out *dynamodbstreams.GetRecordsOutput
	for tries := 0; ; tries++ {
		if page.Next.Iterator == "" {
			page.Next.Iterator, err = s.iterator(ctx, arn, shard, page.Next.After)
		}
		if err == nil {
			in := &dynamodbstreams.GetRecordsInput{ShardIterator: &page.Next.Iterator, Limit: &records}
			out, err = s.streams.GetRecords(ctx, in, s.retries.streaming...)
		}
		if err == nil {
			break
		}
		switch {
		case hasCode(err, "ResourceNotFoundException"):
			return forgotten(at), nil
		case tries+1 == maxIterators:
			return store.ChangePage{}, failure(ctx, op, err, false, false)
		case hasCode(err, "ExpiredIteratorException"):
			page.Next.Iterator = ""
		case hasCode(err, "TrimmedDataAccessException"):
			page.Gap = at != store.Position{}
			page.Next = store.Position{}
		default:
			return store.ChangePage{}, failure(ctx, op, err, false, false)
		}
		err = nil
	}
	page.Next.Iterator = value(out.NextShardIterator)
	page.End = page.Next.Iterator == ""
	for i := range out.Records {
		change, err := decodeRecord(out.Records[i].Dynamodb)
		if err != nil {
			return store.ChangePage{}, &store.Error{Op: op, Err: err}
		}
		user := out.Records[i].UserIdentity
		change.Expired = user != nil && value(user.Type) == "Service" && value(user.PrincipalId) == janitor
		change.Stream = label
		page.Next.After = change.Sequence
		if !change.Old.Equal(change.New) { // DynamoDB reports no such change, engines do
			page.Changes = append(page.Changes, change)
		}
	}
	return page, nil
}

// forgotten returns the page of a partition that is not there any more.
func forgotten(at store.Position) store.ChangePage {
	return store.ChangePage{Next: store.Position{After: at.After}, End: true, Gap: true}
}

func (s *stream) arnOf(ctx context.Context, label string) (string, error) {
	s.mu.Lock()
	prefix := s.prefix
	s.mu.Unlock()
	if prefix == "" {
		latest, err := s.streamARN(ctx)
		if err != nil {
			return "", err
		}
		prefix = latest[:strings.LastIndexByte(latest, '/')+1]
	}
	return prefix + label, nil
}

// iterator returns an iterator that starts after a sequence, or at the oldest record for "".
func (s *stream) iterator(ctx context.Context, arn, shard string, after store.Sequence) (string, error) {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &arn, ShardId: &shard, ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon}
	if after != "" {
		number := strings.TrimLeft(string(after), "0")
		number = strings.Repeat("0", max(0, sequenceDigits-len(number))) + number
		in.ShardIteratorType, in.SequenceNumber = streamtypes.ShardIteratorTypeAfterSequenceNumber, &number
	}
	out, err := s.streams.GetShardIterator(ctx, in, s.retries.streaming...)
	if err != nil {
		return "", err
	}
	return value(out.ShardIterator), nil
}

// pace waits until a partition may be read again, an interval after the last time.
func (s *stream) pace(ctx context.Context, partition string, interval time.Duration) error {
	s.mu.Lock()
	now := time.Now()
	for other, at := range s.next { // all but those that are being read
		if at.Before(now) && other != partition {
			delete(s.next, other)
		}
	}
	at := s.next[partition]
	if at.Before(now) {
		at = now
	}
	if s.next == nil {
		s.next = map[string]time.Time{}
	}
	s.next[partition] = at.Add(interval)
	s.mu.Unlock()
	if left := at.Sub(now); left > 0 {
		return wait.For(ctx, left)
	}
	return nil
}

func decodeRecord(r *streamtypes.StreamRecord) (change store.Change, err error) {
	if r == nil {
		return change, errors.New("a record without content")
	}
	item := func(m map[string]streamtypes.AttributeValue) expr.Item {
		converted, convertErr := attributevalue.FromDynamoDBStreamsMap(m)
		decoded, decodeErr := decodeItem(converted)
		err = errors.Join(err, convertErr, decodeErr)
		return decoded
	}
	change = store.Change{
		Key:      store.KeyOf(item(r.Keys)),
		Old:      item(r.OldImage),
		New:      item(r.NewImage),
		Sequence: store.SequenceOf(value(r.SequenceNumber)),
	}
	if r.ApproximateCreationDateTime != nil {
		change.At = r.ApproximateCreationDateTime.UTC()
	}
	return change, err
}
