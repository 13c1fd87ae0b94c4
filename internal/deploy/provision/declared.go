// Package provision keeps the stored limits of a namespace as a file declares them. It plans the changes, applies the
// plan, and reports changes that other programs make meanwhile. A run that ended in the middle is finished by the next one.
package provision

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/zlimit"
)

const day = 24 * time.Hour

// Declared returns the levels of a declaration, in the order of [zlimit.Level.Compare], their limits by name. A plan
// decides about the wider resource of one that declares none.
func Declared(d *declaration.Declaration) []zlimit.Stored {
	var levels []zlimit.Stored
	add := func(at zlimit.Level, limits []*declaration.Limit, policy, cascade string, days int64) *zlimit.Config {
		config := zlimit.Config{Limits: limitsOf(limits), AuditRetention: time.Duration(days) * day, Cascade: zlimit.CascadePolicy(cascade)}
		switch policy {
		case zlimit.PolicyBlock.String():
			config.OnUnavailable = zlimit.PolicyBlock
		case zlimit.PolicyAllow.String():
			config.OnUnavailable = zlimit.PolicyAllow
		}
		levels = append(levels, zlimit.Stored{Level: at, Config: config})
		return &levels[len(levels)-1].Config
	}
	if s := d.System; s != nil {
		add(zlimit.Level{}, s.Limits, s.OnUnavailable, "", s.RetentionDays)
	}
	for _, r := range d.Resources {
		config := add(zlimit.Level{Resource: r.Name}, r.Limits, r.OnUnavailable, r.Cascade, 0)
		if r.Within != nil {
			config.Within = cmp.Or(r.Within.Name, nowhere)
		}
	}
	for _, e := range d.Entities {
		if len(e.Limits) > 0 || e.OnUnavailable != "" || e.Cascade != "" {
			add(zlimit.Level{Entity: e.ID}, e.Limits, e.OnUnavailable, e.Cascade, 0)
		}
		for _, r := range e.Resources {
			add(zlimit.Level{Entity: e.ID, Resource: r.Name}, r.Limits, r.OnUnavailable, r.Cascade, 0)
		}
	}
	slices.SortFunc(levels, func(a, b zlimit.Stored) int { return a.Level.Compare(b.Level) })
	return levels
}

func limitsOf(declared []*declaration.Limit) []zlimit.Limit {
	var limits []zlimit.Limit
	for _, l := range declared {
		limits = append(limits, LimitOf(l.Limit))
	}
	slices.SortFunc(limits, func(a, b zlimit.Limit) int { return strings.Compare(a.Name, b.Name) })
	return limits
}

// hash returns the SHA-256 of declared levels, in hexadecimal.
func hash(levels []zlimit.Stored) string {
	text, err := json.Marshal(levels)
	if err != nil {
		panic(err) // there are texts and numbers alone
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
