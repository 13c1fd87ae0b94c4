package zlimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A SettleOption changes how [RateLimiter.Settle] settles a token.
type SettleOption func(*settleOptions)

type settleOptions struct{ exactly, trusted bool }

// SettleExactly writes the record and all corrections in one transaction. Neither is done without the other, even if the process is killed.
// It costs twice the write units, and a read unit for each shard.
func SettleExactly() SettleOption { return func(o *settleOptions) { o.exactly = true } }

// SettleTrusted writes no record. A token that is settled twice is then corrected twice, and no settlement returns a
// [*SettledError]. It is for a caller that settles each token once, and costs what [Lease.Commit] costs.
func SettleTrusted() SettleOption { return func(o *settleOptions) { o.trusted = true } }

// Settle settles a lease that this process or another one has handed on by [Lease.Token]. The actual amounts are the total consumption, in
// tokens. For a limit that they omit, the amount of the lease is final, and 0 returns everything. Every charged bucket is corrected as by
// [Lease.Adjust] and [Lease.Commit]: without a check, so that a limit may be left in debt.
//
// A token is settled once, by the process that comes first. A second settlement with the same amounts changes nothing and returns nil.
// With other amounts it returns a [*SettledError]. After the token's lifetime it returns [ErrTokenExpired], and the lease keeps what it
// took.
//
// Settle first writes a record, which is kept for a day longer than the token. Then it corrects the buckets. If a process is killed in
// between, the tokens that it would have returned stay taken. Nothing is returned twice. Consumption beyond what the lease took is written
// in one transaction with the record, so that it is not lost. [SettleExactly] does so for every settlement, and [SettleTrusted] writes no
// record.
//
// It returns a [*ValidationError] for a token of another form or namespace, and for an amount of a limit that the lease does not have. An
// [*UnavailableError] whose Unknown is false, an [*ItemError] or [ErrContended] means that at least one of the writes did not happen. If
// none did, the token stays open for another call. Settle goes on for up to 5 seconds after the context ends.
//
// It costs a write for the record, of two units with its index, and one write for each bucket with a correction. The transaction costs two
// units for each of them, and one for the index. A process that does not know a bucket reads it first, as [RateLimiter.Acquire] does. It
// is safe for concurrent use.
func (l *RateLimiter) Settle(ctx context.Context, token string, actual Consumption, opts ...SettleOption) error {
	var o settleOptions
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.exactly && o.trusted {
		return &ValidationError{Field: "options", Value: "SettleExactly and SettleTrusted", Reason: "must not be given together"}
	}
	if l.closed.Load() {
		return ErrClosed
	}
	t, err := l.decodeToken(token)
	if err != nil {
		return err
	}
	corrections, err := t.corrections(actual)
	if err != nil {
		return err
	}
	if err := t.expired(l.now()); err != nil {
		return err
	}
	if t.receipt == nil {
		return nil
	}
	watch, epoch := l.watch(), l.engine.NextEpoch()
	err = l.settleToken(table.Insist(context.WithoutCancel(ctx)), t, corrections, o)
	if err == nil {
		l.watchSettled(ctx, t.receipt, corrections, epoch)
	}
	if err = publicError(OpSettle, err); errors.Is(err, ErrContended) {
		err = fmt.Errorf("%w: %s/%s", err, t.receipt.Entity(), t.receipt.Resource())
	}
	l.emit(ctx, watch, Event{
		Kind: EventSettle, Operation: OpSettle, Entity: t.receipt.Entity(), Resource: t.receipt.Resource(), Amounts: tokensOf(corrections), Err: err,
		LeaseID: t.name(),
	})
	return err
}

// corrections returns the corrections for actual amounts, beside the recorded ones.
func (t *leaseToken) corrections(actual Consumption) ([]bucket.Amount, error) {
	var space [4]bucket.Amount
	amounts, err := amountsOf(space[:0], "actual", actual, 0)
	if err != nil || t.receipt == nil {
		return nil, err
	}
	if err := checkResource(actual, t.receipt.Resource()); err != nil {
		return nil, err
	}
	corrections := slices.Clone(t.pending)
	for _, a := range amounts {
		if !t.receipt.Has(a.Limit) {
			return nil, unknownLimit("actual["+a.Limit+"]", amountText(a.Limit, a.Tokens/millis), t.receipt.Limits())
		}
		taken := bucket.Of(t.amounts, a.Limit)
		corrections = slices.DeleteFunc(corrections, func(c bucket.Amount) bool { return c.Limit == a.Limit })
		if a.Tokens != taken {
			corrections = append(corrections, bucket.Amount{Limit: a.Limit, Tokens: a.Tokens - taken})
		}
	}
	return corrections, nil
}

// figures returns the consumption of a lease with corrections, in tokens.
func (t *leaseToken) figures(corrections []bucket.Amount) (Amounts, error) {
	total, err := bucket.Sum(t.amounts, corrections)
	figures := make(Amounts, len(total))
	for _, a := range total {
		figures[a.Limit] = a.Tokens / millis
	}
	return figures, err
}

// settleTime is how much longer than its token a settlement is remembered: clocks may be wrong.
const settleTime = day

// settleToken is Settle for a token that was checked.
func (l *RateLimiter) settleToken(ctx context.Context, t *leaseToken, corrections []bucket.Amount, o settleOptions) error {
	s := t.receipt.Correct(corrections)
	if o.trusted {
		return l.engine.SettleRead(ctx, &s)
	}
	figures, err := t.figures(corrections)
	if err != nil {
		return err
	}
	record := t.record(l.ns.id(), figures)
	absent, err := layout.Insert()
	if err != nil {
		return err
	}
	put := store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode(), Expr: absent}
	charges := slices.ContainsFunc(corrections, func(a bucket.Amount) bool { return a.Tokens > 0 })
	if (o.exactly || charges) && !s.Done() {
		return l.engine.SettleOnce(ctx, &s, put, func(ctx context.Context) (bool, error) {
			items, err := l.table.Read(ctx, put.Key)
			if err != nil || items[0] == nil {
				return false, err
			}
			_, err = record.settledBy(items[0])
			return err == nil, err
		})
	}
	bounded, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	result, err := l.table.PatientWrite(bounded, put)
	if err != nil {
		return err
	}
	if !result.Applied {
		if own, err := record.settledBy(result.Item); !own || err != nil {
			return err
		}
	}
	due := s.Due()
	if err = l.engine.SettleRead(ctx, &s); err == nil || protocol.IsUnknown(err) || s.Due() < due {
		return err
	}
	return errors.Join(err, l.withdraw(ctx, &record))
}

// withdraw removes the record of a settlement of which nothing was written, so that another one can come.
func (l *RateLimiter) withdraw(ctx context.Context, record *settlementRecord) error {
	own, err := layout.WithdrawSettlement(record.Writer)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_, err = l.table.PatientWrite(ctx, store.Write{Kind: store.Delete, Key: record.Key.Key(), Expr: own})
	return err
}

// A settlementRecord is the record of a settlement.
type settlementRecord struct{ layout.Settlement }

// record returns the record of a settlement of a token.
func (t *leaseToken) record(ns string, figures Amounts) settlementRecord {
	record := layout.Settlement{
		Key:       layout.SettlementKey{NS: ns, Entity: t.receipt.Entity(), Resource: t.receipt.Resource(), Lease: t.name()},
		Writer:    randomID(12),
		ExpiresAt: time.UnixMilli(t.until).Add(settleTime).Unix(),
	}
	for _, a := range figures.AppendAmounts(nil) {
		record.Amounts.Set(a.Limit, expr.N(a.Tokens))
	}
	return settlementRecord{record}
}

// settledBy compares a settlement with the one that an item records. It returns true if both are one call, and a
// [*SettledError] for other amounts.
func (r *settlementRecord) settledBy(item expr.Item) (own bool, err error) {
	found, err := layout.DecodeSettlement(item)
	if err != nil {
		return false, err
	}
	was, want := amountsIn(found.Amounts), amountsIn(r.Amounts)
	if !maps.Equal(was, want) {
		return false, &SettledError{Entity: r.Key.Entity, Resource: r.Key.Resource, Amounts: was}
	}
	return found.Writer == r.Writer, nil
}

func amountsIn(item expr.Item) Amounts {
	amounts := make(Amounts, len(item))
	for _, a := range item {
		amounts[a.Name], _ = a.Value.Int()
	}
	return amounts
}

// A SettledError reports a token that was settled before with other amounts. Nothing was written.
type SettledError struct {
	Entity   string  `json:"entity"`
	Resource string  `json:"resource"`
	Amounts  Amounts `json:"amounts"` // with which it was settled
}

// Error names the lease, and the amounts that it was settled with.
func (e *SettledError) Error() string {
	var amounts []string
	for _, a := range e.Amounts.AppendAmounts(nil) {
		amounts = append(amounts, fmt.Sprintf("%s %s", a.Limit, amountText(a.Limit, a.Tokens)))
	}
	return fmt.Sprintf("%v: entity %q, resource %q, %s", ErrSettled, e.Entity, e.Resource, strings.Join(amounts, ", "))
}

// Unwrap returns [ErrSettled].
func (*SettledError) Unwrap() error { return ErrSettled }
