package zlimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// An AuditService reports who changed the entities and limits of a namespace, when, and what. Every change writes its
// event in the same transaction, so neither exists without the other. The service is safe for concurrent use.
//
// Events are kept for [Config.AuditRetention], or for [RateLimiter.SetAuditRetention] of the whole table, as set when
// they were written. They outlive their entities.
type AuditService struct{ l *RateLimiter }

// An AuditAction is the kind of change that an event records.
type AuditAction string

// The actions of events that this package writes. Other programs may write others.
const (
	ActionEntityCreated AuditAction = "entity_created"
	ActionEntityUpdated AuditAction = "entity_updated"
	ActionEntityDeleted AuditAction = "entity_deleted"
	ActionEntityMoved   AuditAction = "entity_parent_changed" // by [EntityService.SetParent]
	ActionLimitsSet     AuditAction = "limits_set"
	ActionLimitsDeleted AuditAction = "limits_deleted"
	ActionBucketReset   AuditAction = "bucket_reset" // by [LimitService.Reset]

	ActionBucketToppedUp AuditAction = "bucket_topped_up" // by [LimitService.TopUp]
)

// AuditSystem stands for an entity in the events of the system config.
const AuditSystem = "$SYSTEM"

const auditResourcePrefix = "$RESOURCE:"

// AuditResource returns the stand-in for an entity in the events of a resource's limits.
func AuditResource(resource string) string { return auditResourcePrefix + resource }

// An AuditEvent is one change.
type AuditEvent struct {
	ID        string      `json:"id"` // a ULID: events sort by it in the order of time
	Time      time.Time   `json:"time"`
	Entity    string      `json:"entity"` // ID of the entity, [AuditSystem], or an [AuditResource]
	Action    AuditAction `json:"action"`
	Principal string      `json:"principal,omitempty"` // who made the change; "" when that is not known
	Resource  string      `json:"resource,omitempty"`  // the resource that the change is about; "" for none
	// Details are what changed, as it is then, or was when it is deleted. Replaced values are below "before", in the
	// same form; events of other programs may lack them. They are strings, int64s, bools, nils, and slices and maps of
	// them. A number that is no int64 is a [json.Number].
	Details map[string]any `json:"details"`
}

// An AuditQuery chooses among the events of an entity. Its zero value asks for all of them, the oldest first.
type AuditQuery struct {
	From     time.Time `json:"from,omitzero"` // events at this time or later; zero for all
	To       time.Time `json:"to,omitzero"`   // events before this time; zero for all
	Resource string    `json:"resource"`      // events about this resource; "" for all
	Limit    int       `json:"limit"`         // events to yield at most; 0 for all
	Reverse  bool      `json:"reverse"`       // the latest first
	// Principal asks for the events of one author; "" for all.
	Principal string `json:"principal,omitempty"`
}

// Events yields the events of an entity, of [AuditSystem], or of an [AuditResource]. It reads consistently, page by
// page as the loop proceeds. A page has 100 events, or [AuditQuery.Limit] if that is less, and costs a read unit per 4
// KB of events. Events past their retention are skipped. An error ends the loop.
func (s *AuditService) Events(ctx context.Context, entity string, q AuditQuery) iter.Seq2[AuditEvent, error] {
	return func(yield func(AuditEvent, error) bool) {
		query, err := s.query(entity, &q)
		if err != nil || query.PK == "" {
			if err != nil {
				yield(AuditEvent{}, err)
			}
			return
		}
		left := q.Limit
		now := s.l.now().Unix()
		for item, err := range s.l.query(ctx, "read audit events", query) {
			var decoded layout.Audit
			if err == nil {
				decoded, err = layout.DecodeAudit(item)
				err = publicError("read audit events", err)
			}
			switch {
			case err != nil:
				yield(AuditEvent{}, err)
				return
			case !q.chooses(&decoded, now):
			default:
				left--
				if !yield(eventOf(&decoded), nil) || left == 0 {
					return
				}
			}
		}
	}
}

// auditPage is the number of events per read.
const auditPage = 100

// query returns the query for the events that q may choose, none when it chooses none.
func (s *AuditService) query(entity string, q *AuditQuery) (query store.Query, err error) {
	if err := s.l.check(errors.Join(validateAudited(entity), q.validate())); err != nil {
		return query, err
	}
	from, to := timePrefix(q.From), timePrefix(q.To)
	if to != "" && from >= to {
		return query, nil
	}
	bound := func(id string) string { return layout.AuditKey{NS: s.l.ns.id(), Entity: entity, EventID: id}.Key().SK }
	query = layout.QueryAuditEvents(s.l.ns.id(), entity)
	query.Consistent = true
	query.Reverse = q.Reverse
	query.Limit = auditPage
	if q.Limit > 0 && q.Resource == "" && q.Principal == "" {
		query.Limit = min(q.Limit, auditPage)
	}
	if from != "" {
		query.After = bound(from)
	}
	if to != "" {
		query.UpTo = bound(to)
	}
	return query, nil
}

func (q *AuditQuery) validate() error {
	if q.Limit < 0 {
		return &ValidationError{Field: "limit", Value: strconv.Itoa(q.Limit), Reason: "must not be negative"}
	}
	if q.Resource == "" {
		return nil
	}
	return validateConfigResource(q.Resource)
}

// validateAudited checks the entity of events, or what stands in its place.
func validateAudited(entity string) error {
	if resource, ok := strings.CutPrefix(entity, auditResourcePrefix); ok {
		return validateResource(resource)
	}
	if entity == AuditSystem {
		return nil
	}
	return validateEntity("entity", entity)
}

// timePrefix returns the prefix of the IDs of events of a time, rounded up to the millisecond. It is less than those
// IDs and all later ones, and greater than all earlier ones. It is "" for the zero time.
func timePrefix(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	ms := t.Add(time.Millisecond - time.Nanosecond).UnixMilli()
	var id ulid.ULID
	_ = id.SetTime(min(uint64(max(ms, 0)), ulid.MaxTime())) // within bounds
	return id.String()[:10]
}

func eventOf(item *layout.Audit) AuditEvent {
	event := AuditEvent{
		ID:        item.Key.EventID,
		Time:      layout.ParseTime(item.Timestamp),
		Entity:    item.Key.Entity,
		Action:    AuditAction(item.Action),
		Principal: item.Principal,
		Resource:  item.Resource,
		Details:   plainMap(item.Details),
	}
	if id, err := ulid.ParseStrict(event.ID); err == nil {
		event.Time = id.Timestamp().UTC() // to the millisecond
	}
	return event
}

// plainMap returns a map of the language for one of an item.
func plainMap(m expr.Item) map[string]any {
	plain := make(map[string]any, len(m))
	for _, a := range m {
		plain[a.Name] = plainValue(a.Value)
	}
	return plain
}

func plainValue(v expr.Value) any {
	switch v.Kind() {
	case expr.KindN:
		if n, ok := v.Int(); ok {
			return n
		}
		return json.Number(v.Number())
	case expr.KindBool:
		return v.True()
	case expr.KindL, expr.KindSS:
		list := make([]any, 0, len(v.Elements()))
		for _, e := range v.Elements() {
			list = append(list, plainValue(e.Value))
		}
		return list
	case expr.KindM:
		return plainMap(v.Elements())
	case expr.KindS:
		return v.Text()
	default:
		return nil
	}
}

// An auditEntry is the content of the event of a change.
type auditEntry struct {
	action   AuditAction
	entity   string // or what stands in its place
	resource string
	details  expr.Item
}

// replaces adds the former details to the details of a change, if there were some.
func (c *auditEntry) replaces(before expr.Item) {
	if before != nil {
		c.details.Set("before", expr.Map(before))
	}
}

// auditedLimit returns a limit, which is stored in an item with a zone, as an event has it.
func auditedLimit(l bucket.StoredLimit, zone string) expr.Item {
	item := expr.Item{
		{Name: "name", Value: expr.S(l.Name)},
		{Name: "capacity", Value: expr.N(l.Capacity)},
	}
	if windows, err := layout.ReadWindows(l.Windows, zone); l.Windows != "" && err == nil {
		item = append(item, expr.Attribute{Name: "windows", Value: expr.S(windows.String())})
		if l.Times == "" {
			item = append(item, expr.Attribute{Name: "zone", Value: expr.S(windows.Zone())})
		}
	}
	if l.Floors != "" {
		item = append(item, expr.Attribute{Name: "floors", Value: expr.S(l.Floors)})
	}
	switch {
	case l.Shadow:
		item = append(item, expr.Attribute{Name: "mode", Value: expr.S(string(ModeShadow))})
	case l.Soft:
		item = append(item, expr.Attribute{Name: "mode", Value: expr.S(string(ModeSoft))})
	}
	if times, err := layout.ReadTimes(l.Times, zone); l.Times != "" && err == nil {
		if l.Carry > 0 {
			item = append(item, expr.Attribute{Name: "carry", Value: expr.N(l.Carry)})
		}
		return append(item, expr.Attribute{Name: "resets", Value: expr.S(times.String())}, expr.Attribute{Name: "zone", Value: expr.S(times.Zone())})
	}
	if l.Term > 0 {
		return append(item, expr.Attribute{Name: "term_seconds", Value: expr.N(l.Term)})
	}
	if l.Session > 0 {
		return append(item, expr.Attribute{Name: "session_seconds", Value: expr.N(l.Session)})
	}
	return append(item, expr.Attribute{Name: "refill_amount", Value: expr.N(l.RefillAmount)},
		expr.Attribute{Name: "refill_period_seconds", Value: expr.N(l.RefillPeriod)})
}

// auditEntry returns the entry for a level, whose item is as it will be, or as it was when it is deleted.
func (i *configItem) auditEntry(action AuditAction) auditEntry {
	made := auditEntry{action: action, entity: i.Entity, resource: i.storedResource()}
	switch i.source {
	case SourceSystem:
		made.entity = AuditSystem
	case SourceResource:
		made.entity = AuditResource(i.Resource)
	default: // the entity's own
	}
	limits := make([]expr.Value, 0, len(*i.limits)+len(*i.sessions))
	for _, l := range i.storedLimits() {
		limits = append(limits, expr.Map(auditedLimit(l, *i.zone)))
	}
	made.details = expr.Item{
		{Name: "config_version", Value: expr.N(*i.version)},
		{Name: "limits", Value: expr.List(limits...)},
	}
	if *i.policy != "" {
		made.details.Set("on_unavailable", expr.S(*i.policy))
	}
	if toggle := i.switchValue(); toggle.Kind() != expr.KindNone {
		made.details.Set("disabled", toggle)
	}
	if within := i.widerOf(); within != "" {
		made.details.Set("within", expr.S(within))
	}
	if seen := i.seen(); seen.cascade.Kind() != expr.KindNone {
		made.details.Set("cascade", seen.cascade)
	}
	if i.days != nil && *i.days != 0 {
		made.details.Set("audit_retention_days", expr.N(*i.days))
	}
	return made
}

// An author is who makes a change, and how long that is remembered.
type author struct {
	l         *RateLimiter
	principal string
	retention time.Duration // of the namespace; 0 for that of the table
	table     time.Duration // of the table; 0 for the default
	manager   string        // of a file of limits that makes the change; "" for none
	scaled    expr.Item     // by what the change multiplies limits; nil for another change
}

// with adds to the writes of a change that of its event. The event has a new ID, later than the IDs of all events that
// this process wrote before.
func (a author) with(c auditEntry, writes ...store.Write) ([]store.Write, error) {
	now := a.l.now()
	if a.scaled != nil && c.action == ActionLimitsSet {
		c.details.Set("scaled", expr.Map(a.scaled))
	}
	if a.manager != "" && (c.action == ActionLimitsSet || c.action == ActionLimitsDeleted) {
		c.details.Set("manager", expr.S(a.manager))
	}
	event := layout.Audit{
		Key:       layout.AuditKey{NS: a.l.ns.id(), Entity: c.entity, EventID: a.l.eventIDs.next(now)},
		Timestamp: layout.FormatTime(now),
		Action:    string(c.action),
		Principal: a.principal,
		Resource:  c.resource,
		Details:   c.details,
		ExpiresAt: now.Add(cmp.Or(a.retention, a.table, defaultRetention)).Unix(),
	}
	absent, err := layout.Insert()
	return append(writes, store.Write{Kind: store.Put, Key: event.Key.Key(), Item: event.Encode(), Expr: absent}), err
}

// readToChange returns items as the store has them, and the author of the change that they are read for. The same call
// reads the retention of the namespace if it is not in memory, and another one that of the table.
func (l *RateLimiter) readToChange(ctx context.Context, keys ...store.Key) (items []expr.Item, by author, err error) {
	name, err := l.principal(ctx)
	if err != nil {
		return nil, by, err
	}
	by = author{l: l, principal: name, manager: hooks.Manager(ctx)}
	if s, is := hooks.Scaled(ctx); is {
		by.scaled = expr.Item{{Name: "factor", Value: expr.S(s.Factor)}, {Name: "file", Value: expr.S(s.File)}}
	}
	known, now := l.retained.Load(), l.now()
	stale := known == nil || now.Before(known.readAt) || now.Sub(known.readAt) >= l.options.configTTL
	if stale {
		keys = append(slices.Clone(keys), l.ns.at(Level{}).key)
	}
	if len(keys) > 0 {
		if items, err = l.table.Read(ctx, keys...); err != nil {
			return nil, by, err
		}
	}
	if stale {
		// In a call of its own: the policy of a tenant admits no call for keys of the namespace and the registry.
		whole, err := l.table.Read(ctx, tableLevel.key)
		if err != nil {
			return nil, by, err
		}
		last := len(items) - 1
		known = &retention{l.retentionOf(l.ns.at(Level{}), items[last]), l.retentionOf(tableLevel, whole[0]), now}
		l.retained.Store(known)
		items = items[:last]
	}
	by.retention, by.table = known.period, known.table
	return items, by, nil
}

const (
	day              = 24 * time.Hour
	defaultRetention = 90 * day
	maxRetentionDays = 36_500
)

// A retention is the audit retention of a namespace and of its table as last seen. It is never changed.
type retention struct {
	period time.Duration // 0 for that of the table
	table  time.Duration // 0 for the default
	readAt time.Time
}

// tableLevel is the system config of the registry's namespace, whose audit retention holds for the whole table.
var tableLevel = configRef{source: SourceSystem, key: layout.SystemConfigKey{NS: registryNamespace}.Key(), ns: registryNamespace}

// SetAuditRetention sets how long later audit events are kept, in whole days up to 36,500; 0 stands for 90 days. It
// applies to every namespace of the table whose own [Config.AuditRetention] is 0. It is for deployments: no audit event
// records it, and a principal that is restricted to one namespace may not call it.
//
// Other limiters see it within [WithConfigTTL]. A retention that is out of range is a [*ValidationError], before any call. It costs a read,
// and a conditional write if the retention changes, one unit each. The first write costs one more for an index.
func (l *RateLimiter) SetAuditRetention(ctx context.Context, d time.Duration) error {
	if err := l.check(validateRetention(d)); err != nil {
		return err
	}
	return publicError("set the audit retention", l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := l.table.Read(ctx, tableLevel.key)
		if err != nil {
			return false, err
		}
		open, err := tableLevel.open(items[0])
		if err != nil {
			return false, err
		}
		if open.auditRetention() == d {
			return true, nil
		}
		seen := *open.version
		*open.version++
		*open.days = int64(d / day)
		expected, err := layout.Insert()
		if items[0] != nil {
			expected, err = layout.ReplaceConfig(seen)
		}
		if err != nil {
			return false, err
		}
		result, err := l.table.Write(ctx, store.Write{Kind: store.Put, Key: tableLevel.key, Item: open.encode(), Expr: expected})
		if err != nil || !result.Applied {
			return false, err
		}
		l.retained.Store(nil)
		return true, nil
	}))
}

// retentionOf returns the retention of a system config, nil for none. A config that cannot be read does not stop the
// change of another one.
func (l *RateLimiter) retentionOf(c configRef, item expr.Item) time.Duration {
	if item == nil {
		return 0
	}
	open, err := c.open(item)
	if layout.Readable(err) != nil {
		l.options.logger.Warn("zlimit: the audit retention cannot be read, the default holds", "error", err)
		return 0
	}
	return open.auditRetention()
}

// auditRetention returns the retention of a config, 0 for none.
func (i *configItem) auditRetention() time.Duration {
	if i.days == nil || *i.days <= 0 {
		return 0
	}
	return time.Duration(min(*i.days, maxRetentionDays)) * day
}

func validateRetention(d time.Duration) error {
	if d < 0 || d%day != 0 || d > maxRetentionDays*day {
		reason := "must be whole days, at most " + strconv.Itoa(maxRetentionDays)
		return &ValidationError{Field: "audit retention", Value: d.String(), Reason: reason}
	}
	return nil
}

// eventIDs makes the IDs of events: each is greater than the one before, at any change of the clock. It is safe for
// concurrent use.
type eventIDs struct {
	mu      sync.Mutex
	last    uint64 // epoch milliseconds of the last ID
	entropy *ulid.MonotonicEntropy
}

// next returns an ID of a time.
func (e *eventIDs) next(now time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entropy == nil {
		e.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	e.last = min(max(e.last, uint64(max(now.UnixMilli(), 0))), ulid.MaxTime()-1)
	id, err := ulid.New(e.last, e.entropy)
	if err != nil { // no number is left in this millisecond, after some 10^20 of them
		e.last++
		id = ulid.MustNew(e.last, e.entropy)
	}
	return id.String()
}

// printable reports whether a text is UTF-8 without control characters.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
