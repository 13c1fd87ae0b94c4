package zlimit

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// An Observer is notified of the actions of a limiter. The goroutine that performs the action calls the observer once
// it is done. An observer must be safe for concurrent use. Its time is added to every request.
type Observer func(context.Context, Event)

// An Event is something that a limiter did. Which fields are set depends on the kind; the others are zero.
type Event struct {
	Kind EventKind `json:"kind"`
	// Operation names the call of the event: [OpAcquire], [OpWait], [OpReserve], [OpConsume], [OpCommit] or
	// [OpRollback]. For EventStore it is the call of the store, such as "write"; for EventManual it is "reset" or "top
	// up"; for EventSlots it is [OpTakeSlots], [OpGiveSlotsBack] or [OpLoseSlots].
	Operation string `json:"operation"`
	// Time is when the event happened, by the limiter's clock.
	Time time.Time `json:"time"`
	// Duration is how long the operation took, by the clock of the machine.
	Duration time.Duration `json:"-"`
	Entity   string        `json:"entity,omitempty"`
	Resource string        `json:"resource,omitempty"`
	// Lease numbers the leases of a process, from 1: that of a decision, and of its settlement. It is 0 without a lease.
	Lease uint64 `json:"lease,omitempty"`
	// LeaseID identifies the lease of a decision and of its settlement in all processes, even if another process settles it by
	// [RateLimiter.Settle]. Calls with one [Request.ID] have one lease. It is "" without a lease.
	LeaseID string `json:"lease_id,omitempty"`
	// Wait is how long an admitted request still has to wait for its tokens; 0 if they are available.
	Wait time.Duration `json:"-"`
	// Result is the outcome.
	Result Result `json:"result"`
	// Limit is the strictest limit of a rejection. LimitEntity has that limit: the entity itself, or the parent that
	// Ancestor counts above it.
	Limit       string `json:"limit,omitempty"`
	LimitEntity string `json:"limit_entity,omitempty"`
	Ancestor    int    `json:"ancestor,omitempty"`
	// Amounts are the amounts asked or corrected, in tokens. They must not be kept or changed.
	Amounts []Amount `json:"amounts,omitempty"`
	// Statuses are the states of the limits afterwards, as far as the limiter knows without a call. They must not be kept or changed.
	Statuses Statuses `json:"statuses,omitempty"`
	// ReadUnits and WriteUnits are the capacity units that DynamoDB reports for a call. It reports none for a write whose
	// condition failed, nor for a canceled transaction, although it charges for both. Embedded stores have none.
	ReadUnits  float64 `json:"read_units,omitempty"`
	WriteUnits float64 `json:"write_units,omitempty"`
	// Shards is how many more items a bucket has after EventShards; negative when items were merged.
	Shards int `json:"shards,omitempty"`
	// Err is the cause of a failure; nil for a rejection, which is a result.
	Err error `json:"-"`
}

// An EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	// EventDecision is a request that was decided, by Acquire, Wait, Reserve or [Lease.Consume]; each call reports one,
	// before it sleeps. Entity, Resource, Result, Amounts, Statuses and Duration are set, and Limit for a rejection.
	EventDecision EventKind = iota + 1
	// EventSettle is a lease that was committed or rolled back, or settled by its token; Amounts are the corrections, also by
	// [Lease.Adjust]. LeaseID has that of its decision. A lease that is dropped, and a token that expires, report
	// none: they keep what they have taken.
	EventSettle
	// EventStore is one call of the store, with the units that it took.
	EventStore
	// EventShards is a bucket that was split or merged.
	EventShards
	// EventConfig is a change of stored limits that this process has seen. With the operation "stale limits" it is the
	// first request of a bucket under limits that cannot be read again; Duration is their age.
	EventConfig
	// EventOutage is a change of the store's state. After "open" calls are not made, and Err is the cause. After "close" they are
	// made again, and Duration is how long that was not so.
	EventOutage
	// EventManual is an operator's change of a bucket, by [LimitService.Reset] or [LimitService.TopUp]. Amounts are what its limits got, in
	// whole tokens.
	EventManual
	// EventSlots are slots that this process took, released or lost; Amounts has the limit with their number. Entity
	// and Resource identify the bucket, which may be a parent's. Each slot that is taken is released or lost later,
	// once. A request that is rejected by another level takes slots as well, and releases them.
	EventSlots
	// EventAlert is a budget that has come to a threshold, once a period over the fleet, see [WithBudgetAlerts]. Amounts has what is used.
	EventAlert
)

var eventKinds = [...]string{
	EventDecision: "decision", EventSettle: "settle", EventStore: "store", EventShards: "shards", EventConfig: "config",
	EventOutage: "outage", EventManual: "manual", EventSlots: "slots", EventAlert: "alert",
}

// String returns the name of the kind, such as "decision".
func (k EventKind) String() string {
	if int(k) < len(eventKinds) && k > 0 {
		return eventKinds[k]
	}
	return "unknown"
}

// A Result is the outcome of an [Event]. There are only a few results, so they can be attributes of metrics.
type Result string

// The results of events.
const (
	ResultOK          Result = "ok"          // done; of a decision: admitted
	ResultRejected    Result = "rejected"    // by a limit
	ResultDegraded    Result = "degraded"    // admitted uncounted, during an outage
	ResultUnavailable Result = "unavailable" // the store did not answer, or could not serve
	ResultContended   Result = "contended"   // other writers came first, too often
	ResultInvalid     Result = "invalid"     // the request breaks a rule
	ResultNoLimits    Result = "no_limits"   // no level has limits for it
	ResultCanceled    Result = "canceled"    // the caller's context ended
	ResultClosed      Result = "closed"      // the limiter or the lease was closed
	ResultError       Result = "error"       // anything else
)

// ResultOf returns the result that an error of this package stands for; ResultOK for nil.
func ResultOf(err error) Result {
	switch {
	case err == nil:
		return ResultOK
	case errors.As(err, new(*ExceededError)):
		return ResultRejected
	case errors.As(err, new(*UnavailableError)):
		return ResultUnavailable
	case errors.Is(err, ErrContended):
		return ResultContended
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ResultCanceled
	case errors.Is(err, ErrClock):
		return ResultUnavailable
	case errors.As(err, new(*ValidationError)):
		return ResultInvalid
	case errors.Is(err, ErrNoLimits):
		return ResultNoLimits
	case errors.Is(err, ErrClosed), errors.Is(err, ErrLeaseClosed):
		return ResultClosed
	default:
		return ResultError
	}
}

// Observers returns an observer that notifies several observers, in order. Nil observers are skipped.
func Observers(observers ...Observer) Observer {
	var all []Observer
	for _, o := range observers {
		if o != nil {
			all = append(all, o)
		}
	}
	return func(ctx context.Context, e Event) {
		for _, o := range all {
			o(ctx, e)
		}
	}
}

// LogTo returns an observer that logs each event:
//   - failures as errors;
//   - facts for an operator, such as outages and lost slots, as warnings;
//   - rejections and changes of buckets and limits as information;
//   - everything else for debugging.
//
// The log contains entities. Events below the level of the logger allocate nothing. A nil logger is [slog.Default].
func LogTo(l *slog.Logger) Observer {
	if l == nil {
		l = slog.Default()
	}
	return func(ctx context.Context, e Event) {
		level := e.level()
		if !l.Enabled(ctx, level) {
			return
		}
		l.LogAttrs(ctx, level, "zlimit: "+e.Kind.String(), e.attributes()...)
	}
}

func (e *Event) level() slog.Level {
	switch e.Result {
	case ResultError:
		return slog.LevelError
	case ResultUnavailable, ResultDegraded, ResultContended:
		return slog.LevelWarn
	case ResultRejected:
		return slog.LevelInfo
	default:
	}
	if e.Kind == EventSlots && e.Operation == OpLoseSlots {
		return slog.LevelWarn
	}
	if e.Kind == EventShards || e.Kind == EventConfig || e.Kind == EventOutage || e.Kind == EventManual || e.Kind == EventAlert {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// attributes returns the attributes for the fields that are set.
func (e *Event) attributes() []slog.Attr {
	attributes := []slog.Attr{slog.String("result", string(e.Result))}
	parent := "" // whose limit it is
	if e.Ancestor > 0 {
		parent = e.LimitEntity
	}
	for _, a := range []struct{ name, value string }{
		{"operation", e.Operation},
		{"entity", e.Entity},
		{"resource", e.Resource},
		{"limit", e.Limit},
		{"limit_entity", parent},
		{"lease_id", e.LeaseID},
	} {
		if a.value != "" {
			attributes = append(attributes, slog.String(a.name, a.value))
		}
	}
	if len(e.Amounts) > 0 {
		amounts := make([]slog.Attr, len(e.Amounts))
		for i, a := range e.Amounts {
			amounts[i] = slog.Int64(a.Limit, a.Tokens)
		}
		attributes = append(attributes, slog.GroupAttrs("amounts", amounts...))
	}
	if e.Duration > 0 {
		attributes = append(attributes, slog.Duration("duration", e.Duration))
	}
	if e.Wait > 0 {
		attributes = append(attributes, slog.Duration("wait", e.Wait))
	}
	if e.Shards != 0 {
		attributes = append(attributes, slog.Int("shards", e.Shards))
	}
	if e.ReadUnits != 0 || e.WriteUnits != 0 {
		attributes = append(attributes, slog.Float64("read_units", e.ReadUnits), slog.Float64("write_units", e.WriteUnits))
	}
	if e.Err != nil {
		attributes = append(attributes, slog.Any("error", e.Err))
	}
	return attributes
}
