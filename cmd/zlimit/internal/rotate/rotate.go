// Package rotate gives a tenant a new ID: a new entity becomes the copy of an old one, with its limits, with what is used of its
// budgets, with its parent and its children. The old entity is suspended.
//
// A rotation has stages. The metadata of the new entity names the stage under way, so that a repeated run goes on where an
// interrupted one was. In each stage a run may repeat any step. The new entity is suspended before it has anything, and serves requests from
// the last step on. Its buckets refuse requests before it has limits. Balances are carried over in the last stage, see carry.go.
package rotate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// Names of metadata.
const (
	ToKey    = rotation.ToKey
	FromKey  = rotation.FromKey
	StageKey = rotation.StageKey
	// ChargesKey is of the new entity: what it had less than its limits begin with, for each run to report.
	ChargesKey = "rotation_charges"
	// TimesKey is of the new entity: when all processes know of the rotation, for each run to report.
	TimesKey = "rotation_times"
	// SinceKey is of the new entity: since when the old one is suspended; absent once the rotation is done.
	SinceKey = "rotation_suspended"
	// EnabledKey is of the new entity: the resources that it enables in the last stage, "" for all; absent once the rotation is done.
	EnabledKey = "rotation_enabled"
)

// The stages, in their order.
const (
	stageCopying = "copying"             // the new entity has no parent yet
	stageClosing = "closing"             // buckets of both entities refuse requests, and the old entity is suspended
	stageFormer  = "charging"            // of an earlier version: what comes before joining is done, and joining may follow
	stageJoining = "joining"             // parent and children move to the new one
	stageOpening = rotation.StageOpening // the new one gets limits, balances and switches, and serves requests
)

// A Rotation is what a run has done, or what it would do.
type Rotation struct {
	From     string         `json:"from"`
	To       string         `json:"to"`
	Parent   string         `json:"parent_id,omitempty"`
	Levels   []zlimit.Level `json:"levels"`  // of the old entity, that the new one has as well
	Charges  []Charge       `json:"charges"` // what the new entity has less, by this run or one before
	Settled  []Settlement   `json:"settled,omitempty"`
	Left     []Left         `json:"left,omitempty"` // that the new ID has, see [Rotation.Look]
	Children []string       `json:"children"`       // that this run moved to the new entity
	Resumed  string         `json:"resumed,omitempty"`
	Wait     int64          `json:"wait_seconds,omitempty"` // that a run would wait
	Repeated bool           `json:"repeated"`               // an earlier run has done all of it
	// Suspended says of a repeated run that the old ID was served since, and that this run suspends it again.
	Suspended bool `json:"suspended_again,omitempty"`
	// Everywhere is when the suspension holds also for buckets that a process makes meanwhile.
	Everywhere time.Time `json:"everywhere,omitzero"`
	// Served is when every process serves the new entity and its children. Most do within seconds: a process checks once a second whether a
	// switch still refuses requests.
	Served time.Time `json:"served,omitzero"`
	Notes  []string  `json:"notes"`
}

// A rotator is one run.
type rotator struct {
	l        *zlimit.RateLimiter
	done     *Rotation
	old, new zlimit.Entity
	recorded bool         // the old entity has a record
	enabled  []string     // resources to be enabled for the new entity, "" for all
	known    *reach       // of the old entity; nil where it is to be found out
	report   func(string) // of the step under way
	now      func() time.Time
	wait     func(context.Context, time.Duration) error
}

// Plan returns what a run would do. It writes nothing.
func Plan(ctx context.Context, l *zlimit.RateLimiter, from, to string, now func() time.Time) (*Rotation, error) {
	r, err := begin(ctx, l, from, to, func(string) {}, now)
	if err != nil {
		return r.done, err
	}
	if r.done.Repeated {
		return r.done, r.planAgain(ctx)
	}
	for _, step := range []func(context.Context) error{r.planLevels, r.planCharges, r.planChildren, r.planWait} {
		if err := step(ctx); err != nil {
			return r.done, err
		}
	}
	return r.done, nil
}

// Run rotates. It may be repeated after an error at any step, and then goes on. report is called with each step. wait waits for a
// time, or returns the error of the context if that ends first.
func Run(
	ctx context.Context, l *zlimit.RateLimiter, from, to string, report func(string), now func() time.Time,
	wait func(context.Context, time.Duration) error,
) (*Rotation, error) {
	r, err := begin(ctx, l, from, to, report, now)
	if err != nil {
		return r.done, err
	}
	if r.done.Repeated {
		return r.done, r.again(ctx)
	}
	r.wait = wait
	if err := r.claim(ctx); err != nil {
		return r.done, err
	}
	if r.new.ID == "" {
		if err := r.create(ctx); err != nil {
			return r.done, err
		}
	}
	if err := r.planLevels(ctx); err != nil { // for the report
		return r.done, err
	}
	for _, stage := range []struct {
		name string
		next string
		work func(context.Context) error
	}{
		{stageCopying, stageClosing, r.leave},
		{stageClosing, stageJoining, r.close},
		{stageFormer, stageJoining, func(context.Context) error { return nil }},
		{stageJoining, stageOpening, r.join},
		{stageOpening, "", r.open},
	} {
		if r.new.Metadata[StageKey] != stage.name {
			continue
		}
		report(stage.name)
		if err := stage.work(ctx); err != nil {
			return r.done, err
		}
		if err := r.enter(ctx, stage.name, stage.next); err != nil {
			return r.done, err
		}
	}
	if stage := r.new.Metadata[StageKey]; stage != "" {
		reason := "is a stage that this version does not know: finish with the version that has begun"
		return r.done, &zlimit.ValidationError{Field: "metadata[" + StageKey + "] of " + to, Value: stage, Reason: reason}
	}
	return r.done, r.recall()
}

// begin reads both entities, and finds out where an earlier run has come to.
func begin(ctx context.Context, l *zlimit.RateLimiter, from, to string, report func(string), now func() time.Time) (*rotator, error) {
	r := &rotator{l: l, report: report, now: now, done: &Rotation{
		From: from, To: to, Levels: []zlimit.Level{}, Charges: []Charge{}, Children: []string{}, Notes: []string{},
	}}
	if from == to {
		return r, &zlimit.ValidationError{Field: "new entity", Value: to, Reason: "must be another one than the old entity"}
	}
	var err error
	if r.old, err = record(ctx, l, from); err != nil {
		return r, err
	}
	if r.new, err = record(ctx, l, to); err != nil {
		return r, err
	}
	if r.recorded = r.old.ID != ""; !r.recorded {
		r.old = zlimit.Entity{ID: from, Name: from}
	}
	r.done.Parent = r.old.ParentID
	stage := r.old.Metadata[StageKey]
	switch {
	case stage != "":
		reason := fmt.Sprintf("is the new ID of %s, whose rotation is not done (%s): finish that first", r.old.Metadata[FromKey], stage)
		return r, &zlimit.ValidationError{Field: "old entity", Value: from, Reason: reason}
	case r.unclaimed() != nil:
		return r, r.unclaimed()
	case r.new.ID == "":
		err := r.vacant(ctx)
		if err != nil {
			if met, failed := r.met(ctx); met && failed == nil {
				return begin(ctx, l, from, to, report, now)
			}
		}
		return r, err
	case r.new.Metadata[FromKey] != from:
		return r, r.exists()
	}
	r.done.Resumed = r.new.Metadata[StageKey]
	r.done.Repeated = r.done.Resumed == ""
	return r, r.recall()
}

// record returns the record of an entity; the zero entity if it has none.
func record(ctx context.Context, l *zlimit.RateLimiter, id string) (zlimit.Entity, error) {
	found, err := l.Entities.Get(ctx, id)
	if errors.Is(err, zlimit.ErrEntityNotFound) {
		return zlimit.Entity{}, nil
	}
	return found, err
}

// met reports whether another run of the rotation has begun since this one has read the records of both entities.
func (r *rotator) met(ctx context.Context) (bool, error) {
	if r.old.Metadata[ToKey] == "" {
		old, err := record(ctx, r.l, r.done.From)
		return old.Metadata[ToKey] == r.done.To, err
	}
	e, err := record(ctx, r.l, r.done.To)
	return e.Metadata[FromKey] == r.done.From, err
}

// vacant returns an error if the new entity, which has no record, has limits or buckets already, or if the old one has nothing at all.
func (r *rotator) vacant(ctx context.Context) error {
	begun := r.old.Metadata[ToKey] != "" // a run before may have suspended the new entity
	for stored, err := range r.l.Limits.List(ctx, zlimit.LevelQuery{Entity: r.done.To}) {
		if err != nil {
			return err
		}
		if begun && stored.Level.Resource == "" && stored.Switch == zlimit.SwitchDisabled && stored.Config.IsZero() {
			continue
		}
		return r.taken("has limits already (" + stored.Level.String() + "): name one that has nothing")
	}
	used, err := r.hasBuckets(ctx, r.done.To)
	if err != nil {
		return err
	}
	if used {
		return r.taken("is in use: name one that has no buckets")
	}
	if r.recorded {
		return nil
	}
	for _, err := range r.l.Limits.List(ctx, zlimit.LevelQuery{Entity: r.done.From, NamesOnly: true}) {
		return err
	}
	if used, err = r.hasBuckets(ctx, r.done.From); err != nil || used {
		return err
	}
	return fmt.Errorf("%w: %q has no record, no limits and no buckets", zlimit.ErrEntityNotFound, r.done.From)
}

func (r *rotator) hasBuckets(ctx context.Context, entity string) (bool, error) {
	for _, err := range r.l.Entities.Buckets(ctx, entity) {
		return err == nil, err
	}
	return false, nil
}

// create suspends the new entity, and makes its record. It gets its parent in the last stage: a process that does not know of the suspension yet
// would serve it by the limits of the parent.
func (r *rotator) create(ctx context.Context) (err error) {
	if _, err := r.l.Limits.Disable(hooks.Admit(ctx), zlimit.Level{Entity: r.done.To}, nil); err != nil { // it has no buckets
		return err
	}
	e := zlimit.Entity{ID: r.done.To, Name: r.old.Name, Metadata: maps.Clone(r.old.Metadata)}
	if r.old.Name == r.old.ID {
		e.Name = ""
	}
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	for _, key := range []string{ToKey, ChargesKey, EnabledKey, TimesKey, SinceKey} {
		delete(e.Metadata, key)
	}
	e.Metadata[FromKey], e.Metadata[StageKey] = r.done.From, stageCopying
	e.Cascade = r.old.Cascade && r.old.ParentID != ""
	if r.new, err = r.l.Entities.Create(hooks.Admit(ctx), e); errors.Is(err, zlimit.ErrEntityExists) {
		return r.meet(ctx)
	}
	return err
}

// meet is for a run that finds the new entity made by another one, after it has suspended it. It takes back the switch where the other run
// may have done so before.
func (r *rotator) meet(ctx context.Context) (err error) {
	if r.new, err = r.l.Entities.Get(ctx, r.done.To); err != nil {
		return err
	}
	if r.new.Metadata[FromKey] != r.done.From {
		return r.exists()
	}
	if r.done.Resumed = r.new.Metadata[StageKey]; r.done.Resumed == "" {
		r.done.Repeated = true
		_, err = r.l.Limits.LeaveSwitch(ctx, zlimit.Level{Entity: r.done.To}, nil)
		return err
	}
	return r.recall() // each stage may be done by both
}

// enter notes the next stage, "" for the end, and what that stage needs to know. Another run may have come further.
func (r *rotator) enter(ctx context.Context, stage, next string) error {
	return r.keep(ctx, func(metadata map[string]string) {
		if metadata[StageKey] != stage {
			return
		}
		metadata[StageKey] = next
		r.keepTerm(metadata)
		switch next {
		case stageClosing:
			if len(r.enabled) > 0 {
				metadata[EnabledKey] = encode(r.enabled)
			}
		case "":
			delete(metadata, StageKey)
			delete(metadata, EnabledKey)
			delete(metadata, SinceKey)
		}
	})
}

// keepTerm notes the times that the run reports, each the latest of all runs.
func (r *rotator) keepTerm(metadata map[string]string) {
	var kept term
	_ = json.Unmarshal([]byte(metadata[TimesKey]), &kept) // recall reports what is wrong
	if r.done.Everywhere.After(kept.Everywhere) {
		kept.Everywhere = r.done.Everywhere
	}
	if r.done.Served.After(kept.Served) {
		kept.Served = r.done.Served
	}
	if kept != (term{}) {
		metadata[TimesKey] = encode(kept)
	}
}

// keep changes the metadata of the new entity, also where another run does so at the same time.
func (r *rotator) keep(ctx context.Context, change func(map[string]string)) (err error) {
	for {
		if r.new, err = r.l.Entities.Get(ctx, r.done.To); err != nil {
			return err
		}
		r.new.Metadata = maps.Clone(r.new.Metadata)
		change(r.new.Metadata)
		next, err := r.l.Entities.Update(ctx, r.new) // nothing, if a call whose reply was lost has done it
		if errors.Is(err, zlimit.ErrEntityChanged) { // by another run
			continue
		}
		r.new = next
		return err
	}
}

func encode(v any) string {
	text, _ := json.Marshal(v) // of names and numbers, which cannot fail
	return string(text)
}

// recall reads what runs have kept.
func (r *rotator) recall() error {
	r.done.Charges = []Charge{}
	var kept term
	if err := r.decode(ChargesKey, &r.done.Charges); err != nil {
		return err
	}
	if err := r.decode(TimesKey, &kept); err != nil {
		return err
	}
	r.done.Everywhere, r.done.Served = kept.Everywhere, kept.Served
	return r.recallEnabled()
}

// recallEnabled reads which resources a run has noted to be enabled.
func (r *rotator) recallEnabled() error {
	r.enabled = nil
	return r.decode(EnabledKey, &r.enabled)
}

// decode reads a part of the metadata of the new entity.
func (r *rotator) decode(key string, to any) error {
	text := r.new.Metadata[key]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), to); err != nil {
		return &zlimit.ValidationError{Field: "metadata[" + key + "] of " + r.done.To, Value: text, Reason: "must be as the rotation has written it"}
	}
	return nil
}

func (r *rotator) note(format string, args ...any) {
	r.done.Notes = append(r.done.Notes, fmt.Sprintf(format, args...))
}
