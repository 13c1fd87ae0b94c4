package quota

import (
	"context"
	"time"
)

// Stats is the usage of one model or key beside its limits. A limit of zero is
// unlimited.
type Stats struct {
	RPM, MaxRPM             int64     // requests of the last minute
	TPM, MaxTPM             int64     // input and output tokens of the last minute
	RPD, MaxRPD             int64     // requests of the running day
	InputTPM, MaxInputTPM   int64     // input tokens of the last minute
	OutputTPM, MaxOutputTPM int64     // output tokens of the last minute
	TPD, MaxTPD             int64     // tokens of the running day
	DayStart                time.Time // first request of the running day; zero: no day is running
}

func (n Snapshot) stats() Stats {
	return Stats{
		RPM: n.Requests, MaxRPM: n.Quota.MaxRPM,
		TPM: n.InputTokens + n.OutputTokens, MaxTPM: n.Quota.MaxTPM,
		RPD: n.DayRequests, MaxRPD: n.Quota.MaxRPD,
		InputTPM: n.InputTokens, MaxInputTPM: n.Quota.MaxInputTPM,
		OutputTPM: n.OutputTokens, MaxOutputTPM: n.Quota.MaxOutputTPM,
		TPD: n.DayTokens, MaxTPD: n.Quota.MaxTPD,
		DayStart: n.DayStart,
	}
}

// Stats returns the usage and limits of a model now. An unknown model has no
// usage.
func (l *Limiter) Stats(ctx context.Context, model string) (Stats, error) {
	return l.stats(ctx, ScopeModel, model)
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
		return l.mem.snapshot(sc, name).stats(), nil
	}
	n, err := l.store.Snapshot(ctx, sc, name)
	if err != nil {
		return Stats{}, err
	}
	if !n.Stored {
		n.Quota = l.mem.table(sc).quota(name)
	}
	return n.stats(), nil
}

func (l *Limiter) allStats(ctx context.Context, sc Scope) (map[string]Stats, error) {
	var snapshots map[string]Snapshot
	if l.store == nil {
		snapshots = l.mem.snapshots(sc)
	} else {
		var err error
		if snapshots, err = l.store.Snapshots(ctx, sc); err != nil {
			return nil, err
		}
		t := l.mem.table(sc)
		for name, n := range snapshots {
			if !n.Stored {
				n.Quota = t.quota(name)
				snapshots[name] = n
			}
		}
		for name, q := range t.allQuotas() {
			if _, ok := snapshots[name]; !ok {
				snapshots[name] = Snapshot{Quota: q}
			}
		}
	}
	out := make(map[string]Stats, len(snapshots))
	for name, n := range snapshots {
		out[name] = n.stats()
	}
	return out, nil
}
