package llm

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/fields"
	"github.com/zlimit/zlimit-go/internal/edge/unsettled"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Transport is an [http.RoundTripper] that limits the calls of models among its requests. It refuses calls of unknown
// form, see [WithUnknown]. It takes an estimate before it sends a call. It settles the lease once: at the end of the
// answer, when the answer is closed, or when the request's context ends. The caller reads the bytes that the provider
// sent. A call whose response is made in the background is settled by the request that shows the response at its end. After
// an hour, or behind 1,024 newer ones, it is settled at its estimate.
//
// A call that is refused is not sent, and fails with the error of [zlimit.RateLimiter.Acquire]. Requests that make
// no model work are sent as they are, without a limit. An answer of an error status, and a request that could not be
// sent, take no tokens. A request that was sent and not answered takes its prompt.
//
// An estimate above the capacity of a limit is cut to the capacity. So a generous bound does not make a request
// impossible. The tokens that the call takes in the end are charged all the same.
//
// A Transport is made by [NewTransport] and is safe for concurrent use.
type Transport struct {
	limiter *zlimit.RateLimiter
	entity  func(*http.Request) (string, error)
	config  config
	learner learner
	paces   paces
	behind  background
	held    holding
	unknown atomic.Int64

	unsettled, unlearned, mismatched unsettled.Log

	missing unsettled.Missing
}

// A Report is the outcome of an admitted call.
type Report struct {
	Call     Call   `json:"call"`
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	// Unknown is the method and the path of a request without a format, see [WithUnknown]; "" for calls.
	Unknown string `json:"unknown,omitempty"`
	// Host is where the request went, such as api.openai.com.
	Host string `json:"host,omitempty"`
	// Status is that of the response; 0 without one.
	Status int `json:"status"`
	// Duration is the time from sending the request to the end of the answer, and FirstByte that to its first byte; 0 without
	// an answer. They count from when the call was admitted.
	Duration  time.Duration `json:"-"`
	FirstByte time.Duration `json:"-"`
	Usage     Usage         `json:"usage"`
	// CutOff says that the stream was ended since a limit was used up, see [WithCutOff].
	CutOff bool `json:"cut_off,omitempty"`
	// Charged is the final charge of each limit, in tokens.
	Charged zlimit.Amounts `json:"charged"`
	// Err is why the lease could not be settled, or why an unknown request was refused or not answered. The estimate stays charged. Where
	// the error is a [*zlimit.UnavailableError] that is Unknown, the correction may be written, and Charged has it.
	Err error `json:"-"`
}

// NewTransport returns a transport that charges calls to an entity. A function finds the entity, such as [For] and
// [FromContext]. An error of that function fails the request.
func NewTransport(l *zlimit.RateLimiter, entity func(*http.Request) (string, error), opts ...Option) (*Transport, error) {
	if l == nil {
		return nil, invalid("limiter", "nil", "must not be nil")
	}
	if entity == nil {
		return nil, invalid("entity", "nil", "must not be nil")
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return &Transport{limiter: l, entity: entity, config: c}, nil
}

// For charges every call to one entity.
func For(entity string) func(*http.Request) (string, error) {
	return func(*http.Request) (string, error) { return entity, nil }
}

type entityKey struct{}

// ContextWithEntity returns a context whose requests are charged to an entity by [FromContext].
func ContextWithEntity(ctx context.Context, entity string) context.Context {
	return context.WithValue(ctx, entityKey{}, entity)
}

// FromContext charges a call to the entity that [ContextWithEntity] put into its context. A call without one fails with a
// [*zlimit.ValidationError].
func FromContext(r *http.Request) (string, error) {
	entity, ok := r.Context().Value(entityKey{}).(string)
	if !ok {
		return "", invalid("entity", "", "must be in the context, from ContextWithEntity")
	}
	return entity, nil
}

// Wait returns when all that goes on behind the callers is done, or with the error of the context. These are the
// answers that callers have left, the settling of calls whose contexts have ended, and the writes of [WithLearning].
// Calls whose responses are made in the background, and which no request has shown at their end, are settled at their
// bound. Call Wait after the last request, and before the limiter is closed.
func (t *Transport) Wait(ctx context.Context) error {
	t.settleHeld()
	return t.behind.wait(ctx)
}

// RoundTrip implements [http.RoundTripper]. It costs as much as [zlimit.RateLimiter.Acquire] and [zlimit.Lease.Commit],
// and another Acquire for an estimate above the capacity of a limit, or two for one above what a quota can have within a window.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, err := t.admit(r)
	switch {
	case err != nil && t.config.respond:
		if response := refusal(r, err); response != nil {
			if exceeded, ok := errors.AsType[*zlimit.ExceededError](err); ok {
				t.config.describe(response.Header, exceeded.Statuses)
			}
			return response, nil
		}
		return nil, err
	case err != nil:
		return nil, err
	case x.format == nil:
		return t.pass(r, x.unknown)
	}
	return x.send(r)
}

// An exchange is a call that was admitted.
type exchange struct {
	transport  *Transport
	call       Call
	format     *format // nil for a request that is sent as it is
	unknown    bool    // no format is for the request
	request    string  // the method and the path of an unknown one that is charged
	spool      *spool
	usage      edit   // of the request, which asks for the usage
	phase      uint16 // of its amounts at a pace
	background bool   // the answer may come before the response is made
	entity     string
	shares     []*share // that of the model that is asked first
	host       string
	path       string
	region     string // that the address names
	sent       time.Time
	first      atomic.Int64 // nanoseconds from sent to the first byte of the answer
	cutOff     atomic.Bool
	settling   atomic.Bool
	settled    chan struct{} // closed when it is
}

// admit acquires the estimate of a call. For a request that is no call it returns an exchange without a format. When it
// fails the body of the request is closed.
func (t *Transport) admit(r *http.Request) (x *exchange, err error) {
	admitted := false
	defer func() {
		if !admitted && r.Body != nil {
			_ = r.Body.Close() // as a transport must; also when the entity's function panics
		}
	}()
	p, model, unknown := t.config.table.classify(r)
	if unknown {
		if p, err = t.meet(r); err != nil {
			return nil, err
		}
	}
	if p == nil {
		admitted = true
		return &exchange{unknown: unknown}, nil
	}
	q, spool, err := inspect(r, p, model, &t.config)
	if err != nil {
		return nil, err
	}
	defer func() {
		if !admitted {
			spool.release()
		}
	}()
	x = &exchange{transport: t, call: q.call, format: p.format, spool: spool, background: q.background, region: regionOf(r.URL), settled: make(chan struct{})}
	if unknown {
		x.request = r.Method + " " + r.URL.Path
	}
	if t.config.includeUsage {
		x.usage = q.askForUsage()
	}
	if err = x.divide(); err != nil {
		return nil, err
	}
	if x.entity, err = t.entity(r); err != nil {
		return nil, err
	}
	if t.config.check != nil {
		if err := x.check(func(c Call) error { return t.config.check(r, c) }); err != nil {
			return nil, err
		}
	}
	if err := x.estimate(r); err != nil {
		return nil, err
	}
	if err := x.acquire(r.Context()); err != nil {
		return nil, err
	}
	x.sawPace()
	admitted = true
	return x, nil
}

// send sends the call, whose answer will settle it.
func (x *exchange) send(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	x.host, x.path, x.sent = r.URL.Host, r.URL.Path, time.Now()
	outbound, way, cancel := x.outbound(r)
	defer x.spool.release()
	stop := context.AfterFunc(ctx, cancel)
	tried := false
	unanswered := func() {
		stop()
		cancel()
		usage := Usage{Model: x.call.Model}
		unsent := !tried || way.ended()
		if !unsent {
			usage.Input = x.call.Input
			if x.background {
				usage.Output = x.call.Output
			}
		}
		x.settle(ctx, outcome{unsent: unsent, usage: usage})
	}
	returned := false
	defer func() {
		if !returned { // the base panics
			unanswered()
		}
	}()
	body, err := x.spool.open(x.usage)
	var response *http.Response
	if err == nil {
		outbound.Body, tried = body, true
		response, err = x.transport.config.base.RoundTrip(outbound)
	}
	returned = true
	if err != nil {
		unanswered()
		return nil, err
	}
	stop()
	answered := *response // a copy, since bases may keep theirs
	answered.Request = r
	answered.Body = x.answer(ctx, r, response, cancel)
	answered.Header = response.Header.Clone()
	x.transport.config.describe(answered.Header, x.own().lease.Statuses())
	if x.filters(response) {
		answered.ContentLength = -1
		answered.Header.Del("Content-Length")
	}
	return &answered, nil
}

// describe sets the fields for limits, if configured.
func (c *config) describe(header http.Header, statuses zlimit.Statuses) {
	if c.paced { // which is no limit of clients
		statuses = slices.DeleteFunc(slices.Clone(statuses), func(s zlimit.Status) bool { return s.Limit.Name == c.pace })
	}
	if c.fields != nil && len(statuses) > 0 {
		policy, state := c.fields.Values(fields.InOrder(statuses))
		header.Set("RateLimit-Policy", policy)
		header.Set("RateLimit", state)
	}
}

// A way is how far a request has come, as traced from its base.
type way struct{ asked, wrote atomic.Bool }

// ended reports that the request was not written whole. A base that does not report when it asks for a connection may have written it.
func (w *way) ended() bool { return w.asked.Load() && !w.wrote.Load() }

// outbound returns the request as it is sent, how far it comes, and the function that ends it.
func (x *exchange) outbound(r *http.Request) (*http.Request, *way, context.CancelFunc) {
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if x.transport.draining() { // the caller's end is not that of the request
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	w := new(way)
	trace := &httptrace.ClientTrace{
		GetConn:      func(string) { w.asked.Store(true) },
		WroteRequest: func(info httptrace.WroteRequestInfo) { w.wrote.Store(info.Err == nil) },
	}
	outbound := r.Clone(httptrace.WithClientTrace(ctx, trace))
	outbound.GetBody = func() (io.ReadCloser, error) { return x.spool.open(x.usage) }
	if x.usage.text != "" {
		if outbound.ContentLength > 0 {
			outbound.ContentLength += x.usage.grows()
		}
		if outbound.Header.Get("Content-Length") != "" {
			outbound.Header.Set("Content-Length", strconv.FormatInt(outbound.ContentLength, 10))
		}
	}
	if x.usage.text != "" || x.transport.config.cutsOff && x.call.Stream {
		outbound.Header.Del("Accept-Encoding") // what is taken out, or cut off, must not be compressed
	}
	acceptReadable(outbound.Header)
	return outbound, w, cancel
}

// answer returns the body of a response, which settles the call at its end.
func (x *exchange) answer(ctx context.Context, r *http.Request, response *http.Response, cancel context.CancelFunc) io.ReadCloser {
	meter := newMeter(x.call, x.format, response.Header, &timedBody{response.Body, x})
	settle := func() {
		if x.hold(ctx, response, meter) {
			return
		}
		usage, parts := meter.Usage(), meter.parts()
		if response.StatusCode < 200 || response.StatusCode > 299 {
			usage, parts = Usage{Model: usage.Model}, nil
		} else if x.background && !usage.Complete && meter.goesOn() {
			usage, parts = x.bound(usage.Model), nil
		}
		x.settle(ctx, outcome{status: response.StatusCode, response: meter.refusal(response), usage: usage, parts: parts, delay: meter.retryDelay()})
	}
	body := x.cuts(ctx, r, meter)
	if x.filters(response) {
		body = newUsageFilter(body, isEventStream(response.Header))
	}
	t := x.transport
	if t.draining() {
		return t.drain(ctx, body, settle, cancel)
	}
	a := &answer{ReadCloser: body, settle: settle}
	a.stop = context.AfterFunc(ctx, func() {
		defer t.behind.begin()()
		meter.stop() // who cancels need not close
		settle()
	})
	return a
}

// A timedBody notes when the first byte of an answer comes.
type timedBody struct {
	io.ReadCloser
	x *exchange
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.x.first.CompareAndSwap(0, int64(time.Since(b.x.sent)))
	}
	return n, err
}

// filters reports whether a chunk may be taken out of an answer that its caller did not ask for. Some servers call events by another type.
func (x *exchange) filters(response *http.Response) bool {
	return x.usage.text != "" && (isEventStream(response.Header) || response.StatusCode == http.StatusOK)
}

// An outcome is what became of a call.
type outcome struct {
	unsent   bool
	status   int            // 0 without a response
	response *http.Response // that is learned from; nil when there is none
	usage    Usage
	parts    []part        // of it, what other models took
	delay    time.Duration // that the body of the response asks for
}

// settle writes the usage of a call, reports it to the observer, and learns from the response. It does so once; later callers wait until
// it is done.
func (x *exchange) settle(ctx context.Context, o outcome) {
	if !x.settling.CompareAndSwap(false, true) {
		<-x.settled
		return
	}
	defer close(x.settled)
	ctx = context.WithoutCancel(ctx)
	c := &x.transport.config
	o.usage.Region = cmp.Or(o.usage.Region, x.region)
	report := Report{Call: x.call, Entity: x.entity, Resource: x.own().resource, Unknown: x.request, Host: x.host, Usage: o.usage}
	report.Duration, report.FirstByte = time.Since(x.sent), time.Duration(x.first.Load())
	x.slowDown(ctx, o.response)
	report.Charged, report.Err = x.correct(ctx, o)
	if report.Err != nil {
		x.transport.unsettled.Error(ctx, c.logger, "llm: a call could not be settled", report.Err, "entity", x.entity, "resource", x.own().resource)
	}
	report.Status, report.CutOff = o.status, x.cutOff.Load()
	if n := o.usage.Mismatch; n != 0 {
		x.transport.mismatched.Warn(ctx, c.logger, "llm: the total of a provider differs from its counts", errMismatch, "model", o.usage.Model, "host", x.host, "tokens", n)
	}
	x.learnLength(o.usage)
	c.observe(ctx, report)
	if o.response != nil {
		x.transport.learn(ctx, x.own().resource, o.response, o.delay)
	}
}

// errMismatch is why a call whose provider reports all counts is not complete.
var errMismatch = errors.New("the greater of both is charged")

// An answer is a body that settles its call.
type answer struct {
	io.ReadCloser
	settle func()
	stop   func() bool // waiting for the end of the context
	end    error       // that the body has returned; nil before
}

// Read reads the answer. It returns the last bytes as they come, and settles before it returns the end or an error, in the next call.
func (a *answer) Read(p []byte) (n int, err error) {
	if a.end == nil {
		n, a.end = a.ReadCloser.Read(p)
	}
	if n > 0 || a.end == nil {
		return n, nil
	}
	a.stop()
	a.settle()
	return 0, a.end
}

// Close closes the answer and settles.
func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	a.stop()
	a.settle()
	return err
}

func isEventStream(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream")
}
