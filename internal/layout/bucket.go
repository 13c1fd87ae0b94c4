package layout

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Lineage is the part of an entity's record about charging a parent. The items of its buckets repeat it.
type Lineage struct {
	Cascade     bool   // the entity's consumption is charged to its parent as well
	Parent      string // entity id; "" for none
	Generation  int64  // of the parent, which every move raises; 0 for an entity that was never moved
	Incarnation string // distinguishes the entity from an earlier one of its id; "" without a generation
}

// nameless is the incarnation of an entity whose record does not say.
const nameless = "-"

// Lineage returns the part of the record about charging a parent.
func (it *Entity) Lineage() Lineage {
	o := Lineage{Cascade: it.Cascade, Parent: it.Parent, Generation: it.Generation}
	if o.Generation != 0 {
		o.Incarnation = cmp.Or(it.Incarnation, it.CreatedAt, nameless)
	}
	return o
}

// Charges reports whether the parent is charged.
func (o *Lineage) Charges() bool { return o.Cascade && o.Parent != "" }

// ReadState returns the state that the item of a bucket holds. Its errors name the item. With a [*RefusedError] comes the state
// as far as this program knows it.
func ReadState(item expr.Item) (bucket.State, error) {
	_, state, err := ReadBucket(item)
	return state, err
}

// ReadBucket returns the content of a bucket's item, as attributes and as a state, which share the limits. Its errors are as in
// [ReadState].
func ReadBucket(item expr.Item) (*Bucket, bucket.State, error) {
	it, err := DecodeBucket(item)
	wrong := Readable(err)
	if wrong != nil {
		if started := started(item); len(started) < len(item) {
			it, err = DecodeBucket(started)
			wrong = Readable(err)
		}
	}
	if wrong == nil {
		if later := it.refuseLater(); later != nil {
			err = later
		}
		wrong = it.place()
	}
	if wrong != nil {
		return nil, bucket.State{}, fmt.Errorf("%s: %w", store.KeyOf(item).PK, wrong)
	}
	_, marked := item.Lookup(AttrBucketValidUntil)
	_, disabled := item.Lookup(AttrBucketDisabled)
	return &it, it.state(marked, disabled), err
}

// started returns an item without the limits that another program has added and no one has taken from: they have parameters, and neither a
// balance nor a count. The next write with a refill starts them.
func started(item expr.Item) expr.Item {
	added := map[string]bool{}
	for _, a := range item {
		if name, ok := AttrBucketLimitCapacity.Cut(a.Name); ok {
			_, has := item.Lookup(AttrBucketLimitTokens.Name(name))
			_, counts := item.Lookup(AttrBucketLimitConsumed.Name(name))
			added[name] = !has && !counts
		}
	}
	return slices.DeleteFunc(item.Clone(), func(a expr.Attribute) bool {
		rest, ok := strings.CutPrefix(a.Name, AttrBucketLimitCapacity.Prefix)
		name, _ := cutMember(rest)
		return ok && added[name]
	})
}

// Readable returns an error of a decoder for a caller that shows or counts an item, and neither obeys nor writes it. It
// returns nil where a refused item was decoded whole.
func Readable(err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Err
	}
	return err
}

// state returns the state that the item holds, whose quotas are placed. It shares the limits with the item. A marked
// item has a time until which it is valid, perhaps 0. The attribute of a disabled item may have any value.
//
// No program of this module writes a limit without a refill period. A limit that another program wrote so has no refill
// until it is configured.
func (it *Bucket) state(marked, disabled bool) bucket.State {
	for i := range it.Limits {
		if l := &it.Limits[i]; l.RefillPeriod <= 0 || l.RefillAmount < 0 {
			l.RefillAmount, l.RefillPeriod = 0, 1
		}
	}
	for _, life := range it.Lives {
		if at := slices.IndexFunc(it.Limits, func(l bucket.Limit) bool { return l.Name == life.Name }); at >= 0 {
			it.Limits[at].Life = life.Number // other programs may leave that of a dropped limit
		}
	}
	for _, c := range it.Children {
		if at := slices.IndexFunc(it.Limits, func(l bucket.Limit) bool { return l.Name == c.Name }); at >= 0 {
			it.Limits[at].SetFromChildren(c.Consumed)
		}
	}
	for _, n := range it.Narrower {
		if at := slices.IndexFunc(it.Limits, func(l bucket.Limit) bool { return l.Name == n.Name }); at >= 0 {
			it.Limits[at].SetFromNarrower(n.Consumed)
		}
	}
	s := bucket.State{
		Limits:     it.Limits,
		RefilledAt: it.RefilledAt,
		ExpiresAt:  it.ExpiresAt,
		Shard:      it.Key.Shard,
		Shards:     int(it.ShardCount),
		ValidUntil: it.ValidUntil,
		Disabled:   disabled,
		Changed:    it.ValidUntil == 0 && (marked || it.isTimed()),
	}
	s.Change(func(n *bucket.Notes) {
		*n = bucket.Notes{
			Slots: it.Slots, Crossed: it.Crossed, Zone: it.Zone, Generation: it.Generation, Moved: it.Moved, Bypass: it.Bypass,
			Inherits: it.SharedTimes != "" || it.SharedWindows != "",
		}
	})
	return s
}

// Lineage returns the item's copy of the entity's record.
func (it *Bucket) Lineage() Lineage { return Lineage{it.Cascade, it.Parent, it.Moved, it.Incarnation} }

// Item returns the item of a state, perhaps of another shard of the bucket. It has a copy of the limits.
func (k BucketKey) Item(s *bucket.State, o Lineage) *Bucket {
	k.Shard = s.Shard
	var lives []BucketLife
	var children []BucketChildren
	var narrower []BucketNarrower
	for i := range s.Limits {
		if l := &s.Limits[i]; l.Life != 0 {
			lives = append(lives, BucketLife{Name: l.Name, Number: l.Life})
		}
		if l := &s.Limits[i]; l.FromChildren() != 0 {
			children = append(children, BucketChildren{Name: l.Name, Consumed: l.FromChildren()})
		}
		if l := &s.Limits[i]; l.FromNarrower() != 0 {
			narrower = append(narrower, BucketNarrower{Name: l.Name, Consumed: l.FromNarrower()})
		}
	}
	return &Bucket{
		Key:        k,
		Limits:     slices.Clone(s.Limits),
		Lives:      lives,
		Children:   children,
		Narrower:   narrower,
		Slots:      slices.Clone(s.Slots()),
		RefilledAt: s.RefilledAt,
		ShardCount: int64(s.Shards),
		Cascade:    o.Cascade,
		Parent:     o.Parent,
		ExpiresAt:  s.ExpiresAt,
		ValidUntil: s.ValidUntil,
		Crossed:    s.Crossed(),
		Zone:       s.Zone(),
		Generation: s.Generation(),
		Disabled:   s.Disabled,
		Bypass:     s.Bypass(),

		Moved:       o.Generation,
		Incarnation: o.Incarnation,
	}
}

// Write returns the write of a plan other than a rejection. The lineage is written with a new item alone.
func (k BucketKey) Write(p *bucket.Plan, o Lineage) (store.Write, error) {
	return k.WriteAt(k.Key(), p, o, nil)
}

// WriteAt is [BucketKey.Write] for a caller that has built the key of the item before. The item repeats the stored
// levels of the entity, unless repeated is nil. A spend has no room for it.
func (k BucketKey) WriteAt(key store.Key, p *bucket.Plan, o Lineage, repeated *Repeated) (store.Write, error) {
	w := store.Write{Kind: store.Update, Key: key}
	err := k.WriteTo(&w, p, &o, repeated)
	return w, err
}

// WriteTo is [BucketKey.WriteAt] for an update of the item's key, which it makes the write of the plan.
func (k *BucketKey) WriteTo(w *store.Write, p *bucket.Plan, o *Lineage, repeated *Repeated) (err error) {
	switch p.Kind {
	case bucket.Create:
		w.Kind, w.Item = store.Put, k.Item(&p.Item, *o).Encode()
		// A large item may become smaller yet, see Unlisted. A later write can repeat the levels then.
		if size := store.Size(w.Item) + len(store.PK+w.Key.PK+store.SK+w.Key.SK); repeated != nil && size <= 1024 && repeated.Fits(size) {
			w.Item = repeated.append(w.Item)
		}
		w.Expr, err = Insert()
	case bucket.Spend:
		w.Expr, err = bindSpend(p)
	default:
		w.Expr, err = k.bindAdvance(p, repeated)
	}
	return err
}

// A binding has the clause of an operation for each kind of step, by its number.
type binding [bucket.StepKinds]int

// bind returns a binding of kinds to clauses. Other kinds have no clause, and end in a panic.
func bind(clauses map[bucket.StepKind]int) (b binding) {
	for kind := range b {
		b[kind] = -1
		if clause, ok := clauses[bucket.StepKind(kind)]; ok {
			b[kind] = clause
		}
	}
	return b
}

// spendSteps are the clauses of [Spend], except the clauses of slots.
var spendSteps = bind(map[bucket.StepKind]int{
	bucket.Admit: spendAdmit, bucket.Take: spendTake, bucket.Borrow: spendBorrow, bucket.Below: spendBelow, bucket.Place: spendPlace, bucket.Unmoved: spendUnmoved,
	bucket.Charge: spendCharge, bucket.Owe: spendOwe, bucket.Refund: spendRefund, bucket.Same: spendSame, bucket.Period: spendPeriod,
	bucket.Ascribe: spendAscribe, bucket.Contain: spendContain, bucket.Regard: spendRegard, bucket.Meter: spendMeter,
	bucket.Foresee: spendForesee, bucket.Pass: spendPass,
})

// advanceSteps are the clauses of [Advance], except the clauses of slots.
var advanceSteps = bind(map[bucket.StepKind]int{
	bucket.Admit: advanceAdmit, bucket.Credit: advanceCredit, bucket.Cover: advanceCover, bucket.Fill: advanceFill, bucket.Count: advanceCount,
	bucket.Renew: advanceRenew, bucket.Seed: advanceSeed, bucket.Ascribe: advanceAscribe, bucket.Contain: advanceContain,
	bucket.Foresee: advanceForebode, bucket.Drop: advanceDrop, bucket.Release: advanceRelease, bucket.Disown: advanceDisown,
	bucket.Resize: advanceShare, bucket.Expire: advanceExpire,
})

// pick adds the clause of a step to a call. Its values are numbers.
func (b *binding) pick(call *expr.Call, op *expr.Operation, s *bucket.Step) {
	clause := b[s.Kind]
	call.PickNumbers(clause, s.Limit, s.Values[:op.Clauses[clause].Placeholders]...)
}

// bindSpend binds a plan that leaves the refill stamp alone.
func bindSpend(p *bucket.Plan) (expr.Bound, error) {
	call := Spend(p.RefilledAt, seconds(p.Now))
	if p.At == math.MaxInt64 && p.Generation == 0 {
		call.Plain()
	} else {
		call.Dated(p.At, p.Generation)
	}
	for i := range p.Steps {
		switch s := &p.Steps[i]; s.Kind {
		case bucket.HoldSlots, bucket.GiveSlots:
			bindSlots(call, s)
		default:
			spendSteps.pick(call.Call, &spendOperation, s)
		}
	}
	return call.Bind()
}

// A slotsCall is a call that can take slots and give them back.
type slotsCall interface {
	HoldEven(limit string, amount, least, epoch, takers, enrolled int64)
	HoldOdd(limit string, amount, least, epoch, takers, enrolled int64)
	ReleaseEven(limit string, amount, epoch, lapsed, enrolled int64)
	ReleaseOdd(limit string, amount, epoch, lapsed, enrolled int64)
}

// bindSlots adds the clause of a step of slots, by the parity of its epoch.
func bindSlots[C slotsCall](call C, s *bucket.Step) {
	v := s.Values
	isEven := v[1]%2 == 0
	switch {
	case s.Kind == bucket.HoldSlots && isEven:
		call.HoldEven(s.Limit, v[0], v[4], v[1], v[2], v[3])
	case s.Kind == bucket.HoldSlots:
		call.HoldOdd(s.Limit, v[0], v[4], v[1], v[2], v[3])
	case isEven:
		call.ReleaseEven(s.Limit, v[0], v[1], v[1]+2, v[2])
	default:
		call.ReleaseOdd(s.Limit, v[0], v[1], v[1]+2, v[2])
	}
}

// bindAdvance binds a plan that moves the refill stamp.
func (k BucketKey) bindAdvance(p *bucket.Plan, repeated *Repeated) (expr.Bound, error) {
	call := AdvanceCall{noting.Call(expr.N(p.RefilledAt), expr.N(p.Now), expr.N(p.ValidUntil), expr.N(p.Generation))}
	for i := range p.Steps {
		switch s := &p.Steps[i]; s.Kind {
		case bucket.HoldSlots, bucket.GiveSlots:
			bindSlots(call, s)
		case bucket.Put:
			value := expr.N(s.Values[0])
			if s.Text != "" {
				value = expr.S(s.Text)
			}
			call.Pick(len(advanceOperation.Clauses)+2*int(s.Field), s.Limit, value)
		case bucket.Remove:
			call.Pick(len(advanceOperation.Clauses)+2*int(s.Field)+1, s.Limit)
		case bucket.Persist:
			call.Persist(k.NamespaceIndex())
		default:
			advanceSteps.pick(call.Call, &advanceOperation, s)
		}
	}
	if p.Now == p.RefilledAt {
		repeated = nil // a later write has room for it, see advanceSets
	}
	switch {
	case repeated == nil:
	case repeated.Levels == "":
		call.RepeatNone(repeated.ReadAt)
	default:
		call.Repeat(repeated.ReadAt, repeated.Levels)
	}
	return call.Bind()
}

// notes are the attributes of fields.
var notes = [bucket.Fields]expr.Path{
	bucket.Capacity: AttrBucketLimitCapacity, bucket.RefillAmount: AttrBucketLimitRefillAmount, bucket.RefillPeriod: AttrBucketLimitRefillPeriod,
	bucket.Times: AttrBucketLimitResetTimes, bucket.Windows: AttrBucketLimitWindowTexts, bucket.Session: AttrBucketLimitSession,
	bucket.Since: AttrBucketLimitSince, bucket.Applied: AttrBucketLimitApplied, bucket.Rolled: AttrBucketLimitRolled,
	bucket.Began: AttrBucketLimitBegan, bucket.Turned: AttrBucketLimitTurned, bucket.Carry: AttrBucketLimitCarry, bucket.Carried: AttrBucketLimitCarried,
	bucket.GrantedTokens: AttrBucketLimitGranted, bucket.GrantedUntil: AttrBucketLimitUntil, bucket.GrantedLacking: AttrBucketLimitLacking,
	bucket.SoftUntil: AttrBucketLimitSoftUntil, bucket.Shade: AttrBucketLimitShade, bucket.Refusals: AttrBucketLimitRefusals, bucket.Known: AttrBucketLimitKnown,
	bucket.LifeNumber: AttrBucketLifeNumber, bucket.ValidUntil: expr.Attr(AttrBucketValidUntil), bucket.Crossed: expr.Attr(AttrBucketCrossed),
	bucket.Zone: expr.Attr(AttrBucketZone), bucket.BypassUntil: expr.Attr(AttrBucketBypass), bucket.ExpiresAt: expr.Attr(AttrBucketExpiresAt),
	bucket.Generation: expr.Attr(AttrBucketGeneration), bucket.SharedTimes: expr.Attr(AttrBucketSharedTimes), bucket.SharedWindows: expr.Attr(AttrBucketSharedWindows),
}

// noting is [Advance] with two clauses for each field: one sets it, and one removes it.
var noting = func() *expr.Operation {
	op := &expr.Operation{
		Name: advanceOperation.Name, Placeholders: advanceOperation.Placeholders, Where: advanceOperation.Where, Update: advanceOperation.Update,
		Clauses: slices.Clone(advanceOperation.Clauses),
	}
	for _, path := range notes {
		op.Clauses = append(op.Clauses, expr.Clause{Name: "put", Placeholders: 1, Update: []expr.Action{expr.Set(path, 0)}})
		op.Clauses = append(op.Clauses, expr.Clause{Name: "remove", Update: []expr.Action{expr.Remove(path)}})
	}
	return op
}()

// A new bucket need not be in two indexes, of its resource and of its namespace.
var (
	ofResource  = Table.Index(QueryBucketsOfResource("ns", "resource", "").Index)
	ofNamespace = Table.Index(QueryNamespaceItems("ns").Index)
)

// Unlisted takes a new bucket out of the index of its resource, and out of that of its namespace if it expires. All buckets of
// a resource, and of a namespace, have one key in these indexes. [BucketKey.List] enters the bucket into the first one.
func Unlisted(item expr.Item) expr.Item {
	left := []*store.Index{ofResource}
	if _, expires := item.Lookup(Table.TTL); expires {
		left = append(left, ofNamespace)
	}
	return slices.DeleteFunc(item, func(a expr.Attribute) bool {
		return slices.ContainsFunc(left, func(x *store.Index) bool { return a.Name == x.PK || a.Name == x.SK })
	})
}

// IsListed reports whether a bucket is in the index of its resource.
func IsListed(item expr.Item) bool { return item.Index(ofResource.PK) >= 0 }

// List returns the write that enters a bucket into the index of its resource.
func (k BucketKey) List() (store.Write, error) {
	enter, err := List(k.ResourceIndex())
	return store.Write{Kind: store.Update, Key: k.Key(), Expr: enter}, err
}
