package zlimit_test

import (
	"context"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

func ExampleEntityService() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "acme", Name: "Acme Inc."})
	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "alice", ParentID: "acme", Cascade: true})
	_, err := limiter.Entities.Create(ctx, zlimit.Entity{ID: "bob", ParentID: "acne"})
	fmt.Println(err)

	acme, err := limiter.Entities.Get(ctx, "acme")
	fmt.Println(acme.Name, err)
	for child, err := range limiter.Entities.Children(ctx, "acme") {
		fmt.Println("child:", child.ID, err)
	}
	fmt.Println(limiter.Entities.Delete(ctx, "acme"))
	fmt.Println(limiter.Entities.Delete(ctx, "alice"))
	// Output:
	// zlimit: entity not found: parent "acne"
	// Acme Inc. <nil>
	// child: alice <nil>
	// zlimit: entity has children: "acme"
	// <nil>
}

// What a child consumes is charged to its parent as well.
func ExampleEntityService_Create() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "acme"})
	_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: "alice", ParentID: "acme", Cascade: true})
	_ = limiter.Limits.Set(ctx, zlimit.Level{Entity: "acme", Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 100)}})
	_ = limiter.Limits.Set(ctx, zlimit.Level{Entity: "alice", Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 10)}})

	_, err := limiter.Acquire(ctx, zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 4}})
	fmt.Println(err)
	for _, entity := range []string{"alice", "acme"} {
		statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4"})
		fmt.Println(entity, statuses[0].Available, err)
	}
	// Output:
	// <nil>
	// alice 6 <nil>
	// acme 96 <nil>
}

// An update is of the state that was read, so that no update is lost.
// A key moves to another organisation, which is charged from then on.
func ExampleEntityService_SetParent() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	for _, e := range []zlimit.Entity{{ID: "acme"}, {ID: "globex"}, {ID: "key-1", ParentID: "acme", Cascade: true}} {
		_, _ = limiter.Entities.Create(ctx, e)
	}
	_ = limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 100)}})
	request := zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 4}}
	_, _ = limiter.Acquire(ctx, request)

	report, err := limiter.Entities.SetParent(ctx, "key-1", "globex")
	fmt.Println(report.Buckets, "bucket marked,", err)
	_, _ = limiter.Acquire(ctx, request)
	for _, entity := range []string{"acme", "globex"} {
		statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4"})
		fmt.Println(entity, statuses[0].Available, err)
	}
	_, err = limiter.Entities.SetParent(ctx, "globex", "key-1")
	fmt.Println(err)
	// Output:
	// 1 bucket marked, <nil>
	// acme 96 <nil>
	// globex 96 <nil>
	// zlimit: invalid parent "key-1": is below the entity itself: key-1 < globex
}

func ExampleEntityService_Update() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	created, _ := limiter.Entities.Create(ctx, zlimit.Entity{ID: "acme", Metadata: map[string]string{"plan": "free"}})
	mine, yours := created, created
	mine.Metadata = map[string]string{"plan": "gold"}
	yours.Name = "Acme Inc."
	mine, err := limiter.Entities.Update(ctx, mine)
	fmt.Println(mine.Metadata["plan"], mine.Version, err)
	_, err = limiter.Entities.Update(ctx, yours)
	fmt.Println(err)
	// Output:
	// gold 1 <nil>
	// zlimit: entity changed since it was read: "acme"
}

func ExampleEntityService_Ensure() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	for range 2 { // such as two processes that start
		_, err := limiter.Entities.Ensure(ctx, zlimit.Entity{ID: "acme", Name: "Acme Inc."})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
}

// A page of a list starts after the last entity of the page before.
func ExampleEntityService_List() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	for _, id := range []string{"team-a", "team-b", "team-c", "user-1"} {
		_, _ = limiter.Entities.Create(ctx, zlimit.Entity{ID: id})
	}
	page := zlimit.EntityQuery{Prefix: "team-", Limit: 2}
	for range 2 {
		for e, err := range limiter.Entities.List(ctx, page) {
			fmt.Println(e.ID, err)
			page.After = e.ID
		}
	}
	// Output:
	// team-a <nil>
	// team-b <nil>
	// team-c <nil>
}

func ExampleEntityService_Buckets() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()
	for _, resource := range []string{"gpt-4", "whisper"} {
		_, _ = limiter.Acquire(ctx, zlimit.Request{
			Entity: "alice", Resource: resource, Consume: zlimit.Amounts{"rpd": 2},
			Limits: []zlimit.Limit{zlimit.PerDay("rpd", 10)},
		})
	}
	for bucket, err := range limiter.Entities.Buckets(ctx, "alice") {
		fmt.Println(bucket.Resource, bucket.Statuses[0].Available, err)
	}
	// Output:
	// gpt-4 8 <nil>
	// whisper 8 <nil>
}

func ExampleAuditService_Events() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithPrincipal("ops"))
	defer limiter.Close()

	_ = limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}})
	_ = limiter.Limits.Delete(ctx, zlimit.Level{Resource: "gpt-4"})
	for event, err := range limiter.Audit.Events(ctx, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{}) {
		fmt.Println(event.Principal, event.Action, event.Resource, event.Details["config_version"], err)
	}
	// Output:
	// ops limits_set gpt-4 1 <nil>
	// ops limits_deleted gpt-4 1 <nil>
}

func ExampleContextWithPrincipal() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:", zlimit.WithPrincipal("portal"))
	defer limiter.Close()

	// In a handler, after the user has signed in:
	byUser := zlimit.ContextWithPrincipal(ctx, "olga@example.com")
	_ = limiter.Limits.Set(byUser, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}})

	for event, err := range limiter.Audit.Events(ctx, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{}) {
		fmt.Println(event.Principal, event.Action, err)
	}
	// Output:
	// olga@example.com limits_set <nil>
}
