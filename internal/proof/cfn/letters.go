package cfn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// A receipt is the handle of a letter that was handed out, which hides it.
type receipt struct {
	handle string
	until  time.Time
}

// visible returns how many letters are not hidden.
func (s *Service) visible() (n int) {
	for id := range s.Letters {
		if !time.Now().Before(s.receipts[id].until) {
			n++
		}
	}
	return n
}

// ReceiveMessage hands out ten letters at most that are not hidden, and hides them. It hands one out again that is, as a queue may.
func (w Watch) ReceiveMessage(_ context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	return called(w.Service, "ReceiveMessage", func() (*sqs.ReceiveMessageOutput, error) {
		out := &sqs.ReceiveMessageOutput{}
		again := false
		for _, id := range slices.Sorted(maps.Keys(w.Letters)) {
			if hidden := time.Now().Before(w.receipts[id].until); hidden && again || len(out.Messages) == int(in.MaxNumberOfMessages) {
				continue
			} else if hidden {
				again = true
			}
			w.handedOut++
			handle, body := fmt.Sprintf("%s/%d", id, w.handedOut), w.Letters[id]
			w.receipts[id] = receipt{handle, time.Now().Add(time.Duration(in.VisibilityTimeout) * time.Second)}
			out.Messages = append(out.Messages, sqstypes.Message{MessageId: &id, ReceiptHandle: &handle, Body: &body})
		}
		return out, nil
	})
}

// DeleteMessage deletes a letter, by the last receipt of it.
func (w Watch) DeleteMessage(_ context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	return called(w.Service, "DeleteMessage", func() (*sqs.DeleteMessageOutput, error) {
		if id, _, _ := strings.Cut(*in.ReceiptHandle, "/"); w.receipts[id].handle == *in.ReceiptHandle {
			delete(w.Letters, id)
			delete(w.receipts, id)
		}
		return &sqs.DeleteMessageOutput{}, nil
	})
}

// ChangeMessageVisibilityBatch hides letters for other times, by the last receipts of them.
func (w Watch) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	return called(w.Service, "ChangeMessageVisibilityBatch", func() (*sqs.ChangeMessageVisibilityBatchOutput, error) {
		if len(in.Entries) > 10 {
			return nil, Fault("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10")
		}
		out := &sqs.ChangeMessageVisibilityBatchOutput{}
		for _, e := range in.Entries {
			id, _, _ := strings.Cut(*e.ReceiptHandle, "/")
			if w.receipts[id].handle != *e.ReceiptHandle {
				out.Failed = append(out.Failed, sqstypes.BatchResultErrorEntry{Id: e.Id, SenderFault: true})
				continue
			}
			w.receipts[id] = receipt{*e.ReceiptHandle, time.Now().Add(time.Duration(e.VisibilityTimeout) * time.Second)}
			out.Successful = append(out.Successful, sqstypes.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
		}
		return out, nil
	})
}

// Invoke calls a function.
func (w Watch) Invoke(_ context.Context, in *lambda.InvokeInput, _ ...func(*lambda.Options)) (*lambda.InvokeOutput, error) {
	return called(w.Service, "Invoke", func() (*lambda.InvokeOutput, error) {
		return &lambda.InvokeOutput{Payload: []byte(w.Invoked(in.Payload))}, nil
	})
}

// GetShardIterator returns where a change is in a shard.
func (w Watch) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	return called(w.Service, "GetShardIterator", func() (*dynamodbstreams.GetShardIteratorOutput, error) {
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
	})
}

// GetRecords returns two changes, and where to go on.
func (w Watch) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	return called(w.Service, "GetRecords", func() (*dynamodbstreams.GetRecordsOutput, error) {
		shard, place, _ := strings.Cut(*in.ShardIterator, "@")
		i, err := strconv.Atoi(place)
		if err != nil {
			return nil, err
		}
		records := w.Records[shard]
		end := min(len(records), i+2)
		out := &dynamodbstreams.GetRecordsOutput{Records: records[i:end]}
		if end < len(records) || w.Open[shard] {
			next := shard + "@" + strconv.Itoa(end)
			out.NextShardIterator = &next
		}
		return out, nil
	})
}
