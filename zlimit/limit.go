package zlimit

import (
	"fmt"
	"time"
)

// A Limit is a token bucket. It holds at most Capacity tokens, and RefillAmount of them flow in every RefillPeriod,
// evenly rather than all at once. A bucket starts full.
type Limit struct {
	// Name tells the limits of a resource apart, such as "rpm" or "tpm".
	Name string
	// Capacity is the most that can be taken at once, in tokens.
	Capacity int64
	// RefillAmount is what flows in per RefillPeriod, in tokens.
	RefillAmount int64
	// RefillPeriod is a whole number of milliseconds; of seconds in a limit that is stored.
	RefillPeriod time.Duration
}

// A LimitOption changes a limit from what its constructor makes it.
type LimitOption func(*Limit)

// Burst sets the capacity of a limit, in tokens, and leaves its rate. Without it the capacity is what flows in per
// period.
func Burst(tokens int64) LimitOption { return func(l *Limit) { l.Capacity = tokens } }

// PerSecond returns a limit of rate tokens a second.
func PerSecond(name string, rate int64, opts ...LimitOption) Limit {
	return per(time.Second, name, rate, opts)
}

// PerMinute returns a limit of rate tokens a minute.
func PerMinute(name string, rate int64, opts ...LimitOption) Limit {
	return per(time.Minute, name, rate, opts)
}

// PerHour returns a limit of rate tokens an hour.
func PerHour(name string, rate int64, opts ...LimitOption) Limit {
	return per(time.Hour, name, rate, opts)
}

// PerDay returns a limit of rate tokens in 24 hours.
func PerDay(name string, rate int64, opts ...LimitOption) Limit {
	return per(24*time.Hour, name, rate, opts)
}

func per(period time.Duration, name string, rate int64, opts []LimitOption) Limit {
	l := Limit{Name: name, Capacity: rate, RefillAmount: rate, RefillPeriod: period}
	for _, opt := range opts {
		opt(&l)
	}
	return l
}

// A Request asks to consume tokens of one resource on behalf of one entity.
type Request struct {
	// Entity is who consumes, such as a user, a project or an API key.
	Entity string `json:"entity"`
	// Resource is what is consumed, such as a model or an endpoint. It may be empty where Consume says it.
	Resource string `json:"resource"`
	// Consume is how much of each limit is consumed, in tokens; none may be negative. Limits that are not named are not
	// asked. An amount of 0 asks nothing, and leaves the limit to be settled by the lease. One limit must be named at least.
	Consume Consumption `json:"consume"`
	// Limits, if any, replace the stored limits for this call. The bucket takes on their parameters; other limits that it
	// has stay as they are.
	Limits []Limit `json:"limits"`
	// OnUnavailable says what happens while the store is unavailable. The zero value leaves it to the stored limits.
	OnUnavailable FailurePolicy `json:"on_unavailable"`
}

// A FailurePolicy says what happens to requests while the store is unavailable. Only an outage follows it: denied
// permission, a missing table, a cancelled context and bad input are errors under every policy.
type FailurePolicy uint8

// The failure policies.
const (
	// Inherit leaves the decision to the next place. The request comes first. The stored policies follow, in the order of
	// [Source]: entity and resource, entity, resource, system. [WithFailurePolicy] is next, and Block is last.
	Inherit FailurePolicy = iota
	// Block fails requests with an [*UnavailableError].
	Block
	// Allow admits requests uncounted, with a lease that says so ([Lease.Degraded]).
	Allow
)

var policyNames = [...]string{Inherit: "inherit", Block: "block", Allow: "allow"}

// String returns the name of the policy, as it is stored.
func (p FailurePolicy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("FailurePolicy(%d)", uint8(p))
}

// MarshalText returns the name of the policy, for configuration in JSON or YAML and [flag.TextVar]. It returns a
// [*ValidationError] for a policy that does not exist.
func (p FailurePolicy) MarshalText() ([]byte, error) {
	_, err := ParseFailurePolicy(p.String())
	return []byte(p.String()), err
}

// UnmarshalText sets the policy to the one of that name, like [ParseFailurePolicy]. It leaves the policy as it is when
// the name is unknown.
func (p *FailurePolicy) UnmarshalText(name []byte) error {
	parsed, err := ParseFailurePolicy(string(name))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}

// ParseFailurePolicy returns the policy of that name: "inherit", "block" or "allow". Any other name is a
// [*ValidationError].
func ParseFailurePolicy(name string) (FailurePolicy, error) {
	for p, n := range policyNames {
		if n == name {
			return FailurePolicy(p), nil
		}
	}
	return Inherit, &ValidationError{Field: "failure policy", Value: name, Reason: "must be inherit, block or allow"}
}
