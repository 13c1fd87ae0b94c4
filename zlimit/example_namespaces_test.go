package zlimit_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A namespace loses its name first, and its items later or never.
func ExampleNamespaceService() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	staging, err := limiter.Namespaces.Register(ctx, "staging")
	fmt.Println(staging.Name, staging.Status, err)
	for n, err := range limiter.Namespaces.List(ctx) {
		fmt.Println("registered:", n.Name, err)
	}

	_, err = limiter.Namespaces.Delete(ctx, "staging")
	fmt.Println(err)
	_, err = limiter.Namespaces.Get(ctx, "staging")
	fmt.Println(err)
	for n, err := range limiter.Namespaces.Orphans(ctx) {
		fmt.Println("without a name:", n.Name, n.Status, err)
	}
	recovered, err := limiter.Namespaces.Recover(ctx, staging.ID)
	fmt.Println(recovered.Name, recovered.Status, err)
	// Output:
	// staging active <nil>
	// registered: default <nil>
	// registered: staging <nil>
	// <nil>
	// zlimit: namespace not found: "staging"
	// without a name: staging deleted <nil>
	// staging active <nil>
}

func ExampleNamespaceService_Purge() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	staging, err := limiter.Namespace(ctx, "staging", zlimit.WithSetup())
	if err != nil {
		panic(err)
	}
	_ = staging.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}})
	_ = staging.Close()

	deleted, err := limiter.Namespaces.Delete(ctx, "staging")
	fmt.Println(deleted.Status, err)
	cost, err := limiter.Namespaces.PurgeCost(ctx)
	fmt.Println(cost.ReadUnits, "read units", err)
	err = limiter.Namespaces.Purge(ctx, deleted.ID, func(p zlimit.PurgeProgress) { fmt.Println(p.Deleted, "items") }, zlimit.LeaveExpiring())
	fmt.Println(err)
	// Output:
	// deleted <nil>
	// 0 read units <nil>
	// 2 items
	// <nil>
}

// A program that starts during a migration waits for its end, and does not take it for an outage.
func ExampleVersionError_Migrating() {
	var err error = &zlimit.VersionError{Schema: "0.10.0", ClientMin: "1000000.0.0", Client: zlimit.Version} // as Open returns it then
	var version *zlimit.VersionError
	if errors.As(err, &version) && version.Migrating() {
		fmt.Println("try again in a minute:", err)
	}

	// Output:
	// try again in a minute: zlimit: the table is closed by a copy or a migration that is not finished; zlimit copy status or zlimit migrate status shows its progress
}
