package explore

import (
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A shardOf is one item of the bucket of an entity.
type shardOf struct {
	entity string
	shard  int
}

// A setting is the stored limits of an entity from a time on.
type setting struct {
	at     int64 // epoch milliseconds
	number int   // of all settings
	limits []zlimit.Limit
}

// configTTL is how long processes keep limits in memory.
const configTTL = 10 * time.Second

// configure notes a change of stored limits.
func (w *witness) configure(r *running, key store.Key, there bool) {
	_, path, _ := strings.Cut(key.PK, "/")
	if !strings.HasPrefix(key.SK, "#CONFIG") {
		return
	}
	entity, found := strings.CutPrefix(path, "ENTITY#")
	if !found {
		entity = ""
	}
	var limits []zlimit.Limit
	if there && r != nil {
		limits = r.Limits
	}
	slots, limits := split(limits)
	w.settings++
	w.configs[entity] = append(w.configs[entity], setting{time.Now().UnixMilli(), w.settings, limits})
	if w.crowd != nil {
		w.crowd.limits[entity] = append(w.crowd.limits[entity], setting{time.Now().UnixMilli(), w.settings, slots})
	}
}

// history returns the limits that held for an entity one after another, by all settings of it and of the system.
func (w *witness) history(entity string) (all [][]zlimit.Limit) {
	own, system := w.configs[entity], w.configs[""]
	var of, last []zlimit.Limit // the entity's own, and the system's
	for len(own)+len(system) > 0 {
		if len(system) == 0 || len(own) > 0 && own[0].number < system[0].number {
			of, own = own[0].limits, own[1:]
		} else {
			last, system = system[0].limits, system[1:]
		}
		if len(of) > 0 {
			all = append(all, of)
		} else {
			all = append(all, last)
		}
	}
	return all
}

// effective returns the stored limits that hold for an entity after a number of its settings, and of the system's.
func (w *witness) effective(entity string) []zlimit.Limit {
	if c := w.configs[entity]; len(c) > 0 && len(c[len(c)-1].limits) > 0 {
		return c[len(c)-1].limits
	}
	if c := w.configs[""]; len(c) > 0 {
		return c[len(c)-1].limits
	}
	return nil
}

// window returns the limits that may have held for an entity since a time, by a process's knowledge.
func (w *witness) window(entity string, since int64) [][]zlimit.Limit {
	since -= configTTL.Milliseconds()
	var own, system [][]zlimit.Limit
	for _, from := range []struct {
		entity string
		to     *[][]zlimit.Limit
	}{{entity, &own}, {"", &system}} {
		settings := w.configs[from.entity]
		for i, s := range settings {
			if i+1 == len(settings) || settings[i+1].at >= since {
				*from.to = append(*from.to, s.limits)
			}
		}
	}
	var all [][]zlimit.Limit
	fallback := len(own) == 0
	for _, limits := range own {
		if len(limits) == 0 {
			fallback = true
		} else {
			all = append(all, limits)
		}
	}
	if fallback {
		all = append(all, system...)
		if len(system) == 0 {
			all = append(all, nil)
		}
	}
	return all
}

// has reports whether a limit is among those that may have held for an entity since a time: always, or at least
// sometimes.
func (w *witness) has(entity, limit string, since int64) (always, sometimes bool) {
	always = true
	for _, limits := range w.window(entity, since) {
		if slices.ContainsFunc(limits, func(l zlimit.Limit) bool { return l.Name == limit }) {
			sometimes = true
		} else {
			always = false
		}
	}
	return always, sometimes
}

// see notes the item left and returned by a write of a request. A transaction returns nothing.
func (w *witness) see(r *running, c change, transaction bool) {
	switch at := (shardOf{c.entity, c.shard}); {
	case r == nil || r.Kind != Take || len(r.Own) > 0:
	case transaction:
		delete(r.seen, at)
	default:
		if r.seen == nil {
			r.seen = map[shardOf]sighting{}
		}
		r.seen[at] = sighting{c.next, w.settings}
	}
}

// stands reports whether nothing has changed since a sighting: neither stored limits, nor the item's.
func (w *witness) stands(at shardOf, s *sighting) bool {
	is := w.shards[at.entity][at.shard]
	return is != nil && s.settings == w.settings && haveSameLimits(is, s.state)
}

// judgeSeen judges a request admitted by the stored limits. None of its writes may have shown an item that it left with
// others.
func (w *witness) judgeSeen(r *running) {
	stored := w.effective(r.Entity)
	for _, l := range stored {
		if !slices.Contains(r.by, l) {
			return
		}
	}
	if len(r.by) != len(stored) || !r.completed() {
		return
	}
	for at, s := range r.seen {
		if at.entity == r.Entity && w.stands(at, &s) && !hasLimits(s.state, stored) {
			w.blame("in line", "%s: %q is admitted by the stored limits, and leaves an item of %s with others, which its write showed",
				w.name(r), r.Op, at.entity)
		}
	}
}
