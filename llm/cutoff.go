package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"                //nolint:depguard // frames of Bedrock streams
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi" //nolint:depguard // as above

	"github.com/zlimit/zlimit-go/zlimit"
)

// WithCutOff ends streams whose limits are used up. As a stream grows beyond its estimate, the transport takes more for
// it, step tokens of the answer at a time. If a limit has no more, the stream continues for what is left, and then ends
// with an error in the form of the provider, after a whole event. What came is charged, and [Report].CutOff is
// true. The request to the provider is cancelled.
//
// It costs as much as [zlimit.Lease.Consume] for each step beyond the estimate, and nothing for an answer within it. The
// reader of the answer waits for these. So it suits small estimates, such as [WithLearnedOutput] makes. A stream continues
// during an outage of the limits' store. Answers that come whole, or compressed, are not cut.
func WithCutOff(step int64) Option { return func(c *config) { c.cutOff, c.cutsOff = step, true } }

// A cutter is a stream that ends where a limit is used up.
type cutter struct {
	*Meter
	x       *exchange
	ctx     context.Context //nolint:containedctx // of the request, whose answer it is
	request *http.Request

	next   int64 // tokens of the answer up to which it is covered
	all    bool  // nothing more can be taken
	over   bool  // what is taken is used
	ended  bool
	rest   []byte // the error behind the last event
	before byte   // the last byte that was returned but carriage returns
}

// cuts returns an answer that may be cut off; the meter itself where it may not.
func (x *exchange) cuts(ctx context.Context, r *http.Request, meter *Meter) io.ReadCloser {
	_, plain := meter.feed.(lockedWriter)
	_, whole := meter.reading().(*scanner)
	if !x.transport.config.cutsOff || !plain || whole && !x.call.Stream || x.format.InputOnly {
		return meter
	}
	return &cutter{Meter: meter, x: x, ctx: ctx, request: r}
}

// Read reads the stream up to its end, or to the last event before it is cut off.
func (c *cutter) Read(p []byte) (n int, err error) {
	if c.ended {
		if len(c.rest) == 0 {
			return 0, io.EOF
		}
		n = copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	if n, err = c.Meter.Read(p); n == 0 || err != nil {
		return n, err
	}
	if c.over = c.over || !c.covers(); c.over {
		if at := c.boundary(p[:n]); at >= 0 {
			c.ended, c.rest = true, c.ending()
			c.x.cutOff.Store(true)
			_ = c.Close()
			if n = at; n == 0 {
				return c.Read(p)
			}
		}
	}
	c.remember(p[:n])
	return n, nil
}

// covers reports whether what is taken, or can be taken now, is enough for the answer so far.
func (c *cutter) covers() bool {
	u := c.Usage()
	if u.Output < c.next && !c.all {
		return true
	}
	s, step := c.x.answering(u.Model), u
	step.Output = plus(step.Output, c.x.transport.config.cutOff)
	missing, err := c.missing(s, u)
	switch {
	case err != nil:
		return true // which the settlement says
	case c.all:
		return len(missing) == 0
	}
	more, err := c.missing(s, step)
	if err == nil && len(more) > 0 {
		err = c.consume(s, more)
	}
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) { // an outage does not end a stream
		c.next = step.Output
		return true
	}
	c.all = true
	for _, status := range exceeded.Statuses { // what is left is for this stream
		if n, ok := more[status.Limit.Name]; ok && n > status.Available {
			more[status.Limit.Name] = max(0, status.Available)
		}
	}
	for limit, n := range more {
		if n == 0 {
			delete(more, limit)
		}
	}
	if len(more) > 0 {
		_ = c.consume(s, more) // another call may have it by now
	}
	missing, _ = c.missing(s, u)
	return len(missing) == 0
}

// missing returns by how much a usage exceeds what is taken.
func (c *cutter) missing(s *share, u Usage) (zlimit.Amounts, error) {
	amounts, err := c.x.price(u)
	c.x.scale(amounts, s.pace)
	for limit, n := range amounts {
		if amounts[limit] = n - s.taken[limit]; amounts[limit] <= 0 {
			delete(amounts, limit)
		}
	}
	return amounts, err
}

// consume takes more for the stream.
func (c *cutter) consume(s *share, more zlimit.Amounts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.lease.Consume(c.ctx, more)
	if err == nil {
		for limit, n := range more {
			s.taken[limit] += n
		}
	}
	return err
}

// boundary returns where the last event ends in a piece that was just read; -1 for nowhere.
func (c *cutter) boundary(piece []byte) int {
	switch r := c.reading().(type) {
	case *messageReader:
		if at := len(piece) - len(r.message); r.skip == 0 && !r.broken && at >= 0 {
			return at
		}
	case *eventReader:
		at, before := -1, c.before
		for i, b := range piece {
			if b == '\n' && before == '\n' {
				at = i + 1
			}
			if b != '\r' {
				before = b
			}
		}
		return at
	case *scanner:
		if c.x.format.API == APIGeminiContent {
			if len(r.open) == 1 && r.open[0] == '[' && (r.state == scanAfter || r.state == scanValue) {
				return len(piece)
			}
			return -1
		}
		if at := bytes.LastIndexByte(piece, '\n'); at >= 0 { // of lines
			return at + 1
		}
	}
	return -1
}

func (c *cutter) remember(piece []byte) {
	for _, b := range piece[max(0, len(piece)-2):] {
		if b != '\r' {
			c.before = b
		}
	}
}

// cutOffText is the error at the end of a stream that was cut off.
const cutOffText = "the rate limit is used up in the middle of the answer"

// ending returns the error in the form of the provider.
func (c *cutter) ending() []byte {
	body := errorBody(c.request, http.Header{}, http.StatusTooManyRequests, "", cutOffText, 0)
	switch r := c.reading().(type) {
	case *messageReader:
		return exceptionOf(body)
	case *eventReader:
		name, end := "", ""
		switch c.x.format.API { //nolint:exhaustive // the others have none of their own
		case APIAnthropicMessages:
			name = "event: error\n"
		case APIOpenAIResponses:
			name = "event: error\n"
			body, _ = json.Marshal(map[string]any{"type": "error", "code": kinds[http.StatusTooManyRequests].code, "message": cutOffText, "param": nil, "sequence_number": 0})
		case APIOpenAIChat, APIOpenAICompletions:
			end = "data: [DONE]\n\n"
		}
		return []byte(name + dataField + " " + string(body) + "\n\n" + end)
	case *scanner:
		if c.x.format.API == APIGeminiContent {
			separator := ""
			if r.state == scanAfter {
				separator = ","
			}
			return []byte(separator + string(body) + "]")
		}
	}
	return []byte(strings.TrimSpace(string(body)) + "\n")
}

// exceptionOf returns an error as a message of Amazon's streams.
func exceptionOf(body []byte) []byte {
	m := eventstream.Message{Payload: body}
	m.Headers.Set(eventstreamapi.MessageTypeHeader, eventstream.StringValue(eventstreamapi.ExceptionMessageType))
	m.Headers.Set(eventstreamapi.ExceptionTypeHeader, eventstream.StringValue("throttlingException"))
	m.Headers.Set(eventstreamapi.ContentTypeHeader, eventstream.StringValue("application/json"))
	var b bytes.Buffer
	_ = eventstream.NewEncoder().Encode(&b, m) // into memory
	return b.Bytes()
}
