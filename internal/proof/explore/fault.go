package explore

import (
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// fault notes a fault of a call: with the operation that made it, or where requests share writes with all of its process.
func (w *witness) fault(c *call, f Fate) {
	if c.op == nil || f == Conflict {
		return
	}
	w.crowd.fault(c)
	gives, isUnknown := w.gives(c), f != Throttle && f != HotKey && c.kind == writeCall
	if c.op.judged && isUnknown {
		c.op.astray++
	}
	for _, r := range w.ops {
		if r.judged || r != c.op && (!w.program.Initial.Coalescing || r.port != c.port) {
			continue
		}
		if f.isOutage() {
			r.outages++
			r.hot = r.hot || f == HotKey
			if gives {
				r.returns++
			}
		}
		if isUnknown {
			r.unknown++
		}
	}
}

// gives reports whether a call gives something back.
func (w *witness) gives(c *call) bool {
	for i := range c.writes {
		write := &c.writes[i]
		if _, ok := layout.ParseBucketKey(write.Key); !ok || write.Kind != store.Update {
			continue
		}
		old := c.port.table.item(write.Key, false)
		if old == nil {
			continue
		}
		next, err := write.Expr.Apply(old)
		if err != nil {
			continue
		}
		was, is := w.decode(old), w.decode(next)
		for j := range is.Limits {
			if had := limitOf(was, is.Limits[j].Name); had != nil && is.Limits[j].Name != bucket.WriteUnits && is.Limits[j].Consumed < had.Consumed {
				return true
			}
		}
	}
	return false
}
