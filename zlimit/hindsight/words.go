package hindsight

import (
	"fmt"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Words write what an [Explanation] has as text. The fields write its parts in the form of the program, and all must be set.
type Words struct {
	Limit  func(*zlimit.Limit, *Level) string // a limit and, if that is of interest, its level
	Who    func(*zlimit.AuditEvent) string    // who made a change; "" for unknown
	Moment func(time.Time) string             // when a limit was set
	Second func(time.Time) string             // when it changed within the time in question
}

// mostStretches bounds the values of a limit that a sentence has.
const mostStretches = 4

// Then says what the limit of a refusal was in its minute, and what it is now. It begins with a space.
func (w *Words) Then(r *Refused) string {
	text := w.sentence(r.Was, r.Is)
	if text == "" {
		text = "It is not among the stored limits of that time: the program brought it."
	}
	switch {
	case r.Impossible:
		text += " The requests asked for more than the limit can hold, so they can never be admitted."
	case r.TooLarge > 0:
		text += fmt.Sprintf(" Of the requests %d asked for more than the limit can hold, and can never be admitted.", r.TooLarge)
	}
	return " " + text
}

// sentence says what a limit was in stretches of a time, and what it is now. It is "" if it was none.
func (w *Words) sentence(stretches []Stretch, now *zlimit.Limit) string {
	if len(stretches) == 0 {
		return ""
	}
	last := &stretches[len(stretches)-1]
	return "The limit was " + w.then(stretches) + w.now(last.Limit, now)
}

func (w *Words) then(all []Stretch) string {
	first, last := &all[0], &all[len(all)-1]
	switch {
	case len(all) == 1:
		text := w.value(first)
		if by := first.Level.By; by != nil {
			text += w.by(first) + " at " + w.Moment(by.Time)
		}
		return text
	case len(all) == 3 && same(first.Limit, last.Limit):
		return w.between(&all[1]) + ", and " + w.value(last) + " before and after"
	case len(all) > mostStretches:
		return fmt.Sprintf("%s until %s, then %d other values, and %s from %s%s", w.value(first), w.Second(first.To), len(all)-2,
			w.value(last), w.Second(last.From), w.by(last))
	}
	parts := []string{w.value(first) + " until " + w.Second(first.To)}
	for i := 1; i < len(all)-1; i++ {
		parts = append(parts, w.between(&all[i]))
	}
	return strings.Join(parts, ", ") + ", and " + w.value(last) + " from " + w.Second(last.From) + w.by(last)
}

// between says what the limit was in a stretch between two others.
func (w *Words) between(s *Stretch) string {
	return w.value(s) + " from " + w.Second(s.From) + " to " + w.Second(s.To) + w.by(s)
}

func (w *Words) value(s *Stretch) string {
	if s.Limit == nil {
		return "none"
	}
	return w.Limit(s.Limit, s.Level)
}

// by says who set the limit of a stretch, beginning with a comma.
func (w *Words) by(s *Stretch) string {
	if s.Level == nil || s.Level.By == nil {
		return ""
	}
	if who := w.Who(s.Level.By); who != "" {
		return ", set by " + who
	}
	return ", set"
}

// Span says when a switch was on within the time in question: "" for all of it.
func (w *Words) Span(s *Switch) string {
	switch {
	case s.Whole():
		return ""
	case s.From.IsZero() && s.To.IsZero():
		return "for a part of it"
	case s.From.IsZero():
		return "until " + w.Second(s.To)
	case s.To.IsZero():
		return "from " + w.Second(s.From)
	default:
		return "from " + w.Second(s.From) + " to " + w.Second(s.To)
	}
}

// After says that processes may reject requests after a switch was lifted, beginning with a comma; "" where it was not.
func (*Words) After(s *Switch) string {
	if s.To.IsZero() {
		return ""
	}
	return ", and processes may have rejected some for another minute"
}

// Author says who set a switch, and who lifted it, as far as that is kept, beginning with a comma.
func (w *Words) Author(s *Switch) (text string) {
	if by := s.By; by != nil {
		text = ", set"
		if who := w.Who(by); who != "" {
			text += " by " + who
		}
		text += " at " + w.Moment(by.Time)
	}
	if by := s.Lifted; by != nil {
		text += ", lifted"
		if who := w.Who(by); who != "" {
			text += " by " + who
		}
	}
	return text
}

// now compares the limit with the present one.
func (w *Words) now(then, now *zlimit.Limit) string {
	switch {
	case same(then, now):
		return ", as now."
	case now == nil:
		return ", and is none now."
	default:
		return ", and is " + w.Limit(now, nil) + " now."
	}
}
