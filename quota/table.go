package quota

import (
	"container/heap"
	"hash/maphash"
	"maps"
	"strings"
	"sync"
)

const (
	shardCount = 256 // a power of two
	// Every sweepEvery-th call of a shard looks at the next shard of both tables.
	// Unused names are thus forgotten without a goroutine.
	sweepEvery = 16
	// A call looks at no more than releaseStep names that may give memory back.
	releaseStep = 32

	lockTries = 16
	lockPause = 2000 // about a microsecond
)

// A table holds the windows of all names of one scope, in shards with a lock
// each. Where a call needs two tables, it locks the models' shard first.
type table struct {
	scope  Scope
	seed   maphash.Seed
	shards [shardCount]shard

	// quotas is read when a window is made. A writer changes it before taking the
	// shard's lock, so no window is left with the old quota.
	quotasMu sync.RWMutex
	quotas   map[string]ModelQuota
	fallback ModelQuota
	strict   bool // names without a quota are refused
}

type shard struct {
	mu     sync.Mutex
	ops    uint32
	due    int64 // when the first of queue may give memory back
	latest int64 // the last time at which the shard was advanced
	index  index
	queue  dueQueue // the same subjects as in index
	_      [64]byte // shards do not share a cache line
}

// A subject is one model or key with its window. The fields that a decision
// reads come first, in two cache lines.
type subject struct {
	name string
	window
	hash  uint64
	sh    *shard
	known bool  // the name has a quota
	place int   // in shard.queue; -1 once the subject is forgotten
	due   int64 // not after the instant at which the window next gives memory back
	// denials are the errors given out so far, so that a refusal allocates
	// nothing; nil after a change of quota.
	denials *[limitCount][2]*ExceededError
}

func newTable(sc Scope, quotas map[string]ModelQuota, fallback ModelQuota) *table {
	t := &table{scope: sc, seed: maphash.MakeSeed(), quotas: maps.Clone(quotas), fallback: fallback}
	if t.quotas == nil {
		t.quotas = map[string]ModelQuota{}
	}
	for i := range t.shards {
		t.shards[i].due = never
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
	q, _ := t.lookup(name)
	return q
}

// lookup returns what applies to a name, and whether it has a quota of its own.
func (t *table) lookup(name string) (ModelQuota, bool) {
	t.quotasMu.RLock()
	defer t.quotasMu.RUnlock()
	if q, ok := t.quotas[name]; ok {
		return q, true
	}
	return t.fallback, false
}

// has reports whether a name has a quota of its own.
func (t *table) has(name string) bool {
	_, ok := t.lookup(name)
	return ok
}

func (t *table) setQuota(name string, q ModelQuota) {
	t.quotasMu.Lock()
	t.quotas[name] = q
	t.quotasMu.Unlock()
	sh, h := t.shard(name)
	sh.lock()
	defer sh.mu.Unlock()
	if s := sh.index.find(h, name); s != nil {
		s.quota, s.known, s.denials = q, true, nil
	}
}

func (t *table) allQuotas() map[string]ModelQuota {
	t.quotasMu.RLock()
	defer t.quotasMu.RUnlock()
	return maps.Clone(t.quotas)
}

// ensure returns the subject of a name and makes it if there is none. The
// shard is locked.
func (t *table) ensure(sh *shard, h uint64, name string, now int64) *subject {
	if s := sh.index.find(h, name); s != nil {
		return s
	}
	q, known := t.lookup(name)
	s := &subject{name: strings.Clone(name), window: newWindow(q), hash: h, sh: sh, known: known, due: now + minute}
	sh.index.insert(s)
	heap.Push(&sh.queue, s)
	sh.reschedule()
	return s
}

// remove forgets a subject. Reservations that point at it change an entry without readers. The
// shard is locked.
func (sh *shard) remove(s *subject) {
	sh.index.remove(s)
	heap.Remove(&sh.queue, s.place)
	sh.reschedule()
}

func (sh *shard) reschedule() {
	sh.due = never
	if len(sh.queue) > 0 {
		sh.due = sh.queue[0].due
	}
}

// advance brings a locked shard to now.
func (sh *shard) advance(now int64) {
	if now >= sh.due || now < sh.latest {
		sh.collect(now)
	}
	sh.latest = now
}

// collect forgets names whose windows have emptied, and gives rings without
// entries back, a few at a time.
func (sh *shard) collect(now int64) {
	if now < sh.latest {
		sh.setBack(now)
	}
	for range releaseStep {
		s := sh.queue.first()
		if s == nil || now < s.due {
			break
		}
		if behind := s.latest - now; 0 < behind && behind <= day {
			s.due = s.latest // The clock was set back, and will have caught up by then.
			heap.Fix(&sh.queue, 0)
			continue
		}
		s.prune(now)
		if s.idle(now) {
			heap.Pop(&sh.queue)
			sh.index.remove(s)
			continue
		}
		s.release()
		s.due = max(s.window.due(), now+minute) // The memory of calls may outlive the window.
		heap.Fix(&sh.queue, 0)
	}
	sh.reschedule()
}

// setBack follows a clock that was set back: nothing is due later than a day
// from now.
func (sh *shard) setBack(now int64) {
	for _, s := range sh.queue {
		s.due = min(s.due, now+day)
	}
	heap.Init(&sh.queue)
	sh.reschedule()
}

// idle reports whether nothing would be lost with the subject.
func (s *subject) idle(now int64) bool { return s.window.idle() && s.calls.quiet(now) }

// track makes a subject record its calls from now on.
func (s *subject) track() {
	if s.calls == nil {
		s.calls = &calls{}
	}
}

// cancelled gives memory back after a cancellation. The shard is locked.
func (sh *shard) cancelled(s *subject) {
	switch {
	case s.place < 0: // forgotten before
	case s.idle(sh.latest):
		sh.remove(s)
	case s.window.due() < s.due:
		s.due = s.window.due()
		heap.Fix(&sh.queue, s.place)
		sh.reschedule()
	}
}

// lock takes the shard's lock. It is held for less time than it takes to park a
// goroutine. A caller that finds the lock taken therefore looks again a few
// times first.
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

// tick counts a call on a locked shard. Every sweepEvery-th time it returns the
// number of the round, and otherwise zero.
func (sh *shard) tick() uint32 {
	sh.ops++
	if sh.ops%sweepEvery != 0 {
		return 0
	}
	return sh.ops / sweepEvery
}

// sweep advances the shard whose turn it is in a round of a caller, who holds no
// lock. A shard in use advances by itself.
func (t *table) sweep(round uint32, now int64) {
	sh := &t.shards[round%shardCount]
	if !sh.mu.TryLock() {
		return
	}
	defer sh.mu.Unlock()
	if ahead := sh.latest - now; 0 < ahead && ahead < minute {
		return // Another caller was here since this one read the clock.
	}
	sh.advance(now)
}

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
	if impossible := s.quota.Impossible(input, output); impossible != LimitNone {
		l, i = impossible, 1
	}
	if s.denials[l][i] == nil {
		s.denials[l][i] = Refusal(sc, s.name, s.quota, l, input, output)
	}
	return s.denials[l][i]
}
