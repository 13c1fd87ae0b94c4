package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// Phases of a migration.
const (
	Copying   = "copying"   // the items of the source are read and written, part by part
	Following = "following" // changes of the source since the start are applied
	Deleting  = "deleting"  // programs use the target; the old items of a migration in place are being deleted
	Finished  = "finished"  // programs use the target, and nothing is left to do
	Aborting  = "aborting"  // the items of the target are being deleted
)

// Errors of migrations.
var (
	ErrNone     = errors.New("no migration to this table")
	ErrTaken    = errors.New("another run works on the migration")
	ErrFinished = errors.New("the migration is finished")
	ErrDeleting = errors.New("the migration is finished except for the deletion of old items")
	ErrAborting = errors.New("the migration is being aborted")
	ErrNotEmpty = errors.New("the target holds items: a migration is to a table without any")
	// ErrMixed says that two items of the source might have one place in the target.
	ErrMixed  = errors.New("items without a namespace would mix with items of the namespace that they go to")
	ErrStream = errors.New("the source has no change stream of old and new images, so that what is written meanwhile would be lost")
	// ErrGap says that the source had forgotten changes before they were read. The copy begins again.
	ErrGap = errors.New("the change stream of the source had forgotten changes that were not read: the copy begins again")
	// ErrDiffers reports a target that does not follow from the source.
	ErrDiffers = errors.New("the target differs from what follows from the source")
	// ErrBusy says that the source is still written.
	ErrBusy = errors.New("the source is still written: stop what writes it")
)

// A Config has the stores and options of a migration. Zero values stand for the defaults, except the stores.
type Config struct {
	Source     store.Store // a [store.Scanner], and unless Offline a [store.Streamer]
	Target     store.Store
	SourceName string // by which a later run opens the source
	Rules      Rules
	InPlace    bool   // the source is the target itself
	Namespace  string // the name of the namespace for items without one; for plans, and in place
	Offline    bool   // the source is not written meanwhile, so that its change stream is not needed

	SchemaVersion, ClientMinVersion string // of the target, once the migration is finished; a later one where the source has it
	ClientVersion                   string // of programs that are to use the target: a source that asks for later ones is refused

	Segments int           // parts of the scan, which are copied in parallel; 16 by default
	Page     int           // items that are read between two checkpoints of a part; 200 by default
	Rate     float64       // capacity units a second, of reading and writing together; no bound by default
	Term     time.Duration // a run that was silent for so long is taken for dead; 2 min by default
	Quiet    time.Duration // how long the source must not have been written before the end; 10 s by default
	Poll     time.Duration // the pause after all changes were read; 1 s by default
	Timeout  time.Duration // of one call; 10 s by default
	Now      func() time.Time
	Sleep    func(context.Context, time.Duration) error
	Report   func(Progress) // called after every checkpoint, by several goroutines, one at a time
	// Name identifies the process of the run; the host and the process by default.
	Name string
	// Waiting is called while another run may be alive.
	Waiting func(Rival)
}

// A Rival is another run that has begun to work on the migration and has not ended.
type Rival struct {
	Owner   string        // its [Config.Name], and a suffix that makes it unique
	Started time.Time     // when the migration began
	Left    time.Duration // the silence that is still missing before the run counts as dead
}

// A Progress is how far a run has come.
type Progress struct {
	Phase  string
	Counts Counts // of all runs
	// Behind is the age of the change of the source that was applied last. It is 0 where no other one was left, and while the copy has not
	// followed yet.
	Behind time.Duration
}

// Counts are numbers by name.
type Counts map[string]int64

// Names of counts. Names of losses have the reason after a prefix.
const (
	CountRead       = "read"        // items of the source
	CountWritten    = "written"     // items of the target
	CountKept       = "kept"        // items that were as they should be
	CountReplaced   = "replaced"    // items that had changed since they were copied
	CountDeleted    = "deleted"     // items that went since they were copied
	CountChanges    = "changes"     // of the source since the start
	CountReadUnits  = "read_units"  // capacity units, in thousandths
	CountWriteUnits = "write_units" // the same
	lossPrefix      = "lost: "
)

// Add adds counts.
func (c Counts) Add(more Counts) {
	for name, n := range more {
		c[name] += n
	}
}

// Losses returns the numbers of losses by their reasons.
func (c Counts) Losses() map[string]int64 {
	losses := map[string]int64{}
	for name, n := range c {
		if reason, ok := strings.CutPrefix(name, lossPrefix); ok {
			losses[reason] = n
		}
	}
	return losses
}

// MarshalJSON returns the counts with whole capacity units, and losses by their reasons.
func (c Counts) MarshalJSON() ([]byte, error) {
	all := map[string]any{
		"losses": c.Losses(), CountReadUnits: float64(c[CountReadUnits]) / 1000, CountWriteUnits: float64(c[CountWriteUnits]) / 1000,
	}
	for _, name := range []string{CountRead, CountWritten, CountKept, CountReplaced, CountDeleted, CountChanges} {
		all[name] = c[name]
	}
	return json.Marshal(all)
}

func (c Counts) lose(losses []Loss) {
	for _, l := range losses {
		c[lossPrefix+l.Reason]++
	}
}

func (c Counts) encode() (item expr.Item) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		item = append(item, expr.Attribute{Name: name, Value: expr.N(c[name])})
	}
	return item
}

func decodeCounts(item expr.Item) Counts {
	c := Counts{}
	for _, a := range item {
		if n, ok := a.Value.Int(); ok {
			c[a.Name] = n
		}
	}
	return c
}

// A Migration is a run that works on a migration. Its methods are called one after another.
type Migration struct {
	config         *Config
	source, target *table.Table
	ledger         *ledger
	calls          *calls
	derivation     *derivation
	copier         *copier
	verifier       *verifier
}

func (c *Config) defaults() {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&c.Term, 2 * time.Minute}, {&c.Quiet, 10 * time.Second}, {&c.Poll, time.Second}, {&c.Timeout, 10 * time.Second}} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if c.Segments <= 0 {
		c.Segments = 16
	}
	if c.Page <= 0 {
		c.Page = 200
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = wait.For
	}
	if c.Report == nil {
		c.Report = func(Progress) {}
	}
	if c.Waiting == nil {
		c.Waiting = func(Rival) {}
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		c.Name = fmt.Sprintf("process %d of %s", os.Getpid(), host)
	}
}

// newMigration returns a run on the stores of a config.
func newMigration(c Config) (*Migration, error) {
	c.defaults()
	if c.InPlace && c.Source != nil {
		c.Target = c.Source
	}
	options := table.Options{Timeout: c.Timeout, Sleep: c.Sleep}
	m := &Migration{config: &c, target: table.New(c.Target, options)}
	pace := &pace{rate: c.Rate, now: c.Now, sleep: c.Sleep}
	m.ledger = &ledger{config: &c, target: m.target, pace: pace, parts: map[string]*layout.MigrationPart{}}
	m.calls = &calls{config: &c, target: m.target, pace: pace, ledger: m.ledger}
	m.derivation = &derivation{config: &c, calls: m.calls, rules: c.Rules}
	m.copier = &copier{config: &c, target: m.target, ledger: m.ledger, calls: m.calls, derivation: m.derivation}
	m.verifier = &verifier{config: &c, target: m.target, ledger: m.ledger, calls: m.calls, derivation: m.derivation, catchUp: m.CatchUp}
	if c.Source == nil {
		return m, nil
	}
	m.source = table.New(c.Source, options)
	m.calls.source = m.source
	var ok bool
	if m.calls.scanner, ok = c.Source.(store.Scanner); !ok {
		return nil, store.ErrNoScan
	}
	return m, nil
}

// Find returns the record of the migration to a target, with the counts of all of its parts. It returns [ErrNone] where
// there is none. It makes one consistent read and one query.
func Find(ctx context.Context, c Config) (layout.Migration, Counts, error) {
	m, err := newMigration(Config{Target: c.Target, Timeout: c.Timeout, Sleep: c.Sleep})
	if err != nil {
		return layout.Migration{}, nil, err
	}
	found, err := m.ledger.load(ctx)
	switch {
	case err != nil:
		return layout.Migration{}, nil, err
	case found == nil:
		return layout.Migration{}, nil, ErrNone
	}
	if err := m.ledger.loadParts(ctx); err != nil {
		return layout.Migration{}, nil, err
	}
	m.ledger.booked.set(decodeCounts(found.Counts)) // except what finding it took
	return *found, m.ledger.counts(), nil
}

// Start begins a migration, or goes on with one from the same source. The target is closed to limiters from then on, by
// the version that it asks of them. A run that still works on the migration is waited for, until it was silent for a term.
func Start(ctx context.Context, c Config) (*Migration, error) {
	m, err := newMigration(c)
	if err != nil {
		return nil, err
	}
	found, err := m.ledger.load(ctx)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return m, m.begin(ctx)
	}
	switch {
	case found.Source != c.SourceName:
		return nil, fmt.Errorf("a migration from %s is under way, not from %s", found.Source, c.SourceName)
	case found.Phase == Finished:
		return nil, ErrFinished
	case found.Phase == Deleting:
		return nil, ErrDeleting
	case found.Phase == Aborting:
		return nil, ErrAborting
	}
	return m, m.resume(ctx, found)
}

// Resume goes on with the migration to a target, in any phase. The source is given, as the record names it.
func Resume(ctx context.Context, c Config) (*Migration, error) {
	m, err := newMigration(c)
	if err != nil {
		return nil, err
	}
	found, err := m.ledger.load(ctx)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, ErrNone
	}
	return m, m.resume(ctx, found)
}

// guardVersion is a version that no client has: it closes a target until the migration to it is finished.
const guardVersion = layout.Migrating

// begin writes the record of a new migration, and closes the target, in one transaction.
func (m *Migration) begin(ctx context.Context) error {
	if !m.config.Offline {
		if err := m.startStream(ctx); err != nil {
			return err
		}
	}
	if err := m.checkRefused(ctx); err != nil {
		return err
	}
	var register string
	var before expr.Item
	var err error
	if m.config.InPlace {
		if register, err = m.survey(ctx); err == nil {
			before, err = m.versionNow(ctx)
		}
	} else {
		err = m.checkEmpty(ctx)
	}
	if err != nil {
		return err
	}
	now := m.config.Now()
	m.ledger.record = layout.Migration{
		Source: m.config.SourceName, NamespaceID: m.derivation.rules.NS, Cascade: m.derivation.rules.Cascade, Windows: strings.Join(m.derivation.rules.Windows, ","),
		Offline: m.config.Offline, Phase: Copying, Segments: int64(m.config.Segments), StartedAt: layout.FormatTime(m.calls.sourceTime()), Owner: m.ledger.newOwner(), Beats: 1,
		InPlace: m.config.InPlace, Namespace: register, Before: before,
	}
	absent, err := layout.Insert()
	if err != nil {
		return err
	}
	more, err := m.registration(register)
	if err != nil {
		return err
	}
	applied := false
	writes := append([]store.Write{{Kind: store.Put, Key: m.ledger.record.Key.Key(), Item: m.ledger.record.Encode(), Expr: absent}, m.ledger.version(guardVersion, "")}, more...)
	err = m.ledger.patientlyOwn(ctx, func(ctx context.Context) error {
		results, err := m.config.Target.Transact(ctx, writes)
		applied = err == nil && table.Applied(results)
		return err
	})
	if err != nil {
		return err
	}
	m.ledger.beaten = now
	if applied {
		return nil
	}
	found, err := m.ledger.load(ctx) // of another run, or of this one by a write whose reply was lost
	switch {
	case err != nil:
		return err
	case found == nil || found.Owner != m.ledger.record.Owner:
		return ErrTaken
	default:
		return nil
	}
}

func (m *Migration) startStream(ctx context.Context) error {
	streamer, ok := m.config.Source.(store.Streamer)
	if !ok {
		return ErrStream
	}
	err := m.calls.source.Patiently(ctx, streamer.StartStream)
	if errors.Is(err, store.ErrNoStream) {
		return fmt.Errorf("%w: %w", ErrStream, err)
	}
	return err
}

// sourceTime returns the time by the clock of the source, as far as its replies have shown it.
func (cl *calls) sourceTime() time.Time {
	now := cl.config.Now()
	if clock, ok := cl.config.Source.(store.Clock); ok {
		if offset, known := clock.Offset(); known {
			now = now.Add(offset)
		}
	}
	return now
}

// versionNow returns the attributes of the version record, none if there is no record.
func (m *Migration) versionNow(ctx context.Context) (expr.Item, error) {
	items, err := m.ledger.readOwn(ctx, layout.VersionKey{}.Key())
	if err != nil || items[0] == nil {
		return nil, err
	}
	return withoutKey(items[0]), nil
}

// checkEmpty returns an error where the target holds anything but registry and version records.
func (m *Migration) checkEmpty(ctx context.Context) error {
	return m.calls.scanTarget(ctx, func(items []expr.Item) error {
		for _, item := range items {
			if key := store.KeyOf(item); key.PK != ownPartition {
				return fmt.Errorf("%w, such as PK %q, SK %q", ErrNotEmpty, key.PK, key.SK)
			}
		}
		return nil
	})
}

// ownPartition holds records about the whole table.
var ownPartition = layout.VersionKey{}.Key().PK

// resume takes a migration over.
func (m *Migration) resume(ctx context.Context, found *layout.Migration) error {
	m.derivation.rules = Rules{NS: found.NamespaceID, Cascade: found.Cascade, Windows: strings.Split(found.Windows, ",")}
	if found.Windows == "" {
		m.derivation.rules.Windows = nil
	}
	m.config.Offline = found.Offline
	if m.config.InPlace != found.InPlace {
		return fmt.Errorf("the migration from %s is in place: %t", found.Source, found.InPlace)
	}
	started := layout.ParseTime(found.StartedAt)
	for silent := time.Duration(0); found.Owner != "" && silent < m.config.Term; {
		pause := m.config.Term / 8
		m.config.Waiting(Rival{found.Owner, started, m.config.Term - silent})
		if err := m.config.Sleep(ctx, pause); err != nil {
			return err
		}
		silent += pause
		again, err := m.ledger.load(ctx)
		switch {
		case err != nil:
			return err
		case again == nil:
			return ErrNone
		case again.Beats != found.Beats && again.Owner != "":
			return ErrTaken
		}
		found = again
	}
	m.ledger.record = *found
	m.ledger.booked.add(decodeCounts(found.Counts))
	if err := m.ledger.write(ctx, func(next *layout.Migration) { next.Owner = m.ledger.newOwner() }); err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := m.ledger.loadParts(ctx)
		if err == nil {
			err = m.takeParts(ctx)
		}
		if !errors.Is(err, ErrTaken) || try == partTries {
			return err
		}
	}
}

// partTries is how often a part is taken over from a run that works on it still. Each try that fails is one of its pages.
const partTries = 20

// takeParts takes over the parts of the copy for this run. A run that had them, and wakes later, then inserts nothing.
func (m *Migration) takeParts(ctx context.Context) error {
	if m.ledger.record.Phase != Copying {
		return nil
	}
	for segment := range int(m.ledger.record.Segments) {
		if part := m.ledger.part(segmentPart(segment)); !part.Done && part.Owner != m.ledger.record.Owner {
			if err := m.ledger.savePart(ctx, part, decodeCounts(part.Counts)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Release ends the run, so that the next one need not wait. It is harmless after the migration was taken over.
func (m *Migration) Release(ctx context.Context) error {
	err := m.ledger.write(ctx, func(next *layout.Migration) { next.Owner = "" })
	if errors.Is(err, ErrTaken) {
		return nil
	}
	return err
}

// Phase returns the phase of the migration.
func (m *Migration) Phase() string {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	return m.ledger.record.Phase
}

// Counts returns the sum of what all runs have done, and of the units of all of their calls. Missing are the units of
// the last write of an earlier run's record, and the unnoted ones of a crashed run.
func (m *Migration) Counts() Counts { return m.ledger.counts() }
