package llm

import (
	"container/list"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Bounds of what is held for calls whose responses are made in the background.
const (
	heldMost = 1024
	heldTime = time.Hour
)

// A held call is one whose response the provider makes in the background. A later request asks for the response, and its answer
// reports the usage.
type held struct {
	x        *exchange
	ctx      context.Context //nolint:containedctx // it is what the call is settled with
	at       string          // where the response is requested
	id       string
	status   int // of the answer to the call
	bound    Usage
	timer    *time.Timer
	position *list.Element
}

// A holding has the held calls of a transport. Its zero value has none. It is safe for concurrent use.
type holding struct {
	mu    sync.Mutex
	calls map[string]*held // by their place
	order list.List        // of *held, the oldest first
}

// add holds a call, and returns those that have to leave for it.
func (g *holding) add(h *held, expire func()) (out []*held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls == nil {
		g.calls = map[string]*held{}
	}
	if other := g.calls[h.at]; other != nil { // the provider has answered with the same response before
		g.remove(other)
		out = append(out, other)
	}
	if len(g.calls) >= heldMost {
		oldest := g.order.Front().Value.(*held)
		g.remove(oldest)
		out = append(out, oldest)
	}
	g.calls[h.at], h.position = h, g.order.PushBack(h)
	h.timer = time.AfterFunc(heldTime, expire)
	return out
}

// remove takes out a call. The holding is locked.
func (g *holding) remove(h *held) {
	delete(g.calls, h.at)
	g.order.Remove(h.position)
	h.timer.Stop()
}

// take takes out a call that is to be settled, and reports whether the call was held still.
func (g *holding) take(h *held) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls[h.at] != h {
		return false
	}
	g.remove(h)
	return true
}

// takeAll takes out all calls.
func (g *holding) takeAll() (all []*held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.order.Len() > 0 {
		h := g.order.Front().Value.(*held)
		g.remove(h)
		all = append(all, h)
	}
	return all
}

// find returns the call whose response a request asks for or cancels; nil for none.
func (g *holding) find(r *http.Request) *held {
	place := r.URL.Host + r.URL.Path
	switch r.Method {
	case http.MethodGet, "":
	case http.MethodPost:
		var ok bool
		if place, ok = strings.CutSuffix(place, "/cancel"); !ok {
			return nil
		}
	default:
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[place]
}

// hold keeps a call for a later request, if its answer says that the response is still made in the background.
func (x *exchange) hold(ctx context.Context, response *http.Response, meter *Meter) bool {
	if !x.background || response.StatusCode < 200 || response.StatusCode > 299 {
		return false
	}
	id, stage := meter.stage()
	if id == "" || stage == "" || hasEnded(stage) {
		return false
	}
	if !x.settling.CompareAndSwap(false, true) {
		return true
	}
	close(x.settled) // the copy below is what is settled; it has neither the body nor the request
	late := &exchange{
		transport: x.transport, call: x.call, format: x.format, request: x.request, entity: x.entity, shares: x.shares,
		host: x.host, sent: x.sent, settled: make(chan struct{}),
	}
	late.first.Store(x.first.Load())
	ctx = context.WithoutCancel(ctx)
	t := x.transport
	h := &held{
		x: late, ctx: ctx, at: x.host + x.path + "/" + id, id: id, status: response.StatusCode,
		bound: x.bound(meter.Usage().Model),
	}
	out := t.held.add(h, func() {
		defer t.behind.begin()()
		if t.held.take(h) {
			h.settle(h.bound)
		}
	})
	for _, other := range out {
		end := t.behind.begin()
		go func() {
			defer end()
			other.settle(other.bound)
		}()
	}
	t.learn(ctx, x.own().resource, meter.refusal(response), meter.retryDelay())
	return true
}

// bound returns the usage of a response that nothing shows at its end.
func (x *exchange) bound(model string) Usage {
	return Usage{Model: model, Input: x.call.Input, Output: x.call.Output}
}

// settle settles a call that was taken out.
func (h *held) settle(u Usage, parts ...part) {
	h.x.settle(h.ctx, outcome{status: h.status, usage: u, parts: parts})
}

// settleHeld settles all calls that are held at their bound.
func (t *Transport) settleHeld() {
	calls := make(chan *held)
	for range 16 {
		end := t.behind.begin()
		go func() {
			defer end()
			for h := range calls {
				h.settle(h.bound)
			}
		}()
	}
	for _, h := range t.held.takeAll() {
		calls <- h
	}
	close(calls)
}

// poll sends a request for the response of a held call. An answer with the response at its end settles the call.
func (t *Transport) poll(r *http.Request, h *held) (*http.Response, error) {
	outbound := r.Clone(r.Context())
	acceptReadable(outbound.Header)
	response, err := t.config.base.RoundTrip(outbound)
	if err != nil || response.StatusCode < 200 || response.StatusCode > 299 {
		return response, err
	}
	meter := newMeter(h.x.call, h.x.format, response.Header, response.Body)
	settle := func() {
		if id, stage := meter.stage(); id == h.id && hasEnded(stage) && t.held.take(h) {
			h.settle(meter.final(), meter.parts()...)
		}
	}
	answered := *response // a copy, since bases may keep theirs
	answered.Request = r
	a := &answer{ReadCloser: meter, settle: settle}
	a.stop = context.AfterFunc(r.Context(), func() {
		defer t.behind.begin()()
		meter.stop() // who cancels need not close
		settle()
	})
	answered.Body = a
	return &answered, nil
}

// hasEnded reports whether a response in a stage gets no longer.
func hasEnded(stage string) bool { return stage != "" && stage != "queued" && stage != "in_progress" }

// stage returns the name of a response and how far the provider has come with it, as far as the answer was read.
func (m *Meter) stage() (id, stage string) {
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	_ = json.Unmarshal([]byte(m.tally.facts.id), &id) // what is no string names nothing
	_ = json.Unmarshal([]byte(m.tally.facts.stage), &stage)
	return id, stage
}

// goesOn reports whether the provider may still make a response, whose caller has left.
func (m *Meter) goesOn() bool {
	_, stage := m.stage()
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	return !hasEnded(stage) && !m.tally.refused()
}

// final returns the usage of a response that has ended, also where the answer was not read to its end.
func (m *Meter) final() Usage {
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	return m.tally.usage(true)
}
