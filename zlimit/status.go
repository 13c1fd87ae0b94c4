package zlimit

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/protocol"
)

// A Status is the state of one limit, with the request's amount.
type Status struct {
	Entity   string
	Resource string
	// Ancestor is how far above the request's entity the limit is: 0 of its own, 1 of its parent, 2 of the parent's parent.
	Ancestor int
	// Wider counts resources: 0 for a limit of the request's resource, 1 for the one around that, and 2 for the next.
	Wider int
	Limit Limit
	// Window is the limit with the parameters of the current window, nil if its own parameters apply: see [Status.Now].
	Window *Limit
	// Available is the balance in tokens, rounded down; negative in debt.
	Available int64
	// Requested is the amount of the request, in tokens.
	Requested int64
	// Kept is the part that the request's priority leaves to others, in tokens, rounded up. The request needs this much
	// in addition to its amount.
	Kept int64
	// Share is the balance of the share that is guaranteed to the request's priority, in tokens, rounded down: see
	// [Limit.Share]. A request is admitted if the share has its amount, or if the limit has it in addition to Kept.
	Share int64
	// Exceeded says that the request is for more than is available, or leaves less than Kept.
	Exceeded bool
	// ResetsAt is when a quota resets, in UTC. It is the zero time for a limit that refills, and for a closed
	// session quota: the first request begins a session.
	ResetsAt time.Time
	// Granted is the amount that operators have granted beyond the capacity, in tokens, rounded down: see [LimitService.TopUp]. GrantEnds
	// is when it ends, in UTC; the zero time if it ends with the period of a quota.
	Granted   int64
	GrantEnds time.Time
	// AfterGrant is the balance of a budget at GrantEnds if nothing is used until then and it does not reset before, in tokens, rounded
	// down.
	AfterGrant int64
	// Carried is what a quota has carried into its period beyond the capacity, in tokens, rounded down: see [Limit.CarryOver].
	Carried int64
	// RetryAfter is the time after which the amount is available if nothing else happens. It is 0 if it is available now, and [Never] if
	// the request asks for more than the limit can hold or is found to get, or for more than is left of a prepaid limit. The longest
	// RetryAfter of a request's limits is the time after which they all have enough. For slots it is a second, since no process knows when a
	// holder is done.
	RetryAfter time.Duration
	// Queue is the time in which the refill pays the debt if nothing else happens. A request that waits gets its tokens
	// that much later than from an empty bucket. It is 0 without a debt.
	Queue time.Duration
	// Foreseen says that a shadow limit would have refused the request, or would refuse it now. Refusals is the number of requests that it
	// would have refused since the bucket was made. See [Limit.Shadow]. Exceeded is false, and RetryAfter 0, for soft and shadow limits.
	Foreseen bool
	Refusals int64
}

// Never is the wait of a request for more than a limit can hold, or for more than is left of a prepaid limit, or for which no time is found
// at which its limits have enough, see [ExceededError.RetryAfter]. It is the longest duration,
// so a loop that sleeps for it does not spin. All other waits are at least a second shorter.
const Never time.Duration = math.MaxInt64

// longestWait is the longest wait but [Never]. It can be rounded up to a second.
const longestWait = Never - time.Second

// Level names whose limit it is: "entity", "parent", "parent2" of the parent's parent, and so on.
func (s Status) Level() string { return levelName(s.Ancestor) }

// levelName names an entity, or one so far above it.
func levelName(ancestor int) string {
	switch ancestor {
	case 0:
		return "entity"
	case 1:
		return "parent"
	default:
		return "parent" + strconv.Itoa(ancestor)
	}
}

// Now returns the limit with its current parameters: from its window, or its own.
func (s Status) Now() Limit {
	if s.Window != nil {
		return *s.Window
	}
	return s.Limit
}

// Possible reports whether the request can succeed at some time. Its amount, with the part that it leaves to others,
// must fit the capacity of the limit or of one of its windows, and RetryAfter is not [Never]. A prepaid limit can be topped up to any amount, see
// [Status.NeedsTopUp]. Soft and shadow limits refuse none.
func (s Status) Possible() bool {
	return s.Limit.Mode != ModeEnforced || s.Limit.isPrepaid() || s.RetryAfter != Never && s.Requested <= s.Limit.most()+s.Granted
}

// NeedsTopUp reports whether the limit is prepaid, and has enough for the request only after a top-up: RetryAfter is
// [Never], though the request is [Status.Possible].
func (s Status) NeedsTopUp() bool { return s.RetryAfter == Never && s.Limit.isPrepaid() }

// holds returns the most that the limit can hold in its period, with what was carried into it and what was granted, in tokens.
func (s *Status) holds() int64 { return s.Now().Capacity + s.Carried + s.Granted }

// Held returns how many slots are held, over all processes, where the limit is of [Slots]; 0 for a limit of tokens. After
// the number was lowered there may be more than the capacity.
func (s Status) Held() int64 {
	if s.Limit.Term == 0 {
		return 0
	}
	return s.Limit.Capacity - s.Available
}

// MarshalJSON returns the status as an object with durations in seconds, and null for [Never].
func (s Status) MarshalJSON() ([]byte, error) {
	type body struct {
		Entity            string      `json:"entity"`
		Resource          string      `json:"resource"`
		Ancestor          int         `json:"ancestor,omitzero"`
		Wider             int         `json:"wider,omitzero"`
		Limit             string      `json:"limit"`
		Capacity          int64       `json:"capacity"`
		RefillAmount      int64       `json:"refill_amount"`
		RefillPeriod      secondsJSON `json:"refill_period_seconds"`
		Available         int64       `json:"available"`
		Requested         int64       `json:"requested"`
		Kept              int64       `json:"kept,omitempty"`
		Share             int64       `json:"share,omitempty"`
		Exceeded          bool        `json:"exceeded"`
		RetryAfterSeconds secondsJSON `json:"retry_after_seconds"`
		Resets            string      `json:"resets,omitempty"`
		Windows           string      `json:"windows,omitempty"`
		Term              secondsJSON `json:"term_seconds,omitempty"`
		Held              int64       `json:"held,omitempty"`
		Zone              string      `json:"zone,omitempty"`
		ResetsAt          time.Time   `json:"resets_at,omitzero"`
		Window            *Limit      `json:"window,omitempty"`
		QueueSeconds      secondsJSON `json:"queue_seconds,omitempty"`
		Session           secondsJSON `json:"session_seconds,omitempty"`
		Granted           int64       `json:"granted,omitempty"`
		GrantEnds         time.Time   `json:"grant_ends,omitzero"`
		AfterGrant        int64       `json:"after_grant,omitempty"`
		Carry             int64       `json:"carry,omitempty"`
		Carried           int64       `json:"carried,omitempty"`
		Mode              LimitMode   `json:"mode,omitempty"`
		Foreseen          bool        `json:"foreseen,omitempty"`
		Refusals          int64       `json:"refusals,omitempty"`
	}
	return json.Marshal(body{
		s.Entity, s.Resource, s.Ancestor, s.Wider, s.Limit.Name, s.Limit.Capacity, s.Limit.RefillAmount, secondsJSON(s.Limit.RefillPeriod),
		s.Available, s.Requested, s.Kept, s.Share, s.Exceeded, secondsJSON(s.RetryAfter),
		s.Limit.Resets, s.Limit.Windows, secondsJSON(s.Limit.Term), s.Held(), s.Limit.Zone, s.ResetsAt, s.Window, secondsJSON(s.Queue), secondsJSON(s.Limit.Session),
		s.Granted, s.GrantEnds, s.AfterGrant, s.Limit.Carry, s.Carried, s.Limit.Mode, s.Foreseen, s.Refusals,
	})
}

// Statuses are the statuses of the limits of one resource, in the order of their names, or of their strictness in an
// [ExceededError].
type Statuses []Status

// Limit returns the status of a limit by its name; false when there is none.
func (s Statuses) Limit(name string) (Status, bool) {
	for _, status := range s {
		if status.Limit.Name == name {
			return status, true
		}
	}
	return Status{}, false
}

// nextPeriod returns how long the period of a quota is that begins when it resets; 0 for a limit that refills, and for a time that is
// not known.
func (s *Status) nextPeriod() time.Duration {
	if s.ResetsAt.IsZero() || s.Limit.Session > 0 {
		return s.Limit.Session
	}
	times, err := calendar.Parse(s.Limit.Resets, s.Limit.Zone)
	if err != nil {
		return 0
	}
	at := s.ResetsAt.UnixMilli()
	return min(duration(times.Next(at)-at), longestWait)
}

// retryAfter returns the longest wait.
func (s Statuses) retryAfter() time.Duration {
	var wait time.Duration
	for _, status := range s {
		wait = max(wait, status.RetryAfter)
	}
	return wait
}

// statusesOfLevels returns the statuses of the levels of a request, one after another.
func statusesOfLevels(levels []protocol.LevelStatus) (statuses Statuses) {
	for i := range levels {
		statuses = appendStatuses(statuses, &levels[i])
	}
	return statuses
}

func appendStatuses(to Statuses, level *protocol.LevelStatus) Statuses {
	to = slices.Grow(to, len(level.Statuses))
	for _, l := range level.Statuses {
		s := Status{
			Entity:    level.Entity,
			Resource:  level.Resource,
			Ancestor:  level.Ancestor,
			Wider:     level.Wider,
			Limit:     limitOfParams(&l.Params),
			Available: thousands(l.Available),
			Requested: l.Requested / millis,
			Kept:      -thousands(-l.Kept),
			Share:     thousands(l.Own),
			Exceeded:  l.Wait > 0,
			Queue:     min(duration(l.Queue), longestWait),
			Granted:   l.Granted / millis,
			Carried:   l.Carried / millis,
		}
		if l.Term > 0 {
			s.Limit.RefillPeriod, s.Limit.Term = 0, duration(l.Term)
		}
		if s.RetryAfter = min(duration(l.Wait), longestWait); s.Exceeded && l.Wait == bucket.Never {
			s.RetryAfter = Never
		}
		if s.Limit.Mode != ModeEnforced {
			s.Exceeded, s.RetryAfter, s.Foreseen, s.Refusals = false, 0, l.Foreseen || l.Short, l.Refusals
		}
		if l.Change != nil {
			window := limitIn(&l)
			s.Window = &window
		}
		if l.Granted > 0 && l.Until > 0 {
			s.GrantEnds, s.AfterGrant = time.UnixMilli(l.Until).UTC(), thousands(l.Lasting)
		}
		if l.ResetsAt > 0 {
			s.ResetsAt = time.UnixMilli(l.ResetsAt).UTC()
		}
		to = append(to, s)
	}
	return to
}

// limitOfParams returns a limit in whose form a bucket is charged.
func limitOfParams(p *bucket.Params) Limit {
	l := Limit{Name: p.Name, Capacity: p.Capacity / millis, RefillAmount: p.RefillAmount / millis, RefillPeriod: duration(p.RefillPeriod)}
	if p.Times != nil {
		l.RefillPeriod, l.Resets, l.Zone, l.Carry = 0, p.Times.String(), p.Times.Zone(), p.Carry/millis
	}
	if p.Session > 0 {
		l.RefillPeriod, l.Session = 0, time.Duration(p.Session)*time.Second
	}
	l.Floors, l.Mode = string(p.Floors), modes[p.Mode]
	if p.Windows != nil {
		l.Windows, l.Zone = p.Windows.String(), p.Windows.Zone()
	}
	return l
}

// limitIn returns a limit with the parameters of the window that holds.
func limitIn(l *bucket.Status) Limit {
	p := l.Params
	p.Capacity, p.RefillAmount, p.RefillPeriod = l.Change.Of(p.Capacity, p.RefillAmount, p.RefillPeriod)
	p.Windows = nil
	return limitOfParams(&p)
}

// millis is the number of millitokens in a token.
const millis = 1000

// thousands returns ⌊n/1000⌋: tokens of millitokens, seconds of milliseconds.
func thousands(n int64) int64 {
	q := n / 1000
	if n%1000 < 0 {
		q--
	}
	return q
}

// duration returns milliseconds as a duration, saturated.
func duration(milliseconds int64) time.Duration {
	if milliseconds > int64(math.MaxInt64/time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(milliseconds) * time.Millisecond
}
