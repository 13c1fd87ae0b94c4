package quota

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	shardCount = 256 // a power of two
	// Every sweepEvery-th request of a shard looks at sweepStep names of the
	// next shard, so that names nobody asks for any more are forgotten without a
	// goroutine.
	sweepEvery = 32
	sweepStep  = 4

	lockTries = 16
	lockPause = 2000 // about a microsecond
)

// A table holds the windows of all names of one scope, in shards with a lock
// each. Where a call needs two tables, it locks the models' shard first.
type table struct {
	scope  Scope
	seed   maphash.Seed
	cursor atomic.Uint32 // the shard swept last
	shards [shardCount]shard

	// quotas is read when a window is made. Whoever changes it does so before
	// taking the shard's lock, so no window is left with the old quota.
	quotasMu sync.RWMutex
	quotas   map[string]ModelQuota
	fallback ModelQuota
}

type shard struct {
	mu    sync.Mutex
	index index
	order []*subject // the same, for the sweep
	hand  int
	ops   uint32
	_     [64]byte // shards do not share a cache line
}

// A subject is one model or key with its window. What a decision reads comes
// first, in two cache lines.
type subject struct {
	name string
	window
	hash  uint64
	sh    *shard
	place int // in shard.order
	// denials are the errors given out so far, so that a refusal allocates
	// nothing; nil after a change of quota.
	denials *[limitCount][2]*ExceededError
}

func newTable(sc Scope, quotas map[string]ModelQuota, fallback ModelQuota) *table {
	t := &table{scope: sc, seed: maphash.MakeSeed(), quotas: maps.Clone(quotas), fallback: fallback}
	if t.quotas == nil {
		t.quotas = map[string]ModelQuota{}
	}
	return t
}

// shard returns where a name belongs, and its hash there.
func (t *table) shard(name string) (*shard, uint64) {
	h := maphash.String(t.seed, name)
	return &t.shards[h%shardCount], h / shardCount
}

// quota returns what applies to a name: its own quota, or the default.
func (t *table) quota(name string) ModelQuota {
	t.quotasMu.RLock()
	defer t.quotasMu.RUnlock()
	if q, ok := t.quotas[name]; ok {
		return q
	}
	return t.fallback
}

func (t *table) setQuota(name string, q ModelQuota) {
	t.quotasMu.Lock()
	t.quotas[name] = q
	t.quotasMu.Unlock()
	sh, h := t.shard(name)
	sh.lock()
	defer sh.mu.Unlock()
	if s := sh.index.find(h, name); s != nil {
		s.quota, s.denials = t.quota(name), nil
	}
}

func (t *table) allQuotas() map[string]ModelQuota {
	t.quotasMu.RLock()
	defer t.quotasMu.RUnlock()
	return maps.Clone(t.quotas)
}

// ensure returns the subject of a name and makes it where there is none. The
// shard is locked.
func (t *table) ensure(sh *shard, h uint64, name string) *subject {
	if s := sh.index.find(h, name); s != nil {
		return s
	}
	s := &subject{name: strings.Clone(name), window: newWindow(t.quota(name)), hash: h, sh: sh, place: len(sh.order)}
	sh.index.insert(s)
	sh.order = append(sh.order, s)
	return s
}

// remove forgets a subject. Reservations that point at it change what nobody
// reads any more. The shard is locked.
func (sh *shard) remove(s *subject) {
	sh.index.remove(s)
	last := len(sh.order) - 1
	moved := sh.order[last]
	sh.order[s.place], moved.place = moved, s.place
	sh.order[last] = nil
	sh.order = sh.order[:last]
}

// lock takes the shard's lock. It is held for less time than it takes to park a
// goroutine, so a caller who finds it taken looks again a few times first.
func (sh *shard) lock() {
	for range lockTries {
		if sh.mu.TryLock() {
			return
		}
		for range lockPause {
		}
	}
	sh.mu.Lock()
}

// due counts a request on a locked shard and says whether to sweep.
func (sh *shard) due() bool {
	sh.ops++
	return sh.ops%sweepEvery == 0
}

// sweep forgets idle names in the next shard. No shard is locked by the caller;
// a shard in use is left for the next round.
func (t *table) sweep(now int64) {
	sh := &t.shards[t.cursor.Add(1)%shardCount]
	if !sh.mu.TryLock() {
		return
	}
	defer sh.mu.Unlock()
	for range min(sweepStep, len(sh.order)) {
		if sh.hand >= len(sh.order) {
			sh.hand = 0
		}
		s := sh.order[sh.hand]
		s.prune(now)
		if s.idle() {
			sh.remove(s)
			continue
		}
		sh.hand++
	}
}

// reset forgets one name.
func (t *table) reset(name string) {
	sh, h := t.shard(name)
	sh.lock()
	defer sh.mu.Unlock()
	if s := sh.index.find(h, name); s != nil {
		sh.remove(s)
	}
}

func (t *table) lockAll() {
	for i := range t.shards {
		t.shards[i].mu.Lock()
	}
}

func (t *table) unlockAll() {
	for i := range t.shards {
		t.shards[i].mu.Unlock()
	}
}

// denied returns the error for a refused request.
func (s *subject) denied(sc Scope, l Limit, input, output int64) *ExceededError {
	if s.denials == nil {
		s.denials = new([limitCount][2]*ExceededError)
	}
	i := 0
	if impossible := s.quota.Impossible(input, output); impossible != NoLimit {
		l, i = impossible, 1
	}
	if s.denials[l][i] == nil {
		s.denials[l][i] = Refusal(sc, s.name, s.quota, l, input, output)
	}
	return s.denials[l][i]
}
