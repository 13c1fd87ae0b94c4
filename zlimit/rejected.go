package zlimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/heavy"
)

// RejectionReports are the settings of [WithRejectionReports].
type RejectionReports struct {
	// Top is the number of entries of a report, from 1 to 100; 20 for 0.
	Top int
	// Keep is how long reports are kept, from an hour to 30 days; 7 days for 0.
	Keep time.Duration
}

const (
	defaultTop     = 20
	maxTop         = 100
	defaultKeep    = 7 * 24 * time.Hour
	maxKeep        = 30 * 24 * time.Hour
	countersPerTop = 8 // counters in memory for each entry, so that counts are nearly exact
	reportEvery    = time.Minute
	reportTimeout  = 10 * time.Second
)

// WithRejectionReports makes this process report its most rejected requests, for [UsageService.Rejected] and `zlimit top --rejected`. It
// counts rejections in memory by entity, resource, and the strictest limit with its entity and resource. In a minute with rejections it
// writes one item, and in any other minute none. An item has a write unit per KB, about 12 entries of short names: a process that rejects
// requests in every minute writes some 88,000 units a month with the default of 20 entries. A report that cannot be written is logged, and
// is part of the next one.
func WithRejectionReports(r RejectionReports) Option {
	return func(o *options) {
		o.rejections = RejectionReports{cmp.Or(r.Top, defaultTop), cmp.Or(r.Keep, defaultKeep)}
	}
}

// A Rejection counts the requests of one entity for one resource that one limit rejected.
type Rejection struct {
	Entity      string `json:"entity"`
	Resource    string `json:"resource"`
	Limit       string `json:"limit"`        // the strictest one that rejected
	LimitEntity string `json:"limit_entity"` // whose limit it is: the entity itself, or a parent
	// LimitResource is the resource of that limit: the resource itself, or a wider one. Reports of older versions always name the resource
	// itself.
	LimitResource string `json:"limit_resource"`
	// Impossible says that the requests were for more than the limit can hold, so they can never be admitted. It is always false in reports
	// of older versions. Possible requests have a separate Rejection.
	Impossible bool `json:"impossible,omitempty"`
	// Count is an estimate. The true number is from AtLeast to AtMost.
	Count   int64 `json:"count"`
	AtLeast int64 `json:"at_least"`
	AtMost  int64 `json:"at_most"`
}

// Rejections are the most rejected requests of a range of time.
type Rejections struct {
	From     time.Time   `json:"from"`
	To       time.Time   `json:"to"`
	Total    int64       `json:"total"`   // of all requests, whether or not they are among the heaviest
	Reports  int         `json:"reports"` // that were read: one for a process and a minute
	Heaviest []Rejection `json:"heaviest"`
}

// A RejectedQuery says which rejections to read.
type RejectedQuery struct {
	From     time.Time `json:"from,omitzero"` // minutes that begin at this time or later; ten minutes before To where it is zero
	To       time.Time `json:"to,omitzero"`   // and before this, 31 days later at most; now where it is zero
	Entity   string    `json:"entity"`        // of the requests; "" for all
	Resource string    `json:"resource"`      // "" for all
	Max      int       `json:"max"`           // entries at most; 0 for all
}

// rejectionKey is what rejections are counted by.
type rejectionKey struct {
	entity, resource, limitEntity, limitResource, limit string

	impossible bool
}

// A rejectionLog counts the rejections of a limiter, and reports them.
type rejectionLog struct {
	l       *RateLimiter
	process string

	mu      sync.Mutex
	counter *heavy.Counter[rejectionKey]
	since   time.Time // of the first rejection in counter
	timer   *time.Timer
	writing sync.WaitGroup
	closed  bool
}

func newRejectionLog(l *RateLimiter) *rejectionLog {
	r := &rejectionLog{l: l, process: rand.Text()[:12]}
	r.counter = r.fresh()
	return r
}

func (r *rejectionLog) fresh() *heavy.Counter[rejectionKey] {
	return heavy.New[rejectionKey](countersPerTop * r.l.options.rejections.Top)
}

// rejected counts requests that a limit rejected. They are of the entity and the resource of the statuses, where those have some of the
// request's own: of several requests together, one was rejected.
func (l *RateLimiter) rejected(entity, resource string, e *ExceededError, requests int) {
	l.stats.rejected.Add(uint64(requests))
	if r := l.rejections; r != nil && len(e.Statuses) > 0 {
		strictest := &e.Statuses[0]
		for i := range e.Statuses {
			if s := &e.Statuses[i]; s.Ancestor == 0 && s.Wider == 0 {
				entity, resource = s.Entity, s.Resource
			}
		}
		r.add(rejectionKey{entity, resource, strictest.Entity, strictest.Resource, strictest.Limit.Name, !strictest.Possible()}, int64(requests))
	}
}

func (r *rejectionLog) add(key rejectionKey, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counter.Total() == 0 {
		r.since = r.l.now()
	}
	r.counter.Add(key, n)
	r.arm()
}

// arm schedules a write of the counts in a minute, unless one is scheduled.
func (r *rejectionLog) arm() {
	if r.timer != nil || r.closed {
		return
	}
	r.writing.Add(1)
	r.timer = time.AfterFunc(reportEvery, func() {
		defer r.writing.Done()
		r.write()
	})
}

// write writes a report, if there is something to report. It has the time that a report has, whatever the context of a caller.
//
//nolint:contextcheck,nolintlint // as said above; what is reported are its callers
func (r *rejectionLog) write() {
	r.mu.Lock()
	counted, since := r.counter, r.since
	r.counter, r.timer = r.fresh(), nil
	r.mu.Unlock()
	if counted.Total() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	err := r.save(ctx, counted, since)
	if err == nil {
		return
	}
	r.l.options.logger.Log(ctx, slog.LevelWarn, "zlimit: rejections could not be reported, and are tried again", "error", publicError("report rejections", err))
	r.mu.Lock()
	defer r.mu.Unlock()
	counted.Merge(r.counter)
	r.counter = counted
	r.since = since
	r.arm()
}

// reportEntries are the entries of a report, as JSON.
type reportEntries struct {
	Others int64         `json:"others"` // the most that any other key may have been counted
	Top    []reportEntry `json:"top"`
}

type reportEntry struct {
	Entity        string `json:"e"`
	Resource      string `json:"r"`
	LimitEntity   string `json:"p,omitempty"` // "" for the entity itself
	LimitResource string `json:"w,omitempty"` // "" for the resource itself
	Limit         string `json:"l"`
	Impossible    bool   `json:"i,omitempty"`
	Count         int64  `json:"n"`
	Error         int64  `json:"d,omitempty"`
}

// entriesOf returns the entries of a report.
func entriesOf(counted *heavy.Counter[rejectionKey], n int) (e reportEntries) {
	top, others := counted.Top(n)
	e.Others = others
	for _, c := range top {
		k := c.Key
		entry := reportEntry{k.entity, k.resource, k.limitEntity, k.limitResource, k.limit, k.impossible, c.Count, c.Error}
		if entry.LimitEntity == entry.Entity {
			entry.LimitEntity = ""
		}
		if entry.LimitResource == entry.Resource {
			entry.LimitResource = ""
		}
		e.Top = append(e.Top, entry)
	}
	return e
}

// errNotEntered is why a limiter that was opened in an outage reports nothing yet.
var errNotEntered = errors.New("the namespace is not known yet")

func (r *rejectionLog) save(ctx context.Context, counted *heavy.Counter[rejectionKey], since time.Time) error {
	entries, err := json.Marshal(entriesOf(counted, r.l.options.rejections.Top))
	if err != nil {
		return err
	}
	if r.l.ns.id() == "" {
		return errNotEntered
	}
	since = since.UTC()
	item := layout.RejectionReport{
		Key: layout.RejectionReportKey{
			NS: r.l.ns.id(), WindowKey: layout.WindowKey(string(WindowHourly), WindowHourly.Start(since)), Number: since.Minute(), Process: r.process,
		},
		Total: counted.Total(), Entries: string(entries), ExpiresAt: since.Add(r.l.options.rejections.Keep).Unix(),
	}
	_, err = r.l.table.Write(ctx, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: r.l.unlisted(item.Encode())})
	return err
}

// unlisted returns an item that expires. On DynamoDB it is in no index, which would cost a write more: a purge of the namespace scans.
func (l *RateLimiter) unlisted(item expr.Item) expr.Item {
	if !l.table.Partitioned() {
		return item
	}
	return slices.DeleteFunc(item, func(a expr.Attribute) bool { return layout.IsKeyAttribute(a.Name) })
}

// close writes what is left.
func (r *rejectionLog) close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil && r.timer.Stop() {
		r.writing.Done()
	}
	r.mu.Unlock()
	r.writing.Wait()
	r.write()
}

// Rejected returns the most rejected requests of this limiter since its last report, at most a minute ago. It makes no call. Without
// [WithRejectionReports] there are none.
func (l *RateLimiter) Rejected() Rejections {
	now := l.now().UTC()
	m := rejectionSum{Rejections: Rejections{From: now, To: now, Heaviest: []Rejection{}}}
	if r := l.rejections; r != nil {
		r.mu.Lock()
		total, since, entries := r.counter.Total(), r.since, entriesOf(r.counter, r.l.options.rejections.Top)
		r.mu.Unlock()
		if total > 0 {
			m.From = since.UTC()
			m.add(total, entries, RejectedQuery{})
		}
	}
	return m.result(0)
}

// Rejected returns the most rejected requests of a range, summed over all processes with [WithRejectionReports]. Reports are up to a minute
// old. Rejections of other processes are not included. It makes one query for each hour of the range, at half a read unit per 4 KB: two
// reports or so. It is safe for concurrent use.
func (s *UsageService) Rejected(ctx context.Context, q RejectedQuery) (Rejections, error) {
	q.complete(s.l.now())
	sum := rejectionSum{Rejections: Rejections{From: q.From, To: q.To}}
	err := s.reports(ctx, &q, func(_ time.Time, total int64, entries reportEntries) { sum.add(total, entries, q) })
	return sum.result(q.Max), err
}

// RejectedByMinute is [UsageService.Rejected] for each minute of the range with reports, in the order of time. A report has the rejections
// of up to a minute, and counts in the minute of its first rejection.
func (s *UsageService) RejectedByMinute(ctx context.Context, q RejectedQuery) ([]Rejections, error) {
	sums := map[time.Time]*rejectionSum{}
	err := s.reports(ctx, &q, func(minute time.Time, total int64, entries reportEntries) {
		if sums[minute] == nil {
			sums[minute] = &rejectionSum{Rejections: Rejections{From: minute, To: minute.Add(time.Minute)}}
		}
		sums[minute].add(total, entries, q)
	})
	all := make([]Rejections, 0, len(sums))
	for _, minute := range slices.SortedFunc(maps.Keys(sums), time.Time.Compare) {
		if sum := sums[minute].result(q.Max); len(sum.Heaviest) > 0 {
			all = append(all, sum)
		}
	}
	return all, err
}

// reports completes a query, and calls f for each report of its range.
func (s *UsageService) reports(ctx context.Context, q *RejectedQuery, f func(minute time.Time, total int64, entries reportEntries)) error {
	q.complete(s.l.now())
	if err := s.l.check(q.validate()); err != nil {
		return err
	}
	for hour := WindowHourly.Start(q.From); hour.Before(q.To); hour = WindowHourly.End(hour) {
		query := layout.QueryRejectionReports(s.l.ns.id(), layout.WindowKey(string(WindowHourly), hour))
		for item, err := range s.l.table.Items(ctx, query) {
			var report layout.RejectionReport
			if err == nil {
				report, err = layout.DecodeRejectionReport(item)
			}
			if err != nil {
				return publicError("read rejections", err)
			}
			minute := hour.Add(time.Duration(report.Key.Number) * time.Minute)
			if minute.Before(q.From.Truncate(time.Minute)) || !minute.Before(q.To) {
				continue
			}
			var entries reportEntries
			if err := json.Unmarshal([]byte(report.Entries), &entries); err == nil { // otherwise another version's
				f(minute, report.Total, entries)
			}
		}
	}
	return nil
}

// complete sets the ends that are not given.
func (q *RejectedQuery) complete(now time.Time) {
	if q.To.IsZero() {
		q.To = now
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-10 * time.Minute)
	}
	q.From, q.To = q.From.UTC(), q.To.UTC()
}

func (q *RejectedQuery) validate() error {
	switch {
	case !q.From.Before(q.To):
		return &ValidationError{Field: "to", Value: q.To.Format(time.RFC3339), Reason: "must be later than the beginning of the range"}
	case q.To.Sub(q.From) > maxKeep+24*time.Hour:
		return &ValidationError{Field: "from", Value: q.From.Format(time.RFC3339), Reason: "must be at most 31 days before the end of the range"}
	case q.Max < 0:
		return &ValidationError{Field: "max", Value: strconv.Itoa(q.Max), Reason: "must not be negative"}
	}
	if q.Entity != "" {
		if err := validateEntity("entity", q.Entity); err != nil {
			return err
		}
	}
	if q.Resource != "" {
		return validateResource(q.Resource)
	}
	return nil
}

// A rejectionSum adds up reports.
type rejectionSum struct {
	Rejections
	others int64 // of all reports
	counts map[rejectionKey]*Rejection
}

func (m *rejectionSum) add(total int64, entries reportEntries, q RejectedQuery) {
	if m.counts == nil {
		m.counts = map[rejectionKey]*Rejection{}
	}
	m.Total += total
	m.Reports++
	m.others += entries.Others
	for _, e := range entries.Top {
		if q.Entity != "" && e.Entity != q.Entity || q.Resource != "" && e.Resource != q.Resource {
			continue
		}
		key := rejectionKey{e.Entity, e.Resource, cmp.Or(e.LimitEntity, e.Entity), cmp.Or(e.LimitResource, e.Resource), e.Limit, e.Impossible}
		r := m.counts[key]
		if r == nil {
			r = &Rejection{
				Entity: key.entity, Resource: key.resource, Limit: key.limit, LimitEntity: key.limitEntity, LimitResource: key.limitResource,
				Impossible: key.impossible,
			}
			m.counts[key] = r
		}
		r.Count += e.Count
		r.AtLeast += e.Count - e.Error
		r.AtMost += e.Count - entries.Others // which is added for all reports, in result
	}
}

func (m *rejectionSum) result(most int) Rejections {
	m.Heaviest = make([]Rejection, 0, len(m.counts))
	for _, r := range m.counts {
		r.AtMost += m.others
		m.Heaviest = append(m.Heaviest, *r)
	}
	slices.SortFunc(m.Heaviest, func(a, b Rejection) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.LimitEntity, b.LimitEntity), cmp.Compare(a.LimitResource, b.LimitResource),
			strings.Compare(strconv.FormatBool(a.Impossible), strconv.FormatBool(b.Impossible)))
	})
	if most > 0 && len(m.Heaviest) > most {
		m.Heaviest = m.Heaviest[:most]
	}
	return m.Rejections
}
