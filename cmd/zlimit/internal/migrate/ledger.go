package migrate

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A ledger has the records of a migration in its target: which run has it, and how far each part has come. It is safe for
// concurrent use.
type ledger struct {
	config *Config
	target *table.Table
	pace   *pace
	booked tally // units that belong to no part

	mu     sync.Mutex
	record layout.Migration
	beaten time.Time // when the record was last written
	parts  map[string]*layout.MigrationPart
	behind time.Duration // for [Progress]
}

// load returns the record of the migration, nil for none.
func (ld *ledger) load(ctx context.Context) (*layout.Migration, error) {
	items, err := ld.readOwn(ctx, layout.MigrationKey{}.Key())
	if err != nil || items[0] == nil {
		return nil, err
	}
	found, err := layout.DecodeMigration(items[0])
	return &found, err
}

// readOwn returns records about the whole table.
func (ld *ledger) readOwn(ctx context.Context, keys ...store.Key) (items []expr.Item, err error) {
	err = ld.book(ctx, func(ctx context.Context) (err error) {
		items, err = ld.target.Read(ctx, keys...)
		return err
	})
	return items, err
}

// version returns the write of a version record for clients, and of a table that counts the charges of parents for children since a time,
// "" for never.
func (ld *ledger) version(clientMin, childrenFrom string) store.Write {
	it := layout.Version{
		SchemaVersion: ld.config.SchemaVersion, ClientMinVersion: clientMin, UpdatedAt: layout.FormatTime(ld.config.Now()),
		UpdatedBy: "zlimit migrate", ChildrenFrom: childrenFrom,
	}
	return store.Write{Kind: store.Put, Key: it.Key.Key(), Item: it.Encode()}
}

// newOwner returns a name for this run that no other run has.
func (ld *ledger) newOwner() string { return ld.config.Name + ", " + rand.Text()[:12] }

// write changes the record of the migration, on condition that no other run has.
func (ld *ledger) write(ctx context.Context, change func(*layout.Migration)) error {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	return ld.writeLocked(ctx, change)
}

func (ld *ledger) writeLocked(ctx context.Context, change func(*layout.Migration), more ...store.Write) error {
	next, now := ld.record, ld.config.Now()
	next.Beats++
	next.Counts = ld.booked.get().encode() // except this write
	change(&next)
	condition, err := layout.ReplaceMigration(ld.record.Beats)
	if err != nil {
		return err
	}
	writes := append([]store.Write{{Kind: store.Put, Key: next.Key.Key(), Item: next.Encode(), Expr: condition}}, more...)
	applied := false
	err = ld.patientlyOwn(ctx, func(ctx context.Context) error {
		if len(writes) == 1 {
			result, err := ld.config.Target.Write(ctx, writes[0])
			applied = result.Applied
			return err
		}
		results, err := ld.config.Target.Transact(ctx, writes)
		applied = err == nil && table.Applied(results)
		return err
	})
	if err != nil {
		return err
	}
	if !applied { // by another run, or by this one, when the reply of the write was lost
		found, err := ld.load(ctx)
		if err != nil {
			return err
		}
		if found == nil || found.Owner != next.Owner || found.Beats != next.Beats || found.Phase != next.Phase {
			return ErrTaken
		}
	}
	ld.record, ld.beaten = next, now
	return nil
}

// patientlyOwn makes a call for the record of the migration that does no harm when it is made twice.
func (ld *ledger) patientlyOwn(ctx context.Context, do func(context.Context) error) error {
	return ld.book(ctx, func(ctx context.Context) error { return ld.target.Patiently(ctx, do) })
}

// beat signals to other runs that this one is alive, and finds out if another one has taken over. It is called between steps. A plan is
// no run, and signals nothing.
func (ld *ledger) beat(ctx context.Context) error {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.record.Owner == "" || ld.config.Now().Sub(ld.beaten) < ld.config.Term/4 {
		return ctx.Err()
	}
	return ld.writeLocked(ctx, func(*layout.Migration) {})
}

// fence returns the check beside a write of an item: a record still belongs to this run. Parallel parts each check their own record,
// since concurrent transactions that check the same item conflict.
func (ld *ledger) fence(record store.Key) (store.Write, error) {
	ld.mu.Lock()
	owner := ld.record.Owner
	ld.mu.Unlock()
	check, err := layout.HoldMigration(owner)
	return store.Write{Kind: store.Check, Key: record, Expr: check}, err
}

// loadParts reads how far the parts have come.
func (ld *ledger) loadParts(ctx context.Context) error {
	q := layout.QueryMigrationParts()
	q.Consistent = true
	parts := map[string]*layout.MigrationPart{}
	err := ld.book(ctx, func(ctx context.Context) error {
		for item, err := range ld.target.Items(ctx, q) {
			if err != nil {
				return err
			}
			part, err := layout.DecodeMigrationPart(item)
			if err != nil {
				return err
			}
			parts[part.Key.Part] = &part
		}
		return nil
	})
	if err != nil {
		return err
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.parts = parts
	return nil
}

// part returns how far a part has come.
func (ld *ledger) part(name string) layout.MigrationPart {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if p := ld.parts[name]; p != nil {
		return *p
	}
	return layout.MigrationPart{Key: layout.MigrationPartKey{Part: name}}
}

// savePart writes how far a part has come.
func (ld *ledger) savePart(ctx context.Context, next layout.MigrationPart, counts Counts) error {
	ld.mu.Lock()
	next.Owner = ld.record.Owner
	ld.mu.Unlock()
	last := next.Beats
	next.Beats++
	next.Counts = counts.encode()
	condition, err := layout.Insert()
	if last > 0 {
		condition, err = layout.ReplaceMigration(last)
	}
	if err != nil {
		return err
	}
	var result store.Result
	err = ld.patientlyOwn(ctx, func(ctx context.Context) (err error) {
		result, err = ld.config.Target.Write(ctx, store.Write{Kind: store.Put, Key: next.Key.Key(), Item: next.Encode(), Expr: condition})
		return err
	})
	if err != nil {
		return err
	}
	if !result.Applied && (result.Item == nil || !result.Item.Equal(next.Key.Key().Join(next.Encode()))) {
		return ErrTaken
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.parts[next.Key.Part] = &next
	ld.config.Report(Progress{ld.record.Phase, ld.countsLocked(), ld.behind})
	return nil
}

// setBehind notes how far the target is behind the source. It reports once it has caught up, after which there may be nothing to report.
func (ld *ledger) setBehind(d time.Duration) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	caughtUp := ld.behind > 0 && d == 0
	if ld.behind = d; caughtUp {
		ld.config.Report(Progress{ld.record.Phase, ld.countsLocked(), d})
	}
}

// counts returns the sum of the counts of all parts, and of what belongs to none.
func (ld *ledger) counts() Counts {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	return ld.countsLocked()
}

func (ld *ledger) countsLocked() Counts {
	sum := Counts{}
	sum.Add(ld.booked.get())
	for _, p := range ld.parts {
		sum.Add(decodeCounts(p.Counts))
	}
	return sum
}

// book makes calls for the records of the migration itself. Their units count as all others do. Later calls wait until
// they are paid for, and these do not. A sign of life for other runs must not be late.
func (ld *ledger) book(ctx context.Context, do func(context.Context) error) error {
	var units store.Units
	err := do(store.CountUnits(ctx, &units))
	ld.booked.add(unitCounts(units))
	ld.pace.owe(units.Read + units.Write)
	return err
}
