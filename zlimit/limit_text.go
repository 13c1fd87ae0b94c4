package zlimit

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/zlimit/zlimit-go/internal/grammar"
)

// String returns the limit in the form NAME=CAPACITY[:REFILL]/PERIOD, such as "tpm=10000/min" or "tpm=10000:4000/30s". A
// quota has the form NAME=AMOUNT/TIMES, such as "tokens=1000000/month@Europe/Berlin" or `tokens=100/cron "0 8 * * 1-5"@UTC`, perhaps with
// what it carries, as in "usd=25/month@UTC carry 50", and a session
// quota that of "tokens=2000000/session:5h".
// It is the form of [Limit.MarshalText], of the command and of files of limits.
func (l Limit) String() string { return grammar.LimitOf[LimitMode](l).String() }

// MarshalText returns the limit as [Limit.String] does, and a [*ValidationError] for a limit that breaks a rule.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.validate("limit", time.Millisecond); err != nil {
		return nil, err
	}
	return []byte(l.String()), nil
}

// UnmarshalText parses a limit, for configuration and [flag.TextVar]. The form is NAME=CAPACITY[:REFILL]/PERIOD: the limit holds CAPACITY
// tokens, and REFILL of them are refilled per PERIOD, by default CAPACITY. A number may group its digits, as in 10_000, or end in k, M or
// G. PERIOD is s, min, h, d or w, a word such as second or minutes, or a duration such as 90s, 1h30m or 2d.
//
// A quota is NAME=AMOUNT/TIMES. TIMES are one of
//   - day@ZONE;
//   - week@ZONE:DAY, with a day from mon to sun;
//   - month@ZONE:DAY, with a day from 1 to 31. In a shorter month the last day stands for a missing one;
//   - cron "PATTERNS"@ZONE, see [Cron].
//
// The day may be left out for the first one. T08:30 may follow it, for a time other than midnight. After TIMES, carry AMOUNT is the most
// that is carried into the next period, see [Limit.CarryOver]. A session quota is NAME=AMOUNT/session:LENGTH, see [Session], and a prepaid
// limit NAME=AMOUNT/never, see [Prepaid]. Slots are NAME=NUMBER slots/TERM, such as "workers=20 slots/30s", see [Slots].
//
// Further parts may follow in this order:
//   - windows: when "PATTERN"@ZONE CHANGE, see [Limit.When]. Without @ZONE they are in UTC, or in the zone of the quota;
//   - floors PRIORITY=PERCENT, see [Limit.Floor], or PRIORITY=PERCENT+SHARE, see [Limit.Share];
//   - soft or shadow, see [Limit.Soft] and [Limit.Shadow].
//
// Any other text is a [*ValidationError], and does not change the limit.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := grammar.ParseLimit(string(text))
	if err != nil {
		return &ValidationError{Field: "limit", Value: string(text), Reason: err.Error()}
	}
	next := Limit(grammar.WithMode[LimitMode](parsed))
	if err := next.validate("limit", time.Millisecond); err != nil {
		return err
	}
	*l = next
	return nil
}

// limitJSON is a limit in JSON: what audit events hold, too.
type limitJSON struct {
	Name         string      `json:"name"`
	Capacity     int64       `json:"capacity"`
	RefillAmount *int64      `json:"refill_amount,omitempty"`
	RefillPeriod json.Number `json:"refill_period_seconds,omitempty"`
	Resets       string      `json:"resets,omitempty"`
	Windows      string      `json:"windows,omitempty"`
	Zone         string      `json:"zone,omitempty"`
	Floors       string      `json:"floors,omitempty"`
	Term         json.Number `json:"term_seconds,omitempty"`
	Session      json.Number `json:"session_seconds,omitempty"`
	Prepaid      bool        `json:"prepaid,omitempty"`
	Carry        int64       `json:"carry,omitempty"`
	Mode         LimitMode   `json:"mode,omitempty"`
}

// MarshalJSON returns the limit as an object with name, capacity, refill_amount and refill_period_seconds, as an audit event has it. A
// quota has resets and zone in place of the last two, and carry if it carries something, a session quota session_seconds, and a prepaid
// limit prepaid. A limit with windows has windows and zone, too. One with floors has floors, and one that is soft or shadow has mode. Slots
// have name, capacity and term_seconds.
func (l Limit) MarshalJSON() ([]byte, error) {
	body := limitJSON{Name: l.Name, Capacity: l.Capacity, Resets: l.Resets, Windows: l.Windows, Zone: l.Zone, Floors: l.Floors, Carry: l.Carry, Mode: l.Mode}
	switch kind := l.kind(); {
	case kind == kindSlots:
		body.Term = grammar.Seconds(l.Term)
	case l.isPrepaid():
		body.Prepaid = true
	case kind == kindSession:
		body.Session = grammar.Seconds(l.Session)
	case kind == kindRefill:
		body.RefillAmount, body.RefillPeriod = &l.RefillAmount, grammar.Seconds(l.RefillPeriod)
	}
	return json.Marshal(body)
}

// UnmarshalJSON sets the limit from an object as [Limit.MarshalJSON] writes it, or from a string as for
// [Limit.MarshalText]. Without refill_amount, the capacity is refilled per period. Anything else is a
// [*ValidationError], and does not change the limit.
func (l *Limit) UnmarshalJSON(text []byte) error {
	switch {
	case string(text) == "null":
		return nil // as all of encoding/json has it
	case bytes.HasPrefix(text, []byte(`"`)):
		var form string
		if err := json.Unmarshal(text, &form); err != nil {
			return err
		}
		return l.UnmarshalText([]byte(form))
	}
	var body limitJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return &ValidationError{Field: "limit", Value: string(text), Reason: err.Error()}
	}
	next := Limit{Name: body.Name, Capacity: body.Capacity, Resets: body.Resets, Zone: body.Zone, Windows: body.Windows, Floors: body.Floors, Carry: body.Carry, Mode: body.Mode}
	if body.Prepaid {
		if body.Session != "" {
			return &ValidationError{Field: "limit session", Value: body.Session.String(), Reason: "must not be given for a prepaid limit"}
		}
		body.Session = grammar.Seconds(grammar.MaxSession)
	}
	refills := body.Resets == "" && body.Term == "" && body.Session == ""
	if body.RefillAmount != nil {
		next.RefillAmount = *body.RefillAmount
	} else if refills {
		next.RefillAmount = body.Capacity
	}
	for _, d := range []struct {
		field string
		is    bool
		text  json.Number
		to    *time.Duration
	}{
		{"term", body.Term != "", body.Term, &next.Term},
		{"session", body.Session != "", body.Session, &next.Session},
		{"refill period", refills || body.RefillPeriod != "", body.RefillPeriod, &next.RefillPeriod},
	} {
		var err error
		if *d.to, err = time.ParseDuration(d.text.String() + "s"); d.is && err != nil {
			return &ValidationError{Field: "limit " + d.field, Value: d.text.String(), Reason: "must be a number of seconds"}
		}
	}
	if err := next.validate("limit", time.Millisecond); err != nil {
		return err
	}
	*l = next
	return nil
}
