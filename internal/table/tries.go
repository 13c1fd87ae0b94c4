package table

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// MaxAttempts bounds the tries of a call that other writers may come before. Only lost races take more than a few.
const MaxAttempts = 64

// ErrContended says that other writers came first in every try. Nothing was written.
var ErrContended = errors.New("other writers came first in every try")

// Pauses between tries. A lost race is over in milliseconds; an outage takes its time.
const (
	firstRacePause, longestRacePause     = time.Millisecond, 64 * time.Millisecond
	firstOutagePause, longestOutagePause = 200 * time.Millisecond, 6400 * time.Millisecond
)

// tries are how often a table tries, and how it pauses between the tries.
type tries struct {
	races, patient int
	sleep          func(context.Context, time.Duration) error
	race, outage   wait.Backoff
}

func newTries(o *Options) tries {
	random := func(n time.Duration) time.Duration {
		return time.Duration(o.IntN(int(n/time.Microsecond))) * time.Microsecond
	}
	t := tries{
		races:   cmp.Or(o.Races, MaxAttempts),
		patient: cmp.Or(o.Tries, 7),
		sleep:   o.Sleep,
		race:    wait.Backoff{First: firstRacePause, Longest: longestRacePause, Random: random},
		outage:  wait.Backoff{First: firstOutagePause, Longest: longestOutagePause, Random: random},
	}
	if t.sleep == nil {
		t.sleep = wait.For
	}
	return t
}

// Optimistic calls try until it is done or fails, and pauses between the tries. A try reads, plans and writes; it
// returns false when another writer came between, or the error of a conflict. When that happens in every try, Optimistic
// returns [ErrContended].
func (t *Table) Optimistic(ctx context.Context, try func() (done bool, err error)) error {
	for attempt := range t.tries.races {
		if done, err := try(); done || err != nil && store.OutcomeOf(err) != store.Conflicted {
			return err
		}
		if attempt == t.tries.races-1 {
			break
		}
		if err := t.Pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}

// Pause waits after a lost race, with full jitter. It does not wait after the first two, and waits up to 64 ms after
// many.
func (t *Table) Pause(ctx context.Context, attempt int) error {
	if attempt < 2 {
		return ctx.Err()
	}
	return t.tries.sleep(ctx, t.tries.race.Pause(attempt-2))
}

// Patiently makes a call that does no harm when it is made twice. It waits throttles and other outages out for some
// seconds, and repeats a write that may have happened.
func (t *Table) Patiently(ctx context.Context, do func(context.Context) error) error {
	return t.patiently(ctx, passes, do)
}

// WhileThrottled makes a call that does no harm when it is made twice. It waits throttles out for some seconds, with full
// jitter, and no other outage.
func (t *Table) WhileThrottled(ctx context.Context, do func(context.Context) error) error {
	return t.patiently(ctx, func(err error) bool { return store.OutcomeOf(err) == store.Throttled }, do)
}

func (t *Table) patiently(ctx context.Context, passes func(error) bool, do func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := t.Call(ctx, do)
		if attempt == t.tries.patient-1 || ctx.Err() != nil || !passes(err) {
			return err
		}
		if err := t.tries.sleep(ctx, t.tries.outage.Pause(attempt)); err != nil {
			return err
		}
	}
}

// passes reports whether the obstacle of a call may be over when it is made again.
func passes(err error) bool {
	switch store.OutcomeOf(err) {
	case store.Conflicted, store.Throttled, store.Unavailable, store.Unknown:
		return true
	default:
		return false
	}
}

// PatientWrite is [Table.Patiently] for a write that does no harm when it is made twice.
func (t *Table) PatientWrite(ctx context.Context, w store.Write) (result store.Result, err error) {
	err = t.Patiently(ctx, func(ctx context.Context) error {
		result, err = t.store.Write(ctx, w)
		return err
	})
	return result, err
}

// PatientTransact is [Table.Patiently] for a transaction that does no harm when it is made twice.
func (t *Table) PatientTransact(ctx context.Context, writes []store.Write) (applied bool, err error) {
	err = t.Patiently(ctx, func(ctx context.Context) error {
		results, err := t.store.Transact(ctx, writes)
		applied = err == nil && Applied(results)
		return err
	})
	return applied, err
}
