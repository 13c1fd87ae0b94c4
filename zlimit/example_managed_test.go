package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A program keeps limits as code. In a run it replaces the levels that it has read, and records those that it manages.
func ExampleManagedService() {
	ctx := context.Background()
	limiter, _ := zlimit.Open(ctx, "memory:")
	defer limiter.Close()

	level := zlimit.Level{Resource: "gpt-4"}
	want := zlimit.Stored{Level: level, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}}
	err := limiter.Managed.Run(ctx, func(ctx context.Context, run *zlimit.ManagedRun) error {
		var locked *zlimit.LockedError // what another program gets meanwhile
		err := limiter.Managed.Run(ctx, func(context.Context, *zlimit.ManagedRun) error { return nil })
		fmt.Println(errors.As(err, &locked), errors.Is(locked.Unwrap(), zlimit.ErrLocked))

		before, err := limiter.Managed.Read(ctx, level)
		if err != nil {
			return err
		}
		after, err := run.Replace(ctx, before[0], want)
		if err != nil {
			return err // such as zlimit.ErrLevelChanged
		}
		fmt.Println(after.Level, "version", after.Version)
		fmt.Println(level.Source(), level.Compare(zlimit.Level{}), before[0].Config.IsZero(), after.Config.Same(&want.Config))
		return run.Record(ctx, zlimit.ManagedSet{Levels: []zlimit.Level{level}, LastApplied: time.Now()})
	})
	set, _ := limiter.Managed.Set(ctx)
	fmt.Println("managed:", set.Levels, set.Has(&want), err)
	// Output:
	// true true
	// resource gpt-4 version 1
	// resource 1 true true
	// managed: [resource gpt-4] true <nil>
}
