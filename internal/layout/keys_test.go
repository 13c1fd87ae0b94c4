package layout

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestKeyStrings compares keys with the strings that tables hold.
func TestKeyStrings(t *testing.T) {
	type index struct{ pk, sk string }
	both := func(pk, sk string) index { return index{pk, sk} }
	bucket := BucketKey{NS: "n", Entity: "e", Resource: "r", Shard: 12}
	config := EntityConfigKey{NS: "n", Entity: "e", Resource: "_default_"}
	entity := EntityKey{NS: "n", Entity: "e"}
	usage := UsageKey{NS: "n", Entity: "e", Resource: "r", WindowKey: "2026-01-02T15:00:00Z"}
	for _, c := range []struct {
		call      string
		got, want any
	}{
		{"entity", entity.Key(), store.Key{PK: "n/ENTITY#e", SK: "#META"}},
		{"entity GSI1", both(entity.ParentIndex("p")), index{"n/PARENT#p", "CHILD#e"}},
		{"entity GSI4", both(entity.NamespaceIndex()), index{"n", "n/ENTITY#e"}},
		{"bucket", bucket.Key(), store.Key{PK: "n/BUCKET#e#r#12", SK: "#STATE"}},
		{"bucket GSI2", both(bucket.ResourceIndex()), index{"n/RESOURCE#r", "BUCKET#e#12"}},
		{"bucket GSI3", both(bucket.OwnerIndex()), index{"n/ENTITY#e", "BUCKET#r#12"}},
		{"bucket GSI4", both(bucket.NamespaceIndex()), index{"n", "BUCKET#e#r#12"}},
		{"entity config", config.Key(), store.Key{PK: "n/ENTITY#e", SK: "#CONFIG#_default_"}},
		{"entity config GSI3", both(config.OwnerIndex()), index{"n/ENTITY_CONFIG#_default_", "e"}},
		{"entity config GSI4", both(config.NamespaceIndex()), index{"n", "n/ENTITY#e"}},
		{"resource config", ResourceConfigKey{"n", "r"}.Key(), store.Key{PK: "n/RESOURCE#r", SK: "#CONFIG"}},
		{"resource config GSI4", both(ResourceConfigKey{"n", "r"}.NamespaceIndex()), index{"n", "n/RESOURCE#r"}},
		{"system config", SystemConfigKey{"n"}.Key(), store.Key{PK: "n/SYSTEM#", SK: "#CONFIG"}},
		{"system config GSI4", both(SystemConfigKey{"n"}.NamespaceIndex()), index{"n", "n/SYSTEM#"}},
		{"usage", usage.Key(), store.Key{PK: "n/ENTITY#e", SK: "#USAGE#r#2026-01-02T15:00:00Z"}},
		{"usage GSI2", both(usage.ResourceIndex()), index{"n/RESOURCE#r", "USAGE#2026-01-02T15:00:00Z#e"}},
		{"usage GSI4", both(usage.NamespaceIndex()), index{"n", "n/ENTITY#e"}},
		{"audit", AuditKey{"n", "$RESOURCE:r", "01J"}.Key(), store.Key{PK: "n/AUDIT#$RESOURCE:r", SK: "#AUDIT#01J"}},
		{"audit GSI4", both(AuditKey{"n", "$SYSTEM", "01J"}.NamespaceIndex()), index{"n", "n/AUDIT#$SYSTEM"}},
		{"resource registry", ResourceRegistryKey{"n"}.Key(), store.Key{PK: "n/SYSTEM#", SK: "#RESOURCES"}},
		{
			"entity config registry",
			EntityConfigRegistryKey{"n"}.Key(),
			store.Key{PK: "n/SYSTEM#", SK: "#ENTITY_CONFIG_RESOURCES"},
		},
		{"provisioner", ProvisionerKey{"n"}.Key(), store.Key{PK: "n/SYSTEM#", SK: "#PROVISIONER"}},
		{"version", VersionKey{}.Key(), store.Key{PK: "_/SYSTEM#", SK: "#VERSION"}},
		{"version GSI4", both(VersionKey{}.NamespaceIndex()), index{"_", "_/SYSTEM#"}},
		{"namespace", NamespaceKey{"acme"}.Key(), store.Key{PK: "_/SYSTEM#", SK: "#NAMESPACE#acme"}},
		{"namespace id", NamespaceIDKey{"Zm9v"}.Key(), store.Key{PK: "_/SYSTEM#", SK: "#NSID#Zm9v"}},

		{
			"children",
			QueryChildren("n", "p"),
			store.Query{Index: "GSI1", PK: "n/PARENT#p", Prefix: "CHILD#"},
		},
		{
			"buckets of an entity",
			QueryBucketsOfEntity("n", "e", ""),
			store.Query{Index: "GSI3", PK: "n/ENTITY#e", Prefix: "BUCKET#"},
		},
		{
			"buckets of an entity and a resource",
			QueryBucketsOfEntity("n", "e", "r"),
			store.Query{Index: "GSI3", PK: "n/ENTITY#e", Prefix: "BUCKET#r#"},
		},
		{
			"usage of an entity, all",
			QueryUsageOfEntity("n", "e", "", "2026"),
			store.Query{PK: "n/ENTITY#e", Prefix: "#USAGE#"},
		},
		{
			"usage of an entity and a resource in a year",
			QueryUsageOfEntity("n", "e", "r", "2026"),
			store.Query{PK: "n/ENTITY#e", Prefix: "#USAGE#r#2026"},
		},
		{
			"usage of a resource in a month",
			QueryUsageOfResource("n", "r", "2026-01"),
			store.Query{Index: "GSI2", PK: "n/RESOURCE#r", Prefix: "USAGE#2026-01#"},
		},
		{"entities", QueryEntities("n", ""), store.Query{Index: "GSI4", PK: "n", Prefix: "n/ENTITY#"}},
		{"entities of a prefix", QueryEntities("n", "e"), store.Query{Index: "GSI4", PK: "n", Prefix: "n/ENTITY#e"}},
		{"a namespace", QueryNamespaceItems("n"), store.Query{Index: "GSI4", PK: "n"}},
	} {
		compare.Equal(t, c.call, c.want, c.got, cmp.AllowUnexported(index{}))
	}
}

func TestKeysThatAreMalformed(t *testing.T) {
	for _, key := range []store.Key{
		{PK: "n/BUCKET#e#r#01", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#+1", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#-1", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#-0", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#1 ", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#0x1", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#1_0", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#9223372036854775808", SK: "#STATE"},
		{PK: "n/BUCKET#e#r", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#1#2", SK: "#STATE"},
		{PK: "n/BUCKET##r#1", SK: "#STATE"},
		{PK: "/BUCKET#e#r#1", SK: "#STATE"},
		{PK: "a/b/BUCKET#e#r#1", SK: "#STATE"},
		{PK: "a#b/BUCKET#e#r#1", SK: "#STATE"},
		{PK: "n/BUCKET#e#r#1", SK: "#STATE "},
		{PK: "n/BUCKET#e#r#1"},
		{PK: "n/ENTITY#e#f", SK: "#META"},
		{PK: "n/ENTITY#", SK: "#META"},
		{PK: "n/ENTITY#e", SK: "#CONFIG#"},
		{PK: "n/ENTITY#e", SK: "#USAGE#r"},
		{PK: "_/SYSTEM#", SK: "#NSID#"},
		{},
	} {
		for _, kind := range keyKinds {
			if fields, _, ok := kind.parse(key); ok {
				t.Errorf("%s: parse(%q) = %+v, want none", kind.record, key, fields)
			}
		}
	}
}
