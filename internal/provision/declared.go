// Package provision keeps the stored limits of a namespace as a file declares them. It plans what is to change, applies
// the plan, and tells what other programs have changed meanwhile. A run that ended in the middle is finished by the
// next one.
package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/zlimit"
)

const day = 24 * time.Hour

// A Level is what a file declares of a level.
type Level struct {
	Level          zlimit.ConfigLevel `json:"level"`
	Limits         []Limit            `json:"limits,omitempty"`
	OnUnavailable  string             `json:"on_unavailable,omitempty"`
	RetentionDays  int64              `json:"audit_retention_days,omitempty"`
	Version        int64              `json:"config_version,omitempty"` // of what is stored
	managedVersion bool
}

// A Limit is one limit of a level, in tokens and seconds.
type Limit struct {
	Name     string `json:"name"`
	Capacity int64  `json:"capacity"`
	Refill   int64  `json:"refill_amount"`
	Period   int64  `json:"refill_period_seconds"`
}

// Declared returns the levels of a declaration, in the order of [zlimit.ConfigLevel.Compare], their limits by name.
func Declared(d *declaration.Declaration) []Level {
	var levels []Level
	if s := d.System; s != nil {
		levels = append(levels, Level{Limits: limitsOf(s.Limits), OnUnavailable: s.OnUnavailable, RetentionDays: s.RetentionDays})
	}
	for _, r := range d.Resources {
		levels = append(levels, Level{Level: zlimit.ConfigLevel{Resource: r.Name}, Limits: limitsOf(r.Limits), OnUnavailable: r.OnUnavailable})
	}
	for _, e := range d.Entities {
		if len(e.Limits) > 0 || e.OnUnavailable != "" {
			at := zlimit.ConfigLevel{Entity: e.ID, Resource: zlimit.DefaultResource}
			levels = append(levels, Level{Level: at, Limits: limitsOf(e.Limits), OnUnavailable: e.OnUnavailable})
		}
		for _, r := range e.Resources {
			at := zlimit.ConfigLevel{Entity: e.ID, Resource: r.Name}
			levels = append(levels, Level{Level: at, Limits: limitsOf(r.Limits), OnUnavailable: r.OnUnavailable})
		}
	}
	slices.SortFunc(levels, func(a, b Level) int { return a.Level.Compare(b.Level) })
	return levels
}

func limitsOf(declared []*declaration.Limit) []Limit {
	var limits []Limit
	for _, l := range declared {
		limits = append(limits, Limit{l.Name, l.Capacity, l.Refill, int64(l.Period / time.Second)})
	}
	return sorted(limits)
}

func sorted(limits []Limit) []Limit {
	slices.SortFunc(limits, func(a, b Limit) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return limits
}

// stored returns the level as package zlimit takes it.
func (l *Level) stored() zlimit.StoredConfig {
	config := zlimit.StoredConfig{Level: l.Level, Version: l.Version, AuditRetention: time.Duration(l.RetentionDays) * day}
	switch l.OnUnavailable {
	case zlimit.Block.String():
		config.OnUnavailable = zlimit.Block
	case zlimit.Allow.String():
		config.OnUnavailable = zlimit.Allow
	}
	for _, limit := range l.Limits {
		config.Limits = append(config.Limits, zlimit.Limit{
			Name: limit.Name, Capacity: limit.Capacity, RefillAmount: limit.Refill, RefillPeriod: time.Duration(limit.Period) * time.Second,
		})
	}
	return config
}

// levelOf returns a level as package zlimit has it.
func levelOf(config *zlimit.StoredConfig) Level {
	l := Level{
		Level: config.Level, Version: config.Version, managedVersion: config.Managed,
		RetentionDays: int64(config.AuditRetention / day),
	}
	if config.OnUnavailable != zlimit.Inherit {
		l.OnUnavailable = config.OnUnavailable.String()
	}
	for _, limit := range config.Limits {
		l.Limits = append(l.Limits, Limit{limit.Name, limit.Capacity, limit.RefillAmount, int64(limit.RefillPeriod / time.Second)})
	}
	l.Limits = sorted(l.Limits)
	return l
}

// same reports whether two levels say the same.
func (l *Level) same(other *Level) bool {
	return l.OnUnavailable == other.OnUnavailable && l.RetentionDays == other.RetentionDays && slices.Equal(l.Limits, other.Limits)
}

// says reports whether the level says anything: one may be stored that does not.
func (l *Level) says() bool {
	return len(l.Limits) > 0 || l.OnUnavailable != "" || l.RetentionDays != 0
}

// there reports whether something is stored at the level.
func (l *Level) there() bool { return l.Version > 0 }

// hash returns the SHA-256 of declared levels, in hexadecimal.
func hash(levels []Level) string {
	text, err := json.Marshal(levels)
	if err != nil {
		panic(err) // there are texts and numbers alone
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
