// Package migrate brings a table of zae-limiter, the Python predecessor of this module, to the layout of package layout.
//
// A migration reads the items of a source and derives from them the items of a target, which is a pure function:
// [Rules]. A source is recognised by the form of its keys, item by item, since releases with different keys recorded
// the same version. docs/migrate.md lists the forms.
package migrate

import (
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Shape is the form of an item, according to its key.
type Shape struct {
	Record string // the kind of the item
	Nested bool   // its attributes are in a map, as up to release 0.5
}

// String returns the shape for people.
func (s Shape) String() string {
	if s.Nested {
		return s.Record + ", nested"
	}
	return s.Record
}

// MarshalText implements [encoding.TextMarshaler].
func (s Shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// The records of a source.
const (
	entityRecord           = "entity"
	limitBucketRecord      = "bucket of one limit"
	bucketRecord           = "bucket"
	namespacedBucketRecord = "bucket below its entity, in a namespace"
	entityLimitRecord      = "limit of an entity"
	resourceLimitRecord    = "limit of a resource"
	systemLimitRecord      = "system limit"
	entityConfigRecord     = "limits of an entity"
	resourceConfigRecord   = "limits of a resource"
	systemConfigRecord     = "system limits and settings"
	usageRecord            = "usage"
	auditRecord            = "audit event"
	registryRecord         = "registry"
	versionRecord          = "version"
	currentBucketRecord    = "bucket of this layout"
	currentRecord          = "item of this layout"
	ownRecord              = "record of zlimit"
	unknownRecord          = "unknown"
)

// mapAttribute holds the attributes of nested items.
const mapAttribute = "data"

// ShapeOf returns the shape of an item.
func ShapeOf(item expr.Item) Shape {
	nested := item.Get(mapAttribute).Kind() == expr.KindM
	record := recordOf(store.KeyOf(item))
	switch record {
	case entityRecord, limitBucketRecord, entityLimitRecord, auditRecord, versionRecord:
		return Shape{record, nested}
	default:
		return Shape{Record: record}
	}
}

// parses reports whether a key is of the form that a parser takes.
func parses[K any](parse func(store.Key) (K, bool)) func(store.Key) bool {
	return func(key store.Key) bool {
		_, ok := parse(key)
		return ok
	}
}

// forms are the forms of keys. No key has two of them.
var forms = []struct {
	record  string
	matches func(store.Key) bool
}{
	{entityRecord, parses(layout.ParseOldEntityKey)},
	{limitBucketRecord, parses(layout.ParseOldLimitBucketKey)},
	{bucketRecord, parses(layout.ParseOldBucketKey)},
	{namespacedBucketRecord, parses(layout.ParseOldNamespacedBucketKey)},
	{entityLimitRecord, parses(layout.ParseOldEntityLimitKey)},
	{resourceLimitRecord, parses(layout.ParseOldResourceLimitKey)},
	{systemLimitRecord, parses(layout.ParseOldSystemLimitKey)},
	{entityConfigRecord, parses(layout.ParseOldEntityConfigKey)},
	{resourceConfigRecord, parses(layout.ParseOldResourceConfigKey)},
	{systemConfigRecord, parses(layout.ParseOldSystemConfigKey)},
	{usageRecord, parses(layout.ParseOldUsageKey)},
	{auditRecord, parses(layout.ParseOldAuditKey)},
	{registryRecord, parses(layout.ParseOldResourceRegistryKey)},
	{registryRecord, parses(layout.ParseOldConfigRegistryKey)},
	{versionRecord, parses(layout.ParseOldVersionKey)},
	{currentBucketRecord, parses(layout.ParseBucketKey)},
	{currentRecord, parses(layout.ParseEntityKey)},
	{currentRecord, parses(layout.ParseChildKey)},
	{currentRecord, parses(layout.ParseEntityConfigKey)},
	{currentRecord, parses(layout.ParseResourceConfigKey)},
	{currentRecord, parses(layout.ParseSystemConfigKey)},
	{currentRecord, parses(layout.ParseUsageKey)},
	{currentRecord, parses(layout.ParseAuditKey)},
	{currentRecord, parses(layout.ParseResourceRegistryKey)},
	{currentRecord, parses(layout.ParseEntityConfigRegistryKey)},
	{currentRecord, parses(layout.ParseProvisionerKey)},
	{currentRecord, parses(layout.ParseProvisionerPartKey)},
	{currentRecord, parses(layout.ParseOperationKey)},
	{currentRecord, parses(layout.ParseAlertKey)},
	{currentRecord, parses(layout.ParseRejectionReportKey)},
	{currentRecord, parses(layout.ParseSettlementKey)},
	{currentRecord, parses(layout.ParseRequestKey)},
	{currentRecord, isOwed},
	{currentRecord, parses(layout.ParseDueHourKey)},
	{currentRecord, parses(layout.ParseNamespaceKey)},
	{currentRecord, parses(layout.ParseNamespaceIDKey)},
	{versionRecord, parses(layout.ParseVersionKey)},
	{ownRecord, parses(layout.ParseProvisionerLockKey)},
	{ownRecord, parses(layout.ParseStreamLeaseKey)},
	{currentRecord, parses(layout.ParseStreamGapKey)},
	{ownRecord, parses(layout.ParseMigrationKey)},
	{ownRecord, parses(layout.ParseMigrationPartKey)},
}

// isOwed reports whether a key is of work that the provisioner of zae-limiter owes to buckets.
func isOwed(key store.Key) bool {
	return strings.HasSuffix(key.PK, "/SYSTEM#") && strings.HasPrefix(key.SK, "#PROVISIONER#PENDING#")
}

// recordOf returns the kind of the item with a key.
func recordOf(key store.Key) string {
	for i := range forms {
		if forms[i].matches(key) {
			return forms[i].record
		}
	}
	return unknownRecord
}

// Releases returns the release of zae-limiter that wrote items of the given shapes. It is the latest of several, since
// a table keeps items of earlier releases. It is "" where no shape belongs to a release.
func Releases(shapes []Shape) string {
	has := func(nested bool, records ...string) bool {
		return slices.ContainsFunc(shapes, func(s Shape) bool { return s.Nested == nested && slices.Contains(records, s.Record) })
	}
	switch {
	case has(false, currentBucketRecord):
		return "0.10.1 or later"
	case has(false, namespacedBucketRecord, currentRecord):
		return "0.10.0"
	case has(false, entityConfigRecord, resourceConfigRecord):
		return "0.8 or 0.9"
	case has(false, bucketRecord):
		return "0.7"
	case has(false, entityRecord, limitBucketRecord, entityLimitRecord, resourceLimitRecord, systemLimitRecord):
		return "0.6"
	case has(true, entityRecord, limitBucketRecord, entityLimitRecord, auditRecord, versionRecord):
		return "0.1 to 0.5"
	default:
		return ""
	}
}

// IsCurrent reports whether a shape is of the layout that programs of this module use as it is.
func (s Shape) IsCurrent() bool {
	switch s.Record {
	case currentBucketRecord, currentRecord, ownRecord, versionRecord:
		return true
	default:
		return false
	}
}

// Sort keys of the items of an entity that depend on each other are up to this one. Usage comes after it.
const lastOfEntity = "#META"

// group returns the query for the items on which a key depends, and false for an independent item.
func group(key store.Key) (store.Query, bool) {
	switch recordOf(key) {
	case entityRecord, limitBucketRecord, bucketRecord, namespacedBucketRecord, entityLimitRecord, entityConfigRecord:
		return store.Query{PK: key.PK, UpTo: lastOfEntity, Consistent: true}, true
	case resourceLimitRecord, systemLimitRecord, resourceConfigRecord, systemConfigRecord:
		return store.Query{PK: key.PK, Consistent: true}, true
	case currentRecord: // an entity; a record beside that of its parent follows from it
		return store.Query{PK: key.PK, UpTo: lastOfEntity, Consistent: true}, key.SK == lastOfEntity || strings.HasPrefix(key.SK, "#CONFIG#")
	default:
		return store.Query{}, false
	}
}
