package shell

import (
	"context"
	"fmt"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// ScanCost returns in words the cost of reading the whole table, "" if there is none.
func (sh *Shell) ScanCost(ctx context.Context) string {
	cost, err := Look(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.PurgeCost, error) {
		return l.Namespaces.PurgeCost(ctx)
	})
	switch {
	case err != nil:
		return "reads: half a read unit for 4 KB of the whole table, whose size is not known: " + err.Error()
	case cost.Bytes == 0:
		return ""
	default:
		return fmt.Sprintf("reads: the whole table, which had %s and %s bytes some hours ago: %s read units, in %s or more",
			show.Counted(int(cost.Items), "item"), show.Grouped(cost.Bytes), show.Decimal(cost.ReadUnits), cost.Time)
	}
}
