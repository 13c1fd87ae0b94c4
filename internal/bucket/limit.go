// Package bucket is the arithmetic of token buckets that share one refill stamp: it computes refill, and decides how a demand is written.
// It is pure: no I/O, no clock, no floating point. Tokens are millitokens, time is epoch milliseconds.
package bucket

import "github.com/zlimit/zlimit-go/internal/calendar"

// Params are the parameters of one limit. A quota has [calendar.Times] at which it resets, and does not refill.
type Params struct {
	Name         string
	Capacity     int64           // most tokens that the bucket holds, millitokens
	RefillAmount int64           // refill per period, millitokens; 0 for a quota
	RefillPeriod int64           // milliseconds, positive
	Times        *calendar.Times // of a quota; nil for a limit that refills evenly

	Windows *calendar.Windows // in which other parameters hold; nil for none
	Session int64             // length of the sessions of a session quota, seconds; 0 for another limit
	Carry   int64             // the most that a quota carries into its next period, millitokens; 0 for none
	Floors  Floors            // of requests by priority; not stored in items
	Mode    Mode              // what happens to requests that it has no tokens for
	Whole   Whole             // the configured limit, if this is its remainder besides guaranteed shares; not stored in items

	grant   Grant // of all shards together, see [view.granted]; not configured
	carried int64 // into the present period, see [view.granted]
	divided bool  // the bucket is split, so that nothing is carried, see [view.granted]
}

// A Limit is the token bucket of one limit: its parameters and its state.
type Limit struct {
	Name         string
	Tokens       int64 // balance at the refill stamp of the item, millitokens; negative in debt
	Capacity     int64 // most tokens that the bucket holds, millitokens
	RefillAmount int64 // refill per period, millitokens
	RefillPeriod int64 // milliseconds
	Consumed     int64 // net consumption since creation, millitokens, modulo 2^64
	Life         int64 // differs from earlier limits of the name, see oneReset; if another program started the limit, 0 below oneReset
	Rare         *Rare // the parts that few limits have; nil for none. Images share it, and it never changes
}

// Rare has the parts that few limits have: limits without an even refill, and limits that others take from. All other limits have the zero
// value.
type Rare struct {
	Times   *calendar.Times   // of a quota; nil for a limit that refills evenly
	Windows *calendar.Windows // in which other parameters hold; nil for none

	Session int64 // length of the sessions of a session quota, seconds; 0 for another limit
	Since   int64 // when the session began, epoch milliseconds; 0 while none is open
	Applied int64 // when the session of the balance began, epoch milliseconds; earlier than Since if another program began a session on another shard
	Rolled  int64 // Consumed when another program began the session on another shard, modulo 2^64

	Began  int64 // when the present period of a quota began, if its times were changed in it, epoch milliseconds; else 0
	Turned int64 // when the times were last changed

	Carry   int64 // the most that a quota carries into its next period, millitokens
	Carried int64 // what was carried into the present period, beyond the capacity

	Known        int64 // the value of Consumed at the last refill, in a bucket that a mixed fleet writes; else 0
	FromChildren int64 // part of Consumed that requests of children took, modulo 2^64
	FromNarrower int64 // part of Consumed that requests of narrower resources took, modulo 2^64

	Granted int64 // grants of operators beyond the capacity, millitokens: the part of this shard
	Until   int64 // when the grant ends, epoch milliseconds; 0 for the end of the period of a quota
	Lacking int64 // how far the limit is then below its capacity, if only the grant is used, millitokens: the part of this shard

	Soft     int64 // of a limit that rejects nothing: the time until which requests may rely on that, epoch milliseconds
	Shade    int64 // 1 for a shadow limit, 0 for another one
	Refusals int64 // requests that a shadow limit would have rejected so far, modulo 2^64
}

// usual is the [Rare] of limits that have none.
var usual Rare

// rare returns the rare parts of a limit, which must not be changed: see [Limit.Change].
func (l *Limit) rare() *Rare {
	if l.Rare == nil {
		return &usual
	}
	return l.Rare
}

// Change changes the rare parts of a limit, but not of its copies.
func (l *Limit) Change(change func(*Rare)) {
	next := *l.rare()
	if change(&next); next == usual {
		l.Rare = nil
		return
	}
	l.Rare = &next
}

// Times returns [Rare.Times].
func (l *Limit) Times() *calendar.Times { return l.rare().Times }

// Windows returns [Rare.Windows].
func (l *Limit) Windows() *calendar.Windows { return l.rare().Windows }

// Session returns [Rare.Session].
func (l *Limit) Session() int64 { return l.rare().Session }

// Since returns [Rare.Since].
func (l *Limit) Since() int64 { return l.rare().Since }

// Applied returns [Rare.Applied].
func (l *Limit) Applied() int64 { return l.rare().Applied }

// Rolled returns [Rare.Rolled].
func (l *Limit) Rolled() int64 { return l.rare().Rolled }

// Began returns [Rare.Began].
func (l *Limit) Began() int64 { return l.rare().Began }

// Turned returns [Rare.Turned].
func (l *Limit) Turned() int64 { return l.rare().Turned }

// Carry returns [Rare.Carry].
func (l *Limit) Carry() int64 { return l.rare().Carry }

// Carried returns [Rare.Carried].
func (l *Limit) Carried() int64 { return l.rare().Carried }

// SetCarry sets [Rare.Carry].
func (l *Limit) SetCarry(most int64) { l.Change(func(r *Rare) { r.Carry = most }) }

// SetCarried sets [Rare.Carried].
func (l *Limit) SetCarried(tokens int64) { l.Change(func(r *Rare) { r.Carried = tokens }) }

// Known returns [Rare.Known].
func (l *Limit) Known() int64 { return l.rare().Known }

// FromChildren returns [Rare.FromChildren].
func (l *Limit) FromChildren() int64 { return l.rare().FromChildren }

// FromNarrower returns [Rare.FromNarrower].
func (l *Limit) FromNarrower() int64 { return l.rare().FromNarrower }

// Granted returns [Rare.Granted].
func (l *Limit) Granted() int64 { return l.rare().Granted }

// Lacking returns [Rare.Lacking].
func (l *Limit) Lacking() int64 { return l.rare().Lacking }

// SoftUntil returns [Rare.Soft].
func (l *Limit) SoftUntil() int64 { return l.rare().Soft }

// Shade returns [Rare.Shade].
func (l *Limit) Shade() int64 { return l.rare().Shade }

// Refusals returns [Rare.Refusals].
func (l *Limit) Refusals() int64 { return l.rare().Refusals }

// SetSoftUntil sets [Rare.Soft].
func (l *Limit) SetSoftUntil(at int64) { l.Change(func(r *Rare) { r.Soft = at }) }

// SetShade sets [Rare.Shade].
func (l *Limit) SetShade(is int64) { l.Change(func(r *Rare) { r.Shade = is }) }

// SetRefusals sets [Rare.Refusals].
func (l *Limit) SetRefusals(count int64) { l.Change(func(r *Rare) { r.Refusals = count }) }

// Until returns [Rare.Until].
func (l *Limit) Until() int64 { return l.rare().Until }

// SetGranted sets [Rare.Granted].
func (l *Limit) SetGranted(tokens int64) { l.Change(func(r *Rare) { r.Granted = tokens }) }

// SetUntil sets [Rare.Until].
func (l *Limit) SetUntil(at int64) { l.Change(func(r *Rare) { r.Until = at }) }

// SetLacking sets [Rare.Lacking].
func (l *Limit) SetLacking(tokens int64) { l.Change(func(r *Rare) { r.Lacking = tokens }) }

// SetSession sets [Rare.Session] to the value of an item.
func (l *Limit) SetSession(seconds int64) { l.Change(func(r *Rare) { r.Session = seconds }) }

// SetSince sets [Rare.Since].
func (l *Limit) SetSince(at int64) { l.Change(func(r *Rare) { r.Since = at }) }

// SetApplied sets [Rare.Applied].
func (l *Limit) SetApplied(at int64) { l.Change(func(r *Rare) { r.Applied = at }) }

// SetRolled sets [Rare.Rolled].
func (l *Limit) SetRolled(count int64) { l.Change(func(r *Rare) { r.Rolled = count }) }

// SetBegan sets [Rare.Began].
func (l *Limit) SetBegan(at int64) { l.Change(func(r *Rare) { r.Began = at }) }

// SetTurned sets [Rare.Turned].
func (l *Limit) SetTurned(at int64) { l.Change(func(r *Rare) { r.Turned = at }) }

// SetKnown sets [Rare.Known].
func (l *Limit) SetKnown(count int64) { l.Change(func(r *Rare) { r.Known = count }) }

// SetFromChildren sets [Rare.FromChildren].
func (l *Limit) SetFromChildren(count int64) { l.Change(func(r *Rare) { r.FromChildren = count }) }

// SetFromNarrower sets [Rare.FromNarrower].
func (l *Limit) SetFromNarrower(count int64) { l.Change(func(r *Rare) { r.FromNarrower = count }) }

// ResetTimes returns the times of a quota in the form of items, "" for any other limit.
func (l *Limit) ResetTimes() string {
	if l.Times() == nil {
		return ""
	}
	return l.Times().Compact()
}

// SetResetTimes makes the limit a quota with the times of an item. The zone is a separate attribute, see [calendar.Times.In].
func (l *Limit) SetResetTimes(compact string) {
	l.Change(func(r *Rare) { r.Times = calendar.Unplaced(compact) })
}

// WindowTexts returns the windows in the form of items, "" for none.
func (l *Limit) WindowTexts() string { return l.Windows().Compact() }

// SetWindowTexts sets the windows of an item. The zone is a separate attribute.
func (l *Limit) SetWindowTexts(compact string) {
	l.Change(func(r *Rare) { r.Windows = calendar.UnplacedWindows(compact) })
}
