package zlimit

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A Lease is what an admitted request holds: the tokens were taken when it was admitted, and the lease corrects them
// once the real cost is known, on every bucket that was charged. It is safe for concurrent use.
//
// A lease acts once: after Commit or Rollback every method that would change something returns [ErrLeaseClosed], and so
// do those of the zero value. A lease that is dropped without either leaves what was taken as it is, and loses what was
// only recorded.
type Lease struct {
	limiter  *RateLimiter
	degraded bool

	mu       sync.Mutex
	links    []link          // what was charged; the demand of each is what was taken, in millitokens
	pending  []bucket.Amount // recorded by Adjust and Release, to be written by Commit
	settling string          // OpCommit or OpRollback once begun
	due      [][]part        // by link: what settling has still to write, once begun
	closed   bool

	linkSpace   [1]link
	amountSpace [2]bucket.Amount
}

// settleTimeout bounds the writes of a commit or a rollback, which outlive the caller's context.
const settleTimeout = 5 * time.Second

// Degraded reports whether the request was admitted uncounted, during an outage. Such a lease writes nothing.
func (le *Lease) Degraded() bool { return le.degraded }

// taken returns what was taken of the entity's own bucket. The lease is locked.
func (le *Lease) taken() []bucket.Amount {
	if le.degraded || len(le.links) == 0 {
		return nil
	}
	return le.links[0].demand.Amounts
}

// Consumed returns the net consumption in tokens: what was taken, with the corrections recorded so far.
func (le *Lease) Consumed() Amounts {
	le.mu.Lock()
	defer le.mu.Unlock()
	consumed := make(Amounts, len(le.taken()))
	for _, amounts := range [2][]bucket.Amount{le.taken(), le.pending} {
		for _, a := range amounts {
			consumed[a.Limit] += a.Tokens / millis
		}
	}
	return consumed
}

// Consume takes more tokens, of all limits or of none, with the checks, errors and cost of [RateLimiter.Acquire].
func (le *Lease) Consume(ctx context.Context, c Consumption) error {
	var space [4]bucket.Amount
	amounts, err := amountsOf(space[:0], "consume", c, 0)
	if err != nil {
		return err
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	switch {
	case le.limiter == nil, le.settling != "":
		return ErrLeaseClosed
	case le.limiter.closed.Load():
		return ErrClosed
	case le.degraded:
		return nil
	}
	if err := le.isFor(c); err != nil {
		return err
	}
	if err := le.links[0].limits.covers(amounts); err != nil {
		return err
	}
	more := make([]link, len(le.links))
	totals := make([][]bucket.Amount, len(le.links))
	for i, k := range le.links {
		more[i] = link{bucket: k.bucket, limits: k.limits, demand: bucket.Demand{Amounts: k.limits.only(amounts)}}
		if totals[i], err = sum(k.demand.Amounts, more[i].demand.Amounts); err != nil {
			return err
		}
	}
	if err := le.limiter.chargeAll(ctx, more); err != nil {
		var exceeded *ExceededError
		if errors.As(err, &exceeded) {
			le.limiter.stats.rejected.Add(1)
			return exceeded
		}
		return wrap(OpConsume, err)
	}
	for i := range more {
		le.links[i].add(&more[i], totals[i])
	}
	return nil
}

// Adjust records a correction of what was consumed, in tokens: positive for more, negative for less. [Lease.Commit]
// writes it, unchecked: it may leave a limit in debt, and never fails for lack of tokens. It returns a
// [*ValidationError] for a limit that the resource does not have, and for a correction that would leave the lease with
// less than nothing. It does no I/O.
func (le *Lease) Adjust(c Consumption) error { return le.adjust("adjust", c, -maxTokens, 1) }

// Release records that tokens were not needed: it is [Lease.Adjust] with the signs turned around.
func (le *Lease) Release(c Consumption) error { return le.adjust("release", c, 0, -1) }

func (le *Lease) adjust(field string, c Consumption, least, sign int64) error {
	var space [4]bucket.Amount
	amounts, err := amountsOf(space[:0], field, c, least)
	if err != nil {
		return err
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.limiter == nil || le.settling != "" {
		return ErrLeaseClosed
	}
	if err := le.isFor(c); err != nil {
		return err
	}
	for i := range amounts {
		amounts[i].Tokens *= sign
	}
	pending, err := sum(le.pending, amounts)
	if err != nil {
		return err
	}
	for _, a := range amounts {
		invalid := func(reason string) error {
			return &ValidationError{Field: field + "[" + a.Limit + "]", Value: strconv.FormatInt(sign*a.Tokens/millis, 10), Reason: reason}
		}
		if !le.degraded && !le.links[0].limits.has(a.Limit) {
			return invalid(le.links[0].limits.unknown())
		}
		total, err := plus(tokensOf(le.taken(), a.Limit), bucket.Amount{Limit: a.Limit, Tokens: tokensOf(pending, a.Limit)})
		if err != nil {
			return err
		}
		if !le.degraded && total < 0 {
			return invalid("would leave the lease with less than nothing")
		}
	}
	le.pending = pending
	return nil
}

// isFor returns an error for a consumption of another resource. The lease is locked.
func (le *Lease) isFor(c Consumption) error {
	if le.degraded { // and knows none
		return nil
	}
	return checkResource(c, le.links[0].bucket.Resource)
}

// Commit writes the recorded corrections, and closes the lease. With nothing to correct it costs nothing; otherwise one
// write for each bucket that was charged, which goes on for up to 5 seconds after the context ends. An
// [*UnavailableError] whose Unknown is false means that at least one of the writes provably did not happen: the lease
// stays open for another Commit, which does what is missing.
func (le *Lease) Commit(ctx context.Context) error { return le.settle(ctx, OpCommit) }

// Rollback returns all that was taken, drops what was recorded, and closes the lease. It costs one write for each bucket
// that was charged, and goes on and fails like [Lease.Commit].
func (le *Lease) Rollback(ctx context.Context) error { return le.settle(ctx, OpRollback) }

func (le *Lease) settle(ctx context.Context, op string) error {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.limiter == nil || le.closed || le.settling != "" && le.settling != op {
		return ErrLeaseClosed
	}
	if le.limiter.closed.Load() && !le.nothingTo(op) {
		return ErrClosed
	}
	if le.settling == "" {
		le.settling, le.due = op, le.corrections(op)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	errs := make([]error, len(le.links))
	var group sync.WaitGroup
	for i := range le.links {
		if len(le.links) == 1 {
			errs[i] = le.settleLink(ctx, i)
			continue
		}
		group.Go(func() { errs[i] = le.settleLink(ctx, i) })
	}
	group.Wait()
	le.closed = !slices.ContainsFunc(le.due, func(rest []part) bool { return len(rest) > 0 })
	return wrap(op, errors.Join(errs...))
}

// corrections returns what commit or rollback has to write, by link.
func (le *Lease) corrections(op string) [][]part {
	due := make([][]part, len(le.links))
	for i := range le.links {
		k := &le.links[i]
		if op == OpRollback {
			due[i] = k.returns()
		} else {
			due[i] = k.corrections(k.limits.only(le.pending))
		}
	}
	return due
}

// nothingTo reports whether there is nothing to write. The lease is locked.
func (le *Lease) nothingTo(op string) bool {
	d := bucket.Demand{Amounts: le.pending}
	if op == OpRollback {
		d.Amounts = le.taken()
	}
	return le.degraded || d.Empty()
}

// settleLink writes what is due to one bucket. What provably did not happen stays due.
func (le *Lease) settleLink(ctx context.Context, i int) error {
	var rest []part
	var errs []error
	for _, p := range le.due[i] {
		err := le.limiter.correct(ctx, &le.links[i], p.shard, p.amounts)
		if err != nil && !unknown(err) {
			rest = append(rest, p)
		}
		errs = append(errs, err)
	}
	le.due[i] = rest
	return errors.Join(errs...)
}

// add notes that more was taken, so that it is in total.
func (k *link) add(more *link, total []bucket.Amount) {
	k.limits = more.limits
	if !more.demand.Empty() {
		k.parts = append(k.split(), more.split()...)
	}
	k.demand.Amounts = total
}

// split returns what was taken of which shard.
func (k *link) split() []part {
	if k.parts == nil && k.shard != nil {
		return []part{{k.shard, k.demand.Amounts}}
	}
	return k.parts
}

// returns is all that was taken, turned around.
func (k *link) returns() []part {
	parts := slices.Clone(k.split())
	for i := range parts {
		parts[i].amounts = negated(parts[i].amounts)
	}
	return parts
}

// corrections divides amounts among the shards that were charged: what is given back goes to each as far as it gave it,
// and the rest to the first of them.
func (k *link) corrections(amounts []bucket.Amount) []part {
	taken := k.split()
	if len(taken) == 0 {
		return []part{{nil, amounts}}
	}
	rest := slices.Clone(amounts)
	var parts []part
	for _, p := range taken[1:] {
		var back []bucket.Amount
		for i := range rest {
			if n := max(rest[i].Tokens, -tokensOf(p.amounts, rest[i].Limit)); n < 0 {
				back = append(back, bucket.Amount{Limit: rest[i].Limit, Tokens: n})
				rest[i].Tokens -= n
			}
		}
		parts = append(parts, part{p.shard, back})
	}
	return append(parts, part{taken[0].shard, rest})
}

// sum returns a new list of the amounts of both lists by limit.
func sum(a, b []bucket.Amount) ([]bucket.Amount, error) {
	total := append(make([]bucket.Amount, 0, len(a)+len(b)), a...)
next:
	for _, more := range b {
		for i := range total {
			if total[i].Limit == more.Limit {
				var err error
				if total[i].Tokens, err = plus(total[i].Tokens, more); err != nil {
					return nil, err
				}
				continue next
			}
		}
		total = append(total, more)
	}
	return total, nil
}

// plus returns a number of millitokens with more of the same limit.
func plus(tokens int64, more bucket.Amount) (int64, error) {
	if more.Tokens > 0 && tokens > math.MaxInt64-more.Tokens || more.Tokens < 0 && tokens < math.MinInt64-more.Tokens {
		return 0, &ValidationError{
			Field: "consume[" + more.Limit + "]", Value: strconv.FormatInt(more.Tokens/millis, 10),
			Reason: "the lease would hold more tokens than can be counted",
		}
	}
	return tokens + more.Tokens, nil
}

// tokensOf returns the amount of a limit.
func tokensOf(amounts []bucket.Amount, limit string) int64 {
	for _, a := range amounts {
		if a.Limit == limit {
			return a.Tokens
		}
	}
	return 0
}
