package llm

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// WithEstimate lets the caller estimate calls. The function gets the facts read of a request, and returns them with
// other numbers for Input and Output, such as a tokenizer's. Other fields are not looked at. It must not block and not
// read the body; the usage of the answer is settled as ever.
func WithEstimate(estimate func(*http.Request, Call) Call) Option {
	return func(c *config) { c.estimate = estimate }
}

// WithLearnedOutput estimates the output of a call by recent answers of the same resource, if that is less than the
// bound of the request. The estimate is the length that a part of those answers, such as 0.95, did not exceed. So a
// generous bound does not hold tokens that an answer does not take. Until 16 answers are there the bound counts. A
// transport learns for itself from the last 128 answers of each of 1,000 resources, which takes half a kilobyte each.
// An answer beyond the estimate is charged in whole when it ends, so a limit may be exceeded by it.
func WithLearnedOutput(part float64) Option {
	return func(c *config) { c.learned = &lengths{part: part} }
}

// How answers are remembered.
const (
	answersKept     = 128
	minAnswers      = 16
	resourcesKept   = 1000
	answersPerGuess = 8 // the guess is renewed after that many answers
)

// lengths remembers how long the answers of resources were. It is safe for concurrent use.
type lengths struct {
	part float64

	mu sync.Mutex
	of map[string]*recent
}

// recent are the last lengths of answers of one resource.
type recent struct {
	tokens []int64 // in a ring
	next   int     // the oldest one, when the ring is full
	seen   int
	guess  int64 // -1 before enough were seen
}

// bound returns the estimate for an answer of at most most tokens.
func (l *lengths) bound(resource string, most int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.of[resource]; r != nil && r.guess >= 0 {
		return min(most, r.guess)
	}
	return most
}

// add remembers an answer. If there are too many resources, any one is forgotten.
func (l *lengths) add(resource string, tokens int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of[resource]
	if r == nil {
		if l.of == nil {
			l.of = map[string]*recent{}
		}
		for other := range l.of {
			if len(l.of) < resourcesKept {
				break
			}
			delete(l.of, other)
		}
		r = &recent{guess: -1}
		l.of[resource] = r
	}
	r.add(tokens, l.part)
}

func (r *recent) add(tokens int64, part float64) {
	if len(r.tokens) < answersKept {
		r.tokens = append(r.tokens, tokens)
	} else {
		r.tokens[r.next] = tokens
		r.next = (r.next + 1) % answersKept
	}
	r.seen++
	if r.seen >= minAnswers && r.seen%answersPerGuess == 0 {
		sorted := slices.Sorted(slices.Values(r.tokens))
		r.guess = sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
	}
}

// estimate sets the estimate of a call, before its request is sent.
func (x *exchange) estimate(r *http.Request) error {
	c := &x.transport.config
	if c.learned != nil && !x.format.InputOnly {
		x.call.Output = c.learned.bound(x.own().resource, x.call.Output)
	}
	if c.estimate == nil {
		return nil
	}
	own := c.estimate(r, x.call)
	for field, n := range map[string]int64{"input": own.Input, "output": own.Output} {
		if n < 0 || n > maxAmount {
			return invalid("estimate of the "+field, strconv.FormatInt(n, 10), "must be 0 to "+strconv.FormatInt(maxAmount, 10))
		}
	}
	x.call.Input, x.call.Output = own.Input, own.Output
	return nil
}

// learnLength remembers how long an answer was.
func (x *exchange) learnLength(u Usage) {
	if l := x.transport.config.learned; l != nil && u.Complete {
		l.add(x.own().resource, u.Output)
	}
}
