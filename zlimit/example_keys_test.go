package zlimit_test

import (
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Keys of the items of a table, with the id of a namespace where they have one.
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
		zlimit.ProvisionerLockKey(ns),

		// Those of the table, whatever the namespace.
		zlimit.VersionKey(),
		zlimit.NamespaceKey("staging"),
		zlimit.NamespaceIDKey(ns),
		zlimit.StreamLeaseKey("shardId-00000001"),
		zlimit.DueHourKey(3, "2026-03-01T12:00:00Z", ns, "gpt-4o"),
		zlimit.MigrationKey(),
		zlimit.MigrationPartKey("scan/3"),
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
	// Zm9vYmFyYmF/SYSTEM#              #PROVISIONER_LOCK
	// _/SYSTEM#                        #VERSION
	// _/SYSTEM#                        #NAMESPACE#staging
	// _/SYSTEM#                        #NSID#Zm9vYmFyYmF
	// _/SYSTEM#                        #STREAM#shardId-00000001
	// _/ROLLUP#3                       #HOUR#2026-03-01T12:00:00Z#Zm9vYmFyYmF#gpt-4o
	// _/SYSTEM#                        #MIGRATION
	// _/SYSTEM#                        #MIGRATION#scan/3
}
