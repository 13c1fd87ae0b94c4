package client

import "time"

// A Charge is a part of an [AcquireRequest]: amounts of limits of an entity and a resource, in tokens.
type Charge struct {
	Entity   string           `json:"entity"`
	Resource string           `json:"resource"`
	Consume  map[string]int64 `json:"consume"`
}

// An AcquireRequest asks for tokens.
type AcquireRequest struct {
	Entity   string           `json:"entity"`
	Resource string           `json:"resource"`
	Consume  map[string]int64 `json:"consume"`
	// Also are up to 7 more charges, admitted together with the first one: all of them or none.
	Also []Charge `json:"also,omitempty"`
	// MaxWaitMS is how long the server may wait for the tokens, in milliseconds, up to 60,000. At 0 it does not wait.
	MaxWaitMS int64 `json:"max_wait_ms,omitempty"`
	// Priority is of the limits' floors and shares.
	Priority string `json:"priority,omitempty"`
	// Lease is how long the tokens can be settled, such as "10m", from "1s" to "24h". Without it the charge stands.
	Lease string `json:"lease,omitempty"`
}

// An Acquired is the reply to a request that was admitted.
type Acquired struct {
	// Lease settles the tokens, see [Client.Settle]; "" without [AcquireRequest.Lease]. It is a secret: keep it out of logs.
	Lease     string    `json:"lease,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // until when the lease can be settled
	LastUntil time.Time `json:"last_until,omitzero"` // the latest expiry that Extend gives it
	// Fence is the fencing number of the slots that the lease holds; 0 without slots. Of two leases, the later one has the greater number.
	Fence int64 `json:"fence,omitempty"`
	// Degraded says that the store did not answer, and that the failure policy admitted the request uncounted.
	Degraded bool `json:"degraded"`
	// Repeated says that an earlier call with the idempotency key was charged, and that this one was not.
	Repeated bool `json:"repeated"`
	// Limits are where the limits stand afterwards, as far as the server knows; empty for a repeated call.
	Limits []Limit `json:"limits"`
}

// A Limit is where a limit of a request stands.
type Limit struct {
	Policy    string `json:"policy"`             // the limit, with "parent:" before one of a parent
	Entity    string `json:"entity,omitempty"`   // whose limit it is; left out for an entity that the caller may not name
	Resource  string `json:"resource,omitempty"` // of which resource it is
	Capacity  int64  `json:"capacity"`
	Carried   int64  `json:"carried,omitempty"` // into the present period of a quota, beside its capacity
	Granted   int64  `json:"granted,omitempty"` // by top-ups with an end, beside its capacity
	Available int64  `json:"available"`         // rounded down; negative in debt
	Requested int64  `json:"requested"`
	Exceeded  bool   `json:"exceeded"`
	// RetryAfter is the number of seconds after which the amount is there if nothing else happens, rounded up.
	RetryAfter int64     `json:"retry_after_seconds,omitempty"`
	ResetsAt   time.Time `json:"resets_at,omitzero"` // of a quota
}

// A SettleRequest says what a lease has consumed. Without Actual and Adjust the lease keeps what it has taken.
type SettleRequest struct {
	Lease string `json:"lease"`
	Settlement
	// Also are the settlements of the further charges of the lease, in their order.
	Also []Settlement `json:"also,omitempty"`
}

// A Settlement is what one charge has consumed: Actual in all, or Adjust beside what was taken. Limits that are left out keep what was
// taken.
type Settlement struct {
	Actual map[string]int64 `json:"actual,omitempty"`
	Adjust map[string]int64 `json:"adjust,omitempty"`
}

// A Settled is the reply to a settlement: what each charge of the lease has consumed in all.
type Settled struct {
	Settled []Charge `json:"settled"`
}

// An Extended is a lease that can be settled later.
type Extended struct {
	Lease     string    `json:"lease"`
	ExpiresAt time.Time `json:"expires_at"`
	LastUntil time.Time `json:"last_until"`
}

// A Problem is the body of a reply that is no success, as RFC 9457 has it. It is an error.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code says what is wrong to programs, such as "exceeded", "never_fits" or "settled".
	Code             string   `json:"code"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// Limits are all limits of a request that was rejected, the strictest first.
	Limits []Limit `json:"limits,omitempty"`
	// Outcome says what a request with status 429 or 503 has consumed: "none", or "unknown".
	Outcome string `json:"outcome,omitempty"`
	// Errors are the fields of a request that break a rule.
	Errors []FieldError `json:"errors,omitempty"`
	// Amounts are those with which the lease was settled before.
	Amounts map[string]int64 `json:"amounts,omitempty"`
	// RetryAfter is the value of the field Retry-After, in seconds; 0 where it is missing.
	RetryAfter int64 `json:"-"`
}

// A FieldError is a field of a request that breaks a rule.
type FieldError struct {
	Field  string `json:"field"`
	Value  string `json:"value"` // cut where it is long, and empty for a secret
	Reason string `json:"reason"`
}

// Error returns the title and the detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return "zlimit: " + p.Title
	}
	return "zlimit: " + p.Title + ": " + p.Detail
}
