package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A program that keeps limits as code: it takes the lock, replaces what it has seen, and records what it manages.
func ExampleManagedService() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	managed := limiter.Managed

	lock, err := managed.Lock(ctx, time.Minute)
	if err != nil {
		panic(err) // a *zlimit.LockedError while another program is at it
	}
	var locked *zlimit.LockedError
	if _, err := managed.Lock(ctx, time.Minute); errors.As(err, &locked) {
		fmt.Println(errors.Is(locked.Unwrap(), zlimit.ErrLocked), locked.Lock.ExpiresAt.Equal(lock.ExpiresAt))
	}
	level := zlimit.ConfigLevel{Resource: "gpt-4"}
	before, err := managed.Read(ctx, level)
	if err != nil {
		panic(err)
	}
	want := zlimit.StoredConfig{Level: level, Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
	after, err := managed.Replace(ctx, lock, before[0], want)
	fmt.Println(after.Level, "version", after.Version, err)
	lock, err = managed.Renew(ctx, lock, time.Minute) // now and then, before it expires
	fmt.Println("renewed:", err)
	err = managed.Record(ctx, lock, zlimit.ManagedSet{Levels: []zlimit.ConfigLevel{level}, LastApplied: time.Now()})
	fmt.Println("recorded:", err)
	fmt.Println("unlocked:", managed.Unlock(ctx, lock))

	set, err := managed.Set(ctx)
	fmt.Println("managed:", set.Levels, err)
	fmt.Println(level.Source(), level.Compare(zlimit.ConfigLevel{}), before[0].IsZero(), after.Same(&want))
	// Output:
	// true true
	// resource gpt-4 version 1 <nil>
	// renewed: <nil>
	// recorded: <nil>
	// unlocked: <nil>
	// managed: [resource gpt-4] <nil>
	// resource 1 true true
}
