package zlimit

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// A Limit is a token bucket. It holds at most Capacity tokens, and is refilled with RefillAmount of them every
// RefillPeriod, continuously. A bucket starts full.
//
// A quota is a limit that does not refill but resets at calendar times: see [Monthly] and [Cron]. A reset forgives the debt, and discards the
// rest unless [Limit.CarryOver] keeps some of it. It has Resets and Zone in place of a refill. A session quota resets a fixed time after
// its first use: see [Session].
//
// Slots bound how many leases are held concurrently: see [Slots]. Such a limit has Term in place of a refill.
type Limit struct {
	// Name identifies the limit among the limits of a resource, such as "rpm" or "tpm".
	Name string
	// Capacity is the most that one request can take, in tokens.
	Capacity int64
	// RefillAmount is what is refilled per RefillPeriod, in tokens.
	RefillAmount int64
	// RefillPeriod is a whole number of milliseconds; of seconds in a limit that is stored.
	RefillPeriod time.Duration
	// Resets are the times at which a quota resets, "" for a limit that refills. They are cron patterns with semicolons
	// between them, such as "0 0 1 * *" for midnight on the first day of each month.
	Resets string
	// Zone is the time zone of Resets and Windows as the IANA database names it, such as "Europe/Berlin".
	Zone string
	// Windows are the times at which other parameters apply, "" for none: see [Limit.When].
	Windows string
	// Floors are what requests leave to others by their priority, and what is guaranteed to them, "" for nothing: see [Limit.Floor] and
	// [Limit.Share].
	Floors string
	// Term decides when the slots of a dead process are free again: within two terms. It is 0 for a limit of tokens:
	// see [Slots]. It is a whole number of seconds.
	Term time.Duration
	// Session is how long sessions of a session quota last, in whole seconds; 0 for another limit: see [Session].
	Session time.Duration
	// Carry is the most of what is left that a quota with Resets carries into its next period, in tokens; 0 for nothing: see [Limit.CarryOver].
	Carry int64
	// Mode says what the limit does with requests for which it has no tokens: see [Limit.Soft] and [Limit.Shadow].
	Mode LimitMode
}

// A LimitMode says what a limit does with requests for which it has no tokens.
type LimitMode string

// The modes of limits.
const (
	ModeEnforced LimitMode = ""       // it rejects them
	ModeSoft     LimitMode = "soft"   // it admits them, and goes into debt
	ModeShadow   LimitMode = "shadow" // it admits them, and counts the ones that it would reject
)

// Soft returns the limit as one that rejects nothing. Requests beyond it leave a debt, which [Status.Available] shows
// and the refill pays off. No request waits for a soft limit. A soft limit must be stored, so it cannot be in
// [Request.Limits].
//
// The first stored limit of this kind, or of [Limit.Shadow], raises the version that the table requires of its clients
// to 0.17.0, see [LimitService]. zae-limiter has the same limits.
func (l Limit) Soft() Limit {
	l.Mode = ModeSoft
	return l
}

// Shadow returns the limit as one that rejects nothing, and predicts what it would reject. It is evaluated as if it
// were enforced. A request that it would reject takes nothing from it, so the next prediction is right, too.
// [Status.Foreseen] marks such a request, and [Status.Refusals] counts them. No request waits for a shadow limit. To
// zae-limiter it is a soft limit. It must be stored, so it cannot be in [Request.Limits].
//
// A request within the limit costs the same as with any limit. A request beyond it costs a rejection and its write. As
// with an enforced limit, the rejection costs a read of a shard, or nothing shortly after another rejection.
func (l Limit) Shadow() Limit {
	l.Mode = ModeShadow
	return l
}

// A LimitOption changes a limit from what its constructor makes it.
type LimitOption func(*Limit)

// Burst sets the capacity of a limit, in tokens, without changing its rate. By default the capacity is the refill of a
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

// PerWeek returns a quota of an amount of tokens a week, from midnight before Monday in UTC: see [Limit.In] for other zones.
func PerWeek(name string, amount int64, opts ...LimitOption) Limit {
	return quotaOf(Weekly(name, amount, "UTC"), opts)
}

// PerMonth returns a quota of an amount of tokens a month, from midnight before its first day in UTC: see [Limit.In] for other zones.
func PerMonth(name string, amount int64, opts ...LimitOption) Limit {
	return quotaOf(Monthly(name, amount, "UTC"), opts)
}

func quotaOf(l Limit, opts []LimitOption) Limit {
	for _, opt := range opts {
		opt(&l)
	}
	return l
}

// USD returns a limit in money: its tokens are billionths of a dollar. USD("budget", 25, PerMonth) is 25 dollars a calendar month in UTC.
// The last argument may be any function that makes a limit from a name and an amount, such as [PerDay] or [PerMonth]. A bucket holds up to
// 9,223,372 dollars. An amount above that, or below one dollar, makes an invalid limit, which is rejected where it is used. All other
// amounts of the limit are in billionths of a dollar, the unit of [github.com/zlimit/zlimit-go/price.NanoDollars].
//
// [github.com/zlimit/zlimit-go/llm.WithPrices] charges LLM calls to it. As text, amounts are in dollars if the limit is named "usd",
// as in usd=25/month@UTC, or if they have a dollar sign, as in budget=$2.50/month@UTC.
func USD(name string, dollars int64, per func(name string, amount int64, opts ...LimitOption) Limit, opts ...LimitOption) Limit {
	amount := int64(math.MaxInt64)
	if dollars <= math.MaxInt64/grammar.Nanos {
		amount = max(dollars, 0) * grammar.Nanos
	}
	return per(name, amount, opts...)
}

// Daily returns a quota of an amount of tokens a day, from midnight in a time zone, such as "Europe/Berlin" or "UTC".
func Daily(name string, amount int64, zone string) Limit {
	return Cron(name, amount, calendar.Daily(0, 0), zone)
}

// Weekly returns a quota of an amount of tokens a week, from midnight before Monday in a time zone.
func Weekly(name string, amount int64, zone string) Limit {
	return Cron(name, amount, calendar.Weekly(1, 0, 0), zone)
}

// Monthly returns a quota of an amount of tokens a month, from midnight before its first day in a time zone.
func Monthly(name string, amount int64, zone string) Limit {
	return Cron(name, amount, calendar.Monthly(1, 0, 0), zone)
}

// Cron returns a quota of an amount of tokens that resets whenever one of the patterns begins. A pattern begins with a
// matching minute of local time, after a minute that does not match. A pattern has the five fields minute, hour, day of
// month, month and day of week. "0 8 * * mon-fri" is eight o'clock on working days, and semicolons separate several.
//
// When clocks change, a skipped time counts at the skip, and a time that occurs twice counts once. A quota must be
// stored, so it cannot be in [Request.Limits].
func Cron(name string, amount int64, patterns, zone string) Limit {
	return Limit{Name: name, Capacity: amount, Resets: patterns, Zone: zone}
}

// CarryOver returns a quota with rollover: at a reset, what is left of the period is carried into the next one, up to this many tokens. The
// next period then has its amount plus what was carried, which [Status.Carried] shows. A debt is forgiven, and not subtracted from the next
// period. A period without requests carries its whole amount, but the time before the first request carries nothing. With 25 dollars a
// month, a bucket that may carry 50 holds at most 75:
//
//	USD("usd", 25, PerMonth).CarryOver(50 * int64(price.Dollar)) // usd=25/month@UTC carry 50
//
// A quota carries at most a hundred times its amount, and has neither windows nor guaranteed shares. Its bucket never expires, and is not
// split into shards, so it takes at most a thousand writes a second. A bucket that was already split carries nothing until its shards are
// merged. The first stored limit of this kind raises the version required of clients to 0.17.1, see [LimitService]. zae-limiter treats it
// as a quota that carries nothing.
func (l Limit) CarryOver(tokens int64) Limit {
	l.Carry = tokens
	return l
}

// DefaultTerm is the term of slots without the option [Term].
const DefaultTerm = 30 * time.Second

// Term sets the term of slots.
func Term(d time.Duration) LimitOption { return func(l *Limit) { l.Term = d } }

// Slots returns a limit on how many slots are held concurrently, across all processes. A request takes one or more of
// them by the name of the limit, together with tokens of other limits. They are held until the lease is committed or
// rolled back. A limit of one slot is a lock.
//
// The limiter renews slots in the background, with one write per term and bucket. Slots of a process that dies are free
// again within two terms. A process that cannot reach the store loses its slots within two terms: [Lease.Lost] is
// closed before others may get them. A process that is suspended meanwhile notices the loss too late. Use [Lease.Fence]
// to reject its late operations.
//
// The term is [DefaultTerm] unless [Term] sets another one, from a second to a day. All clocks must be right to a tenth
// of it. On DynamoDB the limiter learns the time from the dates of replies. If that is not exact enough for the term,
// requests fail with [ErrClock].
func Slots(name string, slots int64, opts ...LimitOption) Limit {
	l := Limit{Name: name, Capacity: slots, Term: DefaultTerm}
	for _, opt := range opts {
		opt(&l)
	}
	return l
}

// Session returns a quota of an amount of tokens per session. The length is in whole seconds. A session begins with the
// first request that takes from the quota. When it ends, the quota resets, and the next request begins another session.
// A rejected request begins none. Tokens that leases return after their session are subtracted from the usage, but not
// added to a balance. [Status.ResetsAt] is the end of the open session.
//
// The first stored limit of this kind raises the version that the table requires of clients to 0.15.0, see
// [LimitService]. A session quota must be stored, so it cannot be in [Request.Limits].
func Session(name string, amount int64, length time.Duration) Limit {
	return Limit{Name: name, Capacity: amount, Session: length}
}

// Prepaid returns a limit that never refills. It starts with an amount of tokens, such as the credit of a new key, and only top-ups add
// tokens: [LimitService.TopUp] without an end adds to the balance permanently, even beyond the amount. USD("usd", 5, Prepaid) is five
// dollars. A request that it rejects has [Never] as its RetryAfter, until the limit is topped up. [Status.ResetsAt] is the zero time. A
// bucket with such a balance never expires, and [LimitService.Reset] restores the first amount.
//
// The limit has Session set to a billion seconds: to zae-limiter, and to earlier clients, it is a session of 31 years. It must be stored,
// so it cannot be in [Request.Limits].
func Prepaid(name string, amount int64, opts ...LimitOption) Limit {
	return quotaOf(Session(name, amount, grammar.MaxSession), opts)
}

// isPrepaid reports whether the limit never refills.
func (l *Limit) isPrepaid() bool { return l.Session == grammar.MaxSession }

// When returns the limit with one more window, in which other parameters apply. The pattern has the five fields minute,
// hour, day of month, month and day of week, in cron syntax. The window is every matching minute. "x2" is twice the
// capacity and refill, from "x0.001" to "x1000". "to 20:10/30s" is a capacity of 20 tokens, refilled by 10 per 30
// seconds. "to 20/30s" is short for a refill of 20, and omitted parts do not change: "to 20:", "to :10".
//
// The first window that matches the minute applies. At the end of a window with a higher capacity, tokens above the new
// capacity are lost. The windows of a limit are in its time zone, which is UTC unless [Limit.In] sets another one. If a
// clock change skips a minute, it skips the windows within it. A limit with windows must be stored, so it cannot be in
// [Request.Limits].
func (l Limit) When(pattern, change string) Limit {
	if l.Windows != "" {
		l.Windows += "; "
	}
	l.Windows += pattern + " " + change
	l.Zone = cmp.Or(l.Zone, "UTC")
	return l
}

// In returns the limit with the time zone of its windows or its resets, as the IANA database names it, such as "Europe/Berlin".
func (l Limit) In(zone string) Limit {
	l.Zone = zone
	return l
}

// Floor returns the limit with a further floor: requests of a priority leave this percentage of the capacity, from 1 to
// 99, to others. They are admitted if the balance holds the floor in addition to their amounts. Requests without a
// priority, or with a priority that has no floor, leave nothing: see [Request.Priority].
//
// Choose a floor above the bursts of the others. A floor reserves tokens, but guarantees no rate: while others use the
// whole refill, requests with the floor get nothing.
//
// In a limit with guaranteed shares, a floor is a percentage of the rest of the limit, see [Limit.Share]:
//
//	PerMinute("calls", 1000).Floor("batch", 10)                    // leaves 100 to others
//	PerMinute("calls", 1000).Floor("batch", 10).Share("batch", 40) // leaves 60 of the rest, which has 600
func (l Limit) Floor(priority string, percent int) Limit {
	return l.withFloor(priority, percent, 0)
}

// Share returns the limit with a further guaranteed share: this percentage of the limit, from 1 to 99, is reserved for requests of a
// priority. Shares are part of the capacity and of the refill, so all requests together still get what the limit allows. A request of the
// priority takes its whole amount from the share if that has it. Otherwise it takes the whole amount from the rest of the limit, above the
// [Limit.Floor] of its priority, which is part of the rest.
//
// While such requests arrive, they are admitted at least at that part of the rate. Tokens of the share that they do not use are not
// available to others. The share should be at least as large as the largest request that should use it: a larger one takes from the rest.
// Corrections of a lease go to the part from which its tokens came.
//
// A share that is added to a limit starts empty. Session quotas, soft and shadow limits cannot have shares. Windows of a limit also
// multiply its shares. The first stored limit with a share raises the version required of clients to 0.17.1, see [LimitService].
func (l Limit) Share(priority string, percent int) Limit {
	return l.withFloor(priority, 0, percent)
}

func (l Limit) withFloor(priority string, floor, share int) Limit {
	l.Floors = grammar.AddFloor(l.Floors, priority, floor, share)
	if sorted, err := grammar.ParseFloors(l.Floors); err == nil { // else the validation reports it
		l.Floors = sorted
	}
	return l
}

// most returns the most that the limit holds at some time, in tokens.
func (l *Limit) most() int64 {
	most := l.Capacity + l.Carry
	if l.Windows == "" {
		return most
	}
	p := l.params()
	for _, c := range p.Windows.Changes() {
		capacity, _, _ := c.Of(p.Capacity, p.RefillAmount, p.RefillPeriod)
		most = max(most, capacity/millis)
	}
	return most
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
	// Resource is the thing consumed, such as a model or an endpoint. It may be empty if Consume has a resource.
	Resource string `json:"resource"`
	// Consume is how much of each limit is consumed, in tokens; no amount may be negative. Limits that are not named are not checked. An
	// amount of 0 takes nothing, but lets the lease settle the limit. At least one limit must be named.
	Consume Consumption `json:"consume"`
	// Limits, if any, replace the stored limits for this call. The bucket takes on their parameters; its other limits
	// do not change. Processes that share a bucket should use the same limits. Otherwise the refill of the highest rate
	// is available to all of them, and the lower limits bind no process.
	Limits []Limit `json:"limits"`
	// OnUnavailable says what happens while the store is unavailable. The zero value leaves it to the stored limits.
	OnUnavailable FailurePolicy `json:"on_unavailable"`
	// Priority says which part of limits the request leaves to others, if they have a floor for it: see [Limit.Floor]. Otherwise it has no
	// effect. It follows the rules of limit names, such as "batch", or is empty.
	Priority string `json:"priority,omitempty"`
	// ID makes a call of [RateLimiter.Acquire] repeatable: of several calls with the same ID and entity, one consumes the amounts, and each
	// returns a lease of them. An admitted request is remembered for at least 24 hours. A rejection or an outage is not remembered: the
	// next call decides again. Another request with the same ID is a [*ReusedIDError]. "" stands for a request that is not remembered.
	ID string `json:"id,omitempty"`
}

// A FailurePolicy says what happens to requests while the store is unavailable. Only an outage follows it: denied
// permission, a missing table, a cancelled context and bad input are errors under every policy.
type FailurePolicy uint8

// The failure policies.
const (
	// PolicyInherit leaves the decision to the next place. The request comes first. The stored policies follow, in the order of
	// [Source]: entity and resource, entity, resource, system. [WithFailurePolicy] is next, and PolicyBlock is last.
	PolicyInherit FailurePolicy = iota
	// PolicyBlock fails requests with an [*UnavailableError].
	PolicyBlock
	// PolicyAllow admits requests uncounted, with a lease that says so ([Lease.Degraded]).
	PolicyAllow
)

var policyNames = [...]string{PolicyInherit: "inherit", PolicyBlock: "block", PolicyAllow: "allow"}

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
	return PolicyInherit, &ValidationError{Field: "failure policy", Value: name, Reason: "must be inherit, block or allow"}
}
