package quota

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// The backends of a Config.
const (
	BackendYAML   = "yaml"
	BackendSQLite = "sqlite"
)

// Config configures a Limiter. Its zero value limits Gemini's models with their
// default quotas and keeps its state in memory until Persist writes it to the
// default YAML file.
type Config struct {
	// FilePath is the state file. Default: ~/.core/ratelimits.yaml, for SQLite
	// ~/.core/ratelimits.db.
	FilePath string
	// Backend is BackendYAML or BackendSQLite. Default: BackendYAML.
	Backend string
	// Quotas are limits by model. They override Providers.
	Quotas map[string]ModelQuota
	// Providers name the profiles to load. Default: Gemini, where Quotas is
	// empty too.
	Providers []Provider
	// DefaultQuota applies to models without a quota of their own. Default: they
	// are refused or unlimited, as Strict says.
	DefaultQuota ModelQuota
	// Strict says whether models are refused that have neither a quota nor a
	// DefaultQuota. Default: StrictWithProvider.
	Strict Strictness
	// KeyQuotas are limits by key, over all models. A request with a key must
	// pass the limits of its model and of its key.
	KeyQuotas map[string]ModelQuota
	// DefaultKeyQuota applies to keys without a quota of their own. Default:
	// unlimited.
	DefaultKeyQuota ModelQuota

	// Clock returns the time, in the years 1700 to 2200. It is called while locks
	// are held and must not call the Limiter. In memory the default is the
	// process's monotonic clock, which does not jump when the machine's clock is
	// set. On SQLite it is the machine's clock, which all processes share.
	Clock func() time.Time
	// After returns a channel that receives once d has passed; Wait calls it.
	// Inject it together with Clock. Default: time.After.
	After func(d time.Duration) <-chan time.Time
	// OnEvent is called after every decision and change, in the caller's
	// goroutine and with no lock held. Default: none.
	OnEvent func(Event)
}

// Strictness says what happens to a request for a model without a quota, such as
// one whose name is misspelt.
type Strictness uint8

// The degrees of strictness. A refusal is an *UnknownModelError of Check, CanSend,
// Reserve, Wait and TimeUntil; what Record is given is recorded in any case.
const (
	StrictWithProvider Strictness = iota // refused where Providers, or their default, have quotas; otherwise unlimited
	StrictAlways                         // refused
	StrictNever                          // unlimited
)

// Event is what a hook is called with.
type Event struct {
	Kind    EventKind      `json:"kind"`
	Request Request        `json:"request"`         // settled: with the real token counts
	Denied  *ExceededError `json:"denied,omitzero"` // the limit that refused, for EventDenied
}

// EventKind is the kind of an Event.
type EventKind uint8

// The events.
const (
	EventAllowed   EventKind = iota // Check or CanSend said yes
	EventDenied                     // a limit refused a check, a reservation, or an attempt of Wait
	EventReserved                   // Reserve or Wait recorded a request
	EventRecorded                   // Record or RecordUsage did
	EventSettled                    // a reservation got its real token counts
	EventCancelled                  // a reservation was taken back
)

var eventNames = [...]string{"allowed", "denied", "reserved", "recorded", "settled", "cancelled"}

// String returns the kind in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// validate checks every field before anything is opened.
func (c *Config) validate() error {
	if c.Backend != "" && c.Backend != BackendYAML && c.Backend != BackendSQLite {
		return &ValidationError{Field: "config.backend", Value: c.Backend, Rule: `must be "yaml" or "sqlite"`}
	}
	if c.Strict > StrictNever {
		return &ValidationError{
			Field: "config.strict", Value: strconv.Itoa(int(c.Strict)), Rule: "must be StrictWithProvider, StrictAlways or StrictNever",
		}
	}
	for _, p := range c.Providers {
		if err := p.validate("config.providers"); err != nil {
			return err
		}
	}
	if err := c.DefaultQuota.Validate("config.default_quota"); err != nil {
		return err
	}
	if err := c.DefaultKeyQuota.Validate("config.default_key_quota"); err != nil {
		return err
	}
	if err := validateQuotas("config.quotas", c.Quotas); err != nil {
		return err
	}
	return validateQuotas("config.key_quotas", c.KeyQuotas)
}

func validateQuotas(field string, quotas map[string]ModelQuota) error {
	for name, q := range quotas {
		if err := ValidateName(field, name); err != nil {
			return err
		}
		if err := q.Validate(field + "." + name); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the quotas by model, and whether other models are refused.
// Profiles of providers count in their order, and explicit quotas over them.
func (c *Config) resolve() (quotas map[string]ModelQuota, strict bool) {
	providers := c.Providers
	if len(providers) == 0 && len(c.Quotas) == 0 {
		providers = []Provider{ProviderGemini}
	}
	quotas = map[string]ModelQuota{}
	for _, p := range providers {
		maps.Copy(quotas, p.profile())
	}
	strict = c.Strict == StrictAlways || c.Strict == StrictWithProvider && len(quotas) > 0
	maps.Copy(quotas, c.Quotas)
	return quotas, strict && c.DefaultQuota.Unlimited()
}

// path returns the state file. It is resolved when it is needed, so that a
// limiter without files works if there is no home directory.
func (c *Config) path() (string, error) {
	if c.FilePath != "" {
		return c.FilePath, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("quota: no file path given and no home directory: %w", err)
	}
	name := "ratelimits.yaml"
	if c.Backend == BackendSQLite {
		name = "ratelimits.db"
	}
	return filepath.Join(home, ".core", name), nil
}
