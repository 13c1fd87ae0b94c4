package zlimit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/layout"
)

// An UnsupportedError reports stored limits, or a bucket, with a feature that this version does not know. It was
// written by zae-limiter, a Python package that uses the same table. No failure policy admits such a request, and
// nothing is written. A lease stays open for a later Commit.
//
// zae-limiter serves such requests. Once it has removed the feature, this version serves them too.
type UnsupportedError struct {
	Source   Source               `json:"source"` // of the level; "" for a bucket
	Entity   string               `json:"entity"`
	Resource string               `json:"resource"`
	Features []UnsupportedFeature `json:"features"` // at least one
}

// An UnsupportedFeature is a feature of zae-limiter that this version does not know.
type UnsupportedFeature struct {
	Name      string `json:"name"`      // such as "kill switch"
	Attribute string `json:"attribute"` // of the item that has it, such as "disabled"
	Since     string `json:"since"`     // version of zae-limiter that brought it
}

// Error names the level or the bucket, each feature with its attribute, and the program that supports it.
func (e *UnsupportedError) Error() string {
	var b strings.Builder
	b.WriteString("zlimit: ")
	b.WriteString(e.place())
	b.WriteString(" cannot be limited by this version, and nothing is written: ")
	for i, f := range e.Features {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (attribute %s, known to zae-limiter from %s on)", f.Name, f.Attribute, f.Since)
	}
	return b.String()
}

// place names the level or the bucket.
func (e *UnsupportedError) place() string {
	switch e.Source {
	case SourceSystem:
		return "the limits of the system"
	case SourceResource:
		return fmt.Sprintf("the limits of resource %q", e.Resource)
	case SourceEntityDefault:
		return fmt.Sprintf("the limits of entity %q", e.Entity)
	case SourceEntity:
		return fmt.Sprintf("the limits of entity %q for resource %q", e.Entity, e.Resource)
	default:
		return fmt.Sprintf("the bucket of entity %q and resource %q", e.Entity, e.Resource)
	}
}

// unsupported returns the public error for an item that is refused.
func unsupported(refused *layout.RefusedError) *UnsupportedError {
	e := &UnsupportedError{}
	if k, ok := layout.ParseEntityConfigKey(refused.Key); ok {
		at := entityLevel(k.Entity, k.Resource)
		e.Source, e.Entity, e.Resource = at.Source(), at.Entity, at.Resource
	} else if k, ok := layout.ParseResourceConfigKey(refused.Key); ok {
		e.Source, e.Resource = SourceResource, k.Resource
	} else if _, ok := layout.ParseSystemConfigKey(refused.Key); ok {
		e.Source = SourceSystem
	} else if k, ok := layout.ParseBucketKey(refused.Key); ok {
		e.Entity, e.Resource = k.Entity, k.Resource
	}
	for _, r := range refused.Refused {
		named := func(f UnsupportedFeature) bool { return f.Name == r.Feature.Name }
		if !slices.ContainsFunc(e.Features, named) {
			e.Features = append(e.Features, UnsupportedFeature{r.Feature.Name, r.Attribute, r.Feature.Since})
		}
	}
	return e
}

// refuses reports whether a request is refused for what other programs limit by at a level. That is about the limits of
// the level. They do not hold where a level before it has some: its source is that of the limits so far.
func (v *cachedLevel) refuses(source Source) bool { return v.refused != nil && source == "" }
