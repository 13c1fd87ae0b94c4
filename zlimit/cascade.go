package zlimit

import (
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// A CascadePolicy says whether requests charge the parent of their entity, see [Config.Cascade].
type CascadePolicy string

// The values of a [CascadePolicy].
const (
	CascadeInherit CascadePolicy = ""       // the next level decides, and finally [Entity.Cascade]
	CascadeAlways  CascadePolicy = "always" // the parent is charged, even if the entity does not cascade
	CascadeNever   CascadePolicy = "never"  // the parent is not charged
)

func (p CascadePolicy) check(at Level) error {
	switch {
	case p != CascadeInherit && p != CascadeAlways && p != CascadeNever:
		return &ValidationError{Field: "cascade", Value: string(p), Reason: `must be "", "always" or "never"`}
	case p != CascadeInherit && at == Level{}:
		return &ValidationError{Field: "cascade", Value: string(p), Reason: "is not for the system"}
	default:
		return nil
	}
}

func (p CascadePolicy) value() expr.Value {
	if p == CascadeInherit {
		return expr.Value{}
	}
	return expr.Bool(p == CascadeAlways)
}

// cascadePolicy returns the policy that an item has. A value of another type says nothing.
func cascadePolicy(v expr.Value) CascadePolicy {
	switch {
	case v.Kind() != expr.KindBool:
		return CascadeInherit
	case v.True():
		return CascadeAlways
	default:
		return CascadeNever
	}
}

// charging returns the lineage by the levels of a bucket, the last of which is the entity's record, and the policy that decides.
func charging(levels []*cachedLevel) (lineage layout.Lineage, policy CascadePolicy) {
	lineage = levels[len(levels)-1].lineage
	for _, v := range levels {
		if policy = v.Cascade; policy != CascadeInherit {
			lineage.Cascade = policy == CascadeAlways && lineage.Parent != ""
			break
		}
	}
	return lineage, policy
}
