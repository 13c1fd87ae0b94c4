package zlimit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A ResetRequest asks to refill a bucket, see [LimitService.Reset].
type ResetRequest struct {
	Entity   string   `json:"entity"`
	Resource string   `json:"resource"`
	Limits   []string `json:"limits,omitempty"` // names; empty for all limits of the bucket
	// OperationID identifies an operation, such as a ticket: of several calls with one ID, one resets. It is
	// remembered for three days, for each entity and resource. "" stands for a new one.
	OperationID string `json:"operation_id,omitempty"`
}

// A BucketChange is the result of an operator's write on a bucket.
type BucketChange struct {
	OperationID string        `json:"operation_id"`
	Shards      int           `json:"shards"` // items that the bucket was spread over; 0 for a missing bucket, which counts as full
	Limits      []LimitChange `json:"limits"` // by name
	// Repeated says that an earlier call with the operation ID has done it. The other fields are of that call.
	Repeated bool `json:"repeated"`
}

// A LimitChange is the result of an operator's write on one limit of a bucket.
type LimitChange struct {
	Limit string   `json:"limit"`
	Added Quantity `json:"added"`
	// Before is the balance when the bucket was read, just before. Requests may have taken some of it before the write.
	Before Quantity `json:"before"`
	After  Quantity `json:"after"`
	// Until is when what was added ends, as the call asked that did it; the zero time for a top-up without an end.
	Until time.Time `json:"until,omitzero"`
}

// Reset refills a bucket, as if nothing had ever been taken from it. A debt is forgiven. All items of the bucket change
// in one transaction, which every process sees with its next write. A process that rejects requests from memory may
// continue to do so for [WithRejectionCache].
//
// Open leases keep their tokens. Tokens that they return later are counted in the usage, and not added to the balance a
// second time. Consumption beyond their request is charged. A disabled bucket stays disabled. A bucket takes on stored
// limits that have changed since. A parent's limits are reset by a call for the parent. Grants of [LimitService.TopUp]
// beyond the capacity end, so a limit may have less than before. Grant them again after the reset if they should stay.
//
// Reset is for operators: the principal needs the permission to write audit events, see [AuditService]. The event
// records what each limit had. A call that fails with [UnavailableError.Unknown] may have reset the bucket. Repeated
// with the same operation ID, it resets once. A limit that is neither in the bucket nor stored is a [*ValidationError].
// After 64 lost races Reset returns [ErrContended].
//
// Reset reads the items of the bucket, the levels of its entity, the record of the operation and the record of the
// entity, a unit each. It writes two units for each item of the bucket, and three each for the record and the event. It
// is safe for concurrent use.
func (s *LimitService) Reset(ctx context.Context, r ResetRequest) (BucketChange, error) {
	if err := r.validate(); err != nil {
		return BucketChange{}, err
	}
	if from, succeeds := hooks.Succeeds(ctx); succeeds {
		return s.succeed(ctx, from, r)
	}
	op := operation{kind: operationReset, field: "limits", action: ActionBucketReset, entity: r.Entity, resource: r.Resource, id: r.OperationID}
	for _, name := range r.Limits {
		op.asked = append(op.asked, expr.S(name))
	}
	return s.byHand(ctx, op, &protocol.Change{Limits: slices.Clip(r.Limits)})
}

// succeed makes a bucket that refuses requests have what that of another entity has, see [hooks.Succeed]. It reports the limits that had other
// balances, and no shards where the bucket serves requests and stays as it is.
func (s *LimitService) succeed(ctx context.Context, from string, r ResetRequest) (change BucketChange, err error) {
	if s.l.closed.Load() {
		return change, ErrClosed
	}
	changes, succeeds, err := s.l.engine.Succeed(ctx, from, r.Entity, r.Resource)
	if succeeds && err == nil {
		change.Shards = 1
	}
	for _, c := range changes {
		change.Limits = append(change.Limits, LimitChange{
			Limit: c.Limit, Added: Quantity(c.After - c.Before), Before: Quantity(c.Before), After: Quantity(c.After),
		})
	}
	change.sort()
	return change, publicError("succeed", err)
}

// A TopUpRequest asks for more tokens in a bucket, see [LimitService.TopUp].
type TopUpRequest struct {
	Entity   string  `json:"entity"`
	Resource string  `json:"resource"`
	Amounts  Amounts `json:"amounts"` // what to add to each limit, positive
	// Until is when tokens beyond the capacity expire, to the millisecond. It must be later than now, and before the year 10000. If it is
	// the zero time, tokens of a quota expire with its period, and a limit that refills is filled at most to its capacity.
	Until time.Time `json:"until,omitzero"`
	// OperationID works as in a [ResetRequest]: of several calls with one ID, one adds tokens. The Until of the first call applies: a
	// repeated call may have another one, even one in the past.
	OperationID string `json:"operation_id,omitempty"`
}

// TopUp adds tokens to limits of a bucket. A debt is paid first. Open leases return tokens as before. No usage is counted.
//
// [TopUpRequest.Until] makes it a grant: the limit can hold that much more until then, see [Status.Granted]. At that time the rest of the
// grant expires, whatever the balance was when it was made. Requests since then use the grant first. If a quota resets before, the rest of
// the grant carries over: the balance of the quota, but at most the grant.
//
// Without an end, the tokens of a calendar quota, and of an open session, end with its period. A limit that refills is filled to its
// capacity at most. What does not fit is not added, and [LimitChange.Added] reports what was.
//
// All grants of a limit end together. A different end, or no end for a session quota without an open session, is a [*ValidationError] that
// names the current end. A bucket that does not exist is created if more than its capacity is granted.
//
// It costs the same as [LimitService.Reset], and returns the same other errors. Calls with the same operation ID add once, also after a call that failed with
// [UnavailableError.Unknown]. It is safe for concurrent use.
func (s *LimitService) TopUp(ctx context.Context, r TopUpRequest) (BucketChange, error) {
	if err := r.validate(); err != nil {
		return BucketChange{}, err
	}
	op := operation{kind: operationTopUp, field: "amounts", action: ActionBucketToppedUp, entity: r.Entity, resource: r.Resource, id: r.OperationID}
	if !r.Until.IsZero() {
		op.until = r.Until.UnixMilli()
	}
	var gifts []bucket.Amount
	for _, a := range r.Amounts.AppendAmounts(nil) {
		op.asked = append(op.asked, expr.S(a.Limit), expr.N(a.Tokens))
		gifts = append(gifts, bucket.Amount{Limit: a.Limit, Tokens: a.Tokens * millis})
	}
	return s.byHand(ctx, op, &protocol.Change{Gifts: gifts, Until: op.until})
}

func (r *TopUpRequest) validate() error {
	if err := validateOperation(r.Entity, r.Resource, r.OperationID); err != nil {
		return err
	}
	if r.Until.Year() > 9999 {
		return &ValidationError{Field: "until", Value: r.Until.Format(time.RFC3339), Reason: "must be before the year 10000"}
	}
	if len(r.Amounts) == 0 {
		return &ValidationError{Field: "amounts", Value: "", Reason: "must hold at least one limit"}
	}
	for _, a := range r.Amounts.AppendAmounts(nil) {
		field := "amounts[" + a.Limit + "]"
		if err := validateLimitName(field, a.Limit); err != nil {
			return err
		}
		if err := validateTokens(field, a.Limit, a.Tokens, 1); err != nil {
			return err
		}
	}
	return nil
}

func (r *ResetRequest) validate() error {
	if err := validateOperation(r.Entity, r.Resource, r.OperationID); err != nil {
		return err
	}
	for i, name := range r.Limits {
		field := "limits[" + strconv.Itoa(i) + "]"
		if err := validateLimitName(field, name); err != nil {
			return err
		}
		if slices.Contains(r.Limits[:i], name) {
			return &ValidationError{Field: field, Value: name, Reason: "must not be there twice"}
		}
	}
	return nil
}

func validateOperation(entity, resource, id string) error {
	r := Request{Entity: entity, Resource: resource}
	if err := r.validateNames(); err != nil || id == "" {
		return err
	}
	return invalid("operation id", id, grammar.CheckName(id))
}

// The kinds of operations, as their records have them.
const (
	operationReset = "reset"
	operationTopUp = "top_up"
)

// operationTime is how long operations are remembered.
const operationTime = 3 * day

// An operation is a manual change, with an ID.
type operation struct {
	kind             string
	action           AuditAction
	entity, resource string
	id               string
	asked            []expr.Value // without the end
	field            string       // of the request that names limits
	until            int64        // when a grant ends, epoch milliseconds; 0 for none
}

// byHand does an operation once.
func (s *LimitService) byHand(ctx context.Context, op operation, r *protocol.Change) (change BucketChange, err error) {
	if s.l.closed.Load() {
		return BucketChange{}, ErrClosed
	}
	watch := s.l.watch()
	if op.id == "" {
		if err := op.ended(s.l.now()); err != nil {
			return BucketChange{}, err
		}
		op.id = s.l.eventIDs.next(s.l.now())
	}
	var by author
	var incarnation string
	r.With = func(changes []bucket.BalanceChange, shards int) ([]store.Write, error) {
		change = BucketChange{OperationID: op.id, Shards: shards, Limits: []LimitChange{}}
		for _, c := range changes {
			change.Limits = append(change.Limits, LimitChange{
				Limit: c.Limit, Added: Quantity(c.After - c.Before), Before: Quantity(c.Before), After: Quantity(c.After), Until: op.end(),
			})
		}
		change.sort()
		return op.writes(&change, incarnation, by)
	}
	err = s.l.engine.ChangeOnce(ctx, op.entity, op.resource, r, func(ctx context.Context) (bool, error) {
		record := op.key(s.l.ns.id()).Key()
		items, now, err := s.l.readToChange(ctx, record, layout.EntityKey{NS: s.l.ns.id(), Entity: op.entity}.Key())
		if err != nil {
			return false, err
		}
		by = now
		if incarnation, err = incarnationOf(items[1]); err != nil {
			return false, err
		}
		if items[0] == nil {
			return false, op.ended(s.l.now())
		}
		change, err = op.done(items[0], incarnation)
		return err == nil, err
	})
	var unknown *protocol.UnknownLimitError
	var end *bucket.EndError
	var overflow *bucket.OverflowError
	if errors.As(err, &unknown) {
		reason := whyUnknown(unknown.Known, op.entity+"/"+op.resource)
		if unknown.Slots {
			reason = "is a limit of slots, which are neither reset nor topped up: leases give them back"
		}
		err = &ValidationError{Field: op.field, Value: unknown.Limit, Reason: reason}
	} else if errors.As(err, &end) {
		err = op.wrongEnd(end)
	} else if errors.As(err, &overflow) {
		reason := "is too much beside what is there: a limit holds up to " + grammar.ThousandthsText(overflow.Limit, math.MaxInt64)
		err = &ValidationError{Field: op.field + "[" + overflow.Limit + "]", Value: grammar.ThousandthsText(overflow.Limit, overflow.Tokens), Reason: reason}
	} else if err = publicError(op.name(), err); errors.Is(err, ErrContended) {
		err = fmt.Errorf("%w: %s/%s", err, op.entity, op.resource)
	}
	if err != nil {
		change = BucketChange{}
	}
	s.l.emit(ctx, watch, Event{Kind: EventManual, Operation: op.name(), Entity: op.entity, Resource: op.resource, Amounts: change.amounts(), Err: err})
	return change, err
}

// name returns the name of the operation in words.
func (op *operation) name() string { return strings.ReplaceAll(op.kind, "_", " ") }

// end returns when what the operation grants ends, the zero time for none.
func (op *operation) end() time.Time {
	if op.until == 0 {
		return time.Time{}
	}
	return time.UnixMilli(op.until).UTC()
}

// ended returns the error of a grant that would have ended.
func (op *operation) ended(now time.Time) error {
	if op.until == 0 || op.until > now.UnixMilli() {
		return nil
	}
	return &ValidationError{Field: "until", Value: op.end().Format(time.RFC3339), Reason: "must be later than now, " + now.UTC().Format(time.RFC3339)}
}

// wrongEnd returns the error of a grant that cannot end as it is to.
func (op *operation) wrongEnd(e *bucket.EndError) error {
	err := &ValidationError{Field: "until"}
	if op.until != 0 {
		err.Value = op.end().Format(time.RFC3339)
	}
	switch {
	case e.Over:
		err.Reason = "must be later than the last write of the bucket"
	case e.Missing:
		err.Reason = "must be given: no session of the limit " + e.Limit + " is open, by whose end the tokens could end"
	case e.Present == 0:
		err.Reason = "must not be given: what is granted of the limit " + e.Limit + " ends with its period, or not at all"
	default:
		err.Reason = "must be " + time.UnixMilli(e.Present).UTC().Format(time.RFC3339Nano) + ", at which the present grant of the limit " + e.Limit + " ends"
	}
	return err
}

func (op *operation) key(ns string) layout.OperationKey {
	return layout.OperationKey{NS: ns, Entity: op.entity, Resource: op.resource, Operation: op.id}
}

// incarnationOf distinguishes an entity, whose record is an item or nil, from former ones of its ID.
func incarnationOf(item expr.Item) (string, error) {
	if item == nil {
		return "-", nil
	}
	e, err := layout.DecodeEntity(item)
	if err != nil || e.CreatedAt == "" {
		return "-", err
	}
	return e.CreatedAt, nil
}

// writes returns what stands beside the change of a bucket: the record of the operation, and the audit event.
func (op *operation) writes(made *BucketChange, incarnation string, by author) ([]store.Write, error) {
	nonce := make([]byte, 12)
	_, _ = rand.Read(nonce) // which never fails
	record := layout.Operation{
		Key: op.key(by.l.ns.id()), Kind: op.kind, Writer: hex.EncodeToString(nonce), Incarnation: incarnation, Shards: int64(made.Shards),
		Asked: slices.Clone(op.asked), ExpiresAt: by.l.now().Add(operationTime).Unix(),
	}
	if op.until != 0 {
		record.Asked = slices.Insert(record.Asked, 0, expr.S("until"), expr.N(op.until))
	}
	after := expr.Item{}
	for _, c := range made.Limits {
		record.Amounts.Set(c.Limit, expr.Decimal(int64(c.Added), 3))
		record.Before.Set(c.Limit, expr.Decimal(int64(c.Before), 3))
		after.Set(c.Limit, expr.Decimal(int64(c.After), 3))
	}
	absent, err := layout.Insert()
	if err != nil {
		return nil, err
	}
	details := expr.Item{
		{Name: "operation", Value: expr.S(op.id)},
		{Name: "shards", Value: expr.N(record.Shards)},
		{Name: "amounts", Value: expr.Map(record.Amounts)},
		{Name: "before", Value: expr.Map(record.Before)},
		{Name: "after", Value: expr.Map(after)},
	}
	if op.until != 0 {
		details = append(details, expr.Attribute{Name: "until", Value: expr.S(op.end().Format(layout.TimeFormat))})
	}
	put := store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode(), Expr: absent}
	return by.with(auditEntry{action: op.action, entity: op.entity, resource: op.resource, details: details}, put)
}

// done returns the result of an operation on a bucket from an item, the record of the operation. The end of a repeated grant is the recorded
// one: calls that reckon it from their own time are one operation.
func (op *operation) done(item expr.Item, incarnation string) (made BucketChange, err error) {
	record, err := layout.DecodeOperation(item)
	if err != nil {
		return made, err
	}
	if op.until = 0; record.Kind == operationTopUp && len(record.Asked) > 2*len(record.Amounts) { // an end stands before the amounts
		op.until, _ = record.Asked[1].Int()
		record.Asked = record.Asked[2:]
	}
	same := record.Kind == op.kind && slices.EqualFunc(record.Asked, op.asked, expr.Value.Equal)
	switch {
	case record.Incarnation != incarnation && record.Incarnation != "-" && incarnation != "-":
		return made, &ValidationError{Field: "operation id", Value: op.id, Reason: "was used for a former entity of that name"}
	case !same:
		return made, &ValidationError{Field: "operation id", Value: op.id, Reason: "was used for another operation on the bucket"}
	}
	made = BucketChange{OperationID: op.id, Shards: int(record.Shards), Limits: []LimitChange{}, Repeated: true}
	for _, a := range record.Amounts {
		added, _ := a.Value.Decimal(3)
		before, _ := decimalOf(record.Before, a.Name)
		made.Limits = append(made.Limits, LimitChange{Limit: a.Name, Added: Quantity(added), Before: Quantity(before), After: Quantity(before + added), Until: op.end()})
	}
	made.sort()
	return made, nil
}

// sort puts the limits in the order of their names, in which a repeated call reports them as well.
func (c *BucketChange) sort() {
	slices.SortFunc(c.Limits, func(a, b LimitChange) int { return strings.Compare(a.Limit, b.Limit) })
}

func decimalOf(item expr.Item, name string) (int64, bool) {
	v, ok := item.Lookup(name)
	if !ok {
		return 0, false
	}
	return v.Decimal(3)
}

// amounts returns what each limit got, in whole tokens.
func (c *BucketChange) amounts() []Amount {
	var amounts []Amount
	for _, l := range c.Limits {
		amounts = append(amounts, Amount{l.Limit, l.Added.Tokens()})
	}
	return amounts
}
