package protocol

import (
	"context"
	"fmt"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// Several requests of one caller are admitted together, or none of them is. For the rest of the package they are one request: each bucket
// that any of them is charged to is one level, with the sum of their amounts. Afterwards each request gets its part in its own receipt.

// MaxRequests bounds the requests that are admitted together, and MaxBuckets the buckets that they are charged to: a transaction that
// creates all of them must fit into DynamoDB's 100 items.
const (
	MaxRequests = 16
	MaxBuckets  = 64
)

// together has the requests that are admitted together.
type together struct {
	requests []*Request
	levels   [][]level // the latest levels of each request
}

// Together combines several requests into one. They must have the same priority, and none may wait. Requests of one bucket must use the
// same limits.
func Together(requests []*Request) Request {
	first := requests[0]
	all := &together{requests, make([][]level, len(requests))}
	return Request{Entity: first.Entity, Resource: first.Resource, Priority: first.Priority, together: all}
}

// A PartError reports which of several requests cannot be decided, and why.
type PartError struct {
	At  int
	Err error
}

// Error names the request.
func (e *PartError) Error() string { return fmt.Sprintf("request %d: %v", e.At, e.Err) }

// Unwrap returns the reason.
func (e *PartError) Unwrap() error { return e.Err }

// A BucketsError reports that requests together would be charged to too many buckets.
type BucketsError struct{ Buckets int }

// Error has the number.
func (e *BucketsError) Error() string { return fmt.Sprintf("%d buckets: %s", e.Buckets, e.Rule()) }

// Rule is what the requests break.
func (*BucketsError) Rule() string {
	return fmt.Sprintf("must be at most %d together, with buckets of parents and wider resources", MaxBuckets)
}

// An OwnLimitsError reports that requests would be charged to one bucket by different limits, since a request specifies its own.
type OwnLimitsError struct{ Entity, Resource string }

// Error names the bucket.
func (e *OwnLimitsError) Error() string { return e.Entity + "/" + e.Resource + ": " + e.Rule() }

// Rule is what the requests break.
func (*OwnLimitsError) Rule() string {
	return "must be the same for all requests that are charged to the bucket together"
}

// levelsTogether returns the levels of requests that are admitted together, each bucket once, in the order of the requests and of their
// levels.
func (fs *families) levelsTogether(ctx context.Context, t *together, began int64) (all []level, err error) {
	var demands [][]*bucket.Demand // for each level of the combined request
	for i, r := range t.requests {
		if t.levels[i], err = fs.levels(ctx, r, began, nil); err != nil {
			return nil, &PartError{i, err}
		}
		for j := range t.levels[i] {
			l := &t.levels[i][j]
			at := slices.IndexFunc(all, func(known level) bool { return known.bucket.is(l.bucket) })
			switch {
			case at < 0:
				all, demands = append(all, *l), append(demands, []*bucket.Demand{&l.demand})
			case !all[at].limits.sameAs(l.limits) && (all[at].limits.Own || l.limits.Own):
				return nil, &PartError{i, &OwnLimitsError{l.bucket.Entity, l.bucket.Resource}}
			case !all[at].limits.sameAs(l.limits): // limits were read again in between
				return nil, errOutdated
			default:
				demands[at] = append(demands[at], &l.demand)
			}
		}
	}
	if len(all) > MaxBuckets {
		return nil, &BucketsError{len(all)}
	}
	for i := range all {
		if len(demands[i]) == 1 {
			continue
		}
		if all[i].demand, err = bucket.Together(demands[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// is reports whether two memories are of the same bucket. The engine may have evicted and reloaded it in between.
func (b *Bucket) is(other *Bucket) bool {
	return b.Entity == other.Entity && b.Resource == other.Resource
}

// Portion divides what was taken for requests that were admitted together among empty receipts, one for each request.
func (r *Request) Portion(taken *Receipt, to []*Receipt) {
	left := make([]levelReceipt, len(taken.levels))
	for i := range taken.levels {
		t := &taken.levels[i]
		left[i].bucket, left[i].parts = t.bucket, slices.Clone(t.parts)
		left[i].hold(slices.Clone(t.holds()))
		for j := range left[i].parts {
			left[i].parts[j].amounts = slices.Clone(t.parts[j].amounts)
		}
	}
	for i, levels := range r.together.levels {
		to[i].of(r.Priority)
		to[i].levels = make([]levelReceipt, len(levels))
		for j := range levels {
			at := slices.IndexFunc(left, func(t levelReceipt) bool { return t.bucket.is(levels[j].bucket) })
			left[at].portion(&levels[j], &to[i].levels[j])
		}
	}
}

// portion moves the part of one request from the receipt of several requests to its own.
func (t *levelReceipt) portion(l *level, to *levelReceipt) {
	to.took(l, nil, nil, nil)
	to.bucket = t.bucket
	asked, _ := l.limits.Config.Entries(&l.demand, slices.Clone(l.demand.Amounts), nil)
	left := make([][]bucket.Amount, len(t.parts))
	for at := range t.parts {
		left[at] = t.parts[at].amounts
		for i := range asked { // all of a limit is taken from the same share
			for _, a := range left[at] {
				if bucket.LimitOf(a.Limit) == asked[i].Limit {
					asked[i].Limit = a.Limit
				}
			}
		}
	}
	for at, amounts := range bucket.Portion(left, asked) {
		if len(amounts) > 0 {
			to.parts = append(to.parts, shardAmounts{t.parts[at].shard, amounts, t.parts[at].known})
		}
	}
	for _, a := range l.demand.Slots() {
		at := slices.IndexFunc(t.holds(), func(h *Hold) bool { return h.limit == a.Limit })
		to.hold(append(to.holds(), t.holds()[at]))
		t.hold(slices.Delete(t.holds(), at, at+1))
	}
}
