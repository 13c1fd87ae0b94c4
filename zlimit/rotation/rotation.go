// Package rotation knows entities that have a new ID. The command zlimit entity rotate gives one, for example to a tenant whose ID has leaked.
//
// What a program changes of the old ID has no effect, or gives the leaked ID the budget a second time. The checks of this package return an error
// before such a change, which names the new ID:
//
//	if err := rotation.CheckBucket(ctx, limiter, "acme"); err != nil {
//		return err // a *zlimit.ValidationError: entity "acme" has the new ID acme-2: name that one
//	}
//	_, err := limiter.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "acme", Resource: "gpt", Amounts: zlimit.Amounts{"tpm": 1000}})
package rotation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Names of metadata, in the records of entities.
const (
	ToKey    = "rotated_to"     // of the old entity: the new one
	FromKey  = "rotated_from"   // of the new entity: the old one
	StageKey = "rotation_stage" // of the new entity: the stage under way; absent once the rotation is done
)

// IsKey reports whether metadata of a name is what a rotation keeps in the records of both entities.
func IsKey(name string) bool {
	return name == ToKey || name == FromKey || strings.HasPrefix(name, "rotation_")
}

// StageOpening is the last stage of a rotation: the new entity gets limits, balances and switches, and serves requests.
const StageOpening = "opening"

// record returns the record of an entity; the zero entity if it has none. It costs a read.
func record(ctx context.Context, l *zlimit.RateLimiter, id string) (zlimit.Entity, error) {
	found, err := l.Entities.Get(ctx, id)
	if errors.Is(err, zlimit.ErrEntityNotFound) {
		return zlimit.Entity{}, nil
	}
	return found, err
}

// NewID returns the new ID of an entity; "" for none, and for "". The new ID may have a newer one. It costs a read.
func NewID(ctx context.Context, l *zlimit.RateLimiter, entity string) (string, error) {
	if entity == "" {
		return "", nil
	}
	e, err := record(ctx, l, entity)
	return e.Metadata[ToKey], err
}

// A place is where an entity stands between its former ID and its next one.
type place struct {
	entity string
	from   string // whose new ID the entity is becoming; "" if it is not
	to     string // the new ID that it has, or is getting; "" for none
	stage  string // of the rotation that makes it so; "" once that is done
	known  bool   // the new ID has a record as such
}

func placeOf(ctx context.Context, l *zlimit.RateLimiter, entity string) (p place, err error) {
	p = place{entity: entity}
	if entity == "" {
		return p, nil
	}
	e, err := record(ctx, l, entity)
	if err != nil {
		return p, err
	}
	if p.stage = e.Metadata[StageKey]; p.stage != "" {
		p.from = e.Metadata[FromKey]
		return p, nil
	}
	if p.to = e.Metadata[ToKey]; p.to == "" {
		return p, nil
	}
	next, err := record(ctx, l, p.to)
	p.known, p.stage = next.Metadata[FromKey] == entity, next.Metadata[StageKey]
	return p, err
}

// done reports whether the entity has a new ID that serves requests.
func (p *place) done() bool { return p.known && p.stage == "" }

func (p *place) refuse(format string, args ...any) error {
	return &zlimit.ValidationError{Field: "entity", Value: p.entity, Reason: fmt.Sprintf(format, args...)}
}

func (p *place) getting() error {
	return p.refuse("is getting the new ID %s: run %s first, and name %s then", p.to, rotation(p.entity, p.to), p.to)
}

func rotation(from, to string) string {
	return "zlimit entity rotate " + grammar.ShellWord(from) + " " + grammar.ShellWord(to)
}

func (p *place) has() error { return p.refuse("has the new ID %s: name that one", p.to) }

// CheckBucket returns a [*zlimit.ValidationError] if a top-up or a reset of a bucket of an entity has no effect: the entity has a new ID, or is
// becoming the new ID of another one, whose buckets hold until the end of the rotation. It costs a read, and one more for an entity that was rotated.
func CheckBucket(ctx context.Context, l *zlimit.RateLimiter, entity string) error {
	p, err := placeOf(ctx, l, entity)
	if err == nil && p.known && p.stage == StageOpening && p.from == "" {
		return p.getting()
	}
	return p.change(err)
}

// CheckLimits returns a [*zlimit.ValidationError] if limits, children or a parent that an entity gets have no effect: the entity has a new ID, or is
// becoming the new ID of another one, whose limits it gets. It costs as much as [CheckBucket]. A level without an entity has none.
func CheckLimits(ctx context.Context, l *zlimit.RateLimiter, entity string) error {
	p, err := placeOf(ctx, l, entity)
	return p.change(err)
}

// change returns an error for an entity of which a change has no effect, or the error of reading its place. Before, a rotation carries the change over.
func (p *place) change(err error) error {
	if err = p.former(err); err == nil && p.done() {
		return p.has()
	}
	return err
}

// former returns an error for an entity that is becoming the new ID of another one, or the error of reading its place.
func (p *place) former(err error) error {
	if err == nil && p.from != "" {
		return p.refuse("is becoming the new ID of %s, and gets what that has: run %s first", p.from, rotation(p.from, p.entity))
	}
	return err
}

// CheckRelease returns a [*zlimit.ValidationError] if the metadata of an entity must go on naming its new ID: the record of that says so, too. Without
// such a record, a rotation was interrupted, and its new ID is that of something else by now. It costs as much as [CheckBucket].
func CheckRelease(ctx context.Context, l *zlimit.RateLimiter, entity string) error {
	p, err := placeOf(ctx, l, entity)
	if err == nil && p.known {
		return p.refuse("has the new ID %s: its metadata goes on saying so", p.to)
	}
	return err
}

// CheckDelete returns a [*zlimit.ValidationError] if an entity must not be deleted: a rotation is under way, which carries over what it has. Afterwards
// the switch of the old ID outlasts its record. It costs as much as [CheckBucket].
func CheckDelete(ctx context.Context, l *zlimit.RateLimiter, entity string) error {
	p, err := placeOf(ctx, l, entity)
	if err = p.former(err); err == nil && p.to != "" && !p.done() {
		return p.getting()
	}
	return err
}

// CheckServe returns a [*zlimit.ValidationError] if an entity must not serve requests: it has a new ID, or is getting one, so that both would spend the
// same budget. It costs as much as [CheckBucket].
func CheckServe(ctx context.Context, l *zlimit.RateLimiter, entity string) error {
	p, err := placeOf(ctx, l, entity)
	switch err = p.former(err); {
	case err != nil || p.to == "":
		return err
	case p.done():
		return p.refuse("has the new ID %s, and both would spend the budget: name %s; zlimit limits with --although-rotated serves %s as well", p.to, p.to, p.entity)
	default:
		return p.refuse("is getting the new ID %s: run %s first; zlimit limits with --although-rotated serves %s meanwhile", p.to, rotation(p.entity, p.to), p.entity)
	}
}

// Explain adds the new ID to an error of an entity that is disabled, if it has one. It costs a read for such an error. The answer to a request must
// not have it: a caller with a leaked ID would learn the next one.
func Explain(ctx context.Context, l *zlimit.RateLimiter, err error) error {
	var disabled *zlimit.DisabledError
	if !errors.As(err, &disabled) {
		return err
	}
	to, failed := NewID(ctx, l, disabled.Entity)
	if failed != nil || to == "" {
		return err
	}
	return fmt.Errorf("%w: %s has the new ID %s", err, disabled.Entity, to)
}
