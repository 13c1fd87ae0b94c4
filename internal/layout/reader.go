package layout

import (
	"slices"
	"sync/atomic"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A BucketReader reads the states of one bucket item. Items mostly have their attributes in the same places as the one
// before. Such an item is read without a look at the names of its attributes. It is safe for concurrent use.
type BucketReader struct {
	key    BucketKey
	at     store.Key
	known  atomic.Pointer[sighting]       // of the image before; nil at first
	rare   atomic.Pointer[[]*bucket.Rare] // of the limits of the image before, where one of them has any; nil at first
	misses atomic.Uint64                  // items that had their attributes in other places
}

// Init makes a reader one of the bucket item of a key, whose stored form the caller has.
func (r *BucketReader) Init(k BucketKey, at store.Key) { r.key, r.at = k, at }

// State is [ReadState] for an item whose forms are nil if they are not known. The limits of the state lie in the memory of a list, as far
// as that suffices.
func (r *BucketReader) State(item expr.Item, forms *expr.Forms, space []bucket.Limit) (bucket.State, error) {
	known := r.known.Load()
	if known == nil || forms != known.forms && !known.forms.Fit(item) {
		if known = r.find(item); known == nil {
			return ReadState(item)
		}
	}
	var s bucket.State
	var ok bool
	if !known.state(&s, item, r.at, space) || known.isRare && !r.shareRare(known.places, item, s.Limits) {
		return ReadState(item)
	}
	if known.isNoted {
		if s.Notes, ok = known.notesOf(item); !ok {
			return ReadState(item)
		}
	}
	if s.Notes != known.notes && len(known.slots) == 0 || !known.shows(s.Limits) {
		known = known.sight(&s)
		r.known.Store(known)
	}
	s.Shape, s.Shard = known.shape, r.key.Shard
	return s, nil
}

// A sighting has the places of the attributes of one item, and the limits as the image before showed them.
type sighting struct {
	*places
	limits []bucket.Limit
	notes  *bucket.Notes
	shape  *bucket.Shape
}

// sight returns the sighting of an item with a state.
func (p *places) sight(s *bucket.State) *sighting {
	return &sighting{p, slices.Clone(s.Limits), s.Notes, bucket.NewShape(p.limits, !p.isRare)}
}

// shows reports whether limits have the parameters and the lives of the image before. They have the names, since the places are the same.
func (k *sighting) shows(limits []bucket.Limit) bool {
	if len(k.limits) != len(limits) {
		return false
	}
	for i := range limits {
		if !limits[i].IsLike(&k.limits[i]) {
			return false
		}
	}
	return true
}

// latest are the places that were found last in this process. Items with the same limits mostly have them in common.
var latest atomic.Pointer[places]

// find returns the places of the attributes of an item, nil where they are not worth knowing. To find places takes longer
// than to read an item. The more items of a store had them elsewhere, the fewer times they are looked for.
func (r *BucketReader) find(item expr.Item) *sighting {
	p := latest.Load()
	if p == nil || !p.forms.Fit(item) {
		if n := r.misses.Add(1); n&(n-1) != 0 {
			return nil
		}
		decoded, state, err := ReadBucket(item)
		if err != nil || decoded.SharedTimes != "" || decoded.SharedWindows != "" || state.Disabled {
			return nil
		}
		p = placesOf(item, decoded)
		latest.Store(p)
	}
	known := p.sight(new(bucket.State))
	r.known.Store(known)
	return known
}

// Places say where the attributes of a bucket item are.
type places struct {
	forms   *expr.Forms
	pk, sk  int
	figures []int // by their number: where they are; negative for one that the item does not have
	limits  []string
	slots   []string
	rare    []bucket.Rare // times and windows of the limits
	isRare  bool          // one of the limits may have something that is rare
	isNoted bool          // the item may have notes
	texts   []text
	zone    string
	isTimed bool
}

// A text is an attribute of which the times of limits follow.
type text struct {
	at    int
	value string
}

// The numbers of the figures of a state, where the figures of each limit follow in a row.
const (
	refilledAt = 1 + iota
	shardCount
	expiresAt
	validUntil
	crossed
	generation
	moved
	bypass
	firstLimit
)

// The numbers of the figures of a limit, from its first one on.
const (
	tokens = iota
	capacity
	refillAmount
	refillPeriod
	consumed
	life
	firstRare
	perLimit = firstRare + rareFigures
)

// rareFigures is the number of the figures that few limits have, which follow in a row.
const rareFigures = 15

// rareOf returns where the figures that few limits have are in their rare parts.
func rareOf(r *bucket.Rare) [rareFigures]*int64 {
	return [...]*int64{
		&r.Known, &r.Session, &r.Since, &r.Applied, &r.Rolled, &r.Began, &r.Turned, &r.Carry, &r.Carried,
		&r.Granted, &r.Until, &r.Lacking, &r.Soft, &r.Shade, &r.Refusals,
	}
}

// The numbers of the figures of slots, from the first one on. They follow the figures of all limits.
const (
	slotsFree = iota
	slotsEven
	slotsOdd
	slotsCapacity
	slotsEpoch
	slotsTerm
	slotsFence
	slotsEnrolled
	slotsClaimed
	slotsClaimant
	slotsClaimedUntil
	perSlots
)

// placesOf returns where the attributes of an item are that was decoded. An item whose figures are their own numbers shows
// what their attributes are called.
func placesOf(item expr.Item, decoded *Bucket) *places {
	p := &places{forms: expr.FormsOf(item), pk: item.Index(store.PK), sk: item.Index(store.SK), zone: decoded.Zone, isTimed: decoded.isTimed()}
	limits := decoded.Limits
	for i := range item {
		if isOfTimes(item[i].Name) {
			p.texts = append(p.texts, text{i, item[i].Value.Text()})
		}
	}
	numbered := Bucket{RefilledAt: refilledAt, ShardCount: shardCount, ExpiresAt: expiresAt, ValidUntil: validUntil, Crossed: crossed, Generation: generation, Moved: moved, Bypass: bypass}
	for i, l := range limits {
		first := int64(firstLimit + i*perLimit)
		p.limits, p.rare = append(p.limits, l.Name), append(p.rare, bucket.Rare{Times: l.Times(), Windows: l.Windows()})
		numbered.Limits = append(numbered.Limits, bucket.Limit{
			Name: l.Name, Tokens: first + tokens, Capacity: first + capacity, RefillAmount: first + refillAmount,
			RefillPeriod: first + refillPeriod, Consumed: first + consumed,
			Rare: new(bucket.Rare),
		})
		for at, figure := range rareOf(numbered.Limits[i].Rare) {
			*figure = first + firstRare + int64(at)
		}
		numbered.Lives = append(numbered.Lives, BucketLife{Name: l.Name, Number: first + life})
	}
	for i := range decoded.Slots {
		first := int64(firstLimit + perLimit*len(limits) + perSlots*i)
		p.slots = append(p.slots, decoded.Slots[i].Name)
		numbered.Slots = append(numbered.Slots, bucket.Slots{
			Name: decoded.Slots[i].Name, Free: first + slotsFree, Even: first + slotsEven, Odd: first + slotsOdd, Capacity: first + slotsCapacity,
			Epoch: first + slotsEpoch, Term: first + slotsTerm, Fence: first + slotsFence, Enrolled: first + slotsEnrolled,
			Claimed: first + slotsClaimed, Claimant: first + slotsClaimant, ClaimedUntil: first + slotsClaimedUntil,
		})
	}
	p.figures = make([]int, firstLimit+perLimit*len(limits)+perSlots*len(p.slots))
	for _, a := range numbered.Encode() {
		if n, ok := a.Value.Int(); ok {
			p.figures[n] = item.Index(a.Name)
		}
	}
	p.isNoted = p.zone != "" || len(p.slots) > 0 || max(p.figures[crossed], p.figures[generation], p.figures[moved], p.figures[bypass]) >= 0
	for i := range p.rare {
		of := p.figures[firstLimit+perLimit*i:][:perLimit]
		p.isRare = p.isRare || p.rare[i] != bucket.Rare{} || slices.Max(of[firstRare:]) >= 0
	}
	return p
}

// isOfTimes reports whether an attribute says at which times something of limits changes.
func isOfTimes(name string) bool {
	switch name {
	case AttrBucketZone, AttrBucketSharedTimes, AttrBucketSharedWindows:
		return true
	default:
		_, resets := AttrBucketLimitResetTimes.Cut(name)
		_, windows := AttrBucketLimitWindowTexts.Cut(name)
		return resets || windows
	}
}

// state reads the state of an item that fits. It returns false for an item of another key, and for one with an
// unusual figure, which [ReadState] can read.
func (p *places) state(s *bucket.State, item expr.Item, key store.Key, space []bucket.Limit) (ok bool) {
	if item[p.pk].Value.Text() != key.PK || item[p.sk].Value.Text() != key.SK {
		return false
	}
	for _, t := range p.texts {
		if item[t.at].Value.Text() != t.value {
			return false
		}
	}
	r := figureReader{item: item, ok: true}
	s.RefilledAt = r.figure(p.figures[refilledAt])
	s.Shards = int(r.figure(p.figures[shardCount]))
	s.ExpiresAt = r.figure(p.figures[expiresAt])
	s.ValidUntil = r.figure(p.figures[validUntil])
	s.Changed = s.ValidUntil == 0 && (p.isTimed || p.figures[validUntil] >= 0)
	s.Limits = slices.Grow(space[:0], len(p.limits))[:len(p.limits)]
	for i, name := range p.limits {
		at := p.figures[firstLimit+perLimit*i:][:perLimit]
		l := &s.Limits[i]
		l.Name = name
		l.Tokens, l.Capacity = r.figure(at[tokens]), r.figure(at[capacity])
		l.RefillAmount, l.RefillPeriod = r.figure(at[refillAmount]), r.figure(at[refillPeriod])
		l.Consumed, l.Life = r.figure(at[consumed]), r.figure(at[life])
		if l.RefillPeriod <= 0 || l.RefillAmount < 0 {
			return false
		}
	}
	return r.ok
}

// notesOf returns the notes of an item in these places: the notes of the image before if they are the same, and nil without any.
func (k *sighting) notesOf(item expr.Item) (notes *bucket.Notes, ok bool) {
	r := figureReader{item: item, ok: true}
	next := bucket.Notes{
		Crossed: r.figure(k.figures[crossed]), Generation: r.figure(k.figures[generation]),
		Moved: r.figure(k.figures[moved]), Bypass: r.figure(k.figures[bypass]), Zone: k.zone,
	}
	if len(k.slots) > 0 {
		next.Slots = k.slotsOf(&r)
	}
	switch {
	case k.notes != nil && len(k.slots) == 0 && k.notes.Equal(&next):
		return k.notes, r.ok
	case next.Equal(new(bucket.Notes)):
		return nil, r.ok
	default:
		own := next
		return &own, r.ok
	}
}

// shareRare gives the limits of an image their rare parts. It is that of the image before where nothing of it has
// changed.
func (r *BucketReader) shareRare(p *places, item expr.Item, limits []bucket.Limit) (ok bool) {
	var before []*bucket.Rare
	if b := r.rare.Load(); b != nil {
		before = *b
	}
	figures, changed := figureReader{item: item, ok: true}, len(before) != len(limits)
	for i := range limits {
		at, next := p.figures[firstLimit+perLimit*i:][:perLimit], p.rare[i]
		for n, figure := range rareOf(&next) {
			*figure = figures.figure(at[firstRare+n])
		}
		switch {
		case i < len(before) && before[i] != nil && *before[i] == next:
			limits[i].Rare = before[i]
		case next != bucket.Rare{}:
			own := next
			limits[i].Rare, changed = &own, true
		}
	}
	if changed {
		all := make([]*bucket.Rare, len(limits))
		for i := range limits {
			all[i] = limits[i].Rare
		}
		r.rare.Store(&all)
	}
	return figures.ok
}

// slotsOf returns the slots of an item in these places.
func (p *places) slotsOf(r *figureReader) []bucket.Slots {
	all := make([]bucket.Slots, len(p.slots))
	for i, name := range p.slots {
		at := p.figures[firstLimit+perLimit*len(p.limits)+perSlots*i:][:perSlots]
		all[i] = bucket.Slots{
			Name: name, Free: r.figure(at[slotsFree]), Even: r.figure(at[slotsEven]), Odd: r.figure(at[slotsOdd]), Capacity: r.figure(at[slotsCapacity]),
			Epoch: r.figure(at[slotsEpoch]), Term: r.figure(at[slotsTerm]), Fence: r.figure(at[slotsFence]), Enrolled: r.figure(at[slotsEnrolled]),
			Claimed: r.figure(at[slotsClaimed]), Claimant: r.figure(at[slotsClaimant]), ClaimedUntil: r.figure(at[slotsClaimedUntil]),
		}
	}
	return all
}

type figureReader struct {
	item expr.Item
	ok   bool // all of them were integers of 64 bits
}

// figure returns the figure at a place, 0 if there is none.
func (r *figureReader) figure(place int) int64 {
	if place < 0 {
		return 0
	}
	n, ok := r.item[place].Value.Int()
	r.ok = r.ok && ok
	return n
}
