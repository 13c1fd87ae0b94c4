package zlimit

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/protocol"
)

// A Status is where one limit stands, and what a request asks of it.
type Status struct {
	Entity   string
	Resource string
	Limit    Limit
	// Available is the balance in tokens, rounded down; negative in debt.
	Available int64
	// Requested is what the request asks, in tokens.
	Requested int64
	// Exceeded says that it asks for more than is available.
	Exceeded bool
	// RetryAfter is the time after which that much is available if nothing else happens; 0 when it is now, or never will
	// be. It is at most 292 years.
	RetryAfter time.Duration
}

// Possible reports whether the request can succeed at some time: it asks for no more than the capacity.
func (s Status) Possible() bool { return s.Requested <= s.Limit.Capacity }

// MarshalJSON returns the status as an object with durations in seconds.
func (s Status) MarshalJSON() ([]byte, error) {
	type body struct {
		Entity            string      `json:"entity"`
		Resource          string      `json:"resource"`
		Limit             string      `json:"limit"`
		Capacity          int64       `json:"capacity"`
		RefillAmount      int64       `json:"refill_amount"`
		RefillPeriod      secondsJSON `json:"refill_period_seconds"`
		Available         int64       `json:"available"`
		Requested         int64       `json:"requested"`
		Exceeded          bool        `json:"exceeded"`
		RetryAfterSeconds secondsJSON `json:"retry_after_seconds"`
	}
	return json.Marshal(body{
		s.Entity, s.Resource, s.Limit.Name, s.Limit.Capacity, s.Limit.RefillAmount, secondsJSON(s.Limit.RefillPeriod),
		s.Available, s.Requested, s.Exceeded, secondsJSON(s.RetryAfter),
	})
}

// Statuses are the statuses of the limits of one resource, in the order of their names, or of their strictness in an
// [ExceededError].
type Statuses []Status

// Limit returns the status of a limit by its name; false when there is none.
func (s Statuses) Limit(name string) (Status, bool) {
	for _, status := range s {
		if status.Limit.Name == name {
			return status, true
		}
	}
	return Status{}, false
}

// retryAfter returns the longest wait.
func (s Statuses) retryAfter() time.Duration {
	var wait time.Duration
	for _, status := range s {
		wait = max(wait, status.RetryAfter)
	}
	return wait
}

// statusesOfLevels returns the statuses of the levels of a request, one after another.
func statusesOfLevels(levels []protocol.LevelStatus) (statuses Statuses) {
	for _, l := range levels {
		statuses = appendStatuses(statuses, l.Entity, l.Resource, l.Statuses)
	}
	return statuses
}

// appendStatuses appends the statuses of a bucket's limits.
func appendStatuses(to Statuses, entity, resource string, levels []bucket.Status) Statuses {
	to = slices.Grow(to, len(levels))
	for _, l := range levels {
		s := Status{
			Entity:   entity,
			Resource: resource,
			Limit: Limit{
				Name:         l.Name,
				Capacity:     l.Capacity / millis,
				RefillAmount: l.RefillAmount / millis,
				RefillPeriod: duration(l.RefillPeriod),
			},
			Available: thousands(l.Available),
			Requested: l.Requested / millis,
			Exceeded:  l.Wait > 0,
		}
		if l.Requested <= l.Capacity {
			s.RetryAfter = duration(l.Wait)
		}
		to = append(to, s)
	}
	return to
}

// millis is the number of millitokens in a token.
const millis = 1000

// thousands returns ⌊n/1000⌋: tokens of millitokens, seconds of milliseconds.
func thousands(n int64) int64 {
	q := n / 1000
	if n%1000 < 0 {
		q--
	}
	return q
}

// duration returns milliseconds as a duration, saturated.
func duration(milliseconds int64) time.Duration {
	if milliseconds > int64(math.MaxInt64/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(milliseconds) * time.Millisecond
}
