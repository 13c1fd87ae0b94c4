package enginetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// Kind is the effect of a fault on a call.
type Kind string

// Faults before the call is sent: the engine never sees it, and the caller knows
// that.
const (
	// Refused fails the dial: connection refused.
	Refused Kind = "refused"
	// DialReset fails the dial: connection reset.
	DialReset Kind = "dial reset"
)

// Faults that leave the caller without an answer: it cannot know whether the call
// was carried out.
const (
	// LostRequest loses the call on its way to the engine: a timeout, not carried out.
	LostRequest Kind = "lost request"
	// LostReply loses the reply on its way back: a timeout, carried out.
	LostReply Kind = "lost reply"
	// ResetReply resets the connection in place of the reply: carried out.
	ResetReply Kind = "reset reply"
	// TruncatedReply cuts the reply's body in half: carried out.
	TruncatedReply Kind = "truncated reply"
	// Hang carries the call out and holds the reply until the request's context is
	// done. The caller needs a deadline.
	Hang Kind = "hang"
)

// Slow carries the call out after Fault.Delay has passed and Fault.Until is
// closed, unless the request's context is done first.
const Slow Kind = "slow"

// Faults that are answers of DynamoDB: the engine does not see the call.
const (
	// ThroughputExceeded answers ProvisionedThroughputExceededException.
	ThroughputExceeded Kind = "ProvisionedThroughputExceededException"
	// Throttled answers ThrottlingException.
	Throttled Kind = "ThrottlingException"
	// InternalError answers InternalServerError with status 500.
	InternalError Kind = "InternalServerError"
	// Conflict answers TransactionConflictException, and to a transaction
	// TransactionCanceledException with the conflict as its first item's reason.
	Conflict Kind = "TransactionConflictException"
	// AccessDenied answers AccessDeniedException.
	AccessDenied Kind = "AccessDeniedException"
	// LimitExceeded answers LimitExceededException, as a shard with too many
	// readers does.
	LimitExceeded Kind = "LimitExceededException"
	// ExpiredIterator answers ExpiredIteratorException.
	ExpiredIterator Kind = "ExpiredIteratorException"
	// TrimmedData answers TrimmedDataAccessException.
	TrimmedData Kind = "TrimmedDataAccessException"
	// ResourceNotFound answers ResourceNotFoundException.
	ResourceNotFound Kind = "ResourceNotFoundException"
)

// Fault is an effect on some calls. The zero value of each field but Kind leaves the choice open: Fault{Kind:
// Throttled} hits every call.
type Fault struct {
	Kind Kind

	// Operation restricts the fault to one operation, "UpdateItem" for one.
	Operation string
	// When restricts the fault to the calls for which it returns true. It is
	// called with the transport's lock held, one call at a time.
	When func(Call) bool
	// Skip lets the first calls that match pass.
	Skip int
	// Times is the number of calls to hit after those. 0 means all.
	Times int

	// Delay and Until are for Slow.
	Delay time.Duration
	Until <-chan struct{}
}

// Call is one HTTP request to the engine. A client's retries are calls of their
// own.
type Call struct {
	// Operation is the name from the request's X-Amz-Target, such as "UpdateItem".
	Operation string
	// N counts the calls of this operation on this transport from 1.
	N int
	// Body is the request's JSON. It must not be changed.
	Body []byte
}

// Faults is a transport that hits chosen calls with faults and counts the others. It is safe for
// concurrent use.
//
//	faults := enginetest.NewFaults(engine.Transport())
//	faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Operation: "UpdateItem", Times: 1})
//	client := engine.Client(faults.Attach)
type Faults struct {
	base http.RoundTripper

	mu        sync.Mutex
	rules     []*rule
	calls     map[string]int
	forwarded map[string]int
	injected  map[Kind]int
	capacity  map[string]*Capacity
}

// rule is an injected fault and the number of calls that it has matched.
type rule struct {
	Fault
	matched int
}

// hits counts a call and reports whether the rule's fault is for it.
func (r *rule) hits(call Call) bool {
	if r.Operation != "" && r.Operation != call.Operation {
		return false
	}
	if r.When != nil && !r.When(call) {
		return false
	}
	r.matched++
	n := r.matched - r.Skip
	return n > 0 && (r.Times == 0 || n <= r.Times)
}

// NewFaults returns a transport without faults over base, or over
// http.DefaultTransport if that is nil.
func NewFaults(base http.RoundTripper) *Faults {
	if base == nil {
		base = http.DefaultTransport
	}
	f := &Faults{base: base}
	f.Reset()
	return f
}

// Attach makes a client send its calls through f: engine.Client(f.Attach).
func (f *Faults) Attach(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: f} }

// AttachStreams is Attach for a client of streams.
func (f *Faults) AttachStreams(o *dynamodbstreams.Options) { o.HTTPClient = &http.Client{Transport: f} }

// Inject adds a fault. Where several are for one call, the first injected of
// them hits, and the others do not count it.
func (f *Faults) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &rule{Fault: fault})
}

// Clear removes all faults and keeps the counts.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Reset sets all counts to zero and keeps the faults.
func (f *Faults) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = map[string]int{}
	f.forwarded = map[string]int{}
	f.injected = map[Kind]int{}
	f.capacity = map[string]*Capacity{}
}

// Calls returns the number of calls that clients made of an operation, or of all
// operations together for "".
func (f *Faults) Calls(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return count(f.calls, operation)
}

// Forwarded returns the number of calls of an operation, or of all for "", that
// were passed on to the engine.
func (f *Faults) Forwarded(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return count(f.forwarded, operation)
}

// Injected returns the number of calls that faults of a kind have hit.
func (f *Faults) Injected(kind Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.injected[kind]
}

// Capacity returns the capacity that the calls of an operation, or of all for "",
// consumed. Only requests that ask for it with ReturnConsumedCapacity are in the
// sum, and only successful ones: DynamoDB reports none for the others.
func (f *Faults) Capacity(operation string) Capacity {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum Capacity
	for name, used := range f.capacity {
		if operation == "" || operation == name {
			sum.add(*used)
		}
	}
	return sum
}

// count reads a count by operation, or their sum.
func count(counts map[string]int, operation string) int {
	if operation != "" {
		return counts[operation]
	}
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// RoundTrip implements http.RoundTripper.
func (f *Faults) RoundTrip(request *http.Request) (*http.Response, error) {
	call, err := callOf(request)
	if err != nil {
		return nil, err
	}
	fault := f.admit(&call)
	if fault == nil {
		return f.forward(request, call)
	}
	switch fault.Kind {
	case Refused:
		return nil, netError("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED))
	case DialReset:
		return nil, netError("dial", os.NewSyscallError("connect", syscall.ECONNRESET))
	case LostRequest:
		return nil, netError("read", os.ErrDeadlineExceeded)
	case LostReply:
		return f.forwardInVain(request, call, fault, func(*http.Response) (*http.Response, error) {
			return nil, netError("read", os.ErrDeadlineExceeded)
		})
	case ResetReply:
		return f.forwardInVain(request, call, fault, func(*http.Response) (*http.Response, error) {
			return nil, netError("read", os.NewSyscallError("read", syscall.ECONNRESET))
		})
	case Hang:
		return f.forwardInVain(request, call, fault, hang)
	case TruncatedReply:
		return f.forwardInVain(request, call, fault, truncate)
	case Slow:
		if err := fault.wait(request.Context()); err != nil {
			return nil, err
		}
		return f.forward(request, call)
	default:
		return refusal(request, fault.Kind, call)
	}
}

// admit numbers and counts a call, and returns the rule whose fault is to hit it, nil
// for none.
func (f *Faults) admit(call *Call) *rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call.Operation]++
	call.N = f.calls[call.Operation]
	for _, r := range f.rules {
		if r.hits(*call) {
			f.injected[r.Kind]++
			return r
		}
	}
	return nil
}

// forward passes a call on to the engine and counts it and its units.
func (f *Faults) forward(request *http.Request, call Call) (*http.Response, error) {
	f.mu.Lock()
	f.forwarded[call.Operation]++
	f.mu.Unlock()
	reply, err := f.base.RoundTrip(withBody(request, call.Body))
	if errors.Is(err, errLostByMean) || err == nil && reply.Header.Get(refusedByMean) != "" {
		f.forget(call.Operation)
		return reply, err
	}
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(reply.Body)
	if err := errors.Join(err, reply.Body.Close()); err != nil {
		return nil, err
	}
	reply.Body = io.NopCloser(bytes.NewReader(body))
	if used, ok := consumed(call.Operation, body); ok && reply.StatusCode == http.StatusOK {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.capacity[call.Operation] == nil {
			f.capacity[call.Operation] = &Capacity{}
		}
		f.capacity[call.Operation].add(used)
	}
	return reply, nil
}

// forget takes back the count of a call that a mean engine refused, since tests
// count only their own calls.
func (f *Faults) forget(operation string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[operation]--
	f.forwarded[operation]--
}

// forwardInVain passes a call on, and returns the reply as the fault changes it. A call that a mean engine refused had
// no effect whose reply could be lost: the fault waits for the next one.
func (f *Faults) forwardInVain(
	request *http.Request, call Call, hit *rule, lose func(*http.Response) (*http.Response, error),
) (*http.Response, error) {
	reply, err := f.forward(request, call)
	if errors.Is(err, errLostByMean) || err == nil && reply.Header.Get(refusedByMean) != "" {
		f.mu.Lock()
		defer f.mu.Unlock()
		hit.matched--
		f.injected[hit.Kind]--
		return reply, err
	}
	if err != nil {
		return nil, err
	}
	lost, err := lose(reply)
	if err != nil {
		_ = reply.Body.Close() // it is not read
	}
	return lost, err
}

// hang returns when the context of a call ends, whose reply never comes.
func hang(reply *http.Response) (*http.Response, error) {
	ctx := reply.Request.Context()
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// wait returns when a Slow fault lets its call go, or with the context's error.
func (f Fault) wait(ctx context.Context) error {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if f.Until != nil {
		select {
		case <-f.Until:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// operation returns the operation that a request's X-Amz-Target names, as in
// "DynamoDB_20120810.UpdateItem".
func operation(request *http.Request) string {
	target := request.Header.Get("X-Amz-Target")
	return target[strings.LastIndexByte(target, '.')+1:]
}

// callOf returns the call of a request, whose body is read.
func callOf(request *http.Request) (Call, error) {
	body, err := readRequest(request)
	return Call{Operation: operation(request), Body: body}, err
}

// withBody returns a request with another body.
func withBody(request *http.Request, body []byte) *http.Request {
	sent := request.Clone(request.Context())
	sent.Body, sent.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return sent
}

// readRequest reads and closes a request's body.
func readRequest(request *http.Request) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(request.Body)
	return body, errors.Join(err, request.Body.Close())
}

// netError is an error as package net returns it.
func netError(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
