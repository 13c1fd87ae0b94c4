package quota

import (
	"fmt"
	"time"
)

// State is the content of a state file: quotas and usage by model and by key.
type State struct {
	Quotas    map[string]ModelQuota `yaml:"quotas" json:"quotas"`
	State     map[string]UsageStats `yaml:"state" json:"state"`
	KeyQuotas map[string]ModelQuota `yaml:"key_quotas,omitempty" json:"key_quotas,omitempty"`
	KeyState  map[string]UsageStats `yaml:"key_state,omitempty" json:"key_state,omitempty"`
}

// UsageStats is the recorded usage of one model or key.
type UsageStats struct {
	Requests  []time.Time  `yaml:"requests" json:"requests"`                         // one for every request of the last minute
	Tokens    []TokenEntry `yaml:"tokens" json:"tokens"`                             // token counts of the last minute
	DayStart  time.Time    `yaml:"day_start" json:"day_start"`                       // first request of the running day; meaningless while DayCount is zero
	DayCount  int64        `yaml:"day_count" json:"day_count"`                       // requests since DayStart
	DayTokens int64        `yaml:"day_tokens,omitempty" json:"day_tokens,omitempty"` // input and output tokens since DayStart
}

// TokenEntry is the token count of one request.
type TokenEntry struct {
	Time   time.Time `yaml:"time" json:"time"`
	Count  int64     `yaml:"count" json:"count"`                       // input and output tokens
	Output int64     `yaml:"output,omitempty" json:"output,omitempty"` // the output tokens among them
}

// quotas and usage return the maps of one scope.
func (s *State) quotas(sc Scope) map[string]ModelQuota {
	if sc == ScopeKey {
		return s.KeyQuotas
	}
	return s.Quotas
}

func (s *State) usage(sc Scope) map[string]UsageStats {
	if sc == ScopeKey {
		return s.KeyState
	}
	return s.State
}

// Validate checks every name, quota, count and timestamp. A store calls it on a state that it has read.
func (s *State) Validate() error {
	for _, sc := range []Scope{ScopeModel, ScopeKey} {
		for name, q := range s.quotas(sc) {
			if err := ValidateName(sc.String(), name); err != nil {
				return err
			}
			if err := q.Validate(name); err != nil {
				return err
			}
		}
		for name, u := range s.usage(sc) {
			if err := ValidateName(sc.String(), name); err != nil {
				return err
			}
			if err := u.validate(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *UsageStats) validate(name string) error {
	for _, t := range u.Requests {
		if err := validateTime(name+".requests", t); err != nil {
			return err
		}
	}
	for _, e := range u.Tokens {
		if err := e.validate(name + ".tokens"); err != nil {
			return err
		}
	}
	return u.validateDay(name)
}

func (e *TokenEntry) validate(field string) error {
	if err := validateTime(field+".time", e.Time); err != nil {
		return err
	}
	// A request holds input and output of MaxTokens each.
	if e.Output < 0 || e.Output > MaxTokens || e.Count < e.Output || e.Count-e.Output > MaxTokens {
		return &ValidationError{
			Field: field + ".count", Value: fmt.Sprintf("%d (output %d)", e.Count, e.Output),
			Rule: fmt.Sprintf("must hold 0 to %d output tokens and 0 to %d input tokens", MaxTokens, MaxTokens),
		}
	}
	return nil
}

// maxDayCount bounds the day's counters so that sums cannot overflow.
const maxDayCount = 1 << 60

func (u *UsageStats) validateDay(name string) error {
	if u.DayCount < 0 || u.DayCount > maxDayCount {
		return &ValidationError{Field: name + ".day_count", Value: fmt.Sprint(u.DayCount), Rule: "must be 0 to 2^60"}
	}
	if u.DayTokens < 0 || u.DayTokens > maxDayCount {
		return &ValidationError{Field: name + ".day_tokens", Value: fmt.Sprint(u.DayTokens), Rule: "must be 0 to 2^60"}
	}
	if u.DayCount > 0 {
		return validateTime(name+".day_start", u.DayStart)
	}
	return nil
}

// validateTime accepts what fits into nanoseconds of Unix time with room for a
// day's arithmetic.
func validateTime(field string, t time.Time) error {
	if y := t.UTC().Year(); y < 1700 || y > 2200 {
		return &ValidationError{Field: field, Value: t.Format(time.RFC3339Nano), Rule: "must be in the years 1700 to 2200"}
	}
	return nil
}
