package aggregator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

// ofTable names the table whose changes a function takes.
func ofTable(name string) Option { return func(o *options) { o.streamOf = name } }

// refuse returns an error for an event that is not one of the table's stream, with new and old images. Counting it would be wrong, and
// reporting success would hide an event source of another stream.
func (a *Aggregator) refuse(event *events.DynamoDBEvent) error {
	if len(event.Records) == 0 {
		return errors.New("the event has no records of a stream of DynamoDB")
	}
	for i := range event.Records {
		if err := a.refuseRecord(&event.Records[i]); err != nil {
			return fmt.Errorf("record %d of %d: %w", i+1, len(event.Records), err)
		}
	}
	return nil
}

const sourceDynamoDB, viewBoth = "aws:dynamodb", "NEW_AND_OLD_IMAGES"

func (a *Aggregator) refuseRecord(r *events.DynamoDBEventRecord) error {
	if r.EventSource != "" && r.EventSource != sourceDynamoDB {
		return fmt.Errorf("it is of %s, not of %s", r.EventSource, sourceDynamoDB)
	}
	_, table, _ := strings.Cut(r.EventSourceArn, ":table/")
	table, _, _ = strings.Cut(table, "/stream/")
	if want := a.options.streamOf; want != "" && table != want {
		return fmt.Errorf("it is of the stream %q, not of one of table %s", r.EventSourceArn, want)
	}
	if view := r.Change.StreamViewType; view != "" && view != viewBoth {
		return fmt.Errorf("the view of the stream is %s, and must be %s", view, viewBoth)
	}
	missing := ""
	switch events.DynamoDBOperationType(r.EventName) {
	case events.DynamoDBOperationTypeInsert:
		missing = absent(r.Change.NewImage, "new")
	case events.DynamoDBOperationTypeModify:
		missing = absent(r.Change.OldImage, "old") + absent(r.Change.NewImage, "new")
	case events.DynamoDBOperationTypeRemove:
		missing = absent(r.Change.OldImage, "old")
	}
	if missing != "" {
		return fmt.Errorf("a change of kind %s has no%s image; the view of the stream must be %s", r.EventName, missing, viewBoth)
	}
	return nil
}

// absent returns the name of a missing image, or "".
func absent(image map[string]events.DynamoDBAttributeValue, name string) string {
	if len(image) > 0 {
		return ""
	}
	return " " + name
}
