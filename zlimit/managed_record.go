package zlimit

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A ManagedSet lists the levels of a namespace that a file of limits manages.
type ManagedSet struct {
	Levels []Level `json:"levels"` // in the order of [Level.Compare]
	// Pending are levels that a run may have written before it broke off. The levels among them that it wrote are managed;
	// their [Stored.Managed] says so.
	Pending     []Level   `json:"pending,omitempty"`
	LastApplied time.Time `json:"last_applied,omitzero"` // zero for never
	Hash        string    `json:"hash,omitempty"`        // of the declaration that was applied last
	// Manager is the owner of these levels, such as file:limits.yaml or cloudformation:app/Limits; "" when none was
	// named. The service keeps it, and refuses no manager.
	Manager string `json:"manager,omitempty"`
}

// Has reports whether a file of limits manages a level, also when another writer has changed it since. The set must be as
// [ManagedService.Set] returns it, and the level as it is stored.
func (m *ManagedSet) Has(of *Stored) bool {
	if _, ok := slices.BinarySearchFunc(m.Levels, of.Level, Level.Compare); ok {
		return true
	}
	return of.Managed && slices.Contains(m.Pending, of.Level)
}

// How many bytes of names one item holds, and how many a part has about. DynamoDB takes items of 400 KB.
const (
	wholeRecord = 64 << 10
	partRecord  = 32 << 10
)

// text returns the level as the record of managed levels has it.
func (v Level) text() string {
	switch v.Source() {
	case SourceSystem:
		return AuditSystem
	case SourceResource:
		return AuditResource(v.Resource)
	default:
		return v.Entity + "#" + v.storedResource()
	}
}

func parseLevel(text string) (Level, bool) {
	if text == AuditSystem {
		return Level{}, true
	}
	if resource, ok := strings.CutPrefix(text, auditResourcePrefix); ok {
		return Level{Resource: resource}, true
	}
	entity, resource, ok := strings.Cut(text, "#")
	return entityLevel(entity, resource), ok
}

// Set returns which levels are managed; the zero set if none ever was. It costs one consistent read of the record, and one
// of each of its parts.
func (s *ManagedService) Set(ctx context.Context) (ManagedSet, error) {
	if s.l.closed.Load() {
		return ManagedSet{}, ErrClosed
	}
	var set ManagedSet
	err := s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := s.l.table.Read(ctx, s.recordKey())
		if err != nil {
			return false, err
		}
		var record layout.Provisioner
		if set, record, err = s.set(items[0]); err != nil {
			return false, err
		}
		parts, all, err := s.parts(ctx, int(record.Parts))
		for _, part := range parts {
			set.Levels, set.Pending = appendLevels(set.Levels, part.Levels), appendLevels(set.Pending, part.Pending)
		}
		return all, err // a run may split the record differently between the two reads
	})
	slices.SortFunc(set.Levels, Level.Compare)
	if len(set.Pending) > 0 {
		slices.SortFunc(set.Pending, Level.Compare)
	}
	return set, publicError("read what is managed", err)
}

func (s *ManagedService) recordKey() store.Key { return layout.ProvisionerKey{NS: s.l.ns.id()}.Key() }

// set returns the set in the item of the record itself.
func (s *ManagedService) set(item expr.Item) (ManagedSet, layout.Provisioner, error) {
	record := layout.Provisioner{Key: layout.ProvisionerKey{NS: s.l.ns.id()}}
	var set ManagedSet
	if item == nil {
		return set, record, nil
	}
	record, err := layout.DecodeProvisioner(item)
	if err != nil {
		return set, record, err
	}
	if record.ManagedSystem {
		set.Levels = append(set.Levels, Level{})
	}
	for _, v := range record.ManagedResources {
		set.Levels = append(set.Levels, Level{Resource: v.Text()})
	}
	for _, entity := range record.ManagedEntities {
		for _, v := range entity.Value.Elements() {
			set.Levels = append(set.Levels, entityLevel(entity.Name, v.Value.Text()))
		}
	}
	set.Pending = appendLevels(nil, record.Pending)
	set.LastApplied, set.Hash, set.Manager = layout.ParseTime(record.LastApplied), record.AppliedHash, record.Manager
	return set, record, nil
}

// parts returns the n parts of a record, and whether all are there.
func (s *ManagedService) parts(ctx context.Context, n int) (parts []layout.ProvisionerPart, all bool, err error) {
	keys := make([]store.Key, n)
	for i := range keys {
		keys[i] = layout.ProvisionerPartKey{NS: s.l.ns.id(), Parts: n, Number: i}.Key()
	}
	items, err := s.l.table.ReadChunks(ctx, keys)
	if err != nil {
		return nil, false, err
	}
	parts = make([]layout.ProvisionerPart, n)
	for i, item := range items {
		if item == nil {
			return nil, false, nil
		}
		if parts[i], err = layout.DecodeProvisionerPart(item); err != nil {
			return nil, false, err
		}
	}
	return parts, true, nil
}

// record is [ManagedRun.Record] under a lock, which keep prolongs. The parts come first, and then the item that names
// them. After a crash in between, the record says no more than that levels may have been written.
func (s *ManagedService) record(ctx context.Context, lock *managedLock, set ManagedSet, keep func(context.Context) error) error {
	if s.l.closed.Load() {
		return ErrClosed
	}
	for _, c := range slices.Concat(set.Levels, set.Pending) {
		if err := c.validate(); err != nil {
			return err
		}
	}
	set.Levels = slices.Compact(slices.SortedFunc(slices.Values(set.Levels), Level.Compare))
	return publicError("record what is managed", s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := s.l.table.Read(ctx, s.recordKey(), s.lockKey())
		if err == nil {
			err = lock.heldBy(items[1])
		}
		if err != nil {
			return false, err
		}
		_, record, err := s.set(items[0])
		if err != nil {
			return false, err
		}
		had := int(record.Parts)
		n := set.parts(had)
		record.LastApplied, record.AppliedHash, record.Manager, record.Parts = layout.FormatTime(set.LastApplied), set.Hash, set.Manager, int64(n)
		record.ManagedSystem, record.ManagedResources, record.ManagedEntities, record.Pending = false, nil, nil, nil
		if n == 0 {
			set.fill(&record)
		} else if done, err := s.recordParts(ctx, lock, &set, had, n, keep); !done || err != nil {
			return false, err
		}
		if done, err = s.writeHeld(ctx, lock, store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode()}); !done || err != nil || had == n {
			return done, err
		}
		for i := range had { // parts of the record under its former split
			key := layout.ProvisionerPartKey{NS: s.l.ns.id(), Parts: had, Number: i}.Key()
			if done, err := s.writeHeld(ctx, lock, store.Write{Kind: store.Delete, Key: key}); !done || err != nil {
				return false, err
			}
		}
		return true, nil
	}))
}

// recordParts writes the parts that differ from the recorded ones. It returns false when the lock was lost.
func (s *ManagedService) recordParts(ctx context.Context, lock *managedLock, set *ManagedSet, had, n int, keep func(context.Context) error) (done bool, err error) {
	was := make([]layout.ProvisionerPart, n)
	all := false
	if had == n {
		if was, all, err = s.parts(ctx, n); err != nil {
			return false, err
		}
	}
	for i, part := range set.split(n) {
		part.Key = layout.ProvisionerPartKey{NS: s.l.ns.id(), Parts: n, Number: i}
		if all && slices.EqualFunc(part.Levels, was[i].Levels, sameText) && slices.EqualFunc(part.Pending, was[i].Pending, sameText) {
			continue
		}
		if err := keep(ctx); err != nil {
			return false, err
		}
		if done, err := s.writeHeld(ctx, lock, store.Write{Kind: store.Put, Key: part.Key.Key(), Item: part.Encode()}); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

func sameText(a, b expr.Value) bool { return a.Text() == b.Text() }

// writeHeld does a write while the program has the lock, and waits throttles out: a record of many parts is above
// DynamoDB's rate.
func (s *ManagedService) writeHeld(ctx context.Context, lock *managedLock, w store.Write) (done bool, err error) {
	writes, err := s.with(lock, w)
	if err != nil {
		return false, err
	}
	return s.l.table.PatientTransact(ctx, writes)
}

// parts returns how many parts the record of a set is to have, 0 for none. It has had some, and never has fewer afterwards: so no
// run deletes a part that another one has written since.
func (m *ManagedSet) parts(had int) int {
	size := 0
	for _, levels := range [][]Level{m.Levels, m.Pending} {
		for _, c := range levels {
			size += len(c.text()) + 1
		}
	}
	if had == 0 && size <= wholeRecord {
		return 0
	}
	n := max(had, 1)
	for size > n*partRecord {
		n *= 2
	}
	return n
}

// split returns the set in n parts, without their keys. The part of a level depends on its name alone, so that a change of
// few levels changes few parts.
func (m *ManagedSet) split(n int) []layout.ProvisionerPart {
	parts := make([]layout.ProvisionerPart, n)
	of := func(text string) *layout.ProvisionerPart {
		h := fnv.New32a()
		_, _ = h.Write([]byte(text)) // never fails
		return &parts[int(h.Sum32())%n]
	}
	for _, c := range m.Levels {
		text := c.text()
		of(text).Levels = append(of(text).Levels, expr.S(text))
	}
	for _, c := range m.Pending {
		text := c.text()
		of(text).Pending = append(of(text).Pending, expr.S(text))
	}
	return parts
}

// appendLevels appends levels as the record has them.
func appendLevels(levels []Level, texts []expr.Value) []Level {
	for _, v := range texts {
		if c, ok := parseLevel(v.Text()); ok {
			levels = append(levels, c)
		}
	}
	return levels
}

// fill makes the item of the record hold the set.
func (m *ManagedSet) fill(record *layout.Provisioner) {
	for i := 0; i < len(m.Levels); i++ {
		switch c := m.Levels[i]; c.Source() {
		case SourceSystem:
			record.ManagedSystem = true
		case SourceResource:
			record.ManagedResources = append(record.ManagedResources, expr.S(c.Resource))
		default:
			resources := []expr.Value{expr.S(c.storedResource())}
			for ; i+1 < len(m.Levels) && m.Levels[i+1].Entity == c.Entity; i++ {
				resources = append(resources, expr.S(m.Levels[i+1].storedResource()))
			}
			record.ManagedEntities = append(record.ManagedEntities, expr.Attribute{Name: c.Entity, Value: expr.List(resources...)})
		}
	}
	for _, c := range m.Pending {
		record.Pending = append(record.Pending, expr.S(c.text()))
	}
}
