package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/successor"
	"github.com/zlimit/zlimit-go/zlimit"
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

// condition returns a check of the fields If-Match and If-None-Match for a stored config.
func (c *call) condition() (func(zlimit.Config) error, error) {
	match, none := c.r.Header.Values("If-Match"), c.r.Header.Values("If-None-Match")
	if len(none) > 0 && (len(none) > 1 || none[0] != "*") {
		return nil, invalid("If-None-Match", shown([]byte(strings.Join(none, ", "))), "must be *, for a level that must have no limits yet")
	}
	tags := strings.Split(strings.Join(match, ","), ",")
	for i := range tags {
		tags[i] = strings.TrimSpace(tags[i])
	}
	return func(stored zlimit.Config) error {
		switch {
		case len(none) > 0 && !stored.IsZero():
			return refuse(http.StatusPreconditionFailed, "changed", "Limits are there", "The level has limits: read them, and send their ETag as If-Match.")
		case len(match) == 0, !stored.IsZero() && (slices.Contains(tags, "*") || slices.Contains(tags, tag(stored))):
			return nil
		default:
			return refuse(http.StatusPreconditionFailed, "changed", "Limits were changed", "The stored limits have another ETag than If-Match: read them again.")
		}
	}, nil
}

// updates returns a function that changes the config of the level of a call, under its conditions.
func (c *call) updates() (func(change func(stored *zlimit.Config)) error, error) {
	at, err := c.level()
	if err != nil {
		return nil, err
	}
	check, err := c.condition()
	return func(change func(stored *zlimit.Config)) error {
		if err := successor.CheckLimits(c.r.Context(), c.limiter, at.Entity); err != nil {
			return err
		}
		return c.limiter.Limits.Update(c.r.Context(), at, func(stored *zlimit.Config) error {
			err := check(*stored)
			if err == nil {
				change(stored)
			}
			return err
		})
	}, err
}

// putLimits serves PUT /v1/limits/{level}.
func (h *handler) putLimits(c *call) (any, error) {
	update, err := c.updates()
	if err != nil {
		return nil, err
	}
	want, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	if want.IsZero() {
		return nil, invalid("limits", "", "must hold at least one limit; deleting is a call of its own")
	}
	if err := update(func(stored *zlimit.Config) {
		*stored = want
		stored.Limits = slices.Clone(want.Limits)
	}); err != nil {
		return nil, err
	}
	return h.getLimits(c)
}

// readConfig reads the config of a body.
func readConfig(c *call) (config zlimit.Config, err error) {
	var policy, cascade string
	var retention int64
	const year = 366 * 24 * 60 * 60
	err = c.read(fields{
		"limits": list(maxAmounts, func(path string, raw json.RawMessage) error {
			var l zlimit.Limit
			if err := strictLimit(path, raw); err != nil {
				return err
			}
			if err := json.Unmarshal(raw, &l); err != nil {
				return limitError(path, raw, err)
			}
			config.Limits = append(config.Limits, l)
			return nil
		}),
		"on_unavailable": text(&policy), "within": text(&config.Within), "cascade": text(&cascade),
		"audit_retention_seconds": integer(&retention, 0, 100*year),
	}, "limits")
	if err != nil {
		return config, err
	}
	if policy != "" {
		if err := config.OnUnavailable.UnmarshalText([]byte(policy)); err != nil {
			return config, invalid("on_unavailable", shown([]byte(policy)), "must be allow or block")
		}
	}
	config.Cascade, config.AuditRetention = zlimit.CascadePolicy(cascade), time.Duration(retention)*time.Second
	return config, nil
}

// strictLimit refuses a limit that is neither a text nor an object whose fields come once, in their exact form.
func strictLimit(path string, raw json.RawMessage) error {
	if raw[0] == '"' {
		return nil
	}
	known := fields{}
	for _, name := range limitFields {
		known[name] = func(string, json.RawMessage) error { return nil }
	}
	if !bytes.HasPrefix(raw, []byte("{")) {
		return invalid(path, shown(raw), `must be a text such as "tpm=10000/min", or an object`)
	}
	return readObject(path, raw, known, "name", "capacity")
}

// limitError names what is wrong with a limit: the field of an object, or the part of a text.
func limitError(path string, raw json.RawMessage, err error) error {
	var wrong *zlimit.ValidationError
	if !errors.As(err, &wrong) {
		return invalid(path, shown(raw), "must be a limit")
	}
	_, part, _ := strings.Cut(wrong.Field, " ")
	at := slices.IndexFunc(limitFields, func(name string) bool {
		return part != "" && strings.HasPrefix(name, strings.ReplaceAll(part, " ", "_"))
	})
	if raw[0] == '{' && at >= 0 {
		return invalid(member(path, limitFields[at]), wrong.Value, wrong.Reason)
	}
	return invalid(path, shown(raw), strings.TrimSpace(part+" "+wrong.Reason))
}

// limitFields are the fields of a limit as an object.
var limitFields = []string{
	"name", "capacity", "refill_amount", "refill_period_seconds", "resets", "windows", "zone", "floors", "term_seconds", "session_seconds", "prepaid", "carry", "mode",
}

// deleteLimits serves DELETE /v1/limits/{level}. The switch, the wider resource and the cascade policy of the level stay.
func (h *handler) deleteLimits(c *call) (any, error) {
	update, err := c.updates()
	if err != nil {
		return nil, err
	}
	if err := update(func(stored *zlimit.Config) {
		*stored = zlimit.Config{Within: stored.Within, Cascade: stored.Cascade}
	}); err != nil {
		return nil, err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return written, nil
}
