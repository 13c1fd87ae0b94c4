package quota

import (
	"context"
	"maps"
	"time"
)

// Stats is the usage of one model or key beside its limits. A limit of zero is
// unlimited.
type Stats struct {
	RPM          int64     `json:"rpm"`                // requests of the last minute
	MaxRPM       int64     `json:"max_rpm"`            // its limit
	TPM          int64     `json:"tpm"`                // input and output tokens of the last minute
	MaxTPM       int64     `json:"max_tpm"`            // its limit
	RPD          int64     `json:"rpd"`                // requests of the running day
	MaxRPD       int64     `json:"max_rpd"`            // its limit
	InputTPM     int64     `json:"input_tpm"`          // input tokens of the last minute
	MaxInputTPM  int64     `json:"max_input_tpm"`      // its limit
	OutputTPM    int64     `json:"output_tpm"`         // output tokens of the last minute
	MaxOutputTPM int64     `json:"max_output_tpm"`     // its limit
	TPD          int64     `json:"tpd"`                // tokens of the running day
	MaxTPD       int64     `json:"max_tpd"`            // its limit
	DayStart     time.Time `json:"day_start,omitzero"` // first request of the running day; zero: no day is running
}

func (w *window) stats() Stats {
	u, q := w.usage, w.quota
	st := Stats{
		RPM: u.Requests, MaxRPM: q.MaxRPM,
		TPM: u.InputTokens + u.OutputTokens, MaxTPM: q.MaxTPM,
		RPD: u.DayRequests, MaxRPD: q.MaxRPD,
		InputTPM: u.InputTokens, MaxInputTPM: q.MaxInputTPM,
		OutputTPM: u.OutputTokens, MaxOutputTPM: q.MaxOutputTPM,
		TPD: u.DayTokens, MaxTPD: q.MaxTPD,
	}
	if u.DayRequests > 0 {
		st.DayStart = fromNanos(w.dayStart)
	}
	return st
}

// Stats returns the usage and limits of a model now. An unknown model has no
// usage.
func (l *Limiter) Stats(ctx context.Context, model string) (Stats, error) {
	if err := ValidateName("model", model); err != nil {
		return Stats{}, err
	}
	owner, err := l.model(ctx, model)
	if err != nil {
		return Stats{}, err
	}
	return l.stats(ctx, ScopeModel, owner)
}

// KeyStats returns the usage and limits of a key now.
func (l *Limiter) KeyStats(ctx context.Context, key string) (Stats, error) {
	return l.stats(ctx, ScopeKey, key)
}

// AllStats returns the usage and limits of every model that has a quota or
// usage.
func (l *Limiter) AllStats(ctx context.Context) (map[string]Stats, error) {
	return l.allStats(ctx, ScopeModel)
}

// AllKeyStats returns the usage and limits of every key that has a quota or
// usage.
func (l *Limiter) AllKeyStats(ctx context.Context) (map[string]Stats, error) {
	return l.allStats(ctx, ScopeKey)
}

func (l *Limiter) stats(ctx context.Context, sc Scope, name string) (Stats, error) {
	if err := ValidateName(sc.String(), name); err != nil {
		return Stats{}, err
	}
	if l.store == nil {
		return l.mem.stats(sc, name), nil
	}
	w, err := l.store.window(ctx, sc, name, l.mem.now())
	if err != nil {
		return Stats{}, err
	}
	return w.stats(), nil
}

func (l *Limiter) allStats(ctx context.Context, sc Scope) (map[string]Stats, error) {
	if l.store == nil {
		return l.mem.allStats(sc), nil
	}
	st, err := l.store.State(ctx)
	if err != nil {
		return nil, err
	}
	t, now := l.mem.table(sc), l.mem.now()
	quotas := t.allQuotas()
	maps.Copy(quotas, st.quotas(sc))
	out := make(map[string]Stats, len(quotas))
	for name, q := range quotas {
		out[name] = (&window{quota: q}).stats()
	}
	for name, u := range st.usage(sc) {
		q, ok := quotas[name]
		if !ok {
			q = t.quota(name)
		}
		w := newWindow(q)
		w.load(u)
		w.prune(now)
		if ok || !w.idle() {
			out[name] = w.stats()
		}
	}
	return out, nil
}
