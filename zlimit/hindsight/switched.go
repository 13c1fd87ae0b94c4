package hindsight

import (
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Switch is a switch that rejected requests in a time.
type Switch struct {
	Level // which it was at, as it was set

	From, To time.Time          // when it was set and lifted within the time; zero for before and after it
	Lifted   *zlimit.AuditEvent // which lifted it; nil where it was not, or that is not kept
	Passing  bool               // requests were charged to its level for a part of the time
}

// Whole reports whether the switch rejected requests from the beginning of the time to its end.
func (s *Switch) Whole() bool { return s.From.IsZero() && s.To.IsZero() && !s.Passing }

// lag is how long a process may go on rejecting requests after a switch was lifted: it keeps what it knows of a level for so long by default.
const lag = time.Minute

// disabled returns the first switch that rejected requests in a time; nil for none.
func (h *history) disabled(from, to time.Time) (s *Switch) {
	for _, t := range h.changes(from, to) {
		off := h.off(t)
		switch on := off != nil && off.State == zlimit.SwitchDisabled; {
		case on && s == nil:
			s = &Switch{Level: *off}
			if t.After(from) {
				s.From = t
			}
		case !on && s != nil:
			s.To, s.Lifted = t, h.event(t)
			return s
		}
	}
	return s
}

// event returns the event that changed a level at a time; nil for none.
func (h *history) event(at time.Time) *zlimit.AuditEvent {
	for i := range h.levels {
		r := &h.levels[i]
		if j := slices.IndexFunc(r.events, func(e zlimit.AuditEvent) bool { return r.set(&e) && e.Time.Equal(at) }); j >= 0 {
			return &r.events[j]
		}
	}
	return nil
}
