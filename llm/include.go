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
// whole, and passes on everything else byte by byte.
type usageFilter struct {
	io.Closer
	source  *bufio.Reader
	buffer  []byte // of the events, one after another
	event   []byte // to be returned
	err     error  // after the event
	dropped bool   // the event before was taken out
	afterCR bool   // a line feed that comes next belongs to the last line
}

// filterMost is the longest event that may be the one; longer ones are passed on.
const filterMost = 64 << 10

func newUsageFilter(body io.ReadCloser) io.ReadCloser {
	return &usageFilter{Closer: body, source: bufio.NewReaderSize(body, 16<<10)}
}

// Read returns events, whole or in parts: the next one, and others that have come already.
func (f *usageFilter) Read(p []byte) (n int, err error) {
	for n < len(p) && f.err == nil && (n == 0 || len(f.event) > 0 || f.hasEvent()) {
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

// take hands over what fits of an event.
func (f *usageFilter) take(p []byte) int {
	n := copy(p, f.event)
	f.event = f.event[n:]
	return n
}

// hasEvent reports whether the next event need not be waited for.
func (f *usageFilter) hasEvent() bool {
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
	if whole := f.whole(); whole != nil {
		event = append(event, whole...)
		_, _ = f.source.Discard(len(whole))
		return event, nil
	}
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

// whole returns the next event if it has come to its end, and its lines end with line feeds; nil otherwise.
func (f *usageFilter) whole() []byte {
	come, _ := f.source.Peek(f.source.Buffered())
	if f.afterCR || bytes.HasPrefix(come, []byte{'\n'}) {
		return nil
	}
	end := bytes.Index(come, []byte("\n\n"))
	if end < 0 || bytes.IndexByte(come[:end], '\r') >= 0 {
		return nil
	}
	return come[:end+2]
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
	if !bytes.Contains(event, []byte(`"usage"`)) || !mayBeWithoutChoices(event) {
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

// mayBeWithoutChoices reports whether the choices of an event may be empty. All chunks of a stream that was asked for its usage have a
// member for it, and parsing each would cost more than all else.
func mayBeWithoutChoices(event []byte) bool {
	if bytes.Count(event, []byte(dataField)) > 1 { // perhaps it is broken between a name and its value
		return true
	}
	for {
		_, rest, ok := bytes.Cut(event, []byte(`"choices"`))
		if !ok {
			return false
		}
		value := bytes.TrimLeft(rest, " \t:[")
		if len(value) > 0 && value[0] == ']' {
			return true
		}
		event = rest
	}
}
