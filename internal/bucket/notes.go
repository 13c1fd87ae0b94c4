package bucket

import "github.com/zlimit/zlimit-go/internal/calendar"

// An advance is written on condition of the image's refill stamp. So what the item notes beside balances and counts is as the image
// shows it, and the write sets those notes that are to be other ones.

// A Field is a note of a limit, or of the item.
type Field uint8

// The fields: of a limit, and from ValidUntil on of the item. A field without a value is missing.
const (
	Capacity Field = iota
	RefillAmount
	RefillPeriod
	Times
	Windows
	Session
	Since
	Applied
	Rolled
	Began
	Turned
	Carry
	Carried
	GrantedTokens
	GrantedUntil
	GrantedLacking
	SoftUntil
	Shade
	Refusals
	Known
	LifeNumber

	ValidUntil
	Crossed
	Zone
	BypassUntil
	ExpiresAt
	Generation
	SharedTimes
	SharedWindows
	Fields // the number of fields
)

// put plans that a field has a number, 0 for none, instead of another one.
func (p *Plan) put(f Field, limit string, was, is int64) {
	switch is {
	case was:
	case 0:
		p.remove(f, limit)
	default:
		p.Steps = append(p.Steps, Step{Kind: Put, Field: f, Limit: limit, Values: [5]int64{is}})
	}
}

// text is put for a field with a text.
func (p *Plan) text(f Field, limit, was, is string) {
	switch is {
	case was:
	case "":
		p.remove(f, limit)
	default:
		p.Steps = append(p.Steps, Step{Kind: Put, Field: f, Limit: limit, Text: is})
	}
}

func (p *Plan) remove(f Field, limit string) {
	p.Steps = append(p.Steps, Step{Kind: Remove, Field: f, Limit: limit})
}

// configure gives a limit the configured parameters.
func (l *Limit) configure(p *Params) {
	l.Capacity, l.RefillAmount, l.RefillPeriod = p.Capacity, p.RefillAmount, p.RefillPeriod
	if l.Rare == nil && p.Times == nil && p.Windows == nil && p.Session == 0 && p.Carry == 0 {
		return
	}
	if r := l.rare(); r.Times.Equal(p.Times) && r.Windows.Equal(p.Windows) && r.Session == p.Session && r.Carry == p.Carry {
		return
	}
	l.Change(func(r *Rare) {
		if r.Times, r.Windows, r.Session, r.Carry = p.Times, p.Windows, p.Session, p.Carry; p.Session == 0 {
			r.Since, r.Applied, r.Rolled = 0, 0, 0
		}
		if p.Times == nil {
			r.Began, r.Turned = 0, 0
		}
	})
}

// differ plans the notes of a limit that are to be other ones. Where all limits shared times and windows, each gets its own.
func (p *Plan) differ(was, is *Limit, apart bool) {
	name := was.Name
	p.put(Capacity, name, was.Capacity, is.Capacity)
	p.put(RefillAmount, name, was.RefillAmount, is.RefillAmount)
	p.put(RefillPeriod, name, was.RefillPeriod, is.RefillPeriod)
	p.put(LifeNumber, name, was.Life, is.Life)
	if was.Rare == is.Rare && !apart {
		return
	}
	had, has := was.rare(), is.rare()
	hadTimes, hadWindows := textOf(had.Times), had.Windows.Compact()
	if apart && has.Times != nil {
		hadTimes = ""
	}
	if apart && has.Windows != nil {
		hadWindows = ""
	}
	p.text(Times, name, hadTimes, textOf(has.Times))
	p.text(Windows, name, hadWindows, has.Windows.Compact())
	p.put(Session, name, had.Session, has.Session)
	p.put(Since, name, had.Since, has.Since)
	p.put(Applied, name, had.Applied, has.Applied)
	p.put(Rolled, name, had.Rolled, has.Rolled)
	p.put(Began, name, had.Began, has.Began)
	p.put(Turned, name, had.Turned, has.Turned)
	p.put(Carry, name, had.Carry, has.Carry)
	p.put(Carried, name, had.Carried, has.Carried)
	p.put(GrantedTokens, name, had.Granted, has.Granted)
	p.put(GrantedUntil, name, had.Until, has.Until)
	p.put(GrantedLacking, name, had.Lacking, has.Lacking)
	p.put(SoftUntil, name, had.Soft, has.Soft)
	p.put(Shade, name, had.Shade, has.Shade)
	p.put(Known, name, had.Known, has.Known)
}

// textOf returns times as items hold them, "" for none.
func textOf(t *calendar.Times) string {
	if t == nil {
		return ""
	}
	return t.Compact()
}
