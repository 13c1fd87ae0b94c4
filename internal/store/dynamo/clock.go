package dynamo

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zlimit/zlimit-go/internal/store/dynamo/wire"
)

const (
	// dateStep is the resolution of the Date header: a reply of 12:00:00 was made before 12:00:01.
	dateStep = time.Second
	// clockSlack is by how much the clocks of DynamoDB's servers may differ from one another.
	clockSlack = 50 * time.Millisecond
	// One clock drifts from another by up to a driftPart-th of the time that passes, as fast as NTP slews a clock.
	driftPart = 2000
	// firstReplies is the number of replies in a row that agree before the first offset counts. A limiter reads twice
	// before it writes.
	firstReplies = 2
	// stepReplies is the least number of replies in a row, over stepTime at least, that move an offset contradicted by
	// them. No server or proxy with a wrong clock answers as many in a row among others.
	stepReplies = 16
	stepTime    = 5 * time.Second
	// stepGap is the least time between two such moves. A move may let one capacity more through, see [bucket.Config.Lead].
	stepGap = time.Hour
)

// A clock learns the offset of DynamoDB's clock from the Date headers of replies. Each header bounds the offset: the
// server made the reply between the sending of the request and the receipt, within the second of the header.
// The bounds of many replies together are as close as a round trip and clockSlack.
type clock struct {
	mu     sync.Mutex
	bounds span
	doubt  doubt
	at     time.Time // of the last reply
	moved  time.Time // when replies that contradicted the bounds last moved them

	known  atomic.Bool
	offset atomic.Int64                 // nanoseconds
	latest atomic.Pointer[reportedTime] // nil until it is known
}

// A reportedTime holds the bounds at the time of a reply.
type reportedTime struct {
	span
	at time.Time
}

// A span is a range of possible offsets; the zero value stands for no span.
type span struct {
	least, most time.Duration
	set         bool
}

// A doubt is the last replies in a row that contradict the bounds and agree with each other.
type doubt struct {
	span
	replies int
	since   time.Time
}

// and returns the intersection of two spans, and false if it is empty.
func (s span) and(other span) (span, bool) {
	both := span{max(s.least, other.least), min(s.most, other.most), true}
	return both, s.set && other.set && both.least <= both.most
}

// nearest returns the offset of a span that is nearest to 0.
func (s span) nearest() time.Duration { return max(s.least, min(s.most, 0)) }

// Offset implements [store.Clock]. It learns from the replies to reads and to writes of one item.
func (c *clock) Offset() (time.Duration, bool) {
	return time.Duration(c.offset.Load()), c.known.Load()
}

// Bounds implements [store.Clock]. The bounds drift apart while no reply comes.
func (c *clock) Bounds() (least, most time.Duration, known bool) {
	last := c.latest.Load()
	if last == nil {
		return 0, 0, false
	}
	drift := max(time.Since(last.at)/driftPart, 0)
	return last.least - drift, last.most + drift, true
}

// learn takes the time from the metadata of a reply to a request that was sent after a time.
func (c *clock) learn(sent time.Time, metadata middleware.Metadata) {
	date, dated := awsmiddleware.GetServerTime(metadata)
	received, ok := awsmiddleware.GetResponseAt(metadata)
	if dated && ok {
		c.observe(sent, received, date)
	}
}

// learnReply takes the time from a reply to a request that was sent after a time.
func (c *clock) learnReply(sent time.Time, reply wire.Reply) {
	if !reply.Date.IsZero() {
		c.observe(sent, reply.Received, reply.Date)
	}
}

// learnFrom takes the time from the reply in an error.
func (c *clock) learnFrom(sent time.Time, err error) {
	var reply *smithyhttp.ResponseError
	if !errors.As(err, &reply) || reply.Response == nil || reply.Response.Response == nil {
		return
	}
	if date, err := http.ParseTime(reply.Response.Header.Get("Date")); err == nil {
		c.observe(sent, time.Now(), date)
	}
}

// observe narrows the bounds by a reply. A contradicting reply is a sign of a clock that was set, or of one server with
// a wrong clock. Further replies decide which.
func (c *clock) observe(sent, received, date time.Time) {
	// A time without a monotonic reading, which dates are, is compared by the wall clock.
	seen := span{date.Sub(received) - clockSlack, date.Add(dateStep).Sub(sent) + clockSlack, true}
	if !c.mu.TryLock() {
		return // another reply says as much
	}
	defer c.mu.Unlock()
	if drift := received.Sub(c.at) / driftPart; c.bounds.set && drift > 0 {
		c.bounds.least -= drift
		c.bounds.most += drift
	}
	c.at = received
	if narrowed, agrees := c.bounds.and(seen); agrees {
		c.bounds, c.doubt = narrowed, doubt{}
		c.publish()
		return
	}
	if both, agrees := c.doubt.and(seen); agrees {
		c.doubt.span = both
		c.doubt.replies++
	} else {
		c.doubt = doubt{seen, 1, received}
	}
	if c.mayMove(received) {
		if c.known.Load() {
			c.moved = received
		}
		c.bounds, c.doubt = c.doubt.span, doubt{}
		c.publish()
	}
}

// mayMove reports whether the replies in doubt are enough to move the bounds.
func (c *clock) mayMove(now time.Time) bool {
	if !c.known.Load() {
		return c.doubt.replies >= firstReplies
	}
	return c.doubt.replies >= stepReplies && now.Sub(c.doubt.since) >= stepTime &&
		(c.moved.IsZero() || now.Sub(c.moved) >= stepGap)
}

// publish stores the offset that follows from the bounds.
func (c *clock) publish() {
	c.offset.Store(int64(c.bounds.nearest()))
	c.latest.Store(&reportedTime{c.bounds, c.at})
	c.known.Store(true)
}
