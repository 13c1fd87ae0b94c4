package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/hindsight"
)

// A past reads what is kept of an entity and a resource around a time.
type past struct {
	page *page
	q    *whyQuery
	kept *hindsight.Past
}

// row writes a moment; one that is nothing else is the time in question.
func (p *past) row(m *hindsight.Moment) whyRow {
	row := whyRow{When: moment(m.Time, p.q.now, time.UTC)}
	if minute := m.Refused != nil || m.Used == nil && m.Change == nil && p.q.end.After(p.q.at); minute && sameDay(m.Time, p.q.now) {
		row.When = m.Time.UTC().Format("15:04")
	}
	switch {
	case m.Refused != nil:
		r := refusedThen{*m.Refused}
		row.Tag, row.Class, row.Whose, row.URL, row.What = "refused", "no", named(r.LimitEntity), entityURL(r.LimitEntity, p.q.resource), r.text()
	case m.Change != nil:
		c := changeOf(m.Change)
		row.Tag, row.Class, row.Whose, row.URL, row.What, row.By = "changed", "low", c.Subject, c.URL, c.What, "by "+c.Who+c.Where
	case m.Used != nil:
		var parts []string
		for _, limit := range slices.Sorted(maps.Keys(m.Used.Consumed)) {
			parts = append(parts, amount(limit, m.Used.Consumed[limit].Float64())+" "+titled(limit))
		}
		row.Tag, row.Class, row.Whose, row.URL = "used", "off", named(m.Level.Entity), entityURL(m.Level.Entity, m.Level.Resource)
		row.What = strings.Join(parts, ", ")
		if m.Level.Resource != p.q.resource {
			row.What += " of " + named(m.Level.Resource)
		}
		row.What += ", in the hour from here"
	default:
		row.Tag, row.What = "asked", "the time in question"
	}
	return row
}

// notes say what is not kept.
func (p *past) notes(body *whyBody, line *hindsight.Line) {
	if cut := p.kept.Cut(); len(cut) > 0 {
		for i := range cut {
			cut[i] = named(cut[i])
		}
		body.Notes = append(body.Notes, fmt.Sprintf("Of %s only the last %s changes were looked at.", listed(cut), grouped(hindsight.Most)))
	}
	if !line.Changed {
		body.Notes = append(body.Notes, "No changes of its limits are kept. Audit events are kept for 90 days, unless the system says otherwise.")
	}
	if !line.Counted {
		body.Notes = append(body.Notes, "No usage is counted in these hours.")
	}
	if len(line.During) == 0 && line.Nearest == nil {
		body.Notes = append(body.Notes, "No refusals of it are reported around this time. Processes report them where they are set to, and reports are kept for seven days by default.")
	}
}
