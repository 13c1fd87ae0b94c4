package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// A storedLevel is the reply to a call about stored limits.
type storedLevel struct {
	Level    zlimit.Level  `json:"level"`
	Config   zlimit.Config `json:"config"`
	Switch   zlimit.Switch `json:"switch,omitempty"`
	Managed  bool          `json:"managed"`
	Declared bool          `json:"declared"`
}

// level returns the level that a path names, for a caller who may name it.
func (c *call) level() (zlimit.Level, error) {
	at := zlimit.Level{Entity: c.r.PathValue("entity"), Resource: c.r.PathValue("resource")}
	if strings.Contains(c.r.Pattern, "{entity}") && at.Entity == "" {
		return at, invalid("entity", "", "must not be empty")
	}
	if strings.Contains(c.r.Pattern, "{resource}") && at.Resource == "" {
		return at, invalid("resource", "", "must not be empty")
	}
	return at, c.mayName(at.Entity)
}

// tag returns the entity tag of a config: a hash of what it says. Equal configs have the same one.
func tag(config zlimit.Config) string {
	config.Limits = slices.Clone(config.Limits)
	slices.SortFunc(config.Limits, func(a, b zlimit.Limit) int { return cmp.Compare(a.Name, b.Name) })
	text, _ := json.Marshal(config) // of texts and numbers
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// getLimits serves GET /v1/limits/{level}.
func (h *handler) getLimits(c *call) (any, error) {
	at, err := c.level()
	if err != nil {
		return nil, err
	}
	found, err := c.limiter.Managed.Read(c.r.Context(), at)
	if err != nil {
		return nil, err
	}
	stored := &found[0]
	if len(stored.Unsupported) > 0 {
		return nil, &zlimit.UnsupportedError{Source: at.Source(), Entity: at.Entity, Resource: at.Resource, Features: stored.Unsupported}
	}
	if stored.Config.IsZero() && stored.Switch == zlimit.SwitchInherit {
		return nil, refuse(http.StatusNotFound, "not_found", "No stored limits", "The level has no limits of its own.")
	}
	set, err := c.limiter.Managed.Set(c.r.Context())
	if err != nil {
		return nil, err
	}
	c.w.Header().Set("ETag", tag(stored.Config))
	return &storedLevel{stored.Level, stored.Config, stored.Switch, set.Has(stored), stored.Declared}, nil
}

// update changes the config of the level of a call, if it is as the fields If-Match and If-None-Match ask for.
func (c *call) update(change func(stored *zlimit.Config)) error {
	at, err := c.level()
	if err != nil {
		return err
	}
	match, none := c.r.Header.Values("If-Match"), c.r.Header.Values("If-None-Match")
	if len(none) > 0 && (len(none) > 1 || none[0] != "*") {
		return invalid("If-None-Match", strings.Join(none, ", "), "must be *, for a level that must have no limits yet")
	}
	tags := strings.FieldsFunc(strings.Join(match, ","), func(r rune) bool { return r == ',' || r == ' ' })
	if err := rotation.CheckLimits(c.r.Context(), c.limiter, at.Entity); err != nil {
		return err
	}
	return c.limiter.Limits.Update(c.r.Context(), at, func(stored *zlimit.Config) error {
		switch {
		case len(none) > 0 && !stored.IsZero():
			return refuse(http.StatusPreconditionFailed, "changed", "Limits are there", "The level has limits: read them, and send their ETag as If-Match.")
		case len(match) > 0 && (stored.IsZero() || !slices.Contains(tags, "*") && !slices.Contains(tags, tag(*stored))):
			return refuse(http.StatusPreconditionFailed, "changed", "Limits were changed", "The stored limits have another ETag than If-Match: read them again.")
		default:
			change(stored)
			return nil
		}
	})
}

// putLimits serves PUT /v1/limits/{level}.
func (h *handler) putLimits(c *call, want *zlimit.Config) (any, error) {
	if want.IsZero() {
		return nil, invalid("limits", "", "must hold at least one limit; deleting is a call of its own")
	}
	if err := c.update(func(stored *zlimit.Config) {
		*stored = *want
		stored.Limits = slices.Clone(want.Limits)
	}); err != nil {
		return nil, err
	}
	return h.getLimits(c)
}

// deleteLimits serves DELETE /v1/limits/{level}. The switch, the wider resource and the cascade policy of the level stay.
func (*handler) deleteLimits(c *call) (any, error) {
	return nil, c.update(func(stored *zlimit.Config) {
		*stored = zlimit.Config{Within: stored.Within, Cascade: stored.Cascade}
	})
}
