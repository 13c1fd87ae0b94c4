package protocol

import (
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A shadow limit is evaluated like an enforced one: by the same images, shards, waits and priorities. If only shadow limits reject a
// request, it is decided again, and those limits only count it. So a forecast is what the enforced limit would do, and a request within the
// limit costs the same as with any other limit.

// A forecast has the shadow limits that would reject a request, each with its level.
type forecast []shadowLimit

type shadowLimit struct {
	entity, resource, limit string
}

// add adds the shadow limits of a rejection, if only shadow limits have rejected the request. It returns false for any other failure, and
// if the forecast already has them all.
func (f *forecast) add(failure error) bool {
	var rejected *RejectedError
	if !errors.As(failure, &rejected) {
		return false
	}
	more := slices.Clone(*f)
	for _, l := range rejected.Levels {
		for i := range l.Statuses {
			switch s := &l.Statuses[i]; {
			case !s.Short:
			case s.Mode != bucket.Shadow:
				return false
			default:
				if limit := (shadowLimit{l.Entity, l.Resource, s.Name}); !slices.Contains(more, limit) {
					more = append(more, limit)
				}
			}
		}
	}
	grown := len(more) > len(*f)
	*f = more
	return grown
}

// apply makes the levels of a request count what the limits of a forecast would reject, if they are still shadow limits.
func (f forecast) apply(levels []level) {
	if len(f) > 0 {
		f.applyAll(levels)
	}
}

// applyAll is [forecast.apply] for a forecast with limits.
func (f forecast) applyAll(levels []level) {
	for i := range levels {
		var limits []string
		for _, of := range f {
			if of.entity == levels[i].bucket.Entity && of.resource == levels[i].bucket.Resource && levels[i].limits.Config.IsShadow(of.limit) {
				limits = append(limits, of.limit)
			}
		}
		if len(limits) > 0 {
			levels[i].demand = levels[i].demand.Foreseen(limits...)
		}
	}
}
