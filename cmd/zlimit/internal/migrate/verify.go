package migrate

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A Verification says how the target compares with what follows from the source.
type Verification struct {
	Source      int64            `json:"items_read"`     // items of the source
	Items       int64            `json:"items_compared"` // items that follow from them
	Different   int64            `json:"different"`      // items that are missing, or not as they should be
	Extra       int64            `json:"extra"`          // items of the target that follow from none
	Differences []string         `json:"differences"`    // the first of both
	Written     int64            `json:"written"`        // items that programs wrote before each look, so that they could not be compared
	Losses      map[string]int64 `json:"losses"`         // items and fields without a place in the target, by reason
	Clients     string           `json:"-"`              // the version of the oldest client that obeys all of the target, and for which the source is
	Moving      int64            `json:"-"`              // groups that changed while they were compared, and were compared again

	childrenFrom string           // from when on the source counts what requests of children are charged to their parents
	resources    map[string]bool  // with limits of their own, in the namespace of items without one
	entities     map[string]int64 // with limits of their own for a resource
	kept         bool             // the source has a registry, which is an item as others are
	again        []look           // what differed, and is to be compared again
	sourceless   []store.Key      // items of the target that follow from none so far
	follow       []uint64         // hashes of the keys of all items that follow from the source, and count
	differ       map[uint64]bool  // hashes of the keys of all that differ
}

// Exact reports whether the target is what follows from the source.
func (v *Verification) Exact() bool { return v.Different == 0 && v.Extra == 0 }

const (
	shownDifferences = 20
	verifyTries      = 5
	maxAgain         = 10_000 // groups that are compared again; further ones differ
)

// keySeed is of the hashes of keys. Of a billion items, two have one hash in one of forty comparisons.
var keySeed = maphash.MakeSeed()

func hashOf(k store.Key) uint64 { return maphash.Comparable(keySeed, k) }

// Verify compares every item of the target with what follows from the source, attribute by attribute. What differs is
// compared again, up to four times with pauses, after the changes of the source were applied. Programs may go on: an item that has
// changed before every look is counted apart. Items that have expired do not count. It reads all of both tables. It keeps eight bytes for
// each item, and about fifty for each that differs.
func (m *Migration) Verify(ctx context.Context) (*Verification, error) { return m.verifier.verify(ctx) }

// A look is a part of the source that was compared, with a digest of what followed from it then; 0 before the first time.
type look struct {
	work
	seen uint64
}

// digestOf returns a digest of items, in any order, that is not 0.
func digestOf(items []Item) uint64 {
	sum := uint64(1)
	for i := range items {
		sum += maphash.String(keySeed, fmt.Sprint(items[i].Key, items[i].Attributes))
	}
	return max(sum, 1)
}

// A verifier compares the target with what follows from the source.
type verifier struct {
	config     *Config
	target     *table.Table
	ledger     *ledger
	calls      *calls
	derivation *derivation
	catchUp    func(context.Context) error
}

func (vf *verifier) verify(ctx context.Context) (*Verification, error) {
	v := &Verification{Differences: []string{}, Losses: map[string]int64{}, resources: map[string]bool{}, entities: map[string]int64{}, differ: map[uint64]bool{}}
	v.Clients = vf.config.ClientMinVersion
	v.addVersion(layout.VersionKey{}.Key().Join(vf.ledger.record.Before))
	last := ""
	for s := (store.Scan{Limit: vf.config.Page, Consistent: true}); ; {
		page, err := vf.verifyPage(ctx, v, s, &last)
		if err != nil {
			return nil, err
		}
		if s.Continue = page.Next; page.Next == nil {
			break
		}
	}
	if err := vf.findExtra(ctx, v); err != nil {
		return nil, err
	}
	if err := vf.verifyAgain(ctx, v); err != nil {
		return nil, err
	}
	v.index()
	v.Items = int64(len(v.follow))
	for _, key := range v.sourceless {
		if !v.follows(key) {
			v.addExtra(key)
		}
	}
	return v, nil
}

// index prepares [Verification.follows]. Several items of the source may say that one follows.
func (v *Verification) index() {
	slices.Sort(v.follow)
	v.follow = slices.Compact(v.follow)
}

// follows reports whether an item of the target follows from the source, as far as that was compared.
func (v *Verification) follows(key store.Key) bool {
	_, ok := slices.BinarySearch(v.follow, hashOf(key))
	return ok
}

func (v *Verification) addExtra(key store.Key) {
	v.Extra++
	v.name(key, "has no source")
}

// findExtra reads the target for items that follow from nothing that was compared. What is compared again may have them.
func (vf *verifier) findExtra(ctx context.Context, v *Verification) error {
	v.index()
	return vf.calls.scanTarget(ctx, func(items []expr.Item) error {
		for _, item := range items {
			key := store.KeyOf(item)
			v.Clients = layout.Later(v.Clients, layout.OldestClient(key, item))
			switch {
			case v.follows(key) || !vf.counts(key, item):
			case len(v.sourceless) < maxAgain:
				v.sourceless = append(v.sourceless, key)
			default:
				v.addExtra(key)
			}
		}
		return vf.ledger.beat(ctx)
	})
}

// name adds an item to the differences, as long as there are few.
func (v *Verification) name(key store.Key, how string) {
	if len(v.Differences) < shownDifferences {
		v.Differences = append(v.Differences, fmt.Sprintf("PK %q, SK %q: %s", key.PK, key.SK, how))
	}
}

// verifyAgain compares what differed up to four times again, all of it after each pause, with the changes of the source applied.
func (vf *verifier) verifyAgain(ctx context.Context, v *Verification) error {
	for try := 2; len(v.again) > 0 || len(v.sourceless) > 0 && try <= verifyTries; try++ {
		if err := vf.config.Sleep(ctx, vf.config.Poll); err != nil {
			return err
		}
		if err := vf.catchUp(ctx); err != nil {
			return err
		}
		again := v.again
		v.again = nil
		if err := vf.verifyRound(ctx, v, again, try < verifyTries); err != nil {
			return err
		}
		if err := vf.dropDeleted(ctx, v); err != nil {
			return err
		}
	}
	return nil
}

// dropDeleted forgets items without a source that are gone, since their source went while the two were compared.
func (vf *verifier) dropDeleted(ctx context.Context, v *Verification) error {
	counts := Counts{}
	defer func() { vf.ledger.booked.add(counts) }()
	have, err := vf.calls.read(ctx, vf.target, v.sourceless, counts)
	if err != nil {
		return err
	}
	var left []store.Key
	for i, item := range have {
		if item != nil {
			left = append(left, v.sourceless[i])
		}
	}
	v.sourceless = left
	return nil
}

// verifyRound compares parts of the source once.
func (vf *verifier) verifyRound(ctx context.Context, v *Verification, parts []look, mayDefer bool) error {
	counts := Counts{}
	defer func() { vf.ledger.booked.add(counts) }()
	for _, w := range parts {
		if err := vf.ledger.beat(ctx); err != nil {
			return err
		}
		if err := vf.verifyWork(ctx, v, w, counts, mayDefer); err != nil {
			return err
		}
	}
	return nil
}

// counts reports whether an item of the target is one that has to follow from the source.
func (vf *verifier) counts(key store.Key, item expr.Item) bool {
	return key.PK != ownPartition && (!vf.config.InPlace || vf.derivation.adds(key)) && !vf.derivation.expired(item)
}

// verifyPage compares what follows from a page of the source.
func (vf *verifier) verifyPage(ctx context.Context, v *Verification, q store.Scan, last *string) (page store.Page, err error) {
	if err := vf.ledger.beat(ctx); err != nil {
		return page, err
	}
	counts := Counts{}
	defer func() { vf.ledger.booked.add(counts) }()
	if page, err = vf.calls.scan(ctx, q, counts); err != nil {
		return page, err
	}
	for _, item := range page.Items {
		if vf.derivation.isOwn(store.KeyOf(item)) {
			continue
		}
		v.addVersion(item)
		if err := vf.verifyItem(ctx, v, item, last, counts); err != nil {
			return page, err
		}
	}
	return page, nil
}

// addVersion adds the contents of a version record; it ignores any other item. Moves of entities, and top-ups of quotas, raise the
// required version and leave no other trace. Of several records, the one that counts since the latest time decides which usage of the
// table is complete.
func (v *Verification) addVersion(item expr.Item) {
	if it, err := layout.DecodeVersion(item); err == nil {
		v.Clients = layout.Later(v.Clients, it.ClientMinVersion)
		v.childrenFrom = max(v.childrenFrom, it.ChildrenFrom)
	}
}

func (dv *derivation) expired(item expr.Item) bool {
	at, ok := item.Get(layout.Table.TTL).Int()
	return ok && at > 0 && at <= dv.config.Now().Unix()
}

// verifyItem compares what follows from an item, or from its group.
func (vf *verifier) verifyItem(ctx context.Context, v *Verification, item expr.Item, last *string, counts Counts) error {
	v.Source++
	key := store.KeyOf(item)
	_, grouped := group(key)
	if !grouped && vf.derivation.inGroup(key, *last) || grouped && key.PK == *last {
		return nil
	}
	if grouped {
		*last = key.PK
	}
	w := work{}
	w.add(key)
	if !grouped { // the group of a bucket that stands by itself is another item's
		w.groups = nil
	}
	known := len(v.again)
	err := vf.verifyWork(ctx, v, look{work: w}, counts, known < maxAgain)
	v.Moving += int64(len(v.again) - known)
	return err
}

// verifyWork compares what follows from a part of the source. If it differs, and may be compared again, that is left for later. A part that
// changed since the look before is being written, and shows nothing of the copy.
func (vf *verifier) verifyWork(ctx context.Context, v *Verification, l look, counts Counts, mayDefer bool) error {
	r, err := vf.derivation.now(ctx, l.work, counts)
	if err != nil {
		return err
	}
	differences, err := vf.compare(ctx, r.Items, counts)
	switch digest := digestOf(r.Items); {
	case err != nil:
		return err
	case len(differences) > 0 && mayDefer:
		v.again = append(v.again, look{l.work, digest})
	case len(differences) > 0 && l.seen != 0 && l.seen != digest:
		v.Written += int64(len(differences))
		v.take(vf.derivation, r, nil)
	default:
		v.take(vf.derivation, r, differences)
	}
	return nil
}

// now returns what follows from a part of the source now.
func (dv *derivation) now(ctx context.Context, w work, counts Counts) (r Result, err error) {
	for _, q := range w.groups {
		if r, err = dv.derive(ctx, q, counts); err != nil {
			return r, err
		}
	}
	items, err := dv.calls.read(ctx, dv.calls.source, slices.Collect(maps.Keys(w.singles)), counts)
	if err != nil {
		return r, err
	}
	for _, item := range items {
		if item != nil {
			one := dv.one(item)
			r.Items, r.Losses = append(r.Items, one.Items...), append(r.Losses, one.Losses...)
		}
	}
	return r, nil
}

// A difference is an item of the target that is not as it follows.
type difference struct {
	key store.Key
	how string
}

// compare returns how items of the target differ from those that follow.
func (vf *verifier) compare(ctx context.Context, items []Item, counts Counts) (differences []difference, err error) {
	keys := make([]store.Key, len(items))
	for i := range items {
		keys[i] = items[i].Key
	}
	have, err := vf.calls.read(ctx, vf.target, keys, counts)
	if err != nil {
		return nil, err
	}
	for i, it := range items {
		want := it.Key.Join(it.Attributes)
		switch {
		case vf.derivation.expired(want) || have[i].Equal(want):
		case have[i] == nil:
			differences = append(differences, difference{it.Key, "missing"})
		default:
			differences = append(differences, difference{it.Key, describe(want, have[i])})
		}
	}
	return differences, nil
}

// describe returns the first attribute in which two items differ.
func describe(want, have expr.Item) string {
	for _, item := range []expr.Item{want, have} {
		for _, a := range item {
			w, inWant := want.Lookup(a.Name)
			h, inHave := have.Lookup(a.Name)
			switch {
			case !inHave:
				return fmt.Sprintf("%s is missing, want %v", a.Name, w)
			case !inWant:
				return fmt.Sprintf("%s is %v, want none", a.Name, h)
			case !w.Equal(h):
				return fmt.Sprintf("%s is %v, want %v", a.Name, h, w)
			}
		}
	}
	return "it differs"
}

// take adds compared items.
func (v *Verification) take(follows *derivation, r Result, differences []difference) {
	for _, d := range differences {
		if hash := hashOf(d.key); !v.differ[hash] {
			v.differ[hash] = true
			v.Different++
			v.name(d.key, d.how)
		}
	}
	for _, l := range r.Losses {
		v.Losses[l.Reason]++
	}
	for _, it := range r.Items {
		if it.Key.PK != ownPartition && !follows.expired(it.Key.Join(it.Attributes)) {
			v.follow = append(v.follow, hashOf(it.Key))
		}
		if k, ok := layout.ParseResourceConfigKey(it.Key); ok && k.NS == follows.rules.NS {
			v.resources[k.Resource] = true
		}
		if k, ok := layout.ParseEntityConfigKey(it.Key); ok && k.NS == follows.rules.NS {
			v.entities[k.Resource]++
		}
		if k, ok := layout.ParseResourceRegistryKey(it.Key); ok && k.NS == follows.rules.NS {
			v.kept = true
		}
		if k, ok := layout.ParseEntityConfigRegistryKey(it.Key); ok && k.NS == follows.rules.NS {
			v.kept = true
		}
	}
}
