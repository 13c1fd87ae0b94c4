package table

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// An outages counts what speaks against a store since it answered last.
type outages struct {
	seed     maphash.Seed
	hard     int      // outages in a row, without throttles
	throttle int      // throttles in a row
	keys     []uint64 // of the throttles, hashed, each once; manyKeys at most
}

// add counts the outage or the throttle of a call of items with a partition key.
func (o *outages) add(pk string, isThrottle bool) {
	if !isThrottle {
		o.hard++
		return
	}
	o.throttle++
	if key := maphash.String(o.seed, withoutNumber(pk)); pk != "" && len(o.keys) < manyKeys && !slices.Contains(o.keys, key) {
		o.keys = append(o.keys, key)
	}
}

// areEnough reports whether they open a breaker that a number of calls without an answer opens, too.
func (o *outages) areEnough(silent int64) bool {
	return o.hard >= max(failures, int(silent)) || o.hard+o.throttle >= failures && len(o.keys) == manyKeys
}

func (o *outages) reset() { o.hard, o.throttle, o.keys = 0, 0, o.keys[:0] }

// withoutNumber returns a partition key without a number at its end, behind a #. By such numbers the items of one bucket differ, which are
// hot together.
func withoutNumber(pk string) string {
	if rest := strings.TrimRight(pk, "0123456789"); len(rest) < len(pk) && strings.HasSuffix(rest, "#") {
		return rest
	}
	return pk
}

// A trials is the calls of a half open breaker, by which it learns whether the store serves as before.
type trials struct {
	allowed  int           // concurrent trials
	underWay int           // now
	heardOf  time.Duration // when the last one was sent of those that were answered
	unheard  time.Duration // since when none was answered while some were sent; 0 if none was sent since the last answer
}

// begin counts a trial. It reports whether that is the first one since the last answer.
func (t *trials) begin(now time.Duration) (first bool) {
	t.underWay++
	if first = t.unheard == 0; first {
		t.unheard = now
	}
	return first
}

// answered notes the answer to a trial, which allows one more. The others have the time of silence from now on.
func (t *trials) answered(sent, now time.Duration) {
	t.underWay--
	t.allowed++
	t.heardOf = max(t.heardOf, sent)
	if t.unheard = 0; t.underWay > 0 {
		t.unheard = now
	}
}

// abandoned notes that a caller gave a trial up. If that was soon for all of them, they say nothing.
func (t *trials) abandoned(soon bool) {
	if t.underWay--; t.underWay == 0 && soon {
		t.unheard = 0
	}
}
