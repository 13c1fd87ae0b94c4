package zlimit_test

import (
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Keys of the items of a table, with the id of a namespace if they have one.
func ExampleKey() {
	const ns = "Zm9vYmFyYmF" // as NamespaceService.Get returns it
	for _, key := range []zlimit.Key{
		zlimit.EntityKey(ns, "acme"),
		zlimit.ChildKey(ns, "acme", "acme-ci"),
		zlimit.BucketKey(ns, "acme", "gpt-4o", 0),
		zlimit.EntityConfigKey(ns, "acme", "gpt-4o"),
		zlimit.ResourceConfigKey(ns, "gpt-4o"),
		zlimit.SystemConfigKey(ns),
		zlimit.UsageKey(ns, "acme", "gpt-4o", "2026-03"),
		zlimit.AuditKey(ns, "acme", "01KN2F3Y2TQ5CJ7C0V9P1T8B6E"),
		zlimit.ResourceRegistryKey(ns),
		zlimit.EntityConfigRegistryKey(ns),
		zlimit.ProvisionerKey(ns),

		// Those of the table, whatever the namespace.
		zlimit.VersionKey(),
		zlimit.NamespaceKey("staging"),
		zlimit.NamespaceIDKey(ns),
	} {
		fmt.Printf("%-32s %s\n", key.PK, key.SK)
	}
	// Output:
	// Zm9vYmFyYmF/ENTITY#acme          #META
	// Zm9vYmFyYmF/ENTITY#acme          #CHILD#acme-ci
	// Zm9vYmFyYmF/BUCKET#acme#gpt-4o#0 #STATE
	// Zm9vYmFyYmF/ENTITY#acme          #CONFIG#gpt-4o
	// Zm9vYmFyYmF/RESOURCE#gpt-4o      #CONFIG
	// Zm9vYmFyYmF/SYSTEM#              #CONFIG
	// Zm9vYmFyYmF/ENTITY#acme          #USAGE#gpt-4o#2026-03
	// Zm9vYmFyYmF/AUDIT#acme           #AUDIT#01KN2F3Y2TQ5CJ7C0V9P1T8B6E
	// Zm9vYmFyYmF/SYSTEM#              #RESOURCES
	// Zm9vYmFyYmF/SYSTEM#              #ENTITY_CONFIG_RESOURCES
	// Zm9vYmFyYmF/SYSTEM#              #PROVISIONER
	// _/SYSTEM#                        #VERSION
	// _/SYSTEM#                        #NAMESPACE#staging
	// _/SYSTEM#                        #NSID#Zm9vYmFyYmF
}

// Keys in indexes, as an export or a query of an index has them.
func ExampleKey_indexes() {
	const ns = "Zm9vYmFyYmF"
	for _, key := range []zlimit.Key{
		zlimit.EntityGSI1Key(ns, "acme-ci", "acme"),   // the children of acme
		zlimit.BucketGSI2Key(ns, "acme", "gpt-4o", 0), // the buckets of gpt-4o
		zlimit.BucketGSI3Key(ns, "acme", "gpt-4o", 0), // the buckets of acme
		zlimit.EntityConfigGSI3Key(ns, "acme", "gpt-4o"),
		zlimit.UsageGSI2Key(ns, "acme", "gpt-4o", "2026-03"),
	} {
		fmt.Printf("%-32s %s\n", key.PK, key.SK)
	}
	// Output:
	// Zm9vYmFyYmF/PARENT#acme          CHILD#acme-ci
	// Zm9vYmFyYmF/RESOURCE#gpt-4o      BUCKET#acme#0
	// Zm9vYmFyYmF/ENTITY#acme          BUCKET#gpt-4o#0
	// Zm9vYmFyYmF/ENTITY_CONFIG#gpt-4o acme
	// Zm9vYmFyYmF/RESOURCE#gpt-4o      USAGE#2026-03#acme
}

// A reader of an export uses the key of an item: it is of the kind whose parser takes it.
func ExampleParseBucketKey() {
	kindOf := func(key zlimit.Key) string {
		if ns, entity, resource, shard, ok := zlimit.ParseBucketKey(key); ok {
			return fmt.Sprintf("bucket of %s and %s, shard %d, in %s", entity, resource, shard, ns)
		}
		if ns, entity, resource, windowKey, ok := zlimit.ParseUsageKey(key); ok {
			return fmt.Sprintf("usage of %s and %s in %s, in %s", entity, resource, windowKey, ns)
		}
		if ns, entity, ok := zlimit.ParseEntityKey(key); ok {
			return fmt.Sprintf("entity %s, in %s", entity, ns)
		}
		if ns, entity, child, ok := zlimit.ParseChildKey(key); ok {
			return fmt.Sprintf("child %s of %s, in %s", child, entity, ns)
		}
		if ns, entity, resource, ok := zlimit.ParseEntityConfigKey(key); ok {
			return fmt.Sprintf("limits of %s and %s, in %s", entity, resource, ns)
		}
		if ns, resource, ok := zlimit.ParseResourceConfigKey(key); ok {
			return fmt.Sprintf("limits of %s, in %s", resource, ns)
		}
		if ns, ok := zlimit.ParseSystemConfigKey(key); ok {
			return "limits of the system, in " + ns
		}
		if ns, entity, eventID, ok := zlimit.ParseAuditKey(key); ok {
			return fmt.Sprintf("audit event %s of %s, in %s", eventID, entity, ns)
		}
		if ns, ok := zlimit.ParseResourceRegistryKey(key); ok {
			return "resources with limits, in " + ns
		}
		if ns, ok := zlimit.ParseEntityConfigRegistryKey(key); ok {
			return "resources of entities with limits, in " + ns
		}
		if ns, ok := zlimit.ParseProvisionerKey(key); ok {
			return "what a file of limits manages, in " + ns
		}
		if name, ok := zlimit.ParseNamespaceKey(key); ok {
			return "namespace " + name
		}
		if id, ok := zlimit.ParseNamespaceIDKey(key); ok {
			return "namespace with the id " + id
		}
		if zlimit.ParseVersionKey(key) {
			return "version of the table"
		}
		return "another item"
	}

	const ns = "Zm9vYmFyYmF"
	for _, key := range []zlimit.Key{
		zlimit.BucketKey(ns, "acme", "gpt-4o", 3),
		zlimit.UsageKey(ns, "acme", "gpt-4o", "2026-03"),
		zlimit.EntityKey(ns, "acme"),
		zlimit.ChildKey(ns, "acme", "acme-ci"),
		zlimit.EntityConfigKey(ns, "acme", "gpt-4o"),
		zlimit.ResourceConfigKey(ns, "gpt-4o"),
		zlimit.SystemConfigKey(ns),
		zlimit.AuditKey(ns, "acme", "01KN2F3Y2TQ5CJ7C0V9P1T8B6E"),
		zlimit.ResourceRegistryKey(ns),
		zlimit.EntityConfigRegistryKey(ns),
		zlimit.ProvisionerKey(ns),
		zlimit.NamespaceKey("staging"),
		zlimit.NamespaceIDKey(ns),
		zlimit.VersionKey(),
		{PK: "_/SYSTEM#", SK: "#MIGRATION"}, // the module's own
	} {
		fmt.Println(kindOf(key))
	}
	// Output:
	// bucket of acme and gpt-4o, shard 3, in Zm9vYmFyYmF
	// usage of acme and gpt-4o in 2026-03, in Zm9vYmFyYmF
	// entity acme, in Zm9vYmFyYmF
	// child acme-ci of acme, in Zm9vYmFyYmF
	// limits of acme and gpt-4o, in Zm9vYmFyYmF
	// limits of gpt-4o, in Zm9vYmFyYmF
	// limits of the system, in Zm9vYmFyYmF
	// audit event 01KN2F3Y2TQ5CJ7C0V9P1T8B6E of acme, in Zm9vYmFyYmF
	// resources with limits, in Zm9vYmFyYmF
	// resources of entities with limits, in Zm9vYmFyYmF
	// what a file of limits manages, in Zm9vYmFyYmF
	// namespace staging
	// namespace with the id Zm9vYmFyYmF
	// version of the table
	// another item
}
