package envoylimit

import (
	"fmt"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Windows says how the limits of a file count time.
type Windows string

// The ways to count.
const (
	// WindowsAligned has a quota for each minute, hour, day, week, month or year of UTC. Weeks begin on Thursday, as multiples of seven
	// days since 1970 do; months and years are calendar months and years. A second is too short for a quota, and is a bucket.
	WindowsAligned Windows = "aligned"
	// WindowsBucket has a bucket of the size of the limit, which refills steadily.
	WindowsBucket Windows = "bucket"
)

// check returns an error for a way that does not exist. "" stands for WindowsAligned.
func (w Windows) check() error {
	switch w {
	case "", WindowsAligned, WindowsBucket:
		return nil
	}
	return fmt.Errorf("windows must be %s or %s, got %q", WindowsAligned, WindowsBucket, string(w))
}

// hits is the name of the limits that this package stores.
const hits = "hits"

// day is the day of units.
const day = 24 * time.Hour

// A span is the length of a unit, and the cron patterns that begin it.
type span struct {
	length  time.Duration
	pattern string
}

var spans = map[pb.RateLimitResponse_RateLimit_Unit]span{
	pb.RateLimitResponse_RateLimit_SECOND: {length: time.Second},
	pb.RateLimitResponse_RateLimit_MINUTE: {length: time.Minute, pattern: "*/2 * * * *; 1-59/2 * * * *"}, // a pattern begins after a minute that does not match
	pb.RateLimitResponse_RateLimit_HOUR:   {length: time.Hour, pattern: "0 * * * *"},
	pb.RateLimitResponse_RateLimit_DAY:    {length: day, pattern: "0 0 * * *"},
	pb.RateLimitResponse_RateLimit_WEEK:   {length: 7 * day, pattern: "0 0 * * 4"},
	pb.RateLimitResponse_RateLimit_MONTH:  {length: 30 * day, pattern: "0 0 1 * *"},
	pb.RateLimitResponse_RateLimit_YEAR:   {length: 365 * day, pattern: "0 0 1 1 *"},
}

// limit returns the limit of a number of hits per unit, which must be a known one.
func (w Windows) limit(unit pb.RateLimitResponse_RateLimit_Unit, perUnit int64) zlimit.Limit {
	s := spans[unit]
	if w == WindowsBucket || s.pattern == "" {
		return zlimit.Limit{Name: hits, Capacity: perUnit, RefillAmount: perUnit, RefillPeriod: s.length}
	}
	return zlimit.Cron(hits, perUnit, s.pattern, "UTC")
}

// unitOf returns the unit of a stored limit, UNKNOWN for another period.
func unitOf(l *zlimit.Limit) pb.RateLimitResponse_RateLimit_Unit {
	for unit, s := range spans {
		if l.Resets != "" && l.Resets == s.pattern || l.Resets == "" && l.RefillPeriod == s.length {
			return unit
		}
	}
	return pb.RateLimitResponse_RateLimit_UNKNOWN
}
