package quota

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"
)

const (
	minute = int64(time.Minute)
	day    = int64(24 * time.Hour)
	never  = math.MaxInt64
)

// An entry of the log is one recorded request. Ids grow by one with every entry
// of a window, and times never fall. An entry's place therefore follows from
// its id while no entry before it was compacted.
type entry struct {
	at      int64 // when it was recorded, in nanoseconds of Unix time
	id      uint64
	in, out int32 // tokens; in is dead for a cancelled entry
	kind    entryKind
}

// entryKind says which lists of a state file the entry stands for. Entries made
// by this package are both; a file may hold a request without its tokens.
type entryKind uint8

const (
	kindDead    entryKind = 0
	kindRequest entryKind = 1
	kindTokens  entryKind = 2
	kindBoth              = kindRequest | kindTokens
	kindOpen    entryKind = 4 // its call is not over, see calls
	kindClaimed entryKind = 8 // and a round trip is under way for it
)

func (e *entry) requests() int64 { return int64(e.kind & kindRequest) }

// A window holds the last minute and the running day of one model or key. It is
// pure: the caller brings the time and the lock. Times are nanoseconds of Unix
// time.
type window struct {
	next     int64 // the earliest instant at which expire has something to do
	latest   int64 // nothing known is later; an earlier now means that the clock was set back
	usage    Usage // sums over the log, and the day's counters
	quota    ModelQuota
	dayStart int64  // meaningful while usage.DayRequests > 0
	days     uint64 // days begun so far, which identifies a day

	buf    []entry // ring; its length is zero or a power of two
	head   int     // place of the oldest entry in buf
	n      int     // entries in the log, dead ones included
	dead   int     // cancelled entries still in the log
	lastID uint64

	calls *calls // nil if nothing is known of calls
}

func newWindow(q ModelQuota) window { return window{quota: q, next: never, latest: math.MinInt64} }

func (w *window) at(i int) *entry { return &w.buf[(w.head+i)&(len(w.buf)-1)] }

// prune drops expired entries. It is O(1) amortised: every entry is dropped once.
func (w *window) prune(now int64) {
	if now >= w.next || now < w.latest {
		w.expire(now)
	}
}

func (w *window) expire(now int64) {
	if now < w.latest {
		w.setBack(now)
	}
	if w.usage.DayRequests > 0 && now >= w.dayStart+day {
		w.usage.DayRequests, w.usage.DayTokens = 0, 0
	}
	if w.n > 0 && w.at(w.n-1).at+minute <= now {
		w.usage.Requests, w.usage.InputTokens, w.usage.OutputTokens = 0, 0, 0
		if w.calls != nil {
			w.calls.closeAll()
		}
		w.head, w.n, w.dead = 0, 0, 0
	}
	for w.n > 0 {
		e := w.at(0)
		if e.at+minute > now {
			break
		}
		w.end(e)
		w.subtract(e)
		w.popHead()
	}
	w.shrink()
	w.reschedule()
}

// forgetPast is prune for reading and writing files, where what lies ahead of the
// clock stays as it is.
func (w *window) forgetPast(now int64) {
	if now >= w.latest {
		w.prune(now)
	}
}

// setBack moves entries after now to now. After the clock was set back, an entry counts for one minute more and a day
// for 24 hours. Without this they would count until the clock reaches the old time again. Its cost is the entries it
// moves.
func (w *window) setBack(now int64) {
	for i := w.n - 1; i >= 0 && w.at(i).at > now; i-- {
		w.at(i).at = now
	}
	if w.usage.DayRequests > 0 {
		w.dayStart = min(w.dayStart, now)
	}
	if w.calls != nil && w.calls.news != nil {
		w.calls.news.setBack(now)
	}
	w.latest = now
}

// subtract takes an entry's counts out of the sums; a dead entry has none.
func (w *window) subtract(e *entry) {
	w.usage.Requests -= e.requests()
	w.usage.InputTokens -= int64(e.in)
	w.usage.OutputTokens -= int64(e.out)
}

func (w *window) popHead() {
	if w.at(0).kind == kindDead {
		w.dead--
	}
	w.head = (w.head + 1) & (len(w.buf) - 1)
	w.n--
}

func (w *window) reschedule() {
	w.next = never
	if w.n > 0 {
		w.next = w.at(0).at + minute
	}
	if w.usage.DayRequests > 0 {
		w.next = min(w.next, w.dayStart+day)
	}
}

// due returns the earliest instant at which the window can give memory back if
// nothing else is recorded. That is when its log is empty, and then when its day
// is over.
func (w *window) due() int64 {
	switch {
	case w.n > 0:
		return w.at(w.n-1).at + minute
	case w.usage.DayRequests > 0:
		return w.dayStart + day
	}
	return math.MinInt64
}

// release gives the ring back once the log is empty.
func (w *window) release() {
	if w.n == 0 {
		w.buf, w.head = nil, 0
	}
}

func (w *window) idle() bool { return w.n == 0 && w.usage.DayRequests == 0 }

// add records one request at now, which must have been pruned to.
func (w *window) add(now, input, output int64) mark {
	if w.usage.DayRequests == 0 {
		w.dayStart = now
		w.days++
		w.next = min(w.next, now+day)
	}
	w.usage.DayRequests++
	w.usage.DayTokens += input + output
	return mark{id: w.push(now, input, output, kindBoth), day: w.days}
}

// push puts an entry at the end of the log. No entry may be later.
func (w *window) push(at int64, input, output int64, kind entryKind) uint64 {
	if w.n == len(w.buf) {
		w.resize(max(4, 2*len(w.buf)))
	}
	w.n++
	w.lastID++
	e := w.at(w.n - 1)
	*e = entry{at: at, id: w.lastID, in: int32(input), out: int32(output), kind: kind}
	w.usage.Requests += e.requests()
	w.usage.InputTokens += input
	w.usage.OutputTokens += output
	if w.n == 1 {
		w.next = min(w.next, at+minute)
	}
	w.latest = max(w.latest, at)
	return w.lastID
}

// shrink gives memory back once three quarters of the ring are empty.
func (w *window) shrink() {
	if len(w.buf) > 8 && w.n <= len(w.buf)/4 {
		c := 8
		for c < 2*w.n {
			c *= 2
		}
		w.resize(c)
	}
}

func (w *window) resize(size int) {
	buf := make([]entry, size)
	for i := range w.n {
		buf[i] = *w.at(i)
	}
	w.buf, w.head = buf, 0
}

// find returns the place of an entry in the log, or -1 if it has aged out.
// It is O(1) unless entries were compacted, and then O(log n).
func (w *window) find(id uint64) int {
	if w.n == 0 {
		return -1
	}
	if d := id - w.at(0).id; d < uint64(w.n) && w.at(int(d)).id == id {
		return int(d)
	}
	i, found := sort.Find(w.n, func(i int) int { return cmp.Compare(id, w.at(i).id) })
	if !found {
		return -1
	}
	return i
}

// A mark is a reservation's memory of its entry.
type mark struct {
	id  uint64
	day uint64
}

// sameDay reports whether the day in which m was made is still running.
func (w *window) sameDay(m mark) bool { return w.usage.DayRequests > 0 && w.days == m.day }

// settle replaces the tokens of an entry where they still count. before has all recorded tokens.
func (w *window) settle(m mark, before, input, output int64) {
	if i := w.find(m.id); i >= 0 {
		e := w.at(i)
		w.end(e)
		w.usage.InputTokens += input - int64(e.in)
		w.usage.OutputTokens += output - int64(e.out)
		e.in, e.out = int32(input), int32(output)
	}
	if w.sameDay(m) {
		w.usage.DayTokens += input + output - before
	}
}

// cancel takes an entry out where it still counts, as if it had never been
// made. The day keeps its beginning unless nothing is left in it.
func (w *window) cancel(m mark, before int64) {
	if w.sameDay(m) {
		w.usage.DayRequests--
		w.usage.DayTokens -= before
	}
	if i := w.find(m.id); i >= 0 {
		e := w.at(i)
		if e.kind&kindOpen != 0 {
			w.calls.open.sub(e.costs())
		}
		w.subtract(e)
		e.in, e.out, e.kind = 0, 0, kindDead
		w.dead++
		w.sweepDead()
	}
	w.reschedule()
}

// sweepDead keeps the dead entries fewer than the living ones, so the log stays in proportion to
// the window's count; O(1) amortised.
func (w *window) sweepDead() {
	for w.n > 0 && w.at(w.n-1).kind == kindDead {
		w.n--
		w.dead--
	}
	for w.n > 0 && w.at(0).kind == kindDead {
		w.popHead()
	}
	if w.dead > 8 && 2*w.dead > w.n {
		k := 0
		for i := range w.n {
			if e := *w.at(i); e.kind != kindDead {
				*w.at(k) = e
				k++
			}
		}
		w.n, w.dead = k, 0
	}
	w.shrink()
}

// whenAdmitted returns the earliest instant, not before now, at which a request
// would be admitted if nothing else were recorded, or never. It looks at the
// entries that must age out first, and no further.
func (w *window) whenAdmitted(now, input, output int64) int64 {
	q, u := &w.quota, w.usage
	if q.Impossible(input, output) != LimitNone {
		return never
	}
	t := now
	for i := 0; ; i++ {
		switch q.Exceeded(&u, input, output) {
		case LimitNone:
			return t
		case LimitRPD, LimitTPD:
			t = max(t, w.dayStart+day)
			u.DayRequests, u.DayTokens = 0, 0
			i--
			continue
		default: // A limit of the last minute: its oldest entry must age out.
		}
		if i >= w.n { // Cannot be: an empty log admits every possible request.
			return t
		}
		e := w.at(i)
		u.Requests -= e.requests()
		u.InputTokens -= int64(e.in)
		u.OutputTokens -= int64(e.out)
		t = max(t, e.at+minute)
	}
}

// load replaces the window's content with a history from a file. The entries
// need not be sorted.
func (w *window) load(h UsageStats) {
	*w = newWindow(w.quota)
	for _, e := range h.entries() {
		w.push(e.at, int64(e.in), int64(e.out), e.kind)
	}
	if h.DayCount > 0 {
		w.usage.DayRequests, w.usage.DayTokens, w.dayStart = h.DayCount, h.DayTokens, h.DayStart.UnixNano()
		w.latest = max(w.latest, w.dayStart)
	}
	w.reschedule()
}

// history returns the window's content in the layout of a file.
func (w *window) history() UsageStats {
	h := UsageStats{DayCount: w.usage.DayRequests, DayTokens: w.usage.DayTokens}
	if h.DayCount > 0 {
		h.DayStart = fromNanos(w.dayStart)
	}
	for i := range w.n {
		e := w.at(i)
		t := fromNanos(e.at)
		if e.kind&kindRequest != 0 {
			h.Requests = append(h.Requests, t)
		}
		if e.kind&kindTokens != 0 {
			h.Tokens = append(h.Tokens, TokenEntry{Time: t, Count: int64(e.in) + int64(e.out), Output: int64(e.out)})
		}
	}
	return h
}

// entries joins the two lists of a history: a request and a token count of the
// same instant become one entry.
func (h UsageStats) entries() []entry {
	reqs, toks := slices.Clone(h.Requests), slices.Clone(h.Tokens)
	slices.SortStableFunc(reqs, time.Time.Compare)
	slices.SortStableFunc(toks, func(a, b TokenEntry) int { return a.Time.Compare(b.Time) })
	var out []entry
	for len(reqs) > 0 || len(toks) > 0 {
		var e entry
		if len(toks) == 0 || len(reqs) > 0 && !reqs[0].After(toks[0].Time) {
			e.at, e.kind = reqs[0].UnixNano(), kindRequest
			reqs = reqs[1:]
		} else {
			e.at = toks[0].Time.UnixNano()
		}
		if len(toks) > 0 && toks[0].Time.UnixNano() == e.at {
			e.in, e.out = int32(toks[0].Count-toks[0].Output), int32(toks[0].Output)
			e.kind |= kindTokens
			toks = toks[1:]
		}
		out = append(out, e)
	}
	return out
}

func fromNanos(ns int64) time.Time { return time.Unix(0, ns).UTC() }
