package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A RefusedError reports a source with attributes by which zae-limiter limits, and this module does not. The copy would
// be admitted by programs that the source refuses.
type RefusedError struct {
	ClientMin string         `json:"client_min,omitempty"` // the version of clients that the source asks for, where this module is older; else ""
	Features  []FeatureCount `json:"features"`
	Read      int64          `json:"-"` // items that were read
}

// A FeatureCount is a number of items with attributes of one feature, with one of them.
type FeatureCount struct {
	*layout.Feature
	Items     int64  `json:"items"`
	Attribute string `json:"example_attribute"`
	Example
}

// Error lists the findings, with numbers.
func (e *RefusedError) Error() string {
	var found []string
	if e.ClientMin != "" {
		found = append(found, "the table is for clients from version "+e.ClientMin)
	}
	for _, f := range e.Features {
		found = append(found, fmt.Sprintf("%d items with a %s of zae-limiter %s or later, such as attribute %s of PK %q, SK %q",
			f.Items, f.Name, f.Since, f.Attribute, f.PK, f.SK))
	}
	return fmt.Sprintf("the source is limited in ways that this version does not know, in %d items read: %s", e.Read, strings.Join(found, "; "))
}

// found reports whether there is anything to refuse.
func (e *RefusedError) found() bool { return e.ClientMin != "" || len(e.Features) > 0 }

// add looks at an item, and reports whether it is refused.
func (e *RefusedError) add(item expr.Item) bool {
	e.Read++
	key := store.KeyOf(item)
	var err error
	if _, ok := layout.ParseBucketKey(key); ok {
		_, _, err = layout.ReadBucket(item)
	} else if _, ok := layout.ParseEntityConfigKey(key); ok {
		_, err = layout.DecodeEntityConfig(item)
	} else if _, ok := layout.ParseResourceConfigKey(key); ok {
		_, err = layout.DecodeResourceConfig(item)
	} else if _, ok := layout.ParseSystemConfigKey(key); ok {
		_, err = layout.DecodeSystemConfig(item)
	}
	var refused *layout.RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	counted := map[*layout.Feature]bool{}
	for _, r := range refused.Refused {
		if counted[r.Feature] {
			continue
		}
		counted[r.Feature] = true
		at := slices.IndexFunc(e.Features, func(f FeatureCount) bool { return f.Feature == r.Feature })
		if at < 0 {
			at = len(e.Features)
			e.Features = append(e.Features, FeatureCount{Feature: r.Feature, Example: Example(key), Attribute: r.Attribute})
		}
		e.Features[at].Items++
	}
	return true
}

// version looks at the version record of the source, and reports whether programs of the layout of this module write it.
func (e *RefusedError) version(c *Config, item expr.Item) (current bool) {
	if item == nil {
		return false
	}
	found, err := layout.DecodeVersion(item)
	if err != nil {
		return false
	}
	if !found.Admits(c.SchemaVersion, c.ClientVersion) {
		e.ClientMin = found.ClientMinVersion
	}
	return found.SchemaVersion == c.SchemaVersion
}

// readVersion is version for the source as it is.
func (cl *calls) readVersion(ctx context.Context, e *RefusedError, counts Counts) (current bool, err error) {
	items, err := cl.read(ctx, cl.source, []store.Key{layout.VersionKey{}.Key()}, counts)
	if err != nil {
		return false, err
	}
	return e.version(cl.config, items[0]), nil
}

// checkRefused returns a [*RefusedError] for a source that cannot be migrated, before anything is written. It reads all of a
// source whose layout is that of this module. Any other source has no such items, and a run that meets one of them ends.
func (m *Migration) checkRefused(ctx context.Context) error {
	counts, found := Counts{}, &RefusedError{}
	defer func() { m.ledger.booked.add(counts) }()
	current, err := m.calls.readVersion(ctx, found, counts)
	if err != nil {
		return err
	}
	for q := (store.Scan{}); current; {
		page, err := m.calls.scanPage(ctx, q, counts)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			found.add(item)
		}
		if q.Continue = page.Next; page.Next == nil {
			break
		}
	}
	if found.found() {
		return found
	}
	return nil
}

// unlessRefused returns items of the source, or a [*RefusedError] for the first that has no equal in the target.
func unlessRefused(items []expr.Item) ([]expr.Item, error) {
	found := &RefusedError{}
	for _, item := range items {
		if found.add(item) {
			return nil, found
		}
	}
	return items, nil
}
