package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// usageOption is put in front of the members of a request that has no options of streams.
const usageOption = `"stream_options":{"include_usage":true},`

// askForUsage returns the edit that makes a stream of chat completions end with its usage. The edit is empty for a request
// that asks already.
func (q *question) askForUsage() edit {
	switch {
	case q.call.API != APIOpenAIChat || !q.call.Stream:
		return edit{}
	case q.usage != nil:
		return *q.usage
	}
	if q.scanner.inside == 0 {
		return edit{}
	}
	return edit{q.scanner.inside, q.scanner.inside, usageOption}
}

// A usageFilter takes the chunk with the usage out of a stream of chat completions. It holds back an event until it is
// whole, and passes on everything else byte by byte, such as a body that begins as no events do.
type usageFilter struct {
	io.ReadCloser               // from which source reads
	source        *bufio.Reader // nil before the body has begun, and for one without events
	clean         int           // bytes of whole events that come next, and are none to take out
	buffer        []byte        // of the events, one after another
	event         []byte        // to be returned
	err           error         // after the event
	dropped       bool          // the event before was taken out
	afterCR       bool          // a line feed that comes next belongs to the last line

	start    start
	declared bool // the type of the body is that of events
	plain    bool // the body has no events
}

// filterMost is the longest event that may be the one; longer ones are passed on.
const filterMost = 64 << 10

// newUsageFilter returns a body without the chunk; declared says whether its type is that of events.
func newUsageFilter(body io.ReadCloser, declared bool) io.ReadCloser {
	return &usageFilter{ReadCloser: body, declared: declared}
}

// Read returns events, whole or in parts: the next one, and others that have come already.
func (f *usageFilter) Read(p []byte) (n int, err error) {
	if f.plain {
		return f.ReadCloser.Read(p)
	}
	if f.source == nil {
		if come, err := f.begin(p); f.source == nil {
			return come, err
		}
	}
	for n < len(p) && f.err == nil && (n == 0 || len(f.event) > 0 || f.hasEvent()) {
		if len(f.event) == 0 && f.source.Buffered() == 0 {
			if _, f.err = f.source.Peek(1); f.err != nil {
				break
			}
		}
		if len(f.event) == 0 && f.look() > 0 {
			m, _ := f.source.Read(p[n:min(len(p), n+f.clean)]) // which has come
			n, f.clean, f.dropped = n+m, f.clean-m, false
			continue
		}
		if len(f.event) == 0 {
			f.event, f.err = f.next()
			if f.dropped = isUsageChunk(f.event); f.dropped {
				f.event = nil
			}
		}
		n += f.take(p[n:])
	}
	if n == 0 && len(p) > 0 {
		if n = f.take(p); n == 0 {
			return 0, f.err
		}
	}
	return n, nil
}

// begin reads the beginning of the body. It stays without a source while what has come does not say whether the body has events.
func (f *usageFilter) begin(p []byte) (n int, err error) {
	n, err = f.ReadCloser.Read(p)
	for _, b := range p[:n] {
		if f.start.skips(b) || isSpace(b) {
			continue
		}
		if f.plain = !isEvents(b, f.declared); !f.plain {
			f.source = bufio.NewReaderSize(&ahead{bytes.Clone(p[:n]), err, f.ReadCloser}, 16<<10)
		}
		break
	}
	return n, err
}

// ahead is a body of which a piece has been read.
type ahead struct {
	piece []byte
	err   error // that came with it
	body  io.Reader
}

func (a *ahead) Read(p []byte) (n int, err error) {
	switch {
	case len(a.piece) > 0:
		n = copy(p, a.piece)
		a.piece = a.piece[n:]
		return n, nil
	case a.err != nil:
		return 0, a.err
	default:
		return a.body.Read(p)
	}
}

// look returns how many bytes come next that are of whole events, and have none to take out.
func (f *usageFilter) look() int {
	if f.clean > 0 || f.afterCR {
		return f.clean
	}
	come, _ := f.source.Peek(f.source.Buffered())
	end := bytes.LastIndex(come, []byte("\n\n"))
	if end < 0 {
		return 0
	}
	come = come[:end+2]
	if at := emptyList(come); at >= 0 { // the event that has it may be the one
		come = come[:bytes.LastIndex(come[:at], []byte("\n\n"))+2]
		if len(come) == 1 {
			come = nil
		}
	}
	f.clean = len(come)
	return f.clean
}

// take hands over what fits of an event.
func (f *usageFilter) take(p []byte) int {
	n := copy(p, f.event)
	f.event = f.event[n:]
	return n
}

// hasEvent reports whether the next event need not be waited for.
func (f *usageFilter) hasEvent() bool {
	if f.clean > 0 {
		return true
	}
	come, _ := f.source.Peek(f.source.Buffered())
	if f.afterCR && !f.dropped && bytes.HasPrefix(come, []byte("\n")) {
		return true // the end of the last one
	}
	return bytes.Contains(come, []byte("\n\n")) || bytes.Contains(come, []byte("\r\n\r\n")) || bytes.Contains(come, []byte("\r\r"))
}

// next returns the lines up to an empty one, or as much as is looked at.
func (f *usageFilter) next() (event []byte, err error) {
	event = f.buffer[:0]
	defer func() { f.buffer = event[:0] }()
	empty := true // the line is, so far
	for len(event) < filterMost {
		if text := f.text(filterMost - len(event)); len(text) > 0 {
			event = append(event, text...)
			_, _ = f.source.Discard(len(text))
			empty, f.afterCR = false, false
			continue
		}
		b, err := f.source.ReadByte()
		if err != nil {
			return event, err
		}
		event = append(event, b)
		second := b == '\n' && f.afterCR
		f.afterCR = b == '\r'
		switch {
		case second && len(event) == 1: // of the event before, which has been returned or taken out
			if !f.dropped {
				return event, nil
			}
			f.dropped, event = false, event[:0]
		case second:
		case b != '\n' && b != '\r':
			empty = false
		case empty:
			return event, nil
		default:
			empty = true
		}
	}
	return event, nil
}

// text returns the buffered text before the next end of a line, at most most bytes.
func (f *usageFilter) text(most int) []byte {
	text, _ := f.source.Peek(min(f.source.Buffered(), most))
	for _, end := range []byte("\n\r") {
		if i := bytes.IndexByte(text, end); i >= 0 {
			text = text[:i]
		}
	}
	return text
}

// isUsageChunk reports whether an event is the chunk that comes of include_usage: one with usage and without choices.
func isUsageChunk(event []byte) bool {
	if emptyList(event) < 0 || !bytes.Contains(event, []byte(`"usage"`)) {
		return false
	}
	var data []byte
	for line := range bytes.FieldsFuncSeq(event, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if value, ok := bytes.CutPrefix(line, []byte(dataField)); ok {
			data = append(data, value...)
		}
	}
	var chunk struct {
		Choices []json.RawMessage `json:"choices"`
		Usage   *json.RawMessage  `json:"usage"`
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Usage != nil && chunk.Choices != nil && len(chunk.Choices) == 0
}

// emptyList returns where a text may have the end of an empty list; -1 for nowhere. All chunks of a stream that was asked for its usage have a
// member for it, and parsing each would cost more than all else.
func emptyList(text []byte) int {
	for from := 0; ; {
		at := bytes.IndexByte(text[from:], ']')
		if at < 0 {
			return -1
		}
		at += from
		before := at
		for before > 0 && isSpace(text[before-1]) {
			before--
		}
		if before > 0 && (text[before-1] == '[' || text[before-1] == ':') { // a colon where a line of data begins with the end
			return at
		}
		from = at + 1
	}
}
