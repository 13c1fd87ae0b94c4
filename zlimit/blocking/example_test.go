package blocking_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/blocking"
)

func Example() {
	limiter, _ := blocking.Open("memory:")
	defer limiter.Close()
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 10_000)}
	if err := limiter.Limits.Set(zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}); err != nil {
		panic(err)
	}

	handle := func() error {
		lease, err := limiter.Acquire(zlimit.Request{
			Entity: "alice", Resource: "gpt-4",
			Consume: zlimit.Amounts{"rpm": 1, "tpm": 500}, // an estimate
		})
		if err != nil {
			return err
		}
		defer lease.Close()
		return lease.Adjust(zlimit.Amounts{"tpm": 120}) // the answer was longer
	}
	if err := handle(); err != nil {
		panic(err)
	}

	statuses, err := limiter.Available(zlimit.AvailableQuery{Entity: "alice", Resource: "gpt-4"})
	if err != nil {
		panic(err)
	}
	for _, s := range statuses {
		fmt.Println(s.Limit.Name, "has less than its capacity:", s.Available < s.Limit.Capacity)
	}
	// Output:
	// rpm has less than its capacity: true
	// tpm has less than its capacity: true
}

func ExampleRateLimiter_Do() {
	limiter, _ := blocking.Open("memory:")
	defer limiter.Close()
	request := zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 500},
		Limits: []zlimit.Limit{zlimit.PerDay("tpm", 600)},
	}
	for range 2 {
		err := limiter.Do(request, func(lease *blocking.Lease) error {
			return lease.Release(zlimit.Amounts{"tpm": 100})
		})
		var exceeded *zlimit.ExceededError
		if errors.As(err, &exceeded) {
			s := exceeded.Violations()[0]
			fmt.Println("rejected: asked for", s.Requested, "of", s.Available)
		} else {
			fmt.Println("admitted:", err == nil)
		}
	}
	// Output:
	// admitted: true
	// rejected: asked for 500 of 200
}

func ExampleRateLimiter_Within() {
	limiter, _ := blocking.Open("memory:")
	defer limiter.Close()

	patient := limiter.Within(10 * time.Minute) // the same limiter
	if _, err := patient.Entities.Create(zlimit.Entity{ID: "team"}); err != nil {
		panic(err)
	}
	team, err := limiter.Entities.Get("team")
	fmt.Println(team.ID, err)
	// Output: team <nil>
}

func ExampleEntityService_ChildrenSeq() {
	limiter, _ := blocking.Open("memory:")
	defer limiter.Close()
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "alice", ParentID: "team"}, {ID: "bob", ParentID: "team"}} {
		if _, err := limiter.Entities.Create(e); err != nil {
			panic(err)
		}
	}

	for child, err := range limiter.Entities.ChildrenSeq("team") {
		if err != nil {
			panic(err)
		}
		fmt.Println(child.ID)
	}
	children, err := limiter.Entities.Children("team") // all at once
	fmt.Println(len(children), err)
	// Output:
	// alice
	// bob
	// 2 <nil>
}
