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

// A tally adds up the usage in an answer. Providers report totals, some of them more than once: the last report of each
// field counts, and reports are never added.
type tally struct {
	format *format
	call   Call

	mu       sync.Mutex
	reported [countEnd]int64
	has      [countEnd]bool
	streamed int64 // bytes of text
	settled  int64 // how many of them the last report of the output knows
	total    bool  // a header reports all of the output
	finished bool
	failed   bool // the answer is an error, with any status
	model    string
	service  string        // the class of service
	delay    time.Duration // that an error asks to wait
	id       string        // of a response that may be made in the background, as JSON
	stage    string        // of that response, as JSON

	// Counts of the document under way, which hold once it is whole.
	pending        [countEnd]int64
	hasPending     [countEnd]bool
	pendingEnd     bool
	pendingModel   string
	pendingService string
	pendingFailure bool
	pendingID      string
	pendingStage   string
	bad            bool // it has a number that cannot be true

	lastRaw  []byte // a string as it was written last, and what it says
	lastText string
}

// maxReported is the most tokens that are believed of one call.
const maxReported = 1_000_000_000

// newScanner returns a scanner that reports to the tally. The tally must be locked while the scanner writes.
func (t *tally) newScanner() *scanner {
	return &scanner{
		interest: t.format.interest,
		scalar:   t.scalar,
		text:     func(bytes int) { t.streamed += int64(bytes) },
		document: t.document,
	}
}

func (t *tally) scalar(path, raw []byte) {
	if string(raw) == "null" {
		return
	}
	if t.format.delay[string(path)] {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			t.delay, _ = time.ParseDuration(text) // 0 for any other text
		}
		return
	}
	if failures[string(path)] {
		t.pendingFailure = true
	}
	if t.format.finish[string(path)] {
		t.pendingEnd = true
	}
	if t.format.model[string(path)] {
		t.pendingModel = t.text(raw) // other values than strings name no model
	}
	if t.format.id[string(path)] && string(raw) != t.pendingID {
		t.pendingID = string(raw)
	}
	if t.format.stage[string(path)] && string(raw) != t.pendingStage {
		t.pendingStage = string(raw)
	}
	if t.format.service[string(path)] {
		t.pendingService = t.text(raw)
	}
	f, ok := t.format.Usage[string(path)]
	if !ok {
		return
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || n > maxReported {
		t.bad = true
		return
	}
	t.pending[f], t.hasPending[f] = n, true
}

// text returns the string that is written as raw, which most events repeat.
func (t *tally) text(raw []byte) string {
	if !bytes.Equal(raw, t.lastRaw) {
		t.lastRaw, t.lastText = append(t.lastRaw[:0], raw...), ""
		_ = json.Unmarshal(raw, &t.lastText)
	}
	return t.lastText
}

// document takes over the usage of a whole document. One with a number that cannot be true reports nothing.
func (t *tally) document() {
	if !t.bad {
		for f, has := range t.hasPending {
			if has {
				t.reported[f], t.has[f] = t.pending[f], true
			}
		}
		if t.hasPending[CountOutput] || t.hasPending[CountReasoning] {
			t.settled = t.streamed
		}
	}
	if t.pendingModel != "" {
		t.model = t.pendingModel
	}
	if t.pendingService != "" {
		t.service = t.pendingService
	}
	t.id, t.stage = t.pendingID, t.pendingStage // which stay, so that events that repeat them allocate nothing
	t.finished = t.finished || t.pendingEnd
	t.failed = t.failed || t.pendingFailure
	t.hasPending, t.pendingEnd, t.pendingModel, t.pendingService, t.pendingFailure, t.bad = [countEnd]bool{}, false, "", "", false, false
}

// usage returns the known usage of the call; atEnd says that the answer came to its end. The tally is locked.
func (t *tally) usage(atEnd bool) Usage {
	n := &t.reported
	u := Usage{
		Model:      t.model,
		Input:      n[CountInput],
		CacheRead:  n[CountCacheRead],
		CacheWrite: n[CountCacheWrite],
		Output:     n[CountOutput],
		Reasoning:  n[CountReasoning],
		Searches:   n[CountSearches],
		Service:    t.service,
	}
	if u.Model == "" {
		u.Model = t.call.Model
	}
	if t.refused() {
		return Usage{Model: u.Model}
	}
	if t.format.InputHasCache || t.format.API == APIBedrockConverse && inclusive(u.Model) {
		u.Input = max(0, u.Input-u.CacheRead-u.CacheWrite)
	}
	u.Input += n[CountToolInput]
	if t.format.ReasoningApart {
		u.Output += u.Reasoning
	}
	if !t.has[CountInput] {
		u.Input = t.call.Input
	}
	u.CacheWriteHour = min(n[CountCacheWriteHour], u.CacheWrite)
	u.AudioInput = min(n[CountAudioInput], u.Input)
	outputReported := t.has[CountOutput] || t.has[CountReasoning] || t.format.InputOnly
	settled := t.settled
	if t.total {
		settled = t.streamed
	}
	u.Complete = t.has[CountInput] && outputReported && settled == t.streamed && (t.finished || atEnd)
	switch {
	case u.Complete:
	case atEnd && !outputReported && t.streamed == 0: // nothing of it was understood, so that the estimate stands
		u.Output = t.call.Output
	default:
		u.Output += tokensOf(t.streamed - settled)
	}
	u.AudioOutput = min(n[CountAudioOutput], u.Output)
	return u
}

// refused reports whether the answer is an error and nothing else. The tally is locked.
func (t *tally) refused() bool { return t.failed && t.streamed == 0 && t.has == [countEnd]bool{} }

// inclusive reports whether a model of Bedrock counts cached tokens among those of the input: OpenAI's do, Anthropic's and
// Amazon's do not.
func inclusive(model string) bool { return strings.Contains(model, "openai.") }

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
	switch strings.ToLower(strings.TrimSpace(string(mediaType))) {
	case "text/event-stream":
		return &eventReader{data: t.newScanner()}
	case "application/vnd.amazon.eventstream":
		return &messageReader{data: t.newScanner()}
	default: // one document, or several, such as the array of streamGenerateContent
		return t.newScanner()
	}
}

// headers takes Bedrock's counts in headers, beside answers of models without counts.
func (t *tally) headers(h http.Header) {
	for name, count := range map[string]Count{"X-Amzn-Bedrock-Input-Token-Count": CountInput, "X-Amzn-Bedrock-Output-Token-Count": CountOutput} {
		if n, err := strconv.ParseInt(h.Get(name), 10, 64); t.format.API == APIBedrockInvoke && err == nil && n >= 0 && n <= maxReported {
			t.reported[count], t.has[count] = n, true
			t.total = t.total || count == CountOutput
		}
	}
}
