package explore

import (
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The kinds of operation by an operator. Those with an operation ID are one operation for all that have it.
const (
	TopUp   Kind = 'A' + iota // grants amounts
	Reset                     // makes the bucket of an entity full
	Disable                   // refuses requests of an entity: of the resource, or of all if it is Wide
	Enable                    // serves requests again
)

// isManual reports whether an operation is an operator's.
func (o *Op) isManual() bool { return o.Kind >= TopUp && o.Kind <= Enable }

// byHandText describes a manual operation.
func (o *Op) byHandText() string {
	of := o.Entity
	if o.Wide {
		of += " for every resource"
	}
	switch o.Kind {
	case TopUp:
		text := fmt.Sprintf("grants %s to %s, operation %s", amountsText(o.Amounts), of, o.ID)
		if o.For > 0 {
			text += ", until " + o.For.String() + " after the start"
		}
		return text
	case Reset:
		return fmt.Sprintf("resets %s, operation %s", of, o.ID)
	case Disable:
		return "disables " + of
	default:
		return "enables " + of
	}
}

// byHand does a manual operation.
func (a *actor) byHand(ctx context.Context, r *running, l *zlimit.RateLimiter) error {
	at := zlimit.Level{Entity: r.Entity, Resource: resource}
	if r.Wide {
		at.Resource = ""
	}
	var err error
	switch r.Kind {
	case TopUp:
		grant := zlimit.TopUpRequest{Entity: r.Entity, Resource: resource, Amounts: r.Amounts, OperationID: r.ID}
		if r.For > 0 {
			grant.Until = a.witness.start.Add(r.For)
		}
		_, err = l.Limits.TopUp(ctx, grant)
	case Reset:
		_, err = l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: r.Entity, Resource: resource, OperationID: r.ID})
	case Disable:
		_, err = l.Limits.Disable(ctx, at, nil)
	default:
		_, err = l.Limits.Enable(ctx, at, nil)
	}
	return err
}

// Vocabulary of operators.
func grant(id string) Op {
	return Op{Kind: TopUp, Entity: "c", Amounts: zlimit.Amounts{"rpm": 5}, ID: id}
}

func reset(id string) Op { return Op{Kind: Reset, Entity: "c", ID: id} }

// times are the edges of quotas.
const times = "*/2 * * * *"

// periodGrammars have quotas that carry what is left, and several session quotas in a bucket, of which one may be closed while others begin.
func periodGrammars() []Grammar {
	edge, long, rollback := rest(4*time.Second), rest(length), Op{Kind: Rollback}
	carry := Initial{Timed: true, Limits: map[string][]zlimit.Limit{"c": {zlimit.Cron("rpm", 10, times, "UTC").CarryOver(6)}}}
	sessions := Initial{Timed: true, Limits: map[string][]zlimit.Limit{"c": {
		zlimit.Session("rpm", 10, length), zlimit.Session("tpm", 10, length), zlimit.Session("upm", 10, length),
	}}}
	before, after := grant("three"), grant("four")
	before.For, after.For = length-time.Second, length+3*time.Second
	know := []Op{take("c", 1)}
	late := []Op{rest(length - 3*time.Second), take("c", 1)}
	rests := []Op{
		take("c", 2), take("c", 8), take("c", 14), rollback, adjust(2), adjust(-1), edge, long, {Kind: Split, Entity: "c"}, grant("one"), before, after, reset("two"),
	}
	both := []Op{take("c", 2), {Kind: Take, Entity: "c", Amounts: zlimit.Amounts{"tpm": 6}}, rollback, edge, long}
	return []Grammar{
		{Name: "carry", Initial: carry, Warm: [2][]Op{late, know}, Words: [2][]Op{rests, rests}},
		{Name: "sessions, several", Initial: sessions, Warm: [2][]Op{know, know}, Words: [2][]Op{both, both}},
	}
}

// timedGrammars have limits that reset at times. A period or a session ends three seconds after the
// exploration begins. A process may have a clock that is more than a period ahead.
func timedGrammars() []Grammar {
	edge, short, long := rest(4*time.Second), rest(1500*time.Millisecond), rest(length)
	split, merge, rollback := Op{Kind: Split, Entity: "c"}, Op{Kind: Merge, Entity: "c"}, Op{Kind: Rollback}
	until := func(ops ...Op) []Op { return append([]Op{rest(length - 3*time.Second)}, ops...) }
	quota := Initial{Timed: true, Limits: map[string][]zlimit.Limit{"c": {zlimit.Cron("rpm", 10, times, "UTC")}}}
	session := Initial{Timed: true, Limits: map[string][]zlimit.Limit{"c": {zlimit.Session("rpm", 10, length)}}}
	ahead := quota
	ahead.Ahead = length + 10*time.Second
	later := session
	later.Ahead = ahead.Ahead

	words := []Op{take("c", 2), take("c", 8), rollback, adjust(2), adjust(-1), edge, grant("one"), reset("two")}
	shards := []Op{take("c", 4), take("c", 8), rollback, adjust(2), adjust(-3), edge, split, merge, grant("one"), reset("two")}
	hasty := []Op{take("c", 2), take("c", 8), rollback, adjust(2), edge, long}
	before, after := grant("three"), grant("four")
	before.For, after.For = length-time.Second, length+3*time.Second
	grants := []Op{take("c", 8), take("c", 12), rollback, before, after, edge, short, reset("two")}
	know := []Op{take("c", 1)}
	parts := []Op{take("c", 1), take("c", 5), rollback}

	off, all, on := Op{Kind: Disable, Entity: "c"}, Op{Kind: Disable, Entity: "c", Wide: true}, Op{Kind: Enable, Entity: "c"}
	operator := []Op{off, all, on, short}
	caller := []Op{take("c", 2), rollback, adjust(2), off, edge, short}
	opened := append([]Op{take("c", 1)}, until(take("c", 1))...)
	return []Grammar{
		{Name: "edges", Initial: quota, Warm: [2][]Op{until(know...), know}, Words: [2][]Op{words, words}},
		{Name: "edges, split", Initial: quota, Warm: [2][]Op{until(take("c", 1), split), parts}, Words: [2][]Op{shards, shards}},
		{Name: "edges, ahead", Initial: ahead, Warm: [2][]Op{until(), know}, Words: [2][]Op{hasty, hasty}},
		{Name: "grants", Initial: quota, Warm: [2][]Op{until(know...), know}, Words: [2][]Op{grants, grants}},
		{Name: "sessions", Initial: session, Warm: [2][]Op{opened, know}, Words: [2][]Op{words, words}},
		{Name: "sessions, split", Initial: session, Warm: [2][]Op{append(opened, split), parts}, Words: [2][]Op{shards, shards}},
		{Name: "sessions, ahead", Initial: later, Warm: [2][]Op{until(), know}, Words: [2][]Op{hasty, hasty}},
		{Name: "switch, cold", Initial: quota, Words: [2][]Op{operator, caller}},
		{Name: "switch", Initial: quota, Warm: [2][]Op{nil, until(know...)}, Words: [2][]Op{operator, caller}},
	}
}
