package stack_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/stack"
)

// letter is a message as Lambda puts it into the queue of a mapping.
func letter(shard, first, last string, size int) string {
	return fmt.Sprintf(`{"requestContext":{"requestId":"1","functionArn":"f","condition":"RetryAttemptsExhausted","approximateInvokeCount":1},"version":"1.0",`+
		`"timestamp":"2026-03-01T12:00:00.000Z","DDBStreamBatchInfo":{"shardId":%q,"startSequenceNumber":%q,"endSequenceNumber":%q,`+
		`"approximateArrivalOfFirstRecord":"2026-03-01T11:00:00Z","approximateArrivalOfLastRecord":"2026-03-01T11:00:01Z","batchSize":%d,"streamArn":%q}}`,
		shard, first, last, size, tableARN+"/stream/1")
}

// TestDeadLetters lists letters, and redrives those whose changes the stream has: the function gets them as Lambda passes them.
func TestDeadLetters(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	text := func(v string) streamtypes.AttributeValue { return &streamtypes.AttributeValueMemberS{Value: v} }
	at := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	for i := 98; i <= 103; i++ {
		number := fmt.Sprint(i)
		s.Records["shard-1"] = append(s.Records["shard-1"], streamtypes.Record{EventName: streamtypes.OperationTypeModify, Dynamodb: &streamtypes.StreamRecord{
			SequenceNumber: &number, ApproximateCreationDateTime: &at, StreamViewType: streamtypes.StreamViewTypeNewAndOldImages,
			Keys:     map[string]streamtypes.AttributeValue{"PK": text("ns/BUCKET#e#r#0"), "SK": text("#STATE")},
			OldImage: map[string]streamtypes.AttributeValue{"b_rpm_tc": &streamtypes.AttributeValueMemberN{Value: number}},
			NewImage: map[string]streamtypes.AttributeValue{
				"l": &streamtypes.AttributeValueMemberL{Value: []streamtypes.AttributeValue{text("x"), &streamtypes.AttributeValueMemberBOOL{Value: true}}},
				"m": &streamtypes.AttributeValueMemberM{Value: map[string]streamtypes.AttributeValue{"n": &streamtypes.AttributeValueMemberNULL{Value: true}}},
			},
		}})
	}
	s.Letters = map[string]string{"1": letter("shard-1", "99", "101", 3), "2": letter("shard-0", "7", "8", 2), "3": "hello"}
	var got []events.DynamoDBEventRecord
	answer := `{"batchItemFailures":[{"itemIdentifier":"100"}]}`
	s.Invoked = func(payload []byte) string {
		var event events.DynamoDBEvent
		check.Error(t, "json.Unmarshal()", json.Unmarshal(payload, &event))
		got = event.Records
		return answer
	}
	outcomes := func(redrive, discard bool) (all []string) {
		t.Helper()
		letters := check.Call(manager(s).DeadLetters(t.Context(), "limits", redrive, discard)).Must(t, "DeadLetters()")
		if st, err := manager(s).Status(t.Context(), "limits", false); err != nil || st.Dead == nil || *st.Dead != int64(len(s.Letters)) {
			t.Errorf("Status() = %+v, %v, want all %d letters to be visible", st, err, len(s.Letters))
		}
		for _, l := range letters {
			all = append(all, l.Outcome)
		}
		return all
	}
	const junk = "is no message of Lambda about changes: hello"
	for _, step := range []struct {
		redrive, discard bool
		answer           string
		want             []string
		left             int
	}{
		{false, false, "", []string{stack.LetterWaits, stack.LetterWaits, junk}, 3},
		{true, false, `{"batchItemFailures":[{"itemIdentifier":"100"}]}`, []string{`the aggregator has not applied all: {"batchItemFailures":[{"itemIdentifier":"100"}]}`, stack.LetterForgotten, junk}, 3},
		{true, false, `{"batchItemFailures":[]}`, []string{stack.LetterRedriven, stack.LetterForgotten, junk}, 2},
		{false, true, "", []string{stack.LetterDiscarded, junk}, 1},
	} {
		answer = step.answer
		if diff := cmp.Diff(step.want, outcomes(step.redrive, step.discard)); diff != "" || len(s.Letters) != step.left {
			t.Errorf("redrive %t, discard %t: %d letters are left, outcomes differ (-want +got):\n%s", step.redrive, step.discard, len(s.Letters), diff)
		}
	}
	if len(got) != 3 || got[0].Change.SequenceNumber != "99" || got[2].Change.SequenceNumber != "101" || got[0].EventSourceArn != tableARN+"/stream/1" ||
		got[0].Change.OldImage["b_rpm_tc"].Number() != "99" || got[0].Change.NewImage["l"].List()[0].String() != "x" || !got[0].Change.NewImage["m"].Map()["n"].IsNull() {
		t.Errorf("the function was called with %+v", got)
	}
	s.Letters = map[string]string{"1": letter("shard-1", "99", "102", 4)}
	letters, err := manager(s).DeadLetters(t.Context(), "limits", false, false)
	want := stack.DeadLetter{
		Why: "RetryAttemptsExhausted", Changes: 4, From: at, To: at.Add(time.Second), Shard: "shard-1", First: "99", Last: "102", Outcome: stack.LetterWaits,
	}
	if diff := cmp.Diff([]stack.DeadLetter{want}, letters); diff != "" || err != nil {
		t.Errorf("DeadLetters() differs: %v (-want +got):\n%s", err, diff)
	}
}

// TestDeadLettersUnreached redrives letters of which the stream has changes, and not the last one: its shard was closed before, or goes
// on forever. What there is of them is applied.
func TestDeadLettersUnreached(t *testing.T) {
	for name, open := range map[string]bool{"a shard that is closed": false, "a shard in use": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cfn.NewService()
			deploy(t, s, fresh(), stack.Hooks{})
			number := "99"
			s.Records["shard-1"] = []streamtypes.Record{{Dynamodb: &streamtypes.StreamRecord{SequenceNumber: &number}}}
			s.Open["shard-1"] = open
			s.Letters["1"] = letter("shard-1", "99", "102", 4)
			invoked := 0
			s.Invoked = func([]byte) string { invoked++; return `{"batchItemFailures":[]}` }
			for _, step := range []struct {
				redrive, discard bool
				want             string
				invoked, left    int
			}{
				{false, true, stack.LetterWaits, 0, 1},
				{true, false, stack.LetterUnreached, 1, 1},
				{true, true, stack.LetterDiscarded, 2, 0},
			} {
				letters, err := manager(s).DeadLetters(t.Context(), "limits", step.redrive, step.discard)
				if err != nil || len(letters) != 1 || letters[0].Outcome != step.want || invoked != step.invoked || len(s.Letters) != step.left {
					t.Errorf("DeadLetters(%t, %t) = %v, %v, %d calls, %d letters left, want %+v", step.redrive, step.discard, letters, err, invoked, len(s.Letters), step)
				}
			}
		})
	}
}

// TestDeadLettersReturn looks at more letters than a queue hands out at once, and at a letter that cannot be handled. All are back
// immediately.
func TestDeadLettersReturn(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	for i := range 25 {
		s.Letters[fmt.Sprint(i)] = letter("shard-1", fmt.Sprint(i), fmt.Sprint(i), 1)
	}
	all := func(redrive bool) (int, error) {
		letters, err := manager(s).DeadLetters(t.Context(), "limits", redrive, false)
		return len(letters), err
	}
	for range 2 {
		if n, err := all(false); n != 25 || err != nil {
			t.Errorf("DeadLetters() = %d letters, %v, want 25", n, err)
		}
	}
	s.Call = func(_ int, name string, _ bool) error {
		if name == "GetShardIterator" {
			return cfn.Fault("AccessDeniedException", "no")
		}
		return nil
	}
	if n, err := all(true); n != 1 || err == nil {
		t.Errorf("DeadLetters() = %d letters, %v, want one and an error", n, err)
	}
	s.Call = nil
	if n, err := all(false); n != 25 || err != nil {
		t.Errorf("DeadLetters() after an error = %d letters, %v, want 25", n, err)
	}
}
