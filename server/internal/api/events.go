package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Events hands the events of limiters on to those who read them. It has the events of this process alone. It is safe for concurrent use.
type Events struct {
	mu      sync.RWMutex
	readers map[*reader]bool
	some    atomic.Bool // there are readers
}

// The bounds of readers.
const (
	maxReaders = 64
	maxPending = 256 // events that a slow reader is behind
)

// A reader reads events of a namespace.
type reader struct {
	namespace string
	kinds     []zlimit.EventKind // all if empty
	pending   chan []byte
	lost      atomic.Uint64
}

// NewEvents returns events without readers.
func NewEvents() *Events { return &Events{readers: map[*reader]bool{}} }

// Observer returns the observer of a limiter of a namespace. Without readers it costs an atomic load for each event.
func (e *Events) Observer(namespace string) zlimit.Observer {
	return func(_ context.Context, event zlimit.Event) {
		if !e.some.Load() {
			return
		}
		e.mu.RLock()
		defer e.mu.RUnlock()
		var message []byte
		for r := range e.readers {
			if r.namespace != namespace || len(r.kinds) > 0 && !slices.Contains(r.kinds, event.Kind) {
				continue
			}
			if message == nil {
				data, err := json.Marshal(event)
				if err != nil {
					return
				}
				message = fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event.Kind, data)
			}
			select {
			case r.pending <- message:
			default:
				r.lost.Add(1)
			}
		}
	}
}

// add adds a reader, unless there are too many.
func (e *Events) add(r *reader) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.readers) >= maxReaders {
		return false
	}
	e.readers[r] = true
	e.some.Store(true)
	return true
}

func (e *Events) remove(r *reader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.readers, r)
	e.some.Store(len(e.readers) > 0)
}

// kinds are the kinds of events that a reader may ask for, by name.
var kinds = func() map[string]zlimit.EventKind {
	all := map[string]zlimit.EventKind{}
	for k := zlimit.EventDecision; k <= zlimit.EventAlert; k++ {
		all[k.String()] = k
	}
	return all
}()

// beat is the time between two lines of a stream without events, so that neither side takes it for dead.
const beat = 15 * time.Second

// events serves GET /v1/events.
func (h *handler) events(c *call, q *struct{ Kinds string }) (any, error) {
	if err := c.mayName(""); err != nil { // events of an entity name its parents, too
		return nil, err
	}
	r := &reader{namespace: c.namespace, pending: make(chan []byte, maxPending)}
	for _, name := range strings.FieldsFunc(q.Kinds, func(r rune) bool { return r == ',' }) {
		r.kinds = append(r.kinds, kinds[name])
	}
	if !h.Events.add(r) {
		return nil, busy("too_many_readers", "Too many read events", "Retry when another reader has left.")
	}
	defer h.Events.remove(r)
	h.stream(c, r)
	return written, nil
}

// stream writes events to a reader until it leaves, or the server drains.
func (h *handler) stream(c *call, r *reader) {
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(c.w)
	write := func(message []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(beat)) // a reader that takes nothing is gone
		_, err := c.w.Write(message)
		if err == nil {
			err = rc.Flush()
		}
		return err == nil
	}
	if !write([]byte(": events that this process sees; other replicas have their own\n\n")) {
		return
	}
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for draining := false; !draining; {
		var message []byte
		select {
		case message = <-r.pending:
		case <-ticker.C:
			message = []byte(": no event\n\n")
		case <-c.r.Context().Done():
			return
		case <-h.Draining:
			for len(r.pending) > 0 && write(<-r.pending) {
			}
			message, draining = []byte("event: end\ndata: {\"reason\":\"draining\"}\n\n"), true
		}
		if lost := r.lost.Swap(0); lost > 0 && !write(fmt.Appendf(nil, "event: lost\ndata: {\"events\":%d}\n\n", lost)) {
			return
		}
		if !write(message) {
			return
		}
	}
}
