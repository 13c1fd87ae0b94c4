package zlimit

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// DefaultResource is the resource under which an entity's limits for every other resource are stored.
const DefaultResource = "_default_"

// maxTokens is the largest number of tokens whose millitokens fit an int64.
const maxTokens = grammar.MaxTokens

// invalid returns the error of a value that breaks a rule, nil when there is none.
func invalid(field, value, rule string) error {
	if rule == "" {
		return nil
	}
	return &ValidationError{Field: field, Value: value, Reason: rule}
}

func validateEntity(field, id string) error { return invalid(field, id, grammar.CheckName(id)) }

func validateResource(name string) error {
	if reservedName(name) {
		return &ValidationError{Field: "resource", Value: name, Reason: "is reserved"}
	}
	return invalid("resource", name, grammar.CheckName(name))
}

// validateConfigResource allows DefaultResource too.
func validateConfigResource(name string) error {
	if name == DefaultResource {
		return nil
	}
	return validateResource(name)
}

func validateLimitName(field, name string) error {
	if name == bucket.WriteUnits || layout.UsageReserves(name) {
		return &ValidationError{Field: field, Value: name, Reason: "is reserved"}
	}
	return invalid(field, name, grammar.CheckLimitName(name))
}

func validateNamespace(name string) error {
	switch {
	case name == "":
		return &ValidationError{Field: "namespace", Value: name, Reason: "must not be empty"}
	case len(name) > 64:
		return &ValidationError{Field: "namespace", Value: name, Reason: "must have at most 64 characters"}
	case name == registryNamespace:
		return &ValidationError{Field: "namespace", Value: name, Reason: "is reserved"}
	case !utf8.ValidString(name):
		return &ValidationError{Field: "namespace", Value: name, Reason: "must be valid UTF-8"}
	}
	for i := range len(name) {
		if name[i] == '#' || name[i] < ' ' || name[i] == 0x7f {
			return &ValidationError{Field: "namespace", Value: name, Reason: "must not hold # or control characters"}
		}
	}
	return nil
}

// validate checks a limit whose period must be a multiple of unit.
func (l *Limit) validate(field string, unit time.Duration) error {
	if err := validateLimitName(field+" name", l.Name); err != nil {
		return err
	}
	field += "[" + l.Name + "]"
	if err := validateTokens(field+" capacity", l.Name, l.Capacity, 1); err != nil {
		return err
	}
	if l.Mode != ModeEnforced && l.Mode != ModeSoft && l.Mode != ModeShadow {
		return &ValidationError{Field: field + " mode", Value: string(l.Mode), Reason: "must be soft, shadow, or empty for a limit that refuses requests"}
	}
	if other, value, reason := l.excluded(); reason != "" {
		return &ValidationError{Field: field + " " + other, Value: value, Reason: reason}
	}
	if l.Carry != 0 {
		if err := l.validateCarry(field); err != nil {
			return err
		}
	}
	if l.Windows != "" {
		if err := l.validateWindows(field); err != nil {
			return err
		}
	}
	if l.Floors != "" {
		if _, err := grammar.ParseFloors(l.Floors); err != nil {
			return &ValidationError{Field: field + " floors", Value: l.Floors, Reason: err.Error()}
		}
		if err := l.validateShares(field); err != nil {
			return err
		}
	}
	if own, value, rule := l.required(unit); rule != "" {
		return &ValidationError{Field: field + " " + own, Value: value, Reason: rule}
	}
	return nil
}

func (l *Limit) validateWindows(field string) error {
	if err := invalid(field+" zone", l.Zone, calendar.CheckZone(l.Zone)); err != nil {
		return err
	}
	w, err := calendar.ParseWindows(l.Windows, l.Zone)
	if err != nil {
		return &ValidationError{Field: field + " windows", Value: l.Windows, Reason: err.Error()}
	}
	if l.RefillAmount > maxTokens {
		return nil // refused by another rule
	}
	for _, c := range w.Changes() {
		switch {
		case !c.Fits(l.Capacity*millis, l.RefillAmount*millis):
			reason := fmt.Sprintf("the multiplier %v makes more than %s of the limit", c, tokensText(l.Name, maxTokens))
			return &ValidationError{Field: field + " windows", Value: l.Windows, Reason: reason}
		case l.kind() != kindRefill && (c.Refill > 0 || c.Period > 0):
			reason := fmt.Sprintf("%v: a quota has no refill; write its amount as in to %d:", c, c.Capacity)
			return &ValidationError{Field: field + " windows", Value: l.Windows, Reason: reason}
		}
	}
	return nil
}

// validateCarry checks what a quota carries.
func (l *Limit) validateCarry(field string) error {
	refuse := func(reason string) error {
		return &ValidationError{Field: field + " carry", Value: amountText(l.Name, l.Carry), Reason: reason}
	}
	switch {
	case l.Carry < 0:
		return refuse("must not be negative")
	case l.Windows != "":
		return refuse("must be 0 for a limit with windows")
	case len(grammar.Shares(l.Floors)) > 0:
		return refuse("must be 0 for a limit with guaranteed shares")
	case l.Carry/bucket.MaxCarry > l.Capacity || l.Carry/bucket.MaxCarry == l.Capacity && l.Carry%bucket.MaxCarry > 0:
		return refuse(fmt.Sprintf("must be at most %d times the capacity %s", bucket.MaxCarry, amountText(l.Name, l.Capacity)))
	case l.Carry > maxTokens-l.Capacity:
		return refuse(fmt.Sprintf("must be at most %s together with the capacity %s", amountText(l.Name, maxTokens), amountText(l.Name, l.Capacity)))
	default:
		return nil
	}
}

// validateShares checks that each guaranteed share, and the rest beside them, holds a token.
func (l *Limit) validateShares(field string) error {
	shares, rest := grammar.Shares(l.Floors), l.Capacity*millis
	if len(shares) == 0 {
		return nil
	}
	refuse := func(reason string) error {
		return &ValidationError{Field: field + " floors", Value: l.Floors, Reason: reason}
	}
	for priority, percent := range shares {
		share := l.Capacity * millis / 100 * percent // exact: a token has a thousand parts
		if rest -= share; share < millis {
			return refuse(fmt.Sprintf("the guaranteed share of %s, %d%% of the capacity %s, must hold a token", priority, percent, amountText(l.Name, l.Capacity)))
		}
	}
	switch {
	case rest < millis:
		return refuse(fmt.Sprintf("the guaranteed shares leave no token of the capacity %s", amountText(l.Name, l.Capacity)))
	case l.Session != 0:
		return refuse("a session quota has no guaranteed shares")
	case l.Mode != ModeEnforced:
		return refuse("a " + string(l.Mode) + " limit refuses nothing, and has no guaranteed shares")
	case l.Windows == "":
		return nil
	}
	w, err := calendar.ParseWindows(l.Windows, l.Zone)
	if err != nil {
		return nil //nolint:nilerr // it is reported before
	}
	for _, c := range w.Changes() {
		if c.Scale == 0 {
			return refuse(fmt.Sprintf("windows of a limit with guaranteed shares must multiply it, as x2, and not set it as %v", c))
		}
	}
	return nil
}

// validateZone checks that limits of one level name one time zone: their buckets have one.
func validateZone(field string, limits []Limit) error {
	zone := ""
	for i := range limits {
		if l := &limits[i]; l.Zone != "" {
			if zone != "" && l.Zone != zone {
				reason := "must be the zone of the other limits of the level, " + zone
				return &ValidationError{Field: field + "[" + l.Name + "] zone", Value: l.Zone, Reason: reason}
			}
			zone = l.Zone
		}
	}
	return nil
}

// validateLimits checks limits that are configured together.
func validateLimits(field string, limits []Limit, unit time.Duration) error {
	all := len(limits)
	for i := range limits {
		all += len(grammar.Shares(limits[i].Floors))
	}
	if all > maxLimits {
		reason := fmt.Sprintf("must be at most %d limits, with their guaranteed shares", maxLimits)
		return &ValidationError{Field: field, Value: strconv.Itoa(all), Reason: reason}
	}
	for i := range limits {
		if err := limits[i].validate(field, unit); err != nil {
			return err
		}
		for j := range i {
			if limits[j].Name == limits[i].Name {
				return &ValidationError{Field: field, Value: limits[i].Name, Reason: "is given twice"}
			}
		}
	}
	return validateZone(field, limits)
}

// maxLimits bounds the limits of one resource: an update of all of them has to fit DynamoDB's 300 operators.
const maxLimits = 16

// validateTokens checks an amount of a limit. Amounts of money are written as such.
func validateTokens(field, limit string, tokens, least int64) error {
	if rule := tokensRule(limit, tokens, least); rule != "" {
		return &ValidationError{Field: field, Value: amountText(limit, tokens), Reason: rule}
	}
	return nil
}

func tokensRule(limit string, tokens, least int64) string {
	if tokens < least || tokens > maxTokens {
		return fmt.Sprintf("must be from %s to %s", amountText(limit, least), tokensText(limit, maxTokens))
	}
	return ""
}

// validate makes all checks of a request that need no stored limits, and appends its amounts, in millitokens. A
// resource that the request leaves to its consumption is filled in.
func (r *Request) validate(amounts []bucket.Amount) ([]bucket.Amount, error) {
	if err := checkNil("consume", r.Consume); err != nil {
		return nil, err
	}
	if r.Resource == "" {
		r.Resource = resourceOf(r.Consume)
	}
	if err := r.validateNames(); err != nil {
		return nil, err
	}
	if err := checkResource(r.Consume, r.Resource); err != nil {
		return nil, err
	}
	amounts, err := amountsOf(amounts, "consume", r.Consume, 0)
	if err != nil {
		return nil, err
	}
	if len(amounts) == 0 {
		return nil, &ValidationError{Field: "consume", Value: "", Reason: "must name at least one limit"}
	}
	if err := r.OnUnavailable.validate(); err != nil {
		return nil, err
	}
	if r.Priority != "" {
		if err := invalid("priority", r.Priority, grammar.CheckLimitName(r.Priority)); err != nil {
			return nil, err
		}
	}
	return amounts, r.validateLimits()
}

// validateLimits checks the limits that stand in for stored ones. A bucket does not have those which follow the time.
func (r *Request) validateLimits() error {
	for i := range r.Limits {
		l, reason := &r.Limits[i], ""
		switch {
		case l.Resets != "" || l.Session != 0:
			reason = "is a quota, which must be stored"
		case l.Term != 0:
			reason = "is of slots, which must be stored"
		case l.Mode != ModeEnforced:
			reason = "is " + string(l.Mode) + ", and must be stored"
		case l.Windows != "":
			reason = "has windows, and must be stored"
		case len(grammar.Shares(l.Floors)) > 0:
			reason = "has guaranteed shares, and must be stored"
		}
		if reason != "" {
			return &ValidationError{Field: "limits[" + l.Name + "]", Value: l.String(), Reason: reason}
		}
	}
	return validateLimits("limits", r.Limits, time.Millisecond)
}

func (r *Request) validateNames() error {
	if err := validateEntity("entity", r.Entity); err != nil {
		return err
	}
	return validateResource(r.Resource)
}
