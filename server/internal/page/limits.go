package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A limitsBody lists the levels at which something is stored.
type limitsBody struct {
	Groups []levelGroup
	New    string
	More   bool
}

type levelGroup struct {
	Name, Says string
	Rows       []zlimit.Stored
}

const mostLevels = 500

func (p *page) limits(ctx context.Context, r *http.Request, _ User) (view, error) {
	body := &limitsBody{}
	v := view{Title: "Limits", Body: body, Path: []crumb{{p.Namespace, "/"}, {"limits", ""}}}
	q := zlimit.LevelQuery{Entity: r.URL.Query().Get("entity"), Resource: r.URL.Query().Get("resource")}
	groups := map[zlimit.Source]*levelGroup{
		zlimit.SourceSystem:        {Name: "The system", Says: "Holds where no other level has limits."},
		zlimit.SourceResource:      {Name: "Resources", Says: "Hold for every entity without a level of its own."},
		zlimit.SourceEntityDefault: {Name: "Defaults of entities", Says: "Hold for every resource for which the entity has no level."},
		zlimit.SourceEntity:        {Name: "Entities for a resource", Says: "Come before all others."},
	}
	set, err := p.Limiter.Managed.Set(ctx)
	if err != nil {
		return v, err
	}
	n, off, soft := 0, 0, 0
	for stored, err := range p.Limiter.Limits.List(ctx, q) {
		if err != nil {
			return v, err
		}
		if n++; n > mostLevels {
			body.More = true
			break
		}
		for i := range stored.Config.Limits {
			soft += btoi(stored.Config.Limits[i].Mode != zlimit.ModeEnforced)
		}
		off += btoi(isOff(&stored))
		stored.Managed = set.Has(&stored)
		g := groups[stored.Level.Source()]
		g.Rows = append(g.Rows, stored)
	}
	for _, source := range []zlimit.Source{zlimit.SourceEntity, zlimit.SourceEntityDefault, zlimit.SourceResource, zlimit.SourceSystem} {
		if g := groups[source]; len(g.Rows) > 0 {
			slices.SortStableFunc(g.Rows, func(a, b zlimit.Stored) int {
				return cmp.Or(btoi(isOff(&b))-btoi(isOff(&a)), cmp.Compare(named(a.Level.Entity), named(b.Level.Entity)), cmp.Compare(named(a.Level.Resource), named(b.Level.Resource)))
			})
			body.Groups = append(body.Groups, *g)
		}
	}
	v.Head.say("", "%s limits", plural(n, "level has"))
	if off > 0 {
		v.Head.say("", ", and ")
		v.Head.say("low", "%s switched off", plural(off, "level is"))
	} else if n > 0 {
		v.Head.say("", ", and all are in force")
	}
	v.Lead = lead("The first level with limits wins as a whole: an entity's for the resource, the entity's default, the resource's, the system's.")
	if soft > 0 {
		v.Lead += lead(" %s soft or shadow, and rejects nothing.", plural(soft, "limit is"))
	}
	v.Footer = "Read from the store now."
	return v, nil
}

// isOff reports whether a level switches its limits off.
func isOff(stored *zlimit.Stored) bool {
	return stored.Switch == zlimit.SwitchDisabled || stored.Switch == zlimit.SwitchBypassed
}

// An editBody is a level in a form.
type editBody struct {
	Level       zlimit.Level
	Name, For   string
	Text        string // a limit a line
	Before      string // the stored config, which must still be stored when the form is saved
	Notes       []string
	Error, Done string
	History     []listItem
	Exists      bool
}

// A previewBody is what a change would do.
type previewBody struct {
	editBody

	Diff                  []diffRow
	Buckets, Left, Tight  int
	Rows                  []bucketRow
	Facts                 []fact
	Nothing, Partly, Gone bool
}

type diffRow struct{ Name, Was, Is, Class, Word string }

const (
	mostLimits     = 16
	mostPreviewed  = 2000 // buckets
	shownPreviewed = 12
)

func levelOf(values url.Values) zlimit.Level {
	return zlimit.Level{Entity: values.Get("entity"), Resource: values.Get("resource")}
}

func (p *page) edited(ctx context.Context, at zlimit.Level) (editBody, zlimit.Config, error) {
	body := editBody{Level: at, Name: cmp.Or(named(at.Entity), "every entity"), For: cmp.Or(named(at.Resource), "every resource")}
	config, err := p.Limiter.Limits.Get(ctx, at)
	if err != nil {
		return body, config, err
	}
	body.Exists = !config.IsZero()
	lines := make([]string, len(config.Limits))
	for i := range config.Limits {
		lines[i] = config.Limits[i].String()
	}
	body.Text = strings.Join(lines, "\n")
	before, err := json.Marshal(config)
	body.Before = string(before)
	if config.Within != "" {
		body.Notes = append(body.Notes, "It lies within "+named(config.Within)+".")
	}
	if config.OnUnavailable != zlimit.PolicyInherit {
		body.Notes = append(body.Notes, "When the store does not answer: "+config.OnUnavailable.String()+".")
	}
	if config.Cascade != zlimit.CascadeInherit {
		body.Notes = append(body.Notes, "Parents are charged: "+string(config.Cascade)+".")
	}
	return body, config, err
}

func (p *page) editLimits(ctx context.Context, r *http.Request, _ User) (view, error) {
	at := levelOf(r.URL.Query())
	body, config, err := p.edited(ctx, at)
	v := view{Body: &body, Path: p.limitsPath()}
	if err != nil {
		return v, err
	}
	body.Done = p.done(r)
	subject := at.Entity
	switch {
	case at.Entity == "" && at.Resource == "":
		subject = zlimit.AuditSystem
	case at.Entity == "":
		subject = zlimit.AuditResource(at.Resource)
	}
	for event, err := range p.Limiter.Audit.Events(ctx, subject, zlimit.AuditQuery{Limit: 6, Reverse: true, Resource: at.Resource}) {
		if err != nil {
			return v, err
		}
		c := changeOf(&event)
		c.Subject, c.Where = "", ""
		body.History = append(body.History, c.item(p.Now()))
	}
	editHead(&v, &body, config)
	return v, nil
}

func (p *page) limitsPath() []crumb {
	return []crumb{{p.Namespace, "/"}, {"limits", "/limits"}, {"level", ""}}
}

func editHead(v *view, body *editBody, config zlimit.Config) {
	switch n := len(config.Limits); {
	case !body.Exists:
		v.Head.say("", "%s for %s has no level of its own", body.Name, body.For)
		v.Lead = lead("What is stored here comes before the levels around it. Saving makes the level.")
	case n == 0:
		v.Head.say("", "%s for %s: a level without limits", body.Name, body.For)
	default:
		v.Head.say("", "%s for %s: ", body.Name, body.For)
		parts := make([]string, 0, n)
		for i := range config.Limits[:min(n, 3)] {
			parts = append(parts, config.Limits[i].Name+" "+limitText(&config.Limits[i]))
		}
		if n > 3 {
			parts = append(parts, fmt.Sprintf("%d more", n-3))
		}
		v.Head.say("", "%s", listed(parts))
	}
}

// parseLimits reads a limit a line. The error names the line.
func parseLimits(text string) ([]zlimit.Limit, error) {
	var all []zlimit.Limit
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		var l zlimit.Limit
		if err := l.UnmarshalText([]byte(line)); err != nil {
			var invalid *zlimit.ValidationError
			if errors.As(err, &invalid) {
				return nil, fmt.Errorf("line %d: %s %s", i+1, line, invalid.Reason)
			}
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if seen[l.Name] {
			return nil, fmt.Errorf("line %d: %s occurs twice", i+1, l.Name)
		}
		seen[l.Name] = true
		all = append(all, l)
	}
	if len(all) > mostLimits {
		return nil, fmt.Errorf("there are %d limits, and a level has at most %d", len(all), mostLimits)
	}
	return all, nil
}

// again shows the form with what was typed, and why it was not accepted.
func (p *page) again(w http.ResponseWriter, r *http.Request, u User, status int, at zlimit.Level, text string, why error) {
	body, config, err := p.edited(r.Context(), at)
	if err != nil {
		p.fail(w, r, u, err)
		return
	}
	if errors.Is(why, errStale) {
		body.Error = "Nothing was saved: the limits were changed meanwhile. Below are your lines; what is stored now is " + cmp.Or(strings.ReplaceAll(body.Text, "\n", "  "), "nothing") + ". Preview again to go on from there."
	} else {
		body.Error = "Nothing was saved. " + why.Error()
	}
	body.Text = text
	v := view{Body: &body, Path: p.limitsPath()}
	editHead(&v, &body, config)
	p.show(w, status, "limits/edit", r.URL, u, v)
}

func (p *page) previewLimits(w http.ResponseWriter, r *http.Request, u User) {
	at, text := levelOf(r.PostForm), r.PostForm.Get("limits")
	next, err := parseLimits(text)
	if err != nil {
		p.again(w, r, u, http.StatusBadRequest, at, text, err)
		return
	}
	edited, config, err := p.edited(r.Context(), at)
	if err != nil {
		p.fail(w, r, u, err)
		return
	}
	if before := r.PostForm.Get("before"); before != edited.Before {
		p.again(w, r, u, http.StatusConflict, at, text, errStale)
		return
	}
	edited.Text = text
	body := &previewBody{editBody: edited, Diff: diffOf(config.Limits, next)}
	v := view{Screen: "limits/preview", Body: body, Path: p.limitsPath()}
	body.Nothing = !slices.ContainsFunc(body.Diff, func(d diffRow) bool { return d.Word != "stays" })
	if err := p.preview(r.Context(), body, at, next); err != nil {
		p.fail(w, r, u, err)
		return
	}
	switch {
	case body.Nothing:
		v.Head.say("", "Nothing would change")
	case body.Tight > 0:
		v.Head.say("", "This changes %s, and ", plural(body.Buckets, "bucket"))
		v.Head.say("no", "%s nothing left immediately", plural(body.Tight, "entity has"))
	case body.Buckets == 0:
		v.Head.say("", "No bucket uses this level now; it holds for those to come")
	default:
		v.Head.say("", "This changes %s, and every entity keeps room", plural(body.Buckets, "bucket"))
	}
	v.Lead = lead("Nothing is saved yet. Balances stay as they are, up to the new capacity: a raise adds no tokens by itself, and they flow in or come with the next period.")
	v.Footer = "A capacity unit of DynamoDB is 1 KB written. Buckets are those listed now; an entity that has not called for long has none, and starts full."
	p.show(w, http.StatusOK, "limits/preview", r.URL, u, v)
}

func diffOf(was, is []zlimit.Limit) []diffRow {
	var rows []diffRow
	for i := range is {
		old := limitNamed(was, is[i].Name)
		switch {
		case old == nil:
			rows = append(rows, diffRow{Name: is[i].Name, Is: is[i].String(), Word: "new", Class: ""})
		case *old == is[i]:
			rows = append(rows, diffRow{Name: is[i].Name, Is: is[i].String(), Word: "stays", Class: "off"})
		default:
			row := diffRow{Name: is[i].Name, Was: old.String(), Is: is[i].String(), Word: "changes", Class: "low"}
			if is[i].Capacity > old.Capacity {
				row.Word, row.Class = "rises", ""
			} else if is[i].Capacity < old.Capacity {
				row.Word, row.Class = "falls", "low"
			}
			rows = append(rows, row)
		}
	}
	for i := range was {
		if limitNamed(is, was[i].Name) == nil {
			rows = append(rows, diffRow{Name: was[i].Name, Was: was[i].String(), Word: "goes", Class: "no"})
		}
	}
	slices.SortStableFunc(rows, func(a, b diffRow) int { return cmp.Compare(btoi(a.Word == "stays"), btoi(b.Word == "stays")) })
	return rows
}

// preview finds the buckets that a level is for, and what they have left under other limits.
func (p *page) preview(ctx context.Context, body *previewBody, at zlimit.Level, next []zlimit.Limit) error {
	buckets, err := p.bucketsOf(ctx, at)
	if err != nil {
		return err
	}
	body.Partly = len(buckets) == mostPreviewed
	type after struct {
		row   bucketRow
		share float64
	}
	var rows []after
	for i := range buckets {
		b := &buckets[i]
		covered, err := p.covered(ctx, at, b)
		if err != nil {
			return err
		}
		if !covered {
			continue
		}
		body.Buckets++
		row, lowest := bucketRow{Entity: named(b.Entity), In: named(b.Resource), URL: entityURL(b.Entity, b.Resource)}, 1.0
		for j := range b.Statuses {
			st := b.Statuses[j]
			l := limitNamed(next, st.Limit.Name)
			if l == nil || *l == st.Limit {
				continue
			}
			st.Limit, st.Window, st.Available = *l, nil, min(st.Available, l.Capacity)
			c := statusCell(&st, p.Now())
			c.Column = l.Name
			row.Cells = append(row.Cells, c)
			if l.Mode == zlimit.ModeEnforced {
				lowest = min(lowest, shareOf(&st))
			}
		}
		row.Tag, row.TagClass = "keeps room", ""
		switch {
		case len(row.Cells) == 0:
			continue
		case lowest <= 0:
			row.Tag, row.TagClass = "refuses", "no"
			body.Tight++
		case lowest < lowShare:
			row.Tag, row.TagClass = "runs low", "low"
		}
		rows = append(rows, after{row, lowest})
	}
	slices.SortStableFunc(rows, func(a, b after) int { return cmp.Compare(a.share, b.share) })
	for _, r := range rows[:min(len(rows), shownPreviewed)] {
		body.Rows = append(body.Rows, r.row)
	}
	body.Left = len(rows) - len(body.Rows)
	body.Facts = []fact{
		{Name: "Buckets under this level", Value: grouped(int64(body.Buckets)), Note: "listed now"},
		{Name: "Have nothing left immediately", Value: grouped(int64(body.Tight)), Note: "after the change"},
		{Name: "Saving it costs", Value: saveCost(body), Note: "write units: level, audit event, registry"},
		{Name: "Holds everywhere", Value: "within " + span(p.ConfigTTL), Note: "here immediately; other processes read stored limits again after that time"},
	}
	if body.Tight > 0 {
		body.Facts[1].Class = "red"
	}
	return nil
}

// saveCost is what docs and LimitService say: two units for each item of a transaction, and one for the index of the event; a new level
// has a registry, and an index more.
func saveCost(body *previewBody) string {
	switch {
	case body.Nothing:
		return "nothing"
	case body.Exists:
		return "about 5"
	case body.Level.Entity != "":
		return "about 9"
	default:
		return "about 8"
	}
}

func (p *page) bucketsOf(ctx context.Context, at zlimit.Level) (all []zlimit.Bucket, err error) {
	if at.Entity != "" {
		for b, err := range p.Limiter.Entities.Buckets(ctx, at.Entity) {
			if err != nil {
				return nil, err
			}
			if at.Resource == "" || b.Resource == at.Resource {
				all = append(all, b)
			}
		}
		return all, nil
	}
	resources := []string{at.Resource}
	if at.Resource == "" {
		if resources, err = p.feed.resources(ctx); err != nil {
			return nil, err
		}
	}
	for _, resource := range resources {
		read, _, err := p.feed.buckets(ctx, resource)
		if err != nil {
			return nil, err
		}
		all = append(all, read.Buckets[:min(len(read.Buckets), mostPreviewed-len(all))]...)
	}
	return all, nil
}

// covered reports whether the limits of a bucket come from a level, or would.
func (p *page) covered(ctx context.Context, at zlimit.Level, b *zlimit.Bucket) (bool, error) {
	resolved, err := p.Limiter.Limits.Resolve(ctx, b.Entity, b.Resource)
	if isNoLimits(err) {
		return true, nil
	}
	order := []zlimit.Source{zlimit.SourceEntity, zlimit.SourceEntityDefault, zlimit.SourceResource, zlimit.SourceSystem}
	return err == nil && (resolved.Source == zlimit.SourceDefault || slices.Index(order, at.Source()) <= slices.Index(order, resolved.Source)), err
}

func (p *page) saveLimits(w http.ResponseWriter, r *http.Request, u User) {
	at, text := levelOf(r.PostForm), r.PostForm.Get("limits")
	next, err := parseLimits(text)
	if err != nil {
		p.again(w, r, u, http.StatusBadRequest, at, text, err)
		return
	}
	err = p.Limiter.Limits.Update(r.Context(), at, func(c *zlimit.Config) error {
		now, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if string(now) != r.PostForm.Get("before") {
			return errStale
		}
		c.Limits = next
		return nil
	})
	var invalid *zlimit.ValidationError
	switch {
	case errors.Is(err, errStale):
		p.again(w, r, u, http.StatusConflict, at, text, err)
	case errors.As(err, &invalid):
		p.again(w, r, u, http.StatusBadRequest, at, text, err)
	case err != nil:
		p.fail(w, r, u, err)
	default:
		p.feed.forget()
		to, _ := url.Parse(editURL(at))
		q := to.Query()
		q.Set("done", "limits")
		http.Redirect(w, r, "/limits/edit?"+q.Encode(), http.StatusSeeOther)
	}
}
