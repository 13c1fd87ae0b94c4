package enginetest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Mean says how much an engine behaves like DynamoDB on a bad day. The zero
// value adds nothing but DynamoDB's limits on expressions.
//
// A refused or lost call is served when it comes again within mercy, so a caller who tries again
// gets through.
type Mean struct {
	// Seed makes the choices the same from run to run, as far as the calls come
	// in the same order.
	Seed uint64
	// Conflicts is the part of writes and transactions that meet a transaction.
	Conflicts float64
	// Throttles is the part of throttled calls on items, whose reason is a hot key.
	Throttles float64
	// LostReplies is the part of reads and transactions whose reply is lost: both
	// may be repeated.
	LostReplies float64
	// LostWrites is the part of plain writes whose reply is lost, and whose
	// outcome is unknown.
	LostWrites float64
	// Lag is for how long eventual reads, and all reads of indexes, may show an
	// item as it was before its last write.
	Lag time.Duration
}

// envMean names the environment variable that makes every engine of a test binary
// mean. Its value is a seed, and after commas other shares than in
// meanDefault, such as "7,lag=20ms,lostwrites=0.01".
const envMean = "ZLIMIT_MEAN"

// meanDefault is for suites whose tests do not look for meanness: no outcome is unknown, and reads do not lag.
var meanDefault = Mean{Conflicts: 0.05, Throttles: 0.05, LostReplies: 0.02}

// meanOf reads the environment variable; nil when it is not set.
func meanOf(text string) (*Mean, error) {
	if text == "" {
		return nil, nil
	}
	fields := strings.Split(text, ",")
	m := meanDefault
	var err error
	if m.Seed, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return nil, fmt.Errorf("enginetest: %s=%q: a seed must come first", envMean, text)
	}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		share := map[string]*float64{
			"conflicts": &m.Conflicts, "throttles": &m.Throttles, "lostreplies": &m.LostReplies, "lostwrites": &m.LostWrites,
		}[name]
		switch {
		case name == "lag":
			m.Lag, err = time.ParseDuration(value)
		case share != nil:
			*share, err = strconv.ParseFloat(value, 64)
		default:
			err = fmt.Errorf("no option %q", name)
		}
		if err != nil {
			return nil, fmt.Errorf("enginetest: %s=%q: %w", envMean, text, err)
		}
	}
	return &m, nil
}

// IsMean reports whether the engines of this test binary are mean, for tests about undisturbed
// calls.
func IsMean() bool { return os.Getenv(envMean) != "" }

// CatchUp returns when no read of a mean engine lags behind the writes so far, for tests that look
// at their own work. It does nothing elsewhere.
func CatchUp() {
	if m, err := meanOf(os.Getenv(envMean)); err == nil && m != nil && m.Lag > 0 {
		time.Sleep(m.Lag + time.Millisecond)
	}
}

// Transport returns a transport to an engine that is mean.
func (m Mean) Transport(base http.RoundTripper) http.RoundTripper {
	return &mean{
		Mean: m, base: base, random: rand.New(rand.NewPCG(m.Seed, 0)), //nolint:gosec // choices of a test
		refused: map[string]time.Time{}, past: map[string]version{},
	}
}

type mean struct {
	Mean
	base http.RoundTripper

	mu      sync.Mutex
	random  *rand.Rand
	refused map[string]time.Time // when calls were refused or lost last, by operation and body
	past    map[string]version   // the items that were written a moment ago, as they were
}

// refusedByMean marks replies that a mean transport made itself. Faults does not
// count the calls.
const refusedByMean = "X-Enginetest-Mean"

// RoundTrip implements http.RoundTripper.
func (m *mean) RoundTrip(request *http.Request) (*http.Response, error) {
	call, err := callOf(request)
	if err != nil {
		return nil, err
	}
	about, err := m.read(call)
	if err != nil {
		return nil, err
	}
	if text := about.tooLarge(); text != "" {
		return declined(request, call, http.StatusBadRequest, map[string]any{
			"__type": "com.amazon.coral.validate#ValidationException", "message": text,
		})
	}
	fate := m.draw(call, about)
	if fate == Conflict {
		return marked(refusal(request, Conflict, call))
	}
	if fate == ThroughputExceeded {
		return marked(throttled(request, call, about))
	}
	reply, err := m.forward(request, call, about)
	if fate == LostReply && err == nil {
		_ = reply.Body.Close()
		return nil, netError("read", errLostByMean)
	}
	return reply, err
}

// errLostByMean takes the place of a reply that a mean transport loses. Faults does
// not count the call either.
var errLostByMean = fmt.Errorf("lost: %w", os.ErrDeadlineExceeded)

func marked(reply *http.Response, err error) (*http.Response, error) {
	if err == nil {
		reply.Header.Set(refusedByMean, "1")
	}
	return reply, err
}

// mercy is how long after a refusal the same call is served.
const mercy = 2 * time.Second

// draw decides what happens to a call; "" is nothing.
func (m *mean) draw(call Call, about *subject) Kind {
	if len(about.items) == 0 {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	same := call.Operation + about.body
	if at, ok := m.refused[same]; ok && time.Since(at) < mercy {
		return ""
	}
	delete(m.refused, same)
	fate := Kind("")
	lost := m.LostReplies
	if about.write && !about.transaction {
		lost = m.LostWrites
	}
	switch at := m.random.Float64(); {
	case about.write && at < m.Conflicts:
		fate = Conflict
	case at >= m.Conflicts && at < m.Conflicts+m.Throttles:
		fate = ThroughputExceeded
	case at >= m.Conflicts+m.Throttles && at < m.Conflicts+m.Throttles+lost:
		fate = LostReply
	}
	if fate != "" {
		m.refused[same] = time.Now()
	}
	return fate
}

// throttled answers that the keys of a call are hot.
func throttled(request *http.Request, call Call, about *subject) (*http.Response, error) {
	if about.transaction {
		return cancelled(request, call, "ThrottlingError", answers[Throttled].message, 0)
	}
	return refusal(request, ThroughputExceeded, call)
}

// A subject is the item or table that a call is about.
type subject struct {
	table       string
	items       []string // the table and the key of each, in JSON
	keys        []json.RawMessage
	body        string // with the members of objects in order
	write       bool
	transaction bool
	expressions []string
}

// callJSON is the body of a call, or of one of its parts.
type callJSON struct {
	TableName                                                                       string
	Key, Item                                                                       map[string]json.RawMessage
	ConditionExpression, UpdateExpression, KeyConditionExpression, FilterExpression string
	ConsistentRead                                                                  bool
	IndexName                                                                       string
	TransactItems                                                                   []map[string]callJSON
}

func (m *mean) read(call Call) (*subject, error) {
	about := &subject{}
	switch call.Operation {
	case "UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems":
		about.write = true
	case "GetItem", "Query", "BatchGetItem":
	default:
		return about, nil
	}
	var content callJSON
	if err := json.Unmarshal(call.Body, &content); err != nil {
		return nil, fmt.Errorf("enginetest: %s: %w", call.Operation, err)
	}
	var members map[string]any
	if err := json.Unmarshal(call.Body, &members); err != nil {
		return nil, fmt.Errorf("enginetest: %s: %w", call.Operation, err)
	}
	ordered, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("enginetest: %s: %w", call.Operation, err)
	}
	about.body = string(ordered)
	parts := []callJSON{content}
	if about.transaction = call.Operation == "TransactWriteItems"; about.transaction {
		parts = nil
		for _, action := range content.TransactItems {
			for _, part := range action { // one
				parts = append(parts, part)
			}
		}
	}
	for i := range parts {
		if err := about.add(&parts[i]); err != nil {
			return nil, err
		}
	}
	return about, nil
}

func (s *subject) add(part *callJSON) error {
	s.table = part.TableName
	for _, text := range []string{part.ConditionExpression, part.UpdateExpression, part.KeyConditionExpression, part.FilterExpression} {
		if text != "" {
			s.expressions = append(s.expressions, text)
		}
	}
	if part.Key == nil && part.Item == nil {
		return nil
	}
	item := part.Key
	if item == nil {
		item = part.Item
	}
	key, err := json.Marshal(keyOf(item))
	if err != nil {
		return err
	}
	s.keys = append(s.keys, key)
	s.items = append(s.items, part.TableName+" "+string(key))
	return nil
}

// keyOf returns the primary key of an item. Tables of these tests have one of two
// attributes.
func keyOf(item map[string]json.RawMessage) map[string]json.RawMessage {
	key := map[string]json.RawMessage{}
	for _, name := range []string{"PK", "SK"} {
		if value, ok := item[name]; ok {
			key[name] = value
		}
	}
	return key
}

// Limits of DynamoDB on an expression.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
const (
	maxExpression = 4096
	maxOperators  = 300
)

// tooLarge returns what DynamoDB says to an expression beyond its limits, "" where
// there is none.
func (s *subject) tooLarge() string {
	for _, text := range s.expressions {
		if len(text) > maxExpression {
			return fmt.Sprintf("Invalid expression: Expression size has exceeded the maximum allowed size; expression size: %d", len(text))
		}
		if n := operators(text); n > maxOperators {
			return fmt.Sprintf("Invalid expression: The expression contains too many operators; operator count: %d", n)
		}
	}
	return ""
}

// operator matches the operators and functions of expressions.
var operator = regexp.MustCompile(`<>|<=|>=|[<>=+-]|\b(?:AND|OR|NOT|BETWEEN|IN)\b|[a-z_]+\s*\(`)

// operators counts the operators and functions of an expression.
func operators(text string) int { return len(operator.FindAllString(text, -1)) }
