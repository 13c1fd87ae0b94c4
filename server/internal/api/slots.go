package api

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// Slots end with the process that holds them. So this process keeps a lease with slots for its client until the client settles it, or its
// time is over. The token of such a lease names the process in place of buckets.

// The bounds of leases with slots.
const (
	maxKept     = 100_000
	settledTime = 10 * time.Minute // for which a settlement is remembered at most
	slotsPrefix = "slots."
)

// A keeper keeps the leases with slots of a process. It is safe for concurrent use.
type keeper struct {
	process string
	mu      sync.Mutex
	kept    map[string]*keptLease // by the token of their leases
}

// A keptLease is the leases of one request.
type keptLease struct {
	leases  []*zlimit.Lease
	slots   map[string]bool // the names of limits of slots
	timer   *time.Timer
	mu      sync.Mutex
	settled []zlimit.Amounts // what was consumed, once that is said; nil before
	done    bool             // and written
	ended   bool             // its time was over before it was settled
}

func newKeeper() *keeper { return &keeper{process: rand.Text(), kept: map[string]*keptLease{}} }

// keep keeps leases for some time, and returns the token that they have in common. It returns false if there are too many.
func (k *keeper) keep(leases []*zlimit.Lease, d time.Duration) (name string, ok bool) {
	kept := &keptLease{leases: leases, slots: map[string]bool{}}
	for _, lease := range leases {
		for _, s := range lease.Statuses() {
			if s.Limit.Term > 0 {
				kept.slots[s.Limit.Name] = true
			}
		}
	}
	name = slotsPrefix + k.process + "." + rand.Text()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) >= maxKept {
		return "", false
	}
	kept.timer = time.AfterFunc(d, func() { k.end(name, kept) })
	k.kept[name] = kept
	return name, true
}

// end forgets leases. What they have taken stays taken, and their slots are free.
func (k *keeper) end(name string, kept *keptLease) {
	k.mu.Lock()
	delete(k.kept, name)
	k.mu.Unlock()
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.ended = kept.settled == nil; !kept.done {
		ctx, cancel := context.WithTimeout(context.Background(), maxTime)
		defer cancel()
		_ = kept.commit(ctx) // of which the observer of the limiter reports
	}
}

// find returns the leases of a token.
func (k *keeper) find(name string) (*keptLease, error) {
	if process, _, _ := strings.Cut(strings.TrimPrefix(name, slotsPrefix), "."); process != k.process {
		return nil, refuse(http.StatusMisdirectedRequest, "held_elsewhere", "Slots of another replica", "The replica that answered the acquire holds the slots: send the request there. If it has ended, its slots are free within two of their terms.")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if kept := k.kept[name]; kept != nil {
		return kept, nil
	}
	return nil, leasetoken.ErrExpired
}

// settle settles leases, once.
func (k *keeper) settle(ctx context.Context, name string, claims *leasetoken.Claims, actual []zlimit.Amounts) error {
	kept, err := k.find(name)
	if err != nil {
		return err
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.ended {
		return leasetoken.ErrExpired
	}
	all := make([]zlimit.Amounts, len(claims.Leases))
	for i, lease := range claims.Leases {
		all[i] = maps.Clone(zlimit.Amounts(lease.Amounts))
		maps.Copy(all[i], actual[i])
		maps.DeleteFunc(all[i], func(name string, _ int64) bool { return kept.slots[name] }) // they are returned in any case
	}
	if kept.settled == nil {
		for i, lease := range kept.leases {
			change := zlimit.Amounts{}
			for name, n := range all[i] {
				if difference := n - claims.Leases[i].Amounts[name]; difference != 0 {
					change[name] = difference
				}
			}
			if err := lease.Adjust(change); err != nil {
				return err
			}
		}
		kept.settled = all
	}
	for i, was := range kept.settled {
		if !maps.Equal(was, all[i]) {
			return &zlimit.SettledError{Entity: claims.Leases[i].Entity, Resource: claims.Leases[i].Resource, Amounts: was}
		}
	}
	if kept.done {
		return nil
	}
	if err := kept.commit(ctx); err != nil {
		return err
	}
	kept.done = true
	kept.timer.Reset(min(time.Until(claims.Expires), settledTime))
	return nil
}

// commit commits all leases. It may be repeated after an error.
func (l *keptLease) commit(ctx context.Context) error {
	var all error
	for _, lease := range l.leases {
		if err := lease.Commit(ctx); err != nil && !errors.Is(err, zlimit.ErrLeaseClosed) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// extend keeps leases for longer, unless they are settled or have lost their slots.
func (k *keeper) extend(name string, d time.Duration) error {
	kept, err := k.find(name)
	if err != nil {
		return err
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.settled != nil || !kept.timer.Stop() { // or its time ends right now
		return leasetoken.ErrExpired
	}
	kept.timer.Reset(d)
	for _, lease := range kept.leases {
		select {
		case <-lease.Lost():
			return refuse(http.StatusGone, "lost", "Slots lost", "The replica could not reach the store for a term: another caller may hold the slots by now.")
		default:
		}
	}
	return nil
}
