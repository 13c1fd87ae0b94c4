package explore

import (
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/zlimit"
)

// keeps returns what a request of a priority leaves of a limit to others, in millitokens. Limits here have one floor at most.
func (r *running) keeps(l zlimit.Limit) int64 {
	percent, found := strings.CutPrefix(l.Floors, r.As+"=")
	if !found || r.As == "" {
		return 0
	}
	n, err := strconv.ParseInt(percent, 10, 64)
	if err != nil {
		panic("explore: a floor is " + l.Floors)
	}
	return l.Capacity * 1000 * n / 100
}

// judgeFloor judges what a write for a request of a priority leaves to others. Several shards keep it together.
func (w *witness) judgeFloor(r *running, c change, l *bucket.Limit, amount int64) {
	if r == nil || r.Kind != Take || amount <= 0 || c.next.Shards > 1 {
		return
	}
	for _, limits := range w.window(c.entity, r.begun) {
		for _, stored := range limits {
			if stored.Name == l.Name && l.Tokens >= r.keeps(stored) {
				return
			}
		}
	}
	if r.As != "" {
		w.blame("floor", "%s: %q leaves %d of %s", w.name(r), r.Op, l.Tokens, l.Name)
	}
}
