package quota

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxReset bounds how far ahead a provider's reset or retry time is believed.
const maxReset = 31 * 24 * time.Hour

// Transport is an http.RoundTripper that learns from the rate limit headers of
// a provider's responses: what is left of the provider's own limits until they
// reset, and when to retry. From then on the limiter also refuses what the
// provider would refuse, until the reset or the next response. It reads
// x-ratelimit-{limit,remaining,reset}-{requests,tokens},
// anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}
// and, on 429, 503 and 529, retry-after and retry-after-ms.
//
// The zero value of every field but Limiter is usable. It is safe for
// concurrent use.
type Transport struct {
	Limiter *Limiter // required
	// Model names the model of a request; empty: nothing is learned. Default:
	// what WithModel put into the request's context.
	Model func(*http.Request) string
	// Base does the work. Default: http.DefaultTransport.
	Base http.RoundTripper
	// OnError is told of headers that cannot be understood; they are left out.
	// Default: they are left out silently.
	OnError func(error)
}

// RoundTrip passes the request on and learns from the response, which it leaves
// as it is.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	var model string
	if t.Model != nil {
		model = t.Model(r)
	} else {
		model, _ = r.Context().Value(modelKey{}).(string)
	}
	if t.Limiter == nil {
		return base.RoundTrip(r)
	}
	sent := t.Limiter.mem.now()
	resp, err := base.RoundTrip(r)
	if err != nil || model == "" {
		return resp, err
	}
	if err := t.Limiter.learn(model, resp.StatusCode, resp.Header, sent); err != nil && t.OnError != nil {
		t.OnError(err)
	}
	return resp, nil
}

// Learn updates what is known of a model's limits at the provider from the
// status and headers of a response that has just arrived. The error joins what
// could not be understood; everything else has been learned.
func (l *Limiter) Learn(model string, status int, h http.Header) error {
	return l.learn(model, status, h, l.mem.now())
}

func (l *Limiter) learn(model string, status int, h http.Header, sent int64) error {
	if err := ValidateName("model", model); err != nil {
		return err
	}
	now := l.mem.now()
	p := headerParser{h: h, now: now}
	news := &learned{sent: sent}
	for i, kind := range []string{"requests", "tokens", "input-tokens", "output-tokens"} {
		a := "anthropic-ratelimit-" + kind + "-"
		news.budgets[i] = p.budget(a+"limit", a+"remaining", a+"reset")
		if x := "x-ratelimit-"; news.budgets[i].until == 0 {
			news.budgets[i] = p.budget(x+"limit-"+kind, x+"remaining-"+kind, x+"reset-"+kind)
		}
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, 529: // 529: overloaded
		news.retryAt = p.retryAt()
	}
	if news.alive(now) {
		l.learned.learn(model, news, now)
		l.waiting.wake()
	}
	return errors.Join(p.errs...)
}

// A headerParser collects what it cannot understand.
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
// response's Date where it has one, so that the machine's clock need not agree
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
