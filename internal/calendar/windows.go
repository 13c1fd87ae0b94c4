package calendar

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Windows say how the parameters of a limit differ from its own ones at some minutes, as clocks of a zone show them.
// The first window that a minute is of holds for it, and the limit's own parameters if there is none. A minute that
// clocks skip never comes, and a minute shown twice comes twice. Windows are never changed, and safe for concurrent
// use. Nil stands for none.
type Windows struct {
	patterns []pattern
	changes  []Change
	zone     *time.Location
	text     string // compact
	cron     string // in the language of cron, each pattern with its change
	place    string // name of the zone

	once    sync.Once
	holding []int // windows that hold at some minute, -1 for none

	near [2]atomic.Pointer[stretch] // that were asked for last; nil at first
	turn atomic.Uint32
}

// A stretch is a time in which one window holds: from one instant on and before the other, in epoch milliseconds.
type stretch struct {
	from, to int64
	window   int // -1 for none
}

// A Change is the effect of a window on parameters: a multiple of capacity and refill, or others in their place.
type Change struct {
	Scale    int64 // thousandths; 0 for other parameters
	Capacity int64 // tokens; 0 for the limit's own
	Refill   int64 // tokens; 0 for the limit's own
	Period   int64 // seconds; 0 for the limit's own
}

// Bounds of changes, which zae-limiter has as well.
const (
	maxScale  = 1_000_000
	maxTokens = 1_000_000_000_000_000
	maxPeriod = 1_000_000_000
)

// Of returns the changed parameters, in millitokens and milliseconds. A multiple is rounded down, and at least one
// millitoken. A limit without a refill stays without one.
func (c *Change) Of(capacity, refill, period int64) (int64, int64, int64) {
	if c.Scale > 0 {
		return scaled(capacity, c.Scale), scaled(refill, c.Scale), period
	}
	if c.Capacity > 0 {
		capacity = c.Capacity * 1000
	}
	if c.Refill > 0 && refill > 0 {
		refill = c.Refill * 1000
	}
	if c.Period > 0 {
		period = c.Period * 1000
	}
	return capacity, refill, period
}

// scaled returns the given thousandths of a number, saturated.
func scaled(n, thousandths int64) int64 {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(thousandths))
	if hi >= 1000 {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, 1000)
	return int64(max(1, min(quotient, math.MaxInt64)))
}

// Fits reports whether the change makes parameters of millitokens that fit 64 bits.
func (c *Change) Fits(capacity, refill int64) bool {
	return c.Scale <= 0 || max(capacity, refill) <= math.MaxInt64/c.Scale
}

// ParseWindows returns windows in a zone of the IANA database. Each is a pattern in the language of cron and a change,
// with semicolons between the windows: "* 9-17 * * 1-5 x2; * 0-5 * * * to 20:10/30s". The change x2 is a multiple, with
// at most three digits after the point. The change to 20:10/30s has other parameters in place of the limit's own: 20
// tokens, of which 10 flow in per 30 seconds. To 20/30s is to 20:20/30s. Omitted parts stay as they are: to 20:, to
// :10, to 20.
func ParseWindows(text, zone string) (*Windows, error) {
	var patterns []string
	var changes []Change
	for one := range strings.SplitSeq(text, ";") {
		parts := strings.Fields(one)
		split := len(parts)
		for i, part := range parts {
			if part == "to" || strings.HasPrefix(part, "x") {
				split = i
				break
			}
		}
		if split == len(parts) {
			return nil, fmt.Errorf("window %q must be a pattern and what holds then, such as * 9-17 * * 1-5 x2", strings.TrimSpace(one))
		}
		change, err := ParseChange(strings.Join(parts[split:], " "))
		if err != nil {
			return nil, err
		}
		patterns, changes = append(patterns, strings.Join(parts[:split], " ")), append(changes, change)
	}
	return newWindows(patterns, changes, zone)
}

// ParseChange parses a change, see [ParseWindows].
func ParseChange(text string) (c Change, err error) {
	if factor, ok := strings.CutPrefix(text, "x"); ok {
		c.Scale, ok = thousandths(factor)
		if !ok || c.Scale < 1 || c.Scale > maxScale {
			return c, fmt.Errorf("multiplier %q must be from 0.001 to 1000, with at most three digits after the point", text)
		}
		return c, nil
	}
	amounts, ok := strings.CutPrefix(text, "to ")
	if !ok {
		return c, fmt.Errorf("change %q must be a multiplier such as x2, or other parameters such as to 20:10/30s", text)
	}
	amounts, period, hasPeriod := strings.Cut(strings.TrimSpace(amounts), "/")
	capacity, refill, hasRefill := strings.Cut(amounts, ":")
	if !hasRefill {
		refill = capacity
	}
	for _, part := range []struct {
		text string
		to   *int64
	}{{capacity, &c.Capacity}, {refill, &c.Refill}} {
		if part.text == "" {
			continue
		}
		n, err := strconv.ParseUint(strings.ReplaceAll(part.text, "_", ""), 10, 63)
		if err != nil || n < 1 || n > maxTokens {
			return c, fmt.Errorf("change %q: %q must be a whole number of tokens from 1 to %d", text, part.text, int64(maxTokens))
		}
		*part.to = int64(n)
	}
	if hasPeriod {
		if word, ok := map[string]string{"s": "1s", "min": "1m", "h": "1h", "d": "24h"}[period]; ok {
			period = word
		}
		d, err := time.ParseDuration(period)
		if c.Period = int64(d / time.Second); err != nil || d%time.Second != 0 || c.Period < 1 || c.Period > maxPeriod {
			return c, fmt.Errorf("change %q: period %q must be whole seconds from 1 to %d, such as 30s or min", text, period, maxPeriod)
		}
	}
	if c == (Change{}) {
		return c, fmt.Errorf("change %q changes nothing", text)
	}
	return c, nil
}

// thousandths parses a number with at most three digits after the point.
func thousandths(text string) (n int64, ok bool) {
	whole, fraction, hasPoint := strings.Cut(text, ".")
	if whole == "" || len(whole) > 7 || hasPoint && (fraction == "" || len(fraction) > 3) {
		return 0, false
	}
	digits := whole + (fraction + "000")[:3]
	u, err := strconv.ParseUint(digits, 10, 63)
	return int64(u), err == nil
}

// String returns the change as [ParseChange] reads it.
func (c Change) String() string {
	if c.Scale > 0 {
		text := fmt.Sprintf("x%d.%03d", c.Scale/1000, c.Scale%1000)
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	text := "to "
	if c.Capacity > 0 {
		text += strconv.FormatInt(c.Capacity, 10)
	}
	if c.Capacity != c.Refill || c.Capacity == 0 {
		text += ":"
		if c.Refill > 0 {
			text += strconv.FormatInt(c.Refill, 10)
		}
	}
	if c.Period > 0 {
		text += fmt.Sprintf("/%ds", c.Period)
	}
	return text
}

// compact returns the change in the form in which items hold it.
func (c *Change) compact() string {
	text := ""
	for _, part := range c.parts() {
		if *part.to > 0 {
			text += string(part.tag) + strconv.FormatInt(*part.to, 10)
		}
	}
	return text
}

// A changePart is a number of a change, with the letter before it in the compact form.
type changePart struct {
	tag  byte
	to   *int64
	most int64
}

func (c *Change) parts() [4]changePart {
	return [...]changePart{{'s', &c.Scale, maxScale}, {'c', &c.Capacity, maxTokens}, {'a', &c.Refill, maxTokens}, {'p', &c.Period, maxPeriod}}
}

// decodeChange is the reverse of compact.
func decodeChange(text string) (c Change, err error) {
	rest := text
	for _, part := range c.parts() {
		if rest == "" || rest[0] != part.tag {
			continue
		}
		end := 1
		for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
			end++
		}
		n, err := strconv.ParseInt(rest[1:end], 10, 64)
		if err != nil || n < 1 || n > part.most {
			return c, fmt.Errorf("%q is no change in the compact form", text)
		}
		*part.to, rest = n, rest[end:]
	}
	if rest != "" || c == (Change{}) || c.Scale > 0 && c != (Change{Scale: c.Scale}) {
		return c, fmt.Errorf("%q is no change in the compact form", text)
	}
	return c, nil
}

// DecodeWindows returns the windows that items hold, see [Windows.Compact]. It returns the same windows again where it can.
func DecodeWindows(compact, zone string) (*Windows, error) {
	if w := decodedWindows.get([2]string{compact, zone}); w != nil {
		return w, nil
	}
	body, ok := strings.CutPrefix(compact, compactVersion)
	if !ok || body != "" && body[0] >= '0' && body[0] <= '9' {
		return nil, fmt.Errorf("windows %q are not in version %s of the compact form", compact, compactVersion)
	}
	var patterns []string
	var changes []Change
	for text := range strings.SplitSeq(body, ";") {
		at := strings.IndexAny(text, "scap")
		if at < 0 {
			return nil, fmt.Errorf("window %q changes nothing", text)
		}
		expanded, err := expand(text[:at])
		if err != nil {
			return nil, err
		}
		change, err := decodeChange(text[at:])
		if err != nil {
			return nil, err
		}
		patterns, changes = append(patterns, expanded), append(changes, change)
	}
	return newWindows(patterns, changes, zone)
}

func newWindows(texts []string, changes []Change, zone string) (*Windows, error) {
	if len(texts) > maxPatterns {
		return nil, fmt.Errorf("must be at most %d windows, and not %d", maxPatterns, len(texts))
	}
	place, err := load(zone)
	if err != nil {
		return nil, err
	}
	w := &Windows{changes: changes, zone: place, place: zone}
	var compact, cron []string
	for i, text := range texts {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		if _, ok := p.find(0, true, false); !ok {
			return nil, fmt.Errorf("%q is of no minute, and never holds", &p)
		}
		w.patterns = append(w.patterns, p)
		compact, cron = append(compact, p.compact()+changes[i].compact()), append(cron, p.String()+" "+changes[i].String())
	}
	w.text, w.cron = compactVersion+strings.Join(compact, ";"), strings.Join(cron, "; ")
	return decodedWindows.keep([2]string{w.text, w.place}, w), nil
}

// Compact returns the windows in the form of items, such as 1h9-17w1-5s2000. That is a version, and for each window the
// fields of its pattern and its numbers, with a letter before each.
func (w *Windows) Compact() string {
	if w == nil {
		return ""
	}
	return w.text
}

// Zone returns the name of the zone.
func (w *Windows) Zone() string { return w.place }

// String returns the windows as [ParseWindows] reads them.
func (w *Windows) String() string { return w.cron }

// Changes returns the changes of the windows, in their order. It is not to be changed.
func (w *Windows) Changes() []Change {
	if w == nil {
		return nil
	}
	return w.changes
}

// Equal reports whether two windows, which may be nil, are the same in the same zone.
func (w *Windows) Equal(other *Windows) bool {
	return w == other || w != nil && other != nil && w.text == other.text && w.place == other.place
}

// UnplacedWindows returns windows of an item, in a zone that is not known yet. They are for [Windows.Compact] alone.
func UnplacedWindows(compact string) *Windows { return &Windows{text: compact} }

// At returns what holds at an instant, nil for a limit's own parameters. It holds from an instant on, and before another one, which
// is Never where nothing changes any more.
func (w *Windows) At(at int64) (c *Change, from, to int64) {
	if w == nil {
		return nil, math.MinInt64, Never
	}
	s := w.stretch(at)
	if s.window >= 0 {
		c = &w.changes[s.window]
	}
	return c, s.from, s.to
}

// Next returns the first instant after another one at which another window begins to hold, or Never.
func (w *Windows) Next(after int64) int64 { return w.stretch(after).to }

// stretch returns the stretch that an instant is in.
func (w *Windows) stretch(at int64) *stretch {
	for i := range w.near {
		if s := w.near[i].Load(); s != nil && s.from <= at && at < s.to {
			return s
		}
	}
	second := floorDiv(min(max(at, firstInstant), lastInstant), 1000)
	window := w.windowAt(second)
	s := &stretch{w.begin(second, window), w.end(second, window), window}
	switch {
	case at < firstInstant:
		s.from = math.MinInt64
	case at > lastInstant:
		s.to = Never
	}
	w.near[w.turn.Add(1)%2].Store(s)
	return s
}

// windowAt returns the first window that an instant in epoch seconds is in, -1 for none.
func (w *Windows) windowAt(second int64) int {
	minute := floorDiv(shown(w.zone, second), 60)
	for i := range w.patterns {
		if w.patterns[i].has(minute) {
			return i
		}
	}
	return -1
}

// longestStretch is the time in which one window ends or another one begins, if ever, in seconds.
const longestStretch = searchDays * secondsOfDay

// nearest returns the minute of local time nearest to another one, itself included, at which the holding window
// changes: an earlier window matches, or the given one does not.
func (w *Windows) nearest(minute int64, window int, back bool) (at int64, ok bool) {
	last := window
	if window < 0 {
		last = len(w.patterns) - 1
	}
	for i := 0; i <= last; i++ {
		found, has := w.patterns[i].find(minute, i != window, back)
		if has && (!ok || back && found > at || !back && found < at) {
			at, ok = found, true
		}
	}
	return at, ok
}

// end returns the first instant, in epoch milliseconds, at which another window holds than at one in epoch seconds.
func (w *Windows) end(second int64, window int) int64 {
	var since, minute int64 // the nearest one from since on
	ok := false
	for until := second + longestStretch; second < until; {
		at := time.Unix(second, 0).In(w.zone)
		_, offset := at.Zone()
		changed := offsetEnds(at)
		if next := floorDiv(second+int64(offset), 60) + 1; !ok || next < since || next > minute {
			since = next
			if minute, ok = w.nearest(next, window, false); !ok {
				return Never
			}
		}
		if instant := minute*60 - int64(offset); changed.IsZero() || instant < changed.Unix() {
			return instant * 1000
		}
		if second = changed.Unix(); w.windowAt(second) != window {
			return second * 1000
		}
	}
	return Never
}

// begin returns the first instant, in epoch milliseconds, from which on a window holds up to one in epoch seconds.
func (w *Windows) begin(second int64, window int) int64 {
	var since, minute int64 // the nearest one back from since
	ok := false
	for until := second - longestStretch; second > until; {
		at := time.Unix(second, 0).In(w.zone)
		_, offset := at.Zone()
		changed, _ := at.ZoneBounds()
		if next := floorDiv(second+int64(offset), 60) - 1; !ok || next > since || next < minute {
			since = next
			if minute, ok = w.nearest(next, window, true); !ok {
				return math.MinInt64
			}
		}
		if instant := (minute+1)*60 - int64(offset); changed.IsZero() || instant > changed.Unix() {
			return instant * 1000
		}
		if second = changed.Unix() - 1; w.windowAt(second) != window {
			return (second + 1) * 1000
		}
	}
	return math.MinInt64
}
