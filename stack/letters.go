package stack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// A DeadLetter is a message about changes that Lambda gave up on: their place in the stream, without their content.
type DeadLetter struct {
	Why     string    `json:"why"` // such as RetryAttemptsExhausted or RecordAgeExceeded
	Changes int       `json:"changes"`
	From    time.Time `json:"from"` // about when the first change was made
	To      time.Time `json:"to"`   // and the last one
	Shard   string    `json:"shard"`
	First   string    `json:"first"` // sequence numbers
	Last    string    `json:"last"`
	// Outcome is what became of it: [LetterWaits], [LetterRedriven], [LetterForgotten], [LetterUnreached], [LetterDiscarded], or why it could
	// not be redriven.
	Outcome string `json:"outcome"`
}

// Outcomes of dead letters.
const (
	LetterWaits     = "waits"     // in the queue
	LetterRedriven  = "redriven"  // its changes are applied, and the message is deleted
	LetterForgotten = "forgotten" // the stream has its changes no more: their usage is lost
	LetterUnreached = "applied as far as the stream has its changes, without the last one"
	LetterDiscarded = "discarded" // forgotten, or unreached, and the message is deleted
)

// A postman treats the dead letters of a stack.
type postman struct {
	*account
	queue, function  string
	redrive, discard bool
}

// DeadLetters returns the messages in the queue of changes that Lambda gave up on. With redrive it reads their changes
// from the stream, which keeps a day of them, and calls the aggregator's function with them again. The function counts
// each change once, even if it has seen some of them before. The message is then deleted. With discard it deletes
// messages whose changes the stream no longer has.
//
// Messages are hidden from others while it looks at them, for at most a minute. The messages that it does not delete are back in
// the queue when it returns.
func (m *Manager) DeadLetters(ctx context.Context, name string, redrive, discard bool) (all []DeadLetter, err error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	if _, err := m.describe(ctx, name); err != nil {
		return nil, err
	}
	ids, err := m.resources(ctx, name)
	if err != nil {
		return nil, err
	}
	all = []DeadLetter{}
	p := &postman{m.account, ids["DeadLetters"], ids["AggregatorFunction"], redrive, discard}
	if p.queue == "" {
		return all, nil
	}
	kept := map[string]string{} // receipts of messages that were not deleted, by message
	defer func() { err = errors.Join(err, p.giveBack(ctx, kept)) }()
	for seen := map[string]bool{}; ; {
		out, err := call(ctx, p.account, m.clients.SQS.ReceiveMessage, &sqs.ReceiveMessageInput{QueueUrl: &p.queue, MaxNumberOfMessages: 10, VisibilityTimeout: 60, WaitTimeSeconds: 1})
		if err != nil {
			return all, fmt.Errorf("stack: receive dead letters: %w", err)
		}
		for i := range out.Messages { // all of them, should one fail
			kept[value(out.Messages[i].MessageId)] = value(out.Messages[i].ReceiptHandle)
		}
		fresh := 0
		for i := range out.Messages {
			message := &out.Messages[i]
			id := value(message.MessageId)
			if seen[id] {
				continue
			}
			seen[id] = true
			fresh++
			letter, err := p.handle(ctx, message)
			if all = append(all, letter); err != nil {
				return all, err
			}
			if letter.Outcome == LetterRedriven || letter.Outcome == LetterDiscarded {
				delete(kept, id)
			}
		}
		if fresh == 0 {
			return all, nil
		}
	}
}

// giveBack shows messages to others again, by their receipts.
func (p *postman) giveBack(ctx context.Context, receipts map[string]string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(receipts)), 10) { // the most that SQS takes
		in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &p.queue}
		for i, id := range ids {
			in.Entries = append(in.Entries, sqstypes.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(receipts[id])})
		}
		_, err := call(ctx, p.account, p.clients.SQS.ChangeMessageVisibilityBatch, in) // entries that fail are of messages visible or deleted by now
		if err != nil {
			return fmt.Errorf("stack: give dead letters back, which are hidden for a minute: %w", err)
		}
	}
	return nil
}

// handle reads a message, and treats it.
func (p *postman) handle(ctx context.Context, message *sqstypes.Message) (DeadLetter, error) {
	var body struct {
		RequestContext struct{ Condition string }
		Batch          struct {
			ShardID   string    `json:"shardId"`
			First     string    `json:"startSequenceNumber"`
			Last      string    `json:"endSequenceNumber"`
			FirstTime time.Time `json:"approximateArrivalOfFirstRecord"`
			LastTime  time.Time `json:"approximateArrivalOfLastRecord"`
			Size      int       `json:"batchSize"`
			StreamARN string    `json:"streamArn"`
		} `json:"DDBStreamBatchInfo"`
	}
	if json.Unmarshal([]byte(value(message.Body)), &body) != nil || body.Batch.ShardID == "" {
		return DeadLetter{Outcome: "is no message of Lambda about changes: " + value(message.Body)}, nil //nolint:nilerr // the outcome says it
	}
	b := &body.Batch
	letter := DeadLetter{body.RequestContext.Condition, b.Size, b.FirstTime, b.LastTime, b.ShardID, b.First, b.Last, LetterWaits}
	if !p.redrive && !p.discard {
		return letter, nil
	}
	records, err := p.recordsOf(ctx, b.StreamARN, &letter)
	forgotten, unreached := errors.Is(err, errForgotten), errors.Is(err, errUnreached)
	switch {
	case err != nil && !forgotten && !unreached:
		return letter, err
	case forgotten && !p.discard:
		letter.Outcome = LetterForgotten
		return letter, nil
	case !forgotten && !p.redrive:
		return letter, nil
	case !forgotten:
		why, err := p.invoke(ctx, b.StreamARN, records)
		if err != nil {
			return letter, err
		}
		if why != "" {
			letter.Outcome = why
			return letter, nil
		}
	}
	switch {
	case unreached && !p.discard:
		letter.Outcome = LetterUnreached
		return letter, nil
	case forgotten, unreached:
		letter.Outcome = LetterDiscarded
	default:
		letter.Outcome = LetterRedriven
	}
	_, err = call(ctx, p.account, p.clients.SQS.DeleteMessage, &sqs.DeleteMessageInput{QueueUrl: &p.queue, ReceiptHandle: message.ReceiptHandle})
	return letter, err
}

// Reasons that keep a letter from being redriven as a whole.
var (
	errForgotten = errors.New("the stream has forgotten changes")
	errUnreached = errors.New("the stream does not reach the last change")
)

// mostEmpty is after how many pages without a change a stream is taken to have no more. A shard in use has a next page forever, and a page
// may be empty before its last change.
const mostEmpty = 100

// recordsOf reads the changes of a letter from the stream. With errUnreached, they are those before the last one.
func (p *postman) recordsOf(ctx context.Context, stream string, l *DeadLetter) (all []streamtypes.Record, err error) {
	at, err := call(ctx, p.account, p.clients.Streams.GetShardIterator, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &stream, ShardId: &l.Shard, ShardIteratorType: streamtypes.ShardIteratorTypeAtSequenceNumber, SequenceNumber: &l.First,
	})
	var next *string
	if err == nil {
		next = at.ShardIterator
	}
	for empty := 0; err == nil; {
		if next == nil || empty == mostEmpty {
			return all, errUnreached
		}
		var page *dynamodbstreams.GetRecordsOutput
		page, err = call(ctx, p.account, p.clients.Streams.GetRecords, &dynamodbstreams.GetRecordsInput{ShardIterator: next})
		if err != nil {
			break
		}
		for _, r := range page.Records {
			number := value(r.Dynamodb.SequenceNumber)
			if compareNumbers(number, l.Last) <= 0 {
				all = append(all, r)
			}
			if compareNumbers(number, l.Last) >= 0 {
				return all, nil
			}
		}
		next = page.NextShardIterator
		if empty++; len(page.Records) > 0 {
			empty = 0
		} else if err := p.sleep(ctx, p.poll/10); err != nil { // a shard takes five such calls a second
			return nil, err
		}
	}
	if hasCode(err, "TrimmedDataAccessException") || hasCode(err, "ResourceNotFoundException") {
		return nil, errForgotten
	}
	return nil, fmt.Errorf("stack: read the changes of a dead letter: %w", err)
}

// compareNumbers compares whole numbers without leading zeros.
func compareNumbers(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// mostRedriven is how many changes are passed to the function in one call; Lambda takes 6 MB.
const mostRedriven = 200

// invoke calls the aggregator's function with changes, as Lambda does, and returns why it did not apply all of them.
func (p *postman) invoke(ctx context.Context, stream string, records []streamtypes.Record) (why string, err error) {
	if p.function == "" {
		return "", errors.New("stack: there is no aggregator that could apply the changes")
	}
	for from := 0; from < len(records); from += mostRedriven {
		event := map[string]any{"Records": eventRecords(stream, records[from:min(len(records), from+mostRedriven)])}
		payload, err := json.Marshal(event)
		if err != nil {
			return "", err
		}
		out, err := call(ctx, p.account, p.clients.Lambda.Invoke, &lambda.InvokeInput{FunctionName: &p.function, Payload: payload})
		if err != nil {
			return "", fmt.Errorf("stack: call the aggregator: %w", err)
		}
		var answer struct {
			Failures []any `json:"batchItemFailures"`
		}
		if out.FunctionError != nil || json.Unmarshal(out.Payload, &answer) != nil || len(answer.Failures) > 0 {
			return "the aggregator has not applied all: " + string(out.Payload), nil //nolint:nilerr // the text says it
		}
	}
	return "", nil
}

// eventRecords returns records as Lambda passes them to a function.
func eventRecords(stream string, records []streamtypes.Record) (all []map[string]any) {
	for _, r := range records {
		change := map[string]any{
			"ApproximateCreationDateTime": aws.ToTime(r.Dynamodb.ApproximateCreationDateTime).Unix(), "SequenceNumber": value(r.Dynamodb.SequenceNumber),
			"StreamViewType": r.Dynamodb.StreamViewType, "Keys": image(r.Dynamodb.Keys),
		}
		if len(r.Dynamodb.OldImage) > 0 {
			change["OldImage"] = image(r.Dynamodb.OldImage)
		}
		if len(r.Dynamodb.NewImage) > 0 {
			change["NewImage"] = image(r.Dynamodb.NewImage)
		}
		record := map[string]any{
			"eventSource": "aws:dynamodb", "eventName": r.EventName, "eventID": value(r.EventID), "eventSourceARN": stream, "dynamodb": change,
		}
		if r.UserIdentity != nil {
			record["userIdentity"] = map[string]any{"type": value(r.UserIdentity.Type), "principalId": value(r.UserIdentity.PrincipalId)}
		}
		all = append(all, record)
	}
	return all
}

// image returns an item in the JSON of DynamoDB.
func image(item map[string]streamtypes.AttributeValue) map[string]any {
	all := map[string]any{}
	for name, v := range item {
		all[name] = attribute(v)
	}
	return all
}

func attribute(v streamtypes.AttributeValue) any {
	switch v := v.(type) {
	case *streamtypes.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *streamtypes.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *streamtypes.AttributeValueMemberB:
		return map[string]any{"B": v.Value}
	case *streamtypes.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *streamtypes.AttributeValueMemberSS:
		return map[string]any{"SS": v.Value}
	case *streamtypes.AttributeValueMemberNS:
		return map[string]any{"NS": v.Value}
	case *streamtypes.AttributeValueMemberBS:
		return map[string]any{"BS": v.Value}
	case *streamtypes.AttributeValueMemberM:
		return map[string]any{"M": image(v.Value)}
	case *streamtypes.AttributeValueMemberL:
		list := make([]any, len(v.Value))
		for i := range v.Value {
			list[i] = attribute(v.Value[i])
		}
		return map[string]any{"L": list}
	default:
		return map[string]any{"NULL": true}
	}
}
