package llm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// counts are numbers of tokens by their kind.
type counts [countEnd]int64

// A tally finds the usage in an answer. Providers report totals, some of them more than once: reports replace one another,
// and are never added.
type tally struct {
	format *format
	call   Call

	mu       sync.Mutex
	facts    facts  // of whole documents
	streamed int64  // bytes of text in whole documents
	again    int64  // bytes of text that has come as a whole, and repeats the pieces where there are any
	settled  int64  // how much of what is written the last report of the output knows
	pictures int64  // that came, whole or not
	drawing  bool   // one of them is under way
	sound    heard  // that came
	hushed   int64  // how many quarters of it the last report of the output knows
	medium   medium // that is under way
	unread   int64  // bytes in an encoding that is not understood
	bare     bool   // a header reports the prompt, and no answer
	total    bool   // a header reports all of the output
	messages bool   // the answer is a stream of Amazon's messages
	parts    []part // what other models took

	// What the document under way says, which holds once it is whole.
	scanner  *scanner
	at       *spot // of the scalar that is scanned
	document facts
	bad      bool      // it has a number that cannot be true
	said     bool      // it has said anything
	plain    int64     // bytes of text that it has in one form
	forms    []int64   // bytes of text, by group and form
	repeats  []*repeat // by group and form, of texts that an event may have as a whole so far; nil before the first one
	adding   []int64   // by term, of the element under way, or of a place that is in no element
	sums     counts    // of elements
	origins  []origin  // of arrays whose elements are added up
	matches  []bool    // by test, of the element under way
	stepBy   string    // the model of the element under way
	steps    []part    // the elements of other models

	lastRaw  []byte // a string as it was written last, and what it says
	lastText string
}

// facts are what an answer says.
type facts struct {
	counts   counts
	has      [countEnd]bool
	beside   counts // what counts do not include
	finished bool
	sounds   bool          // its text in one form is sound
	withheld bool          // a filter or an error has ended the answer
	failed   bool          // the answer is an error, with any status
	limited  bool          // the error is a rate limit
	delay    time.Duration // that an error asks to wait

	model, service, speed, region string
	id, stage                     string // of a response that may be made in the background, as JSON
}

// A part is what a model other than the answering one took.
type part struct {
	model  string
	counts counts
}

// maxReported is the most tokens that are believed of one call.
const maxReported = 1_000_000_000

// newTally returns the tally of an answer to a call.
func newTally(call Call, f *format) *tally {
	return &tally{call: call, format: f, forms: make([]int64, f.groups*f.forms), adding: make([]int64, len(f.terms)), matches: make([]bool, len(f.tests))}
}

// newScanner returns a scanner that reports to the tally. The tally must be locked while the scanner writes.
func (t *tally) newScanner() *scanner {
	t.scanner = &scanner{interest: t.interest, scalar: t.scalar, long: t.long, text: t.text, document: t.endDocument}
	if len(t.format.arrays)+len(t.format.media) > 0 {
		t.scanner.closed = t.closed
	}
	return t.scanner
}

// spotFailure and spotDetail are places of errors that no format names: identifiers of the error, and other members.
var spotFailure = &spot{roles: roleFailure}

// interest returns the use of a scalar.
func (t *tally) interest(path []byte) interest {
	t.drawing = false
	known := t.format.uses.Load()
	if known != nil {
		if u, ok := (*known)[string(path)]; ok {
			t.at = u.at
			return u.interest
		}
	}
	found := t.find(path)
	t.format.remember(known, path, use{t.at, found})
	return found
}

// find finds the use of a scalar: at its place, at that of an answer behind a gateway, or in an error.
func (t *tally) find(path []byte) interest {
	found := t.interestAt(path)
	if found != ignored {
		return found
	}
	if inner := wrapped(path); inner != nil {
		if found = t.interestAt(inner); found != ignored {
			return found
		}
	}
	if isError(path) {
		t.at = spotFailure
		return kept
	}
	return ignored
}

// interestAt returns the use of a scalar at a place that the format, or all formats, name.
func (t *tally) interestAt(path []byte) interest {
	if t.at = t.format.spots[string(path)]; t.at != nil {
		if t.at.text != nil || t.at.roles&(rolePicture|roleSound|roleMedium) != 0 {
			return counted
		}
		return kept
	}
	for i := range t.format.below {
		if w := &t.format.below[i]; bytes.HasPrefix(path, []byte(w.above)) && isSaid(path[len(w.above):]) {
			t.at = &w.spot
			return counted
		}
	}
	for _, place := range failing {
		if bytes.HasPrefix(path, []byte(place)) {
			t.at = spotFailure
			return kept
		}
	}
	return ignored
}

// unsaid are members of an answer that are no text of the model: what identifies, frames or refers to it.
var unsaid = set("id", "type", "role", "index", "object", "format", "name", "status", "signature", "data", "url", "mime_type", "mimeType", "expires_at", "finish_reason",
	"encrypted_content", "thought_signature", "thoughtSignature", "tool_call_id")

// isSaid reports whether a string below a place of text is text.
func isSaid(path []byte) bool {
	if bytes.HasPrefix(path, []byte("usage.")) || isError(path) {
		return false
	}
	last := path[bytes.LastIndexByte(path, '.')+1:]
	return !unsaid[string(last)] && !bytes.HasPrefix(path, []byte("annotations"))
}

// text counts a piece of text, or of a picture.
func (t *tally) text(piece []byte, bytes int) {
	in := t.at.text
	if in == nil {
		t.data(int64(bytes))
		return
	}
	if in.group < 0 {
		t.streamed += int64(bytes)
		t.plain += int64(bytes)
		return
	}
	t.said = true
	at := in.group*t.format.forms + in.form
	if !in.whole || !t.call.Stream {
		t.forms[at] += int64(bytes)
		return
	}
	if t.repeats == nil {
		t.repeats = make([]*repeat, len(t.forms))
	}
	if t.repeats[at] == nil {
		t.repeats[at] = new(repeat)
	}
	t.repeats[at].write(piece, bytes)
	t.forms[at] = t.repeats[at].more(false)
}

// data counts a piece of a picture or of sound.
func (t *tally) data(bytes int64) {
	switch {
	case t.at.roles&roleMedium != 0:
		t.medium.chars += bytes
		t.said = true
	case t.at.roles&roleSound != 0:
		t.sound = t.sound.add(quarters*bytes, t.ownRate())
		t.said = true
	case !t.drawing && bytes > 0:
		t.drawing = true
		t.pictures++
	}
}

// repeated returns the bytes of text that the document under way has in several forms: in pieces, and as a whole so far.
func (t *tally) repeated() (pieces, wholes int64) {
	if !t.said {
		return 0, 0
	}
	for group, whole := range t.format.whole {
		longest := int64(0)
		for _, n := range t.forms[group*t.format.forms : (group+1)*t.format.forms] {
			longest = max(longest, n)
		}
		if whole {
			wholes += longest
		} else {
			pieces += longest
		}
	}
	return pieces, wholes
}

// written returns the bytes of text that came. A whole repeats the pieces, so the longer of both counts.
func (t *tally) written() int64 {
	pieces, wholes := t.repeated()
	if t.document.sounds {
		pieces -= t.plain
	}
	return max(t.streamed+pieces, t.again+wholes)
}

// scalar takes a scalar of the answer.
func (t *tally) scalar(_, raw []byte) {
	if string(raw) == "null" {
		return
	}
	t.said = true
	s := t.at
	if s.roles != 0 {
		t.play(s, raw)
	}
	for _, at := range s.tests {
		t.matches[at] = is(raw, t.format.tests[at].value)
	}
	if len(s.counts)+len(s.terms) > 0 {
		t.number(s, raw)
	}
}

// long takes a scalar that is longer than is kept, as far as it is. None that is understood is as long, but texts of errors.
func (t *tally) long(_, raw []byte) {
	t.said = true
	if t.at.roles&roleFailure != 0 {
		t.fail(string(raw))
	}
	t.bad = t.bad || len(t.at.counts)+len(t.at.terms) > 0
}

// number takes a count.
func (t *tally) number(s *spot, raw []byte) {
	n, ok := int64(1), true
	for _, at := range s.terms {
		term := &t.format.terms[at]
		if !term.each {
			n, ok = numberOf(raw)
		}
		switch {
		case !ok || n < 0 || n > maxReported:
			t.bad = true
			return
		case term.alone: // the greatest number of a place, and the sum of the places
			more := max(0, n-t.adding[at])
			t.adding[at] += more
			t.document.beside[term.count] = min(t.document.beside[term.count]+more, maxReported)
		default:
			t.adding[at] += n
			if term.each { // an element that is no object
				t.add(term, n)
				t.adding[at] = 0
			}
		}
	}
	for _, c := range s.counts {
		if n, ok = numberOf(raw); !ok || n > maxReported {
			t.bad = true
			return
		}
		t.document.counts[c], t.document.has[c] = max(n, t.document.counts[c]), true
	}
}

// numberOf returns a number of tokens: one that is written in any way, and also as a text.
func numberOf(raw []byte) (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, n >= 0
	}
	if len(raw) > 1 && raw[0] == '"' {
		raw = bytes.TrimSpace(raw[1 : len(raw)-1])
	}
	x, err := strconv.ParseFloat(string(raw), 64)
	if n = int64(min(max(x, -1), 1<<52)); err != nil || n < 0 || float64(n) != x {
		return 0, false
	}
	return n, true
}

// play takes a scalar for what it is besides a number.
func (t *tally) play(s *spot, raw []byte) {
	d := &t.document
	if s.roles&roleID != 0 && string(raw) != d.id {
		d.id = string(raw)
	}
	if s.roles&roleStage != 0 && string(raw) != d.stage {
		d.stage = string(raw)
	}
	if s.roles&roleFailureValue != 0 {
		for _, value := range s.failures {
			d.failed = d.failed || is(raw, value)
		}
	}
	if s.roles&roleEvent != 0 {
		d.sounds = isSoundEvent(raw)
	}
	if s.roles&^(roleID|roleStage|roleFailureValue|roleEvent) == 0 {
		return
	}
	text := t.string(raw)
	if s.roles&roleModel != 0 {
		d.model = text // other values than strings name no model
	}
	if s.roles&roleService != 0 {
		d.service = serviceOf(text)
	}
	if s.roles&roleSpeed != 0 {
		d.speed = text
	}
	if s.roles&roleRegion != 0 {
		d.region = text
	}
	if s.roles&roleFinish != 0 {
		d.finished = true
		d.withheld = d.withheld || isWithheld(text)
	}
	if s.roles&roleDelay != 0 {
		d.delay, _ = time.ParseDuration(text) // 0 for any other text
	}
	if s.roles&rolePartModel != 0 {
		t.stepBy = text
	}
	if s.roles&roleMediumKind != 0 {
		t.medium.kind = text
	}
	if s.roles&roleMediumRate != 0 {
		t.medium.rate = string(raw)
	}
	if s.roles&roleFailure != 0 && !isFine(raw) {
		if text == "" {
			text = string(raw)
		}
		t.fail(text)
	}
}

// is reports whether a scalar, as it is written, has a value: as a string, or without quotes.
func is(raw []byte, value string) bool {
	if len(raw) > 1 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	return string(raw) == value
}

// string returns the string that is written as raw, which most events repeat.
func (t *tally) string(raw []byte) string {
	if !bytes.Equal(raw, t.lastRaw) {
		t.lastRaw, t.lastText = append(t.lastRaw[:0], raw...), ""
		_ = json.Unmarshal(raw, &t.lastText)
	}
	return t.lastText
}

// closed ends an element of an array whose elements are added up.
func (t *tally) closed(path []byte) {
	if t.scanner.open[len(t.scanner.open)-1] != '{' {
		return
	}
	t.endMedium()
	a := t.format.array(path)
	if a == nil {
		return
	}
	again := t.isAgain(a, path)
	for _, at := range a.terms {
		term := &t.format.terms[at]
		if term.each {
			t.adding[at] = 1
		}
		if t.adding[at] > 0 && t.holds(term) && !again {
			t.add(term, t.adding[at])
		}
		t.adding[at] = 0
	}
	for _, at := range a.tests {
		t.matches[at] = false
	}
	t.stepBy, t.said = "", true
}

// An origin is where a document has an array.
type origin struct {
	array *array
	path  []byte
}

// isAgain reports whether the document has an array at another path before, of which this one is a copy.
func (t *tally) isAgain(a *array, path []byte) bool {
	for i := range t.origins {
		if t.origins[i].array == a {
			return !bytes.Equal(t.origins[i].path, path)
		}
	}
	n := len(t.origins)
	if n == cap(t.origins) {
		t.origins = append(t.origins, origin{})
	}
	t.origins = t.origins[:n+1]
	t.origins[n].array, t.origins[n].path = a, append(t.origins[n].path[:0], path...)
	return false
}

// holds reports whether the element under way is one that a term adds up.
func (t *tally) holds(term *term) bool {
	for _, at := range term.tests {
		if t.matches[at] == t.format.tests[at].not {
			return false
		}
	}
	return true
}

// add adds the count of an element.
func (t *tally) add(term *term, n int64) {
	d, c := &t.document, term.count
	if term.beside {
		d.beside[c] = min(d.beside[c]+n, maxReported)
	} else { // a number beside the elements may be their sum
		t.sums[c] = min(t.sums[c]+n, maxReported)
		d.counts[c], d.has[c] = max(d.counts[c], t.sums[c]), true
	}
	if t.stepBy == "" {
		return
	}
	for i := range t.steps {
		if t.steps[i].model == t.stepBy {
			t.steps[i].counts[c] += n
			return
		}
	}
	t.steps = append(t.steps, part{model: t.stepBy})
	t.steps[len(t.steps)-1].counts[c] = n
}

// promptCounts are the counts of the prompt, which are reported together.
var promptCounts = [...]Count{CountInput, CountCacheRead, CountCacheWrite}

// endDocument takes over what a whole document says. One with a number that cannot be true reports nothing.
func (t *tally) endDocument() {
	if !t.said {
		t.plain = 0
		return
	}
	for at, r := range t.repeats {
		if r != nil {
			t.forms[at] = r.more(true)
			r.end()
		}
	}
	pieces, wholes := t.repeated()
	t.streamed, t.again = t.streamed+pieces, t.again+wholes
	t.endEvent()
	clear(t.forms)
	d, f := &t.document, &t.facts
	if !t.bad {
		t.report(d, f)
	}
	for _, name := range [...]struct{ from, to *string }{{&d.model, &f.model}, {&d.service, &f.service}, {&d.speed, &f.speed}, {&d.region, &f.region}} {
		if *name.from != "" {
			*name.to = *name.from
		}
	}
	if d.delay > 0 {
		f.delay = d.delay
	}
	f.id, f.stage = d.id, d.stage
	f.finished, f.withheld = f.finished || d.finished, f.withheld || d.withheld
	f.failed, f.limited = f.failed || d.failed, f.limited || d.limited
	*d = facts{id: d.id, stage: d.stage} // which stay, so that events that repeat them allocate nothing
	clear(t.adding)
	clear(t.matches)
	t.sums, t.origins = counts{}, t.origins[:0]
	t.steps, t.stepBy, t.bad, t.said = t.steps[:0], "", false, false
}

// report takes over the counts of a document.
func (t *tally) report(d, f *facts) {
	before, after := int64(0), int64(0)
	for _, c := range promptCounts {
		before += f.counts[c]
		if after += d.counts[c]; d.counts[c] == 0 {
			after += f.counts[c]
		}
	}
	for c, has := range d.has {
		switch n := d.counts[c]; {
		case !has:
		case n == 0: // which says nothing beside another number
			f.has[c] = true
		case Count(c) <= CountCacheWrite: // of the prompt
			if f.has[c] = true; after >= before {
				f.counts[c] = n
			}
		default:
			f.has[c], f.counts[c] = true, max(n, f.counts[c])
		}
	}
	if output := d.has[CountOutput] || d.has[CountReasoning]; output {
		if f.has[CountTotal] = d.has[CountTotal]; !d.has[CountTotal] { // which is of an earlier report
			f.counts[CountTotal] = 0
		}
	}
	if d.counts[CountOutput]+d.counts[CountReasoning]+d.counts[CountTotal] > 0 {
		t.settled, t.hushed = t.written(), t.sound.quarters
	}
	for c, n := range d.beside {
		f.beside[c] = max(f.beside[c], n)
	}
	if len(t.steps) > 0 {
		t.parts = append(t.parts[:0], t.steps...)
	}
}

// An unreadable body is in an encoding that is not understood. Its bytes are counted.
type unreadable struct{ tally *tally }

func (u unreadable) write(p []byte) { u.tally.unread += int64(len(p)) }

// A lockedWriter writes to what feeds a tally.
type lockedWriter struct {
	tally *tally
	to    writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	w.to.write(p)
	return len(p), nil
}

// newWriter returns what takes a body of a content type apart.
func (t *tally) newWriter(contentType string) writer {
	mediaType, _, _ := bytes.Cut([]byte(contentType), []byte{';'})
	switch kind := strings.ToLower(strings.TrimSpace(string(mediaType))); {
	case len(t.format.sounds) > 0 && isSound(kind):
		return soundBody{t, soundRate(contentType)}
	case len(t.format.sounds) > 0 && kind == "application/octet-stream":
		return soundBody{t, t.ownRate()}
	case kind == "text/event-stream":
		return t.newFramed(true)
	case kind == "application/vnd.amazon.eventstream":
		t.messages = true
		return &messageReader{data: t.newScanner(), failure: t.exception}
	default: // one document, or several, such as the array of streamGenerateContent
		return t.newFramed(false)
	}
}

// exception takes an error that a message of Amazon is.
func (t *tally) exception(kind string) {
	t.facts.failed = true
	t.facts.limited = t.facts.limited || isLimit(kind)
}

// headers takes what headers say: Gemini's class of service, and Bedrock's counts beside answers of models without counts.
func (t *tally) headers(h http.Header) {
	t.facts.service = serviceOf(h.Get("X-Gemini-Service-Tier"))
	if t.format.API != APIBedrockInvoke {
		return
	}
	for name, count := range map[string]Count{
		"Input": CountInput, "Output": CountOutput, "Cache-Read-Input": CountCacheRead, "Cache-Write-Input": CountCacheWrite,
	} {
		if n, err := strconv.ParseInt(h.Get("X-Amzn-Bedrock-"+name+"-Token-Count"), 10, 64); err == nil && n >= 0 && n <= maxReported {
			t.facts.counts[count], t.facts.has[count] = n, true
			t.total = t.total || count == CountOutput
		}
	}
	t.facts.service = strings.ToLower(h.Get("X-Amzn-Bedrock-Service-Tier"))
	t.bare = t.facts.has[CountInput] && !t.total
}
