package ledger

import (
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// check returns a [*zlimit.ValidationError] for a query of no month.
func (q *Query) check() error {
	switch {
	case q.Now.IsZero():
		return invalid("now", written(q.Now), "must be the present")
	case q.From.IsZero() || !q.From.Equal(Begin(q.From)):
		return invalid("from", written(q.From), "must be the first midnight of a month in its time zone")
	default:
		return nil
	}
}

// checkRange returns a [*zlimit.ValidationError] for a query of usage without a range of windows.
func checkRange(q *zlimit.UsageQuery) error {
	switch {
	case q.From.IsZero():
		return invalid("from", written(q.From), "must be given")
	case !q.From.Before(q.To):
		return invalid("to", written(q.To), "must be after from")
	default:
		return nil
	}
}

func invalid(field, value, reason string) error {
	return &zlimit.ValidationError{Field: "ledger " + field, Value: value, Reason: reason}
}

func written(t time.Time) string { return t.Format(time.RFC3339) }
