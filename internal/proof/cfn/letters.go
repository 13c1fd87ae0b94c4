package cfn

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// ReceiveMessage returns all letters, again and again, as a queue may.
func (w Watch) ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (out *sqs.ReceiveMessageOutput, err error) {
	leave, err := w.enter("ReceiveMessage")
	if err != nil {
		return nil, err
	}
	defer leave(&err)
	out = &sqs.ReceiveMessageOutput{}
	for _, id := range slices.Sorted(maps.Keys(w.Letters)) {
		body := w.Letters[id]
		out.Messages = append(out.Messages, sqstypes.Message{MessageId: &id, ReceiptHandle: &id, Body: &body})
	}
	return out, nil
}

// DeleteMessage deletes a letter.
func (w Watch) DeleteMessage(_ context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (out *sqs.DeleteMessageOutput, err error) {
	leave, err := w.enter("DeleteMessage")
	if err != nil {
		return nil, err
	}
	defer leave(&err)
	delete(w.Letters, *in.ReceiptHandle)
	return &sqs.DeleteMessageOutput{}, nil
}

// Invoke calls a function.
func (w Watch) Invoke(_ context.Context, in *lambda.InvokeInput, _ ...func(*lambda.Options)) (out *lambda.InvokeOutput, err error) {
	leave, err := w.enter("Invoke")
	if err != nil {
		return nil, err
	}
	defer leave(&err)
	return &lambda.InvokeOutput{Payload: []byte(w.Invoked(in.Payload))}, nil
}

// GetShardIterator returns where a change is in a shard.
func (w Watch) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (out *dynamodbstreams.GetShardIteratorOutput, err error) {
	leave, err := w.enter("GetShardIterator")
	if err != nil {
		return nil, err
	}
	defer leave(&err)
	records, ok := w.Records[*in.ShardId]
	if !ok {
		return nil, Fault("ResourceNotFoundException", "Requested resource not found: shard")
	}
	i := slices.IndexFunc(records, func(r streamtypes.Record) bool { return *r.Dynamodb.SequenceNumber == *in.SequenceNumber })
	if i < 0 {
		return nil, Fault("TrimmedDataAccessException", "The operation attempted to read past the oldest stream record")
	}
	iterator := *in.ShardId + "@" + strconv.Itoa(i)
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: &iterator}, nil
}

// GetRecords returns two changes, and where to go on.
func (w Watch) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (out *dynamodbstreams.GetRecordsOutput, err error) {
	leave, err := w.enter("GetRecords")
	if err != nil {
		return nil, err
	}
	defer leave(&err)
	shard, place, _ := strings.Cut(*in.ShardIterator, "@")
	i, err := strconv.Atoi(place)
	if err != nil {
		return nil, err
	}
	records := w.Records[shard]
	out = &dynamodbstreams.GetRecordsOutput{Records: records[i:min(len(records), i+2)]}
	if i+2 < len(records) {
		next := shard + "@" + strconv.Itoa(i+2)
		out.NextShardIterator = &next
	}
	return out, nil
}
