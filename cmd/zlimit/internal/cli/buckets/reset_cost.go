package buckets

import (
	"context"
	"fmt"
	"iter"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Units that the reset of a bucket of one shard costs, and of each further shard.
const (
	resetReads  = 4
	resetWrites = 8
	resetShard  = 2 // writes
)

// A resetCost is how many buckets a reset would change.
type resetCost struct {
	buckets, shards, lacking int
	coverage                 zlimit.Coverage
}

// countReset counts the buckets of a request. It reads all of them, as far as they are listed.
func countReset(ctx context.Context, l *zlimit.RateLimiter, r zlimit.ResetRequest) (c resetCost, err error) {
	c.coverage.Complete = true
	var all iter.Seq2[zlimit.Bucket, error]
	if r.Resource == "" {
		all = l.Entities.Buckets(ctx, r.Entity)
	} else {
		all = l.Usage.Buckets(ctx, r.Resource)
		if c.coverage, err = l.Usage.Coverage(ctx, r.Resource); err != nil {
			return c, err
		}
	}
	for b, err := range all {
		if err != nil {
			return c, err
		}
		if lacksLimit(&b, r.Limits) {
			c.lacking++
			continue
		}
		c.buckets++
		c.shards += b.Shards
	}
	return c, nil
}

// lacksLimit reports whether a bucket lacks one of some limits.
func lacksLimit(b *zlimit.Bucket, limits []string) bool {
	for _, name := range limits {
		if _, has := b.Statuses.Limit(name); !has {
			return true
		}
	}
	return false
}

// String says what the reset costs.
func (c resetCost) String() string {
	text := fmt.Sprintf("%s: some %s read units and %s write units", show.Counted(c.buckets, "bucket"), show.Grouped(int64(resetReads*c.buckets)),
		show.Grouped(int64(resetWrites*c.buckets+resetShard*max(0, c.shards-c.buckets))))
	if c.lacking > 0 {
		text += "; " + show.Counted(c.lacking, "bucket") + " without the limits asked for"
	}
	switch {
	case !c.coverage.Known():
		text += "; buckets that were used once may be missing here, and are reset too"
	case c.coverage.Unlisted > 0:
		text += fmt.Sprintf("; up to %s more that are not listed are reset too", show.Counted(c.coverage.Unlisted, "bucket"))
	}
	return text
}

// resetCostText says how many buckets a reset fills, and what it costs: of all buckets where somebody is asked, and of each one otherwise, which
// costs no call.
func resetCostText(ctx context.Context, sh *shell.Shell, r zlimit.ResetRequest, counted bool) (buckets, cost string) {
	each := fmt.Sprintf("each bucket: some %d read units and %d write units, and %d more for each shard beyond the first", resetReads, resetWrites, resetShard)
	if !counted {
		return "all of them", each
	}
	found, err := shell.Look(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (resetCost, error) { return countReset(ctx, l, r) })
	if err != nil {
		return "all of them", each + "; how many there are is not known: " + err.Error()
	}
	buckets = show.Counted(found.buckets, "bucket")
	if !found.coverage.Known() || found.coverage.Unlisted > 0 {
		buckets += " or more"
	}
	return buckets, found.String()
}
