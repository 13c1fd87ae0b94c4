package quota

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxReset bounds how far ahead a provider's reset or retry time is believed.
const maxReset = 31 * 24 * time.Hour

// Transport is an http.RoundTripper that learns from the rate limit headers of a provider's responses. The headers have
// the rest of the provider's own limits until their reset, and the time to retry. From then on the limiter also refuses
// requests that the provider would refuse, until the reset or the next response. It reads
// x-ratelimit-{limit,remaining,reset}-{requests,tokens} and
// anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}. On 429, 503 and 529 it also
// reads retry-after and retry-after-ms.
//
// The zero value of every field but Limiter is usable. It is safe for
// concurrent use.
type Transport struct {
	Limiter *Limiter // required
	// Model names the model of a request; empty: nothing is learned. Default:
	// what WithModel or WithReservation put into the request's context.
	Model func(*http.Request) string
	// Base does the work. Default: http.DefaultTransport.
	Base http.RoundTripper
	// OnError is called with headers that cannot be understood; they are ignored.
	// Default: they are ignored silently.
	OnError func(error)
}

// RoundTrip passes the request on and learns from the response, which it leaves
// as it is.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	model, res := t.callOf(r)
	if t.Limiter == nil || model == "" {
		return base.RoundTrip(r)
	}
	if err := ValidateName("model", model); err != nil {
		t.report(err)
		return base.RoundTrip(r)
	}
	mem := t.Limiter.mem
	model = t.Limiter.localModel(model)
	trip := mem.beginTrip(model, res)
	resp, err := base.RoundTrip(r)
	if err != nil {
		mem.failTrip(&trip)
		return resp, err
	}
	news, err := readNews(model, resp.StatusCode, resp.Header, mem.now())
	news.sent = trip.sent
	mem.endTrip(&trip, news)
	t.Limiter.waiting.wake()
	if err != nil {
		t.report(err)
	}
	return resp, nil
}

// callOf returns the model of a request and, where its context has it, the
// reservation.
func (t *Transport) callOf(r *http.Request) (string, *Reservation) {
	model, _ := r.Context().Value(modelKey{}).(string)
	res, _ := r.Context().Value(reservationKey{}).(*Reservation)
	if res != nil {
		model = res.req.Model
	}
	if t.Model != nil {
		model = t.Model(r)
	}
	return model, res
}

func (t *Transport) report(err error) {
	if t.OnError != nil {
		t.OnError(err)
	}
}

type (
	modelKey       struct{}
	reservationKey struct{}
)

// WithModel returns a context that names the model of the HTTP requests made
// with it, for a Transport without a Model function.
func WithModel(ctx context.Context, model string) context.Context {
	return context.WithValue(ctx, modelKey{}, model)
}

// WithReservation returns a context that names the reservation, and thereby the model, of HTTP requests made with it. A
// Transport then knows exactly which request the response has counted. Without it the Transport takes requests to be
// sent in the order in which they were reserved.
func WithReservation(ctx context.Context, r *Reservation) context.Context {
	return context.WithValue(ctx, reservationKey{}, r)
}

// Learn updates a model's known limits at the provider by the status and headers of a response that
// has just arrived. Settle or record its call first: Learn takes every open reservation for one
// that the provider may not have counted. The error joins what could not be understood; everything
// else has been learned.
func (l *Limiter) Learn(model string, status int, h http.Header) error {
	if err := ValidateName("model", model); err != nil {
		return err
	}
	model = l.localModel(model)
	now := l.mem.now()
	news, err := readNews(model, status, h, now)
	news.sent = now
	l.mem.learnAlone(model, news)
	l.waiting.wake()
	return err
}

// readNews reads the limits in a response. The error joins all unreadable headers.
func readNews(model string, status int, h http.Header, now int64) (*news, error) {
	p := headerParser{h: h, now: now}
	n := &news{
		at: now, worked: status < http.StatusBadRequest,
		denied: &ExceededError{Scope: ScopeModel, Name: model, Limit: LimitProvider},
	}
	for i, kind := range []string{"requests", "tokens", "input-tokens", "output-tokens"} {
		a := "anthropic-ratelimit-" + kind + "-"
		n.budgets[i] = p.budget(a+"limit", a+"remaining", a+"reset")
		if x := "x-ratelimit-"; n.budgets[i].until == 0 {
			n.budgets[i] = p.budget(x+"limit-"+kind, x+"remaining-"+kind, x+"reset-"+kind)
		}
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, 529: // 529: overloaded
		n.retryAt = p.retryAt()
	}
	n.silent = n.retryAt == 0 && (status == http.StatusTooManyRequests || status >= http.StatusInternalServerError)
	return n, errors.Join(p.errs...)
}

// A headerParser collects unreadable headers.
type headerParser struct {
	h    http.Header
	now  int64
	errs []error
}

func (p *headerParser) fail(header, rule string) {
	v := p.h.Get(header)
	if len(v) > 64 {
		v = v[:64] + "…"
	}
	p.errs = append(p.errs, &ValidationError{Field: "header " + header, Value: v, Rule: rule})
}

// budget reads one limit; it is zero unless remaining and reset are given.
func (p *headerParser) budget(limit, remaining, reset string) budget {
	if p.h.Get(remaining) == "" || p.h.Get(reset) == "" {
		return budget{}
	}
	left, err := strconv.ParseInt(strings.TrimSpace(p.h.Get(remaining)), 10, 64)
	if err != nil {
		p.fail(remaining, "must be a whole number")
		return budget{}
	}
	b := budget{left: max(0, left)}
	if v := p.h.Get(limit); v != "" {
		if b.limit, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64); err != nil {
			p.fail(limit, "must be a whole number")
		}
	}
	d, err := p.untilReset(p.h.Get(reset))
	if err != nil {
		p.fail(reset, err.Error())
		return budget{}
	}
	b.until = p.now + int64(max(d, 1))
	return b
}

var errReset = fmt.Errorf("must be a duration, seconds or a time, at most %v ahead", maxReset)

// untilReset understands a duration ("6m0s", "12ms"), a number of seconds, and
// a time as RFC 3339 or in HTTP's form. A time is taken relative to the
// response's Date if it has one, so that the machine's clock need not agree
// with the provider's.
func (p *headerParser) untilReset(v string) (time.Duration, error) {
	v = strings.TrimSpace(v)
	d, err := time.ParseDuration(v)
	if err != nil {
		var sec float64
		if sec, err = strconv.ParseFloat(v, 64); err == nil && sec >= 0 && sec <= maxReset.Seconds() {
			d = time.Duration(sec * float64(time.Second))
		} else if err == nil {
			return 0, errReset
		}
	}
	if err != nil {
		var at time.Time
		if at, err = time.Parse(time.RFC3339Nano, v); err != nil {
			if at, err = http.ParseTime(v); err != nil {
				return 0, errReset
			}
		}
		from := fromNanos(p.now)
		if date, err := http.ParseTime(p.h.Get("Date")); err == nil {
			from = date
		}
		d = max(0, at.Sub(from))
	}
	if d < 0 || d > maxReset {
		return 0, errReset
	}
	return d, nil
}

// retryAt reads when to send again; zero where the response does not say.
func (p *headerParser) retryAt() int64 {
	if v := p.h.Get("retry-after-ms"); v != "" {
		ms, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err == nil && ms >= 0 && ms <= float64(maxReset.Milliseconds()) {
			return p.now + int64(ms*float64(time.Millisecond))
		}
		p.fail("retry-after-ms", "must be milliseconds")
	}
	if v := p.h.Get("retry-after"); v != "" {
		d, err := p.untilReset(v)
		if err == nil {
			return p.now + int64(d)
		}
		p.fail("retry-after", err.Error())
	}
	return 0
}
