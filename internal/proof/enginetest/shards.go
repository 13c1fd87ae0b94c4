package enginetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// refusedFilter is the answer of a service that does not know filters of shards.
const refusedFilter Kind = "ValidationException"

const (
	shardTable = "arn:aws:dynamodb:us-east-1:000000000000:table/shards/stream/"
	shardLabel = "2026-03-01T12:00:00.000"
)

// Shards is a transport that answers for a table with a stream of several shards, which engines do not have. It answers
// DescribeTable, and the calls of DynamoDB Streams. A test makes, splits and trims the shards, and makes their records.
// It is safe for concurrent use.
//
//	shards := enginetest.NewShards()
//	shards.Open("a", "")
//	shards.Put("a", "item", 1)
//	db, streams := shards.Clients()
type Shards struct {
	// View is the kind of stream that the table says it has; "" for a table without one.
	View string
	// PageSize is the number of shards in a page of DescribeStream, and the most
	// records that GetRecords returns. With 0 the caller's limit is the only one.
	PageSize int
	// Filter is the stream's treatment of a filter by CHILD_SHARDS: "" to honour it, "ignored" or "refused".
	Filter string

	mu       sync.Mutex
	shards   []*shard
	images   map[string]int // of the items, by partition key
	sequence int
}

// shard is a shard with its records. A record's index counts from the first that there ever was.
type shard struct {
	id, parent string
	records    []record
	trimmed    int // records forgotten
	closed     bool
}

type record struct {
	sequence string
	content  map[string]any
}

// NewShards returns a table with a stream of old and new images, and no shards.
func NewShards() *Shards { return &Shards{View: "NEW_AND_OLD_IMAGES", images: map[string]int{}} }

// Open adds a shard. parent may be "".
func (s *Shards) Open(id, parent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = append(s.shards, &shard{id: id, parent: parent})
}

// Put records that an item's attribute n was set, at a time.
func (s *Shards) Put(id, item string, n int, at time.Time) { s.record(id, item, &n, at, nil) }

// Expire records that the service deleted an item since its time had come.
func (s *Shards) Expire(id, item string, at time.Time) {
	s.record(id, item, nil, at, map[string]any{"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"})
}

func (s *Shards) record(id, item string, n *int, at time.Time, identity map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := map[string]any{"PK": map[string]string{"S": item}, "SK": map[string]string{"S": "s"}}
	image := func(n int) map[string]any {
		return map[string]any{"PK": key["PK"], "SK": key["SK"], "n": map[string]string{"N": strconv.Itoa(n)}}
	}
	s.sequence += 7
	sequence := fmt.Sprintf("3%024d", s.sequence)
	stream := map[string]any{
		"Keys": key, "SequenceNumber": sequence, "ApproximateCreationDateTime": at.Unix(), "StreamViewType": s.View,
	}
	event := "INSERT"
	if old, ok := s.images[item]; ok {
		event = "MODIFY"
		stream["OldImage"] = image(old)
	}
	if n == nil {
		event = "REMOVE"
		delete(s.images, item)
	} else {
		stream["NewImage"] = image(*n)
		s.images[item] = *n
	}
	content := map[string]any{"eventName": event, "eventID": sequence, "dynamodb": stream}
	if identity != nil {
		content["userIdentity"] = identity
	}
	sh := s.find(id)
	sh.records = append(sh.records, record{sequence, content})
}

// Close ends a shard: no more records follow.
func (s *Shards) Close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find(id).closed = true
}

// Trim forgets the first n records of a shard.
func (s *Shards) Trim(id string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find(id).trimmed = n
}

// Forget forgets a shard.
func (s *Shards) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = slices.DeleteFunc(s.shards, func(sh *shard) bool { return sh.id == id })
}

// Partition returns the name that package dynamo gives to a shard.
func (s *Shards) Partition(id string) string { return shardLabel + "/" + id }

// Clients returns clients of the table and of its stream, which is called
// "shards".
func (s *Shards) Clients(optFns ...func(*dynamodbstreams.Options)) (*dynamodb.Client, *dynamodbstreams.Client) {
	endpoint, client := aws.String("http://shards.invalid"), &http.Client{Transport: s}
	credentials := aws.CredentialsProviderFunc(dummyCredentials)
	db := dynamodb.New(dynamodb.Options{Region: Region, BaseEndpoint: endpoint, Credentials: credentials, HTTPClient: client})
	return db, dynamodbstreams.New(dynamodbstreams.Options{
		Region: Region, BaseEndpoint: endpoint, Credentials: credentials, HTTPClient: client,
	}, optFns...)
}

// find returns a shard, nil for none.
func (s *Shards) find(id string) *shard {
	for _, sh := range s.shards {
		if sh.id == id {
			return sh
		}
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (s *Shards) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := readRequest(request)
	if err != nil {
		return nil, err
	}
	call := Call{Operation: operation(request), Body: body}
	var in shardRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("enginetest: %s: %w", call.Operation, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var content any
	var kind Kind
	switch call.Operation {
	case "DescribeTable":
		content = s.describeTable()
	case "DescribeStream":
		if in.ShardFilter != nil && s.Filter == "refused" {
			kind = refusedFilter
		} else {
			content = s.describeStream(in)
		}
	case "GetShardIterator":
		content, kind = s.iterator(in)
	case "GetRecords":
		content, kind = s.read(in)
	default:
		return nil, fmt.Errorf("enginetest: no %s in a table of shards", call.Operation)
	}
	if kind != "" {
		return refusal(request, kind, call)
	}
	return reply(request, http.StatusOK, content, "SHARDS")
}

// shardRequest holds the parameters of all the calls.
type shardRequest struct {
	StreamArn, ShardID, ShardIteratorType, SequenceNumber, ShardIterator, ExclusiveStartShardID string
	Limit                                                                                       int
	ShardFilter                                                                                 *struct{ Type, ShardID string }
}

func (s *Shards) describeTable() any {
	table := map[string]any{"TableName": "shards", "TableStatus": "ACTIVE"}
	if s.View != "" {
		table["StreamSpecification"] = map[string]any{"StreamEnabled": true, "StreamViewType": s.View}
		table["LatestStreamArn"] = shardTable + shardLabel
	}
	return map[string]any{"Table": table}
}

func (s *Shards) describeStream(in shardRequest) any {
	listed := s.shards
	if filter := in.ShardFilter; filter != nil && s.Filter == "" {
		listed = slices.DeleteFunc(slices.Clone(listed), func(sh *shard) bool { return sh.parent != filter.ShardID })
	}
	if in.ExclusiveStartShardID != "" {
		listed = listed[slices.Index(listed, s.find(in.ExclusiveStartShardID))+1:]
	}
	description := map[string]any{"StreamArn": in.StreamArn, "StreamStatus": "ENABLED", "StreamViewType": s.View}
	if s.PageSize > 0 && len(listed) > s.PageSize {
		listed = listed[:s.PageSize]
		description["LastEvaluatedShardId"] = listed[s.PageSize-1].id
	}
	shards := []any{}
	for _, sh := range listed {
		described := map[string]any{"ShardId": sh.id, "SequenceNumberRange": map[string]any{}}
		if sh.parent != "" {
			described["ParentShardId"] = sh.parent
		}
		shards = append(shards, described)
	}
	description["Shards"] = shards
	return map[string]any{"StreamDescription": description}
}

func (s *Shards) iterator(in shardRequest) (any, Kind) {
	sh := s.find(in.ShardID)
	if sh == nil || in.StreamArn != shardTable+shardLabel {
		return nil, ResourceNotFound
	}
	index := sh.trimmed
	if in.ShardIteratorType == "AFTER_SEQUENCE_NUMBER" {
		at := slices.IndexFunc(sh.records, func(r record) bool { return r.sequence == in.SequenceNumber })
		if at < sh.trimmed {
			return nil, TrimmedData
		}
		index = at + 1
	}
	return map[string]any{"ShardIterator": fmt.Sprintf("%s|%d", sh.id, index)}, ""
}

func (s *Shards) read(in shardRequest) (any, Kind) {
	id, at, _ := strings.Cut(in.ShardIterator, "|")
	sh := s.find(id)
	if sh == nil {
		return nil, ResourceNotFound
	}
	index, err := strconv.Atoi(at)
	if err != nil || index < sh.trimmed {
		return nil, TrimmedData
	}
	limit := in.Limit
	if s.PageSize > 0 {
		limit = min(limit, s.PageSize)
	}
	end := min(len(sh.records), index+limit)
	records := []any{}
	for _, r := range sh.records[index:end] {
		records = append(records, r.content)
	}
	content := map[string]any{"Records": records}
	if !sh.closed || end < len(sh.records) {
		content["NextShardIterator"] = fmt.Sprintf("%s|%d", id, end)
	}
	return content, ""
}
