package aggregator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Handler returns the function that AWS Lambda calls with changes of the table, for lambda.Start. Its event source is the table's stream,
// with new and old images. The event source must report batch item failures. The function returns the first change that could not be
// applied, and Lambda continues from there.
//
// An event that is not from a stream with both images is an error, which is logged, and none of it is counted. A function of [Serve] also
// rejects streams of other tables.
//
// The function returns before the time of the call ends. Changes that are not done by then count as failed. If this client may not use the
// table, the function returns a [*zlimit.VersionError] for all changes, and they are delivered again.
func Handler(a *Aggregator) func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	return a.handle
}

// reserve is the time left for the rest of a call, unless a quarter of the whole time is less.
const reserveTime = 2 * time.Second

// earlier returns a context that ends before the deadline of another one, if there is a deadline.
func earlier(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(reserveTime, time.Until(deadline)/4)))
}

func (a *Aggregator) handle(ctx context.Context, event events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	ctx, cancel := earlier(ctx)
	defer cancel()
	if err := a.refuse(&event); err != nil {
		a.options.logger.Error("aggregator: an event that is none of the table's stream is refused", "error", err)
		return events.DynamoDBEventResponse{}, fmt.Errorf("aggregator: %w", err)
	}
	if err := a.registry.admit(ctx); err != nil {
		return events.DynamoDBEventResponse{}, fmt.Errorf("aggregator: %w", err)
	}
	changes := make([]store.Change, len(event.Records))
	for i := range event.Records {
		var err error
		if changes[i], err = decodeRecord(&event.Records[i]); err != nil { // trying again would not help
			a.options.logger.Error("aggregator: a record of the stream cannot be read, and is left out",
				"sequence", event.Records[i].Change.SequenceNumber, "error", err)
		}
	}
	left, places := a.repeats.unknown(changes)
	failed := map[int]error{}
	first := len(changes)
	for i, err := range a.apply(ctx, left) {
		if err != nil {
			failed[places[i]] = err
			first = min(first, places[i])
		}
	}
	a.repeats.note(changes, failed, first)
	a.roller.rollInPassing(ctx)
	if len(failed) == 0 {
		return events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{}}, nil
	}
	a.options.logger.Warn("aggregator: changes could not be applied, and will come again",
		"from", event.Records[first].Change.SequenceNumber, "error", failed[first])
	return events.DynamoDBEventResponse{BatchItemFailures: []events.DynamoDBBatchItemFailure{
		{ItemIdentifier: event.Records[first].Change.SequenceNumber},
	}}, nil
}

const (
	passingPause = time.Minute      // between two looks of a function for due work
	passingTime  = 20 * time.Second // of a look in a call without an end
)

// rollInPassing rolls up due hours, for half of the rest of a call's time.
func (ro *roller) rollInPassing(ctx context.Context) {
	now, looked := ro.options.clock().UnixNano(), ro.looked.Load()
	if now-looked < int64(passingPause) || !ro.looked.CompareAndSwap(looked, now) {
		return
	}
	limit := passingTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline) / 2
	}
	working, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ro.rollDue(ctx, working)
}

// decodeRecord returns the change in a record; the zero Change if it cannot be read.
func decodeRecord(r *events.DynamoDBEventRecord) (store.Change, error) {
	keys, err := decodeImage(r.Change.Keys)
	before, beforeErr := decodeImage(r.Change.OldImage)
	after, afterErr := decodeImage(r.Change.NewImage)
	if err := errors.Join(err, beforeErr, afterErr); err != nil {
		return store.Change{}, err
	}
	_, label, _ := strings.Cut(r.EventSourceArn, "/stream/")
	return store.Change{
		Key:      store.KeyOf(keys),
		Old:      before,
		New:      after,
		Sequence: store.SequenceOf(r.Change.SequenceNumber),
		Stream:   label,
		At:       r.Change.ApproximateCreationDateTime.UTC().Truncate(time.Second),
		Expired:  r.UserIdentity != nil && r.UserIdentity.Type == "Service" && r.UserIdentity.PrincipalID == "dynamodb.amazonaws.com",
	}, nil
}

// decodeImage returns an item of a record, nil for none. Attributes of kinds that no record of the table has are left out.
func decodeImage(image map[string]events.DynamoDBAttributeValue) (expr.Item, error) {
	if len(image) == 0 {
		return nil, nil
	}
	item := make(expr.Item, 0, len(image))
	for name, a := range image {
		v, err := decodeValue(a)
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		if v.Kind() != expr.KindNone {
			item = append(item, expr.Attribute{Name: name, Value: v})
		}
	}
	return item, nil
}

// decodeValue returns a value of a record, the zero Value for a kind that no record of the table has.
func decodeValue(a events.DynamoDBAttributeValue) (expr.Value, error) {
	switch a.DataType() {
	case events.DataTypeNumber:
		return expr.ParseNumber(a.Number())
	case events.DataTypeString:
		return expr.S(a.String()), nil
	case events.DataTypeBoolean:
		return expr.Bool(a.Boolean()), nil
	case events.DataTypeNull:
		return expr.Null(), nil
	case events.DataTypeStringSet:
		return expr.Strings(a.StringSet()...), nil
	case events.DataTypeList:
		var list []expr.Value
		for _, e := range a.List() {
			v, err := decodeValue(e)
			if err != nil {
				return expr.Value{}, err
			}
			if v.Kind() != expr.KindNone {
				list = append(list, v)
			}
		}
		return expr.List(list...), nil
	case events.DataTypeMap:
		m, err := decodeImage(a.Map())
		return expr.Map(m), err
	default:
		return expr.Value{}, nil
	}
}
