package protocol

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Options are the configuration of an engine.
type Options struct {
	Table        *table.Table
	Namespace    func() string // "" until it is known; every call of the store fails until then
	Source       LimitSource
	Now          func() time.Time
	SlotTime     func() (now time.Time, wrong time.Duration, known bool) // the clock for slots, and its greatest error; nil for Now
	Freshness    func([]bucket.Params) int64                             // δ of a bucket, milliseconds
	MaxShards    int
	RejectionAge time.Duration // of the oldest image that may reject a request; 0 if only images from after its arrival may
	WritesAtOnce int           // the most writes of one bucket with one caller each; further callers wait to share a write; 0 for no sharing
	Buckets      int           // the most that are remembered
	Listing      bool          // items are entered into the index of their resource, see lister
	MaxLead      time.Duration // the most by which a refill stamp may be ahead before it is set back
	Mixed        bool          // other clients write the buckets, see [bucket.Config]
	Sleeper      Sleeper       // of callers that wait for tokens; nil for the clock of the machine
	SettleLimit  time.Duration // of writes that outlive the caller's context
	Epoch        *atomic.Int64 // shared by engines with the same LimitSource
	Logger       *slog.Logger

	// Resized is called after this process has split or merged a bucket, with the change in its number of shards.
	Resized func(ctx context.Context, entity, resource string, shards int)
	// SlotsChanged is called after this process has taken, released or lost slots; it may be nil.
	SlotsChanged func(ctx context.Context, change SlotChange)
}

// Limits are the limits that apply to the bucket of an entity and resource. They are immutable.
type Limits struct {
	Config  bucket.Config
	Lineage layout.Lineage
	Within  string // the stored wider resource of the bucket's resource; "" for none
	Own     bool   // specified by the request, in place of stored limits
	Epoch   int64  // when a consistent read of them began; 0 for an eventually consistent read
	ReadAt  int64  // when the oldest part of them was read, epoch milliseconds
	Detail  any    // for the LimitSource

	Disabled bool // requests are rejected, whatever the limits

	Repeat *Repeat // to be copied into the bucket's first item; nil for nothing
}

// A Repeat has what a process has read for an entity from the store. Writes that have room for it copy it into the bucket's first item,
// where the other processes of a fleet find it.
type Repeat struct {
	layout.Repeated
	Until int64 // after that time, another process may have a later read, epoch milliseconds
}

// due returns what a write of an item copies at a time, nil for nothing. It returns nil if the copy would make the item take more write
// units.
func (r *Repeat) due(s *shard, i *image, now int64) *layout.Repeated {
	if r == nil || s.Shard > 0 || now > r.Until || i.exists && !r.Fits(int(i.size)) {
		return nil
	}
	return &r.Repeated
}

// A LimitSource keeps the stored limits. It is safe for concurrent use.
type LimitSource interface {
	// For returns the limits of a bucket, from memory while they are fresh. If none are stored, it returns limits without parameters. It
	// may read the bucket's first item in the same call, see [Memory.Unseen].
	For(ctx context.Context, b *Bucket) (*Limits, error)
	// After returns limits that were read after an epoch. If necessary, it reads them again, consistently.
	After(ctx context.Context, b *Bucket, epoch int64) (*Limits, error)
}

// Counts are the counters of an engine.
type Counts struct {
	LostRaces   atomic.Uint64 // writes whose condition failed because another writer came first
	Unreturned  atomic.Uint64 // takes of one level that could not be returned after another level had fallen short
	StampsFixed atomic.Uint64 // refill stamps that were too far ahead, and were set back
	SlotsHeld   atomic.Int64  // slots that this process now holds
	SlotsTaken  atomic.Uint64 // slots that it has taken
	SlotsLost   atomic.Uint64 // slots that it has lost
	Foreseen    atomic.Uint64 // admitted requests that a shadow limit would have rejected
}

// An Engine takes tokens and settles them. Each of its parts uses only the parts before it. It is safe for concurrent use.
type Engine struct {
	background
	*Counts
	Memory Memory
	Waits  Waits

	core       core
	items      items
	looks      looks
	aligner    aligner
	judge      judge
	lister     lister
	resizer    resizer
	families   families
	settler    settler
	slotKeeper slotKeeper
	slots      slotTaker
	refunds    refunds
	taker      levelTaker
	clock      clockAsker
	admitter   admitter
}

// A core has the shared parts of an engine: the store, the options, the time, and the counts.
type core struct {
	Counts

	table      *table.Table
	options    Options
	background *background
	salt       uint64    // of the lives that this process starts
	started    time.Time // for paces, independent of changes of clocks
	writes     *table.Sharing
	ahead      atomic.Pointer[lead]
	fixes      fixes
	enabled    atomic.Int64 // epoch at which this process last enabled a bucket
	stalls     atomic.Int64 // buckets without an answered call since one was throttled
}

// New returns an engine.
func New(o Options) *Engine {
	if o.Epoch == nil {
		o.Epoch = new(atomic.Int64)
	}
	e := new(Engine)
	e.init()
	c := &e.core
	e.Counts = &c.Counts
	c.table, c.options, c.background = o.Table, o, &e.background
	c.writes = o.Table.Sharing()
	c.salt, c.started = uint64(o.Table.IntN(math.MaxInt32)), time.Now()
	e.items = items{c}
	e.looks = looks{core: c, items: &e.items, sharing: o.Table.Sharing()}
	e.aligner = aligner{c, &e.items, &e.looks}
	e.lister = lister{core: c, items: &e.items, pace: pace{bounds: &ofListings}}
	e.resizer = resizer{core: c, items: &e.items}
	e.Memory = Memory{c, &e.items, otter.Must(&otter.Options[bucketID, *Bucket]{
		MaximumSize: o.Buckets,
		Executor:    func(task func()) { task() },
		OnDeletion:  func(d otter.DeletionEvent[bucketID, *Bucket]) { d.Value.evicted.Store(true) },
	})}
	e.families = families{c, &e.looks, &e.Memory}
	e.slotKeeper = slotKeeper{c, &e.items, &e.looks, &e.clock}
	e.slots = slotTaker{core: c, items: &e.items, looks: &e.looks, lister: &e.lister, slotKeeper: &e.slotKeeper}
	e.judge = judge{c, &e.looks, &e.aligner, &e.lister, &e.families, &e.Memory}
	e.Waits = Waits{c, &e.judge, &e.Memory, &e.looks, &e.slotKeeper, &e.families}
	e.settler = settler{core: c, items: &e.items, looks: &e.looks, aligner: &e.aligner, lister: &e.lister, memory: &e.Memory, slotKeeper: &e.slotKeeper}
	e.slots.shared = sharing[*claim]{core: c, writer: &e.slots, late: c.writes.Late}
	e.settler.shared = sharing[*payment]{core: c, writer: &e.settler, late: c.writes.Late}
	e.refunds = refunds{core: c, settler: &e.settler, memory: &e.Memory}
	e.taker = levelTaker{
		core: c, items: &e.items, looks: &e.looks, aligner: &e.aligner, judge: &e.judge, lister: &e.lister, resizer: &e.resizer,
		refunds: &e.refunds, slots: &e.slots,
	}
	e.taker.shared = sharing[*claim]{core: c, writer: &e.taker, late: c.writes.Late}
	e.clock = clockAsker{core: c}
	e.admitter = admitter{c, &e.items, &e.looks, &e.judge, &e.lister, &e.families, &e.refunds, &e.slotKeeper, &e.slots, &e.taker, &e.clock}
	return e
}

// Take takes the amounts of a request from all its levels, or from none, and notes them in an empty receipt. Its errors are:
//   - a [*RejectedError] if a limit falls short;
//   - a [*NoLimitsError], [*UnknownLimitError], [*DepthError], [*WidthError], [*LevelsError] or [*CrowdedError] for a request that cannot
//     be decided;
//   - a [*ClockError] if slots require a more accurate clock;
//   - a [*DisabledError] if an operator has disabled one of the levels;
//   - [ErrContended], and errors of the store or the context.
func (e *Engine) Take(ctx context.Context, r *Request, to *Receipt) error {
	return e.admitter.takeRequest(ctx, r, to)
}

// Enabled notes that this process has enabled a disabled level. Earlier images no longer prove that requests are rejected.
func (e *Engine) Enabled() { e.core.enabled.Store(e.core.NextEpoch()) }

// NextEpoch returns a number greater than all earlier ones. Epochs order what a process knows. The result of a call is as new as the epoch
// that was drawn before the call.
func (e *Engine) NextEpoch() int64 { return e.core.NextEpoch() }

// Stored returns the stored limits of an entity and resource, or a [*NoLimitsError].
func (e *Engine) Stored(ctx context.Context, entity, resource string) ([]bucket.Params, error) {
	limits, err := e.families.limitsOf(ctx, e.Memory.Bucket(entity, resource), &Request{}, e.NextEpoch())
	if err != nil {
		return nil, err
	}
	return limits.Config.Limits(), nil
}

// Undo returns the tokens of a request that is not admitted after all. It outlives the caller's context. It counts and logs a failure.
func (e *Engine) Undo(ctx context.Context, r *Receipt) {
	e.admitter.returnAll(ctx, r.levels)
}

// GiveSlotsBack releases the slots of a request that was admitted too late for its caller. The tokens stay taken. GiveSlotsBack outlives
// the caller's context, and logs a failure.
func (e *Engine) GiveSlotsBack(ctx context.Context, r *Receipt) {
	e.slotKeeper.giveSlotsBack(ctx, r.Holds())
}

// Settle writes the due corrections to all shards in parallel, bounded by the context. A correction that provably was not written stays
// due, and the next call writes it. The error joins the errors of all shards.
func (e *Engine) Settle(ctx context.Context, s *Settlement) error { return e.settler.settleAll(ctx, s) }

// Repay returns the tokens that are due to a bucket immediately, rather than in the background.
func (e *Engine) Repay(ctx context.Context, entity, resource string) error {
	b := e.Memory.Bucket(entity, resource)
	if !b.pendingRefunds.owes.Load() {
		return nil
	}
	return e.refunds.returnDue(ctx, b)
}

// Status returns the state of the limits of an entity and resource. With family, it includes the limits of the parents. It makes a
// consistent read of every shard, and writes nothing.
func (e *Engine) Status(ctx context.Context, r *Request, family bool) ([]LevelStatus, error) {
	return e.judge.status(ctx, r, family)
}

// TimeUntil returns the state of the limits that a request takes from, with the wait for each. Before it reports a wait, it brings the item
// in line with its configured limits, so that the wait is correct.
func (e *Engine) TimeUntil(ctx context.Context, r *Request) ([]LevelStatus, error) {
	return e.judge.timeUntil(ctx, r)
}

// Statuses calls a function with the limits of each level of a receipt, as this process last saw them. The taken amounts are reported as
// requested. The list is valid during the call. Statuses makes no call of the store, and allocates nothing for a receipt of one shard.
func (e *Engine) Statuses(r *Receipt, report func(LevelStatus)) { e.judge.reportTaken(r, report) }

// StatusesSince returns the limits of each bucket of a receipt, which may have been read from data. It reads the buckets that were not seen
// since an epoch.
func (e *Engine) StatusesSince(ctx context.Context, r *Receipt, epoch int64) ([]LevelStatus, error) {
	return e.judge.statusesSince(ctx, r, epoch)
}

// IsStrained reports whether a request is slow for a reason other than an outage: it waits for the proof of a rejection, or to share a
// write. This is so if the store recently throttled the key of the bucket or of a parent. It is also so if the bucket was seen since an
// epoch, and was nearly exhausted: then other requests come first. If one of the buckets is stalled, see [Engine.Stalled], neither applies.
func (e *Engine) IsStrained(r *Request, since int64) (strained bool) {
	if e.Stalled(r) != nil {
		return false
	}
	if r.together != nil {
		return slices.ContainsFunc(r.together.requests, func(part *Request) bool { return e.IsStrained(part, since) })
	}
	e.buckets(r, func(b *Bucket, limits *Limits) bool {
		strained = e.core.isStrained(b) || limits != nil && b.arrivedSince(since) && e.taker.isScarce(&level{
			bucket: b, limits: limits, demand: bucket.Demand{Amounts: limits.only(r.Amounts)},
		})
		return !strained
	})
	return strained
}
