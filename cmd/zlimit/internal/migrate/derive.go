package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Windows are the windows of usage that an aggregator of zae-limiter counts by default.
var Windows = []string{"hourly", "daily"}

// Rules hold facts that the items of a source do not hold themselves.
type Rules struct {
	// NS is the id of the namespace that items without one go to.
	NS string
	// Cascade makes entities with a parent charge it if the release kept no such flag: up to 0.5 the caller said so.
	Cascade bool
	// Windows are the windows of usage that the aggregator of the source counted, in its order.
	Windows []string
}

// An Item is an item of the target.
type Item struct {
	Key        store.Key
	Attributes expr.Item // except the primary key
}

// A Loss is something of the source that the target does not get.
type Loss struct {
	Reason string
	Key    store.Key // of the item in the source
}

// Reasons of losses.
const (
	lostUnknown    = "items of an unknown form"
	lostMalformed  = "items that cannot be read"
	lostName       = "names that zlimit does not take"
	lostSuperseded = "items that a later release replaced by others"
	lostWindows    = "usage whose figures mix windows of two lengths"
	lostFraction   = "buckets whose refill stamps are joined: less than a thousandth of a token each"
	lostAttributes = "items with attributes that zlimit has no place for"
)

// A Result is what follows from items of a source.
type Result struct {
	Items  []Item
	Losses []Loss

	sources int // items of a group
}

func (r *Result) add(key store.Key, attributes expr.Item) {
	r.Items = append(r.Items, Item{key, attributes})
}

func (r *Result) lose(reason string, key store.Key) { r.Losses = append(r.Losses, Loss{reason, key}) }

// unknown are the unknown attributes of a decoded item.
type unknown interface{ Unknown() expr.Item }

// note reports attributes that have no place in the target. Keys of indexes follow from the item.
func (r *Result) note(key store.Key, it unknown) {
	if slices.ContainsFunc(it.Unknown(), func(a expr.Attribute) bool { return !layout.IsKeyAttribute(a.Name) }) {
		r.lose(lostAttributes, key)
	}
}

// takes reports whether zlimit takes names of entities and resources. An audit event is of an entity or of a level.
func (r *Result) takes(key store.Key, names ...string) bool {
	for _, name := range names {
		if grammar.CheckName(name) != "" {
			r.lose(lostName, key)
			return false
		}
	}
	return true
}

// takesResource is takes for a resource, or _default_ for every resource.
func (r *Result) takesResource(key store.Key, resource string) bool {
	return resource == defaultResource || r.takes(key, resource)
}

const defaultResource = "_default_"

// takesLimit reports whether zlimit takes the name of a limit.
func (r *Result) takesLimit(key store.Key, name string) bool {
	if name == bucket.WriteUnits || layout.UsageReserves(name) || grammar.CheckLimitName(name) != "" {
		r.lose(lostName, key)
		return false
	}
	return true
}

// One returns the results of an item that stands by itself.
func (rules *Rules) One(item expr.Item) (r Result) {
	key := store.KeyOf(item)
	switch recordOf(key) {
	case usageRecord:
		rules.usage(&r, key, item)
	case auditRecord:
		rules.audit(&r, item)
	case currentBucketRecord:
		r.add(key, uncounted(withoutKey(item)))
	case currentRecord:
		attributes := withoutKey(item)
		if _, ok := layout.ParseUsageKey(key); ok {
			attributes = unsequenced(attributes)
		}
		r.add(key, attributes)
	case registryRecord, versionRecord, ownRecord: // the target gets its own
	default:
		r.lose(lostUnknown, key)
	}
	return r
}

// uncounted lets the counts of a bucket begin at zero: an aggregator of the target counts the ones of a new item as consumption, and usage
// has the consumption until then. Counts that are relative to others stay as far from them.
func uncounted(item expr.Item) expr.Item {
	counts := map[string]int64{}
	for _, a := range item {
		if limit, ok := layout.AttrBucketLimitConsumed.Cut(a.Name); ok {
			counts[limit], _ = a.Value.Int()
		}
	}
	kept := make(expr.Item, 0, len(item))
	for _, a := range item {
		if isOf(a.Name, layout.AttrBucketChildrenConsumed) || isOf(a.Name, layout.AttrBucketNarrowerConsumed) {
			continue // they are parts of the count
		}
		if isOf(a.Name, layout.AttrBucketLimitConsumed) {
			a.Value = expr.N(0)
		}
		for _, relative := range []expr.Path{layout.AttrBucketLimitKnown, layout.AttrBucketLimitRolled} {
			if limit, ok := relative.Cut(a.Name); ok {
				n, _ := a.Value.Int()
				a.Value = expr.N(n - counts[limit]) // modulo 2^64, as they are
			}
		}
		kept = append(kept, a)
	}
	return kept
}

// isOf reports whether an attribute is that of a member.
func isOf(name string, path expr.Path) bool {
	_, ok := path.Cut(name)
	return ok
}

// unsequenced takes from usage up to which change of the source's stream it counts. The stream of the target has other changes, whose
// numbers may be lower.
func unsequenced(item expr.Item) expr.Item {
	return slices.DeleteFunc(item, func(a expr.Attribute) bool { return isOf(a.Name, layout.AttrUsageSourceLast) })
}

func withoutKey(item expr.Item) expr.Item {
	return slices.DeleteFunc(item.Clone(), func(a expr.Attribute) bool { return a.Name == store.PK || a.Name == store.SK })
}

// decode decodes an item and notes its losses; false when it cannot be read.
func decode[T any, P interface {
	*T
	unknown
}](r *Result, item expr.Item, by func(expr.Item) (T, error)) (T, bool) {
	it, err := by(item)
	if err != nil {
		r.lose(lostMalformed, store.KeyOf(item))
		return it, false
	}
	r.note(store.KeyOf(item), P(&it))
	return it, true
}

func (rules *Rules) audit(r *Result, item expr.Item) {
	old, ok := decode(r, item, layout.DecodeOldAudit)
	if !ok {
		return
	}
	it := layout.Audit{
		Key:       layout.AuditKey{NS: rules.NS, Entity: old.Key.Entity, EventID: old.Key.EventID},
		Timestamp: old.Timestamp, Action: old.Action, Principal: old.Principal, Resource: old.Resource,
		Details: old.Details, ExpiresAt: old.ExpiresAt,
	}
	r.add(it.Key.Key(), it.Encode())
}

// usage translates a snapshot. Windows of all lengths that start at the same time share an item there. So the figures of the first hour
// of a day and of the day cannot be distinguished.
func (rules *Rules) usage(r *Result, key store.Key, item expr.Item) {
	old, ok := decode(r, item, layout.DecodeOldUsage)
	if !ok || !r.takes(key, old.Key.Entity, old.Key.Resource) {
		return
	}
	start := layout.ParseTime(old.Key.WindowKey)
	if start.IsZero() || !slices.Contains([]string{"hourly", "daily", "monthly"}, old.Window) {
		r.lose(lostMalformed, key)
		return
	}
	if rules.mixes(old.Window, start) {
		r.lose(lostWindows, key)
		return
	}
	it := layout.Usage{
		Key: layout.UsageKey{
			NS: rules.NS, Entity: old.Key.Entity, Resource: old.Key.Resource, WindowKey: layout.WindowKey(old.Window, start),
		},
		Window: old.Window, WindowStart: layout.FormatTime(start), TotalEvents: old.TotalEvents, ExpiresAt: old.ExpiresAt,
	}
	for _, l := range old.Limits {
		if r.takesLimit(key, l.Name) {
			it.Limits = append(it.Limits, layout.UsageCount(l))
		}
	}
	r.add(it.Key.Key(), it.Encode())
}

// mixes reports whether the item of a window may have figures of another one. The item says which window was counted
// first. Those that come before it in the order of counting were not: had there been anything to count in them, they
// would have been first.
func (rules *Rules) mixes(first string, start time.Time) bool {
	at := slices.Index(rules.Windows, first)
	if at < 0 {
		return len(rules.Windows) > 0 // by an aggregator that was set differently then
	}
	return slices.ContainsFunc(rules.Windows[at+1:], func(window string) bool { return begins(window, start) })
}

// begins reports whether a window of a length begins at a time.
func begins(window string, at time.Time) bool {
	switch window {
	case "monthly":
		return at.Day() == 1 && at.Equal(at.Truncate(24*time.Hour))
	case "daily":
		return at.Equal(at.Truncate(24 * time.Hour))
	default:
		return true
	}
}

// Group returns the target items of a partition whose items depend on each other, as [group] asks for them. supersedes
// reports whether a later release has already made a bucket of this layout from the given one.
func (rules *Rules) Group(items []expr.Item, superseded func(layout.BucketKey) bool) (r Result) {
	g := parts{rules: rules, Result: &r, superseded: superseded}
	for _, item := range items {
		g.sort(item)
	}
	g.entity()
	g.buckets()
	g.configs()
	return r
}

// parts are the items of a group by their kinds.
type parts struct {
	rules      *Rules
	superseded func(layout.BucketKey) bool
	*Result

	meta       *layout.Entity // of the entity
	recordKey  store.Key      // of its record in the source; empty if there is none
	made       []made         // buckets with all limits
	single     []layout.OldLimitBucket
	stored     []config
	separate   []separate
	settings   *layout.OldSystemConfig
	isInLayout bool // the record of the entity is as it should be
}

// A made bucket is one with all limits of an entity and a resource.
type made struct {
	key     layout.BucketKey
	source  store.Key
	spaced  bool // it is in a namespace in the source
	lineage layout.Lineage
	state   bucket.State
}

// A level is what limits are stored for.
type level struct{ entity, resource string }

// A config is the limits of a level, in one item.
type config struct {
	level
	it layout.EntityConfig // except its key
}

// A separate limit of a level is an item of its own.
type separate struct {
	level
	source        store.Key
	limit         bucket.StoredLimit
	configVersion int64
}

// sort adds an item of the source to the parts that it belongs to.
func (g *parts) sort(item expr.Item) {
	key := store.KeyOf(item)
	switch recordOf(key) {
	case entityRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldEntity); ok && g.takes(key, old.Key.Entity) {
			g.recordKey = key
			g.meta = &layout.Entity{
				Key:  layout.EntityKey{NS: g.rules.NS, Entity: old.Key.Entity},
				Name: cmp.Or(old.Name, old.Key.Entity), Parent: old.Parent, Metadata: old.Metadata, CreatedAt: old.CreatedAt,
				Cascade: old.Cascade || g.rules.Cascade && old.Parent != "" && ShapeOf(item).Nested,
			}
		}
	case limitBucketRecord, bucketRecord, namespacedBucketRecord:
		g.sortBucket(key, item)
	case entityLimitRecord, resourceLimitRecord, systemLimitRecord:
		g.sortLimit(key, item)
	case entityConfigRecord, resourceConfigRecord, systemConfigRecord:
		g.sortConfig(key, item)
	case currentRecord:
		if it, err := layout.DecodeEntity(item); err == nil {
			g.meta, g.recordKey, g.isInLayout = &it, key, true
		}
		g.add(key, withoutKey(item))
	case versionRecord, registryRecord, ownRecord: // each stands by itself
	default:
		g.lose(lostUnknown, key)
	}
}

// sortBucket adds a bucket, or one of its limits.
func (g *parts) sortBucket(key store.Key, item expr.Item) {
	switch recordOf(key) {
	case limitBucketRecord:
		old, ok := decode(g.Result, item, layout.DecodeOldLimitBucket)
		if ok && g.takes(key, old.Key.Entity, old.Key.Resource) && g.takesLimit(key, old.Key.Limit) {
			g.single = append(g.single, old)
		}
	case bucketRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldBucket); ok && g.takes(key, old.Key.Entity, old.Key.Resource) {
			g.bucket(key, layout.BucketKey{NS: g.rules.NS, Entity: old.Key.Entity, Resource: old.Key.Resource},
				layout.Lineage{Cascade: old.Cascade, Parent: old.Parent}, old.Limits, old.RefilledAt, old.ExpiresAt)
		}
	case namespacedBucketRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldNamespacedBucket); ok && g.takes(key, old.Key.Entity, old.Key.Resource) {
			g.bucket(key, layout.BucketKey{NS: old.Key.NS, Entity: old.Key.Entity, Resource: old.Key.Resource},
				layout.Lineage{Cascade: old.Cascade, Parent: old.Parent}, old.Limits, old.RefilledAt, old.ExpiresAt)
		}
	}
}

// sortLimit adds a limit of a level that is an item of its own.
func (g *parts) sortLimit(key store.Key, item expr.Item) {
	switch recordOf(key) {
	case entityLimitRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldEntityLimit); ok && g.takes(key, old.Key.Entity) && g.takesResource(key, old.Key.Resource) {
			g.limit(key, level{old.Key.Entity, old.Key.Resource}, old.Key.Limit, old.Capacity, old.Burst, old.RefillAmount, old.RefillPeriod, old.ConfigVersion)
		}
	case resourceLimitRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldResourceLimit); ok && g.takes(key, old.Key.Resource) {
			g.limit(key, level{"", old.Key.Resource}, old.Key.Limit, old.Capacity, old.Burst, old.RefillAmount, old.RefillPeriod, old.ConfigVersion)
		}
	case systemLimitRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldSystemLimit); ok {
			g.limit(key, level{}, old.Key.Limit, old.Capacity, old.Burst, old.RefillAmount, old.RefillPeriod, old.ConfigVersion)
		}
	}
}

// sortConfig adds the limits of a level.
func (g *parts) sortConfig(key store.Key, item expr.Item) {
	switch recordOf(key) {
	case entityConfigRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldEntityConfig); ok && g.takes(key, old.Key.Entity) && g.takesResource(key, old.Key.Resource) {
			g.config(key, level{old.Key.Entity, old.Key.Resource}, old.Limits, old.ConfigVersion, old.OnUnavailable)
		}
	case resourceConfigRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldResourceConfig); ok && g.takes(key, old.Key.Resource) {
			g.config(key, level{"", old.Key.Resource}, old.Limits, old.ConfigVersion, old.OnUnavailable)
		}
	case systemConfigRecord:
		if old, ok := decode(g.Result, item, layout.DecodeOldSystemConfig); ok {
			g.settings = &old
			g.config(key, level{}, old.Limits, old.ConfigVersion, old.OnUnavailable)
		}
	}
}

// entity adds the record of the entity, and the one beside that of its parent.
func (g *parts) entity() {
	if g.meta == nil {
		return
	}
	if parent := g.meta.Parent; parent != "" && !g.takes(g.recordKey, parent) {
		g.meta.Parent, g.meta.Cascade = "", false
	}
	if !g.isInLayout {
		g.add(g.meta.Key.Key(), g.meta.Encode())
	}
	if g.meta.Parent != "" {
		child := layout.Child{Key: layout.ChildKey{NS: g.meta.Key.NS, Entity: g.meta.Parent, Child: g.meta.Key.Entity}}
		g.add(child.Key.Key(), child.Encode())
	}
}

// bucket notes a bucket with all limits.
func (g *parts) bucket(
	source store.Key, key layout.BucketKey, lineage layout.Lineage, limits []layout.OldBucketLimit, refilledAt, expiresAt int64,
) {
	state := bucket.State{RefilledAt: refilledAt, ExpiresAt: expiresAt, Shards: 1}
	for _, l := range limits {
		if !g.takesLimit(source, l.Name) {
			continue
		}
		ceiling := max(l.Capacity, l.Burst)
		state.Limits = append(state.Limits, bucket.Limit{
			Name: l.Name, Tokens: min(l.Tokens, ceiling), Capacity: ceiling,
			RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod, // and counts begin at zero, see [uncounted]
		})
	}
	g.made = append(g.made, made{key, source, recordOf(source) == namespacedBucketRecord, lineage, state})
}

// buckets adds the buckets. One with all limits stands for buckets of single limits, which an earlier release left.
func (g *parts) buckets() {
	byResource := map[string][]layout.OldLimitBucket{}
	var resources []string
	for _, l := range g.single {
		if slices.ContainsFunc(g.made, func(m made) bool { return m.key.Resource == l.Key.Resource }) {
			g.lose(lostSuperseded, l.Key.Key())
			continue
		}
		if byResource[l.Key.Resource] == nil {
			resources = append(resources, l.Key.Resource)
		}
		byResource[l.Key.Resource] = append(byResource[l.Key.Resource], l)
	}
	for _, resource := range resources {
		g.made = append(g.made, g.join(byResource[resource]))
	}
	for i := range g.made {
		m := &g.made[i]
		if m.spaced && g.superseded(m.key) {
			g.lose(lostSuperseded, m.source)
			continue
		}
		if g.meta != nil {
			m.lineage = layout.Lineage{Cascade: g.meta.Cascade, Parent: g.meta.Parent}
		}
		m.state.Limits = append(m.state.Limits, bucket.Limit{
			Name: bucket.WriteUnits, Tokens: bucket.WriteCapacity, Capacity: bucket.WriteCapacity,
			RefillAmount: bucket.WriteCapacity, RefillPeriod: 1000,
		})
		slices.SortFunc(m.state.Limits, func(a, b bucket.Limit) int { return cmp.Compare(a.Name, b.Name) })
		g.add(m.key.Key(), m.key.Item(&m.state, m.lineage).Encode())
	}
}

// join merges buckets of single limits into one, refilled up to the latest of their stamps.
func (g *parts) join(limits []layout.OldLimitBucket) made {
	first := &limits[0]
	m := made{
		key:    layout.BucketKey{NS: g.rules.NS, Entity: first.Key.Entity, Resource: first.Key.Resource},
		source: first.Key.Key(),
		state:  bucket.State{RefilledAt: first.RefilledAt, ExpiresAt: first.ExpiresAt, Shards: 1},
	}
	joined := false
	for i := range limits {
		l := &limits[i]
		joined = joined || l.RefilledAt != first.RefilledAt
		m.state.RefilledAt = max(m.state.RefilledAt, l.RefilledAt)
		if m.state.ExpiresAt != 0 && l.ExpiresAt != 0 {
			m.state.ExpiresAt = max(m.state.ExpiresAt, l.ExpiresAt)
		} else {
			m.state.ExpiresAt = 0
		}
	}
	if joined {
		g.lose(lostFraction, m.source)
	}
	for i := range limits {
		l := &limits[i]
		state := bucket.State{RefilledAt: l.RefilledAt}
		limit := bucket.Limit{
			Name: l.Key.Limit, Tokens: l.Tokens, Capacity: max(l.Capacity, l.Burst),
			RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod, // and counts begin at zero, see [uncounted]
		}
		if limit.RefillAmount <= 0 || limit.RefillPeriod <= 0 {
			limit.Tokens = min(limit.Tokens, limit.Capacity)
		} else {
			limit.Tokens = state.Available(&limit, m.state.RefilledAt)
		}
		m.state.Limits = append(m.state.Limits, limit)
	}
	return m
}

// limit notes a limit that is an item of its own.
func (g *parts) limit(source store.Key, of level, name string, capacity, burst, amount, period, version int64) {
	if g.takesLimit(source, name) {
		g.separate = append(g.separate, separate{of, source, bucket.StoredLimit{
			Name: name, Capacity: max(capacity, burst), RefillAmount: amount, RefillPeriod: period,
		}, version})
	}
}

// config notes the limits of a level.
func (g *parts) config(source store.Key, of level, limits []layout.OldConfigLimit, version int64, onUnavailable string) {
	c := config{of, layout.EntityConfig{ConfigVersion: max(1, version), OnUnavailable: onUnavailable}}
	for _, l := range limits {
		if g.takesLimit(source, l.Name) {
			c.it.Limits = append(c.it.Limits, bucket.StoredLimit{
				Name: l.Name, Capacity: max(l.Capacity, l.Burst), RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod,
			})
		}
	}
	g.stored = append(g.stored, c)
}

// configs adds the limits of each level. An item with limits stands for the items of an earlier release that had one
// limit each.
func (g *parts) configs() {
	whole := map[level]bool{}
	for i := range g.stored {
		whole[g.stored[i].level] = len(g.stored[i].it.Limits) > 0
	}
	for _, l := range g.separate {
		if whole[l.level] {
			g.lose(lostSuperseded, l.source)
			continue
		}
		i := slices.IndexFunc(g.stored, func(c config) bool { return c.level == l.level })
		if i < 0 {
			i = len(g.stored)
			g.stored = append(g.stored, config{l.level, layout.EntityConfig{ConfigVersion: 1}})
		}
		it := &g.stored[i].it
		it.Limits = append(it.Limits, l.limit)
		it.ConfigVersion = max(it.ConfigVersion, l.configVersion)
	}
	for i := range g.stored {
		g.addConfig(&g.stored[i])
	}
}

func (g *parts) addConfig(c *config) {
	slices.SortFunc(c.it.Limits, func(a, b bucket.StoredLimit) int { return cmp.Compare(a.Name, b.Name) })
	switch {
	case c.entity != "":
		c.it.Key = layout.EntityConfigKey{NS: g.rules.NS, Entity: c.entity, Resource: c.resource}
		g.add(c.it.Key.Key(), c.it.Encode())
	case c.resource != "":
		it := layout.ResourceConfig{
			Key: layout.ResourceConfigKey{NS: g.rules.NS, Resource: c.resource}, ConfigVersion: c.it.ConfigVersion,
			OnUnavailable: c.it.OnUnavailable, Limits: c.it.Limits,
		}
		g.add(it.Key.Key(), it.Encode())
	default:
		it := layout.SystemConfig{
			Key: layout.SystemConfigKey{NS: g.rules.NS}, ConfigVersion: c.it.ConfigVersion,
			OnUnavailable: c.it.OnUnavailable, Limits: c.it.Limits,
		}
		if g.settings != nil {
			it.AuditRetentionDays = g.settings.AuditRetentionDays
		}
		g.add(it.Key.Key(), it.Encode())
	}
}

// String returns the loss for people.
func (l Loss) String() string { return fmt.Sprintf("%s: PK %q, SK %q", l.Reason, l.Key.PK, l.Key.SK) }
