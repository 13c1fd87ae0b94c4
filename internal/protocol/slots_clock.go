package protocol

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Slots need a clock whose error is at most a part of their term. If the replies of the store carry the time, each of them reduces the
// possible error. Without other traffic there are few replies. So if the possible error is too large for a request, the process makes a few
// reads, each at the moment at which its date is most informative.

// A ClockError reports that the error of the clock may be too large for slots. Nothing was taken.
type ClockError struct {
	Term  time.Duration // of the slots
	Wrong time.Duration // how far the clock may be off; 0 if the store has reported no time yet
	Ahead time.Duration // how far the slots are ahead of the clock; 0 if the clock is not known
	Err   error         // of the context, if it ended while the store was read; nil otherwise
}

// Error has the error of the clock, and the accuracy that slots need.
func (e *ClockError) Error() string {
	if e.Ahead > 0 {
		return fmt.Sprintf("the slots with a term of %v are %v ahead of the clock of this process", e.Term, e.Ahead)
	}
	need := e.Term / bucket.SlotClockError
	if e.Wrong == 0 {
		return fmt.Sprintf("the store has not reported its time yet, and slots with a term of %v need it to %v", e.Term, need)
	}
	return fmt.Sprintf("the clock of the store is known to %v, and slots with a term of %v need it to %v",
		e.Wrong.Round(100*time.Microsecond), e.Term, need)
}

// OfTheClock returns the error without the error of a context.
func (e *ClockError) OfTheClock() *ClockError {
	left := *e
	left.Err = nil
	return &left
}

// Unwrap returns the error of the context.
func (e *ClockError) Unwrap() error { return e.Err }

// slotTime returns the time by the clock of slots, in epoch milliseconds. It returns a [*ClockError] if the clock is not accurate enough
// for slots with the given term, in milliseconds.
func (c *core) slotTime(term int64) (int64, error) {
	if c.options.SlotTime == nil {
		return c.now(), nil
	}
	now, wrong, known := c.options.SlotTime()
	if !known || wrong > milliseconds(term)/bucket.SlotClockError {
		failure := &ClockError{Term: milliseconds(term)}
		if known {
			failure.Wrong = wrong
		}
		return 0, failure
	}
	return now.UnixMilli(), nil
}

// slotNow returns the time by the clock of slots, in epoch milliseconds, whatever its accuracy.
func (c *core) slotNow() int64 {
	if now, err := c.slotTime(math.MaxInt64); err == nil {
		return now
	}
	return c.now()
}

const (
	// clockPatience is the longest time for which a request waits until the clock is accurate enough, unless it waits for longer anyway.
	// The dates of replies change once a second, and one or two changes give the time as accurately as round trips allow.
	clockPatience = 3 * time.Second
	// clockRest is the pause after reads without success: the replies take too long for the term.
	clockRest = 5 * time.Second
)

// A clockAsker reads the store's time, once for all callers of a process. It is safe for concurrent use.
type clockAsker struct {
	*core

	mu    sync.Mutex // guards what follows
	under *timeReads // the reads under way; nil for none
	vain  *timeReads // the last reads, if they did not succeed
}

// timeReads are reads for the store's time.
type timeReads struct {
	exact time.Duration // the error of the clock at which they end
	until time.Duration // when they end in any case, by core.sinceStart
	done  chan struct{} // closed when they end
	err   error         // the error of the last read
}

// knowFor is [clockAsker.know] for a request.
func (ca *clockAsker) knowFor(ctx context.Context, r *Request, failure *ClockError, near store.Key) error {
	if r.Asks != nil {
		r.Asks.Store(failure)
		defer r.Asks.Store(nil)
	}
	return ca.know(ctx, failure, near, r.Wait)
}

// know waits until the clock is as accurate as an error requires, for as long as a caller waits. It reads in the background: an item that
// does not exist, next to one that the caller needs.
func (ca *clockAsker) know(ctx context.Context, failure *ClockError, near store.Key, wait time.Duration) error {
	if failure.Ahead > 0 {
		return failure
	}
	exact, until := failure.Term/bucket.SlotClockError, ca.sinceStart()+max(wait, clockPatience)
	for {
		a, err := ca.begin(ctx, exact, until, near)
		if err != nil || a == nil {
			return err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			left := *failure
			left.Err = ctx.Err()
			return &left
		}
		_, err = ca.slotTime(failure.Term.Milliseconds())
		switch {
		case err == nil:
			return ca.table.Yield(ctx)
		case ca.background.open.Err() != nil:
			return ErrClosed
		case a.err != nil:
			return a.err
		case a.exact <= exact:
			return err
		}
	}
}

// begin starts reads unless some are under way. It returns nil if the clock is accurate enough.
func (ca *clockAsker) begin(ctx context.Context, exact, until time.Duration, near store.Key) (*timeReads, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	_, err := ca.slotTime(exact.Milliseconds() * bucket.SlotClockError)
	switch {
	case err == nil:
		return nil, nil
	case ca.under != nil:
		return ca.under, nil
	case ca.vain != nil && ca.vain.err == nil && ca.sinceStart() < ca.vain.until+clockRest:
		return nil, err
	}
	a := &timeReads{exact: exact, until: until, done: make(chan struct{})}
	if !ca.background.Tend(ctx, func(ctx context.Context) { ca.ask(ctx, a, near) }) {
		return nil, ErrClosed
	}
	ca.under = a
	return a, nil
}

// ask reads until the clock is accurate enough, the time has passed, or the engine is closed.
func (ca *clockAsker) ask(ctx context.Context, a *timeReads, near store.Key) {
	ctx, cancel := ca.background.whileOpen(ctx)
	defer cancel()
	near.SK = "#"
	trip, before := time.Duration(0), time.Duration(0)
	var known bool
	for reads := 0; ; reads++ {
		now, wrong, reported := ca.options.SlotTime()
		if known = reported && wrong <= a.exact; known || ctx.Err() != nil {
			break
		}
		pause := time.Duration(0)
		if reported {
			pause = untilReport(now, wrong, a.exact, trip)
		}
		if reads > 1 && (!reported || wrong >= before) { // the last reply has not reduced the error
			pause = max(pause, dateStep/askParts)
		}
		before = wrong
		if ca.sinceStart()+pause >= a.until || ca.table.Sleep(ctx, pause) != nil {
			break
		}
		sent := ca.sinceStart()
		if _, err := ca.table.ReadEventually(ctx, near); err != nil && ctx.Err() == nil {
			a.err = err
			break
		}
		trip = ca.sinceStart() - sent
	}
	ca.mu.Lock()
	if ca.under, ca.vain = nil, nil; !known {
		a.until, ca.vain = ca.sinceStart(), a
	}
	ca.mu.Unlock()
	close(a.done)
}

const (
	// dateStep is the resolution of the dates of replies.
	dateStep = time.Second
	// dateSlack is the further uncertainty of a date, since the clocks of servers differ.
	dateSlack = 50 * time.Millisecond
	// askParts bounds the number of reads within one second.
	askParts = 8
)

// untilReport returns the time until the moment at which the date of a reply is most informative, given the known time, its possible error,
// and the duration of a read. The date changes at a whole second, somewhere in a window of twice the error. The read is sent as late in the
// window as possible, provided that a date that has changed still gives the required accuracy. It is sent no later than a date that has not
// changed would give the same.
func untilReport(now time.Time, wrong, exact, trip time.Duration) time.Duration {
	into := (now.Sub(now.Truncate(dateStep)) + wrong) % dateStep // since the last window opened
	part := max(2*exact-dateSlack-trip, 2*wrong/askParts)
	moment := min(part, max(2*wrong+dateSlack-2*exact, 2*wrong/askParts)) + time.Millisecond
	if into > moment && into+trip+dateSlack < 2*wrong-2*wrong/askParts {
		return 0 // later than the best moment, but still useful
	}
	if into > moment {
		moment += dateStep
	}
	return moment - into
}
