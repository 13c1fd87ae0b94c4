package rotate

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// stepWaiting is the step in which a run waits until no process has it in memory that the old entity is served.
const stepWaiting = "waiting"

// A suspension is since when the old entity is suspended, which a run has noted. A run after it waits for the rest of the time.
type suspension struct {
	Since    time.Time `json:"since"`
	Versions int64     `json:"versions"` // of the levels of the old entity: a switch that was changed since has another one
}

// keepSince notes since when the old entity is suspended, unless a run before has noted it and this run has found it so. It returns how long
// processes may still have other switches in memory. A clock that is behind the one of that run makes the wait no longer than a whole one.
func (r *rotator) keepSince(ctx context.Context, again bool) (rest time.Duration, err error) {
	now := suspension{Since: r.now().UTC()}
	levels, err := r.levels(ctx, r.done.From)
	if err != nil {
		return 0, err
	}
	for _, stored := range levels {
		now.Versions += stored.Version
	}
	var kept suspension
	if err := r.decode(SinceKey, &kept); err != nil {
		return 0, err
	}
	if !again && !kept.Since.IsZero() && kept.Versions == now.Versions {
		return min(kept.Since.Add(keptFor).Sub(now.Since), keptFor), nil
	}
	return keptFor, r.keep(ctx, func(metadata map[string]string) {
		if metadata[StageKey] != "" { // another run may have come to the end
			metadata[SinceKey] = encode(now)
		}
	})
}

// planWait reports how long a run waits.
func (r *rotator) planWait(ctx context.Context) error {
	of, err := r.reached(ctx)
	if err != nil || !of.open || r.done.Resumed == stageJoining || r.done.Resumed == stageOpening {
		return err
	}
	rest := keptFor
	var kept suspension
	if err := r.decode(SinceKey, &kept); err != nil {
		return err
	}
	levels, err := r.levels(ctx, r.done.From)
	var versions int64
	for _, stored := range levels {
		versions += stored.Version
	}
	if !kept.Since.IsZero() && levels[""].Switch == zlimit.SwitchDisabled && versions == kept.Versions {
		rest = max(min(kept.Since.Add(keptFor).Sub(r.now()), keptFor), 0)
	}
	r.done.Wait = int64((rest + time.Second - 1) / time.Second)
	return err
}
