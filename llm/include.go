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
func (q *question) askForUsage(s *spool) edit {
	switch {
	case q.call.API != APIOpenAIChat || !q.call.Stream:
		return edit{}
	case q.usage != nil:
		return *q.usage
	}
	front := int64(bytes.IndexByte(s.head, '{')) + 1
	if front == 0 { // behind a mebibyte of space, or not there
		return edit{}
	}
	return edit{front, front, usageOption}
}

// A usageFilter takes the chunk with the usage out of a stream of chat completions. It holds back an event until it is
// whole, and passes on everything else byte by byte.
type usageFilter struct {
	io.Closer
	source  *bufio.Reader
	event   []byte // to be returned
	err     error  // after the event
	dropped bool   // the event before was taken out
	afterCR bool   // a line feed that comes next belongs to the last line
}

// filterMost is the longest event that may be the one; longer ones are passed on.
const filterMost = 64 << 10

func newUsageFilter(body io.ReadCloser) io.ReadCloser {
	return &usageFilter{Closer: body, source: bufio.NewReader(body)}
}

// Read returns events, whole or in parts.
func (f *usageFilter) Read(p []byte) (int, error) {
	for len(f.event) == 0 && f.err == nil {
		f.event, f.err = f.next()
		if f.dropped = isUsageChunk(f.event); f.dropped {
			f.event = nil
		}
	}
	if len(f.event) == 0 {
		return 0, f.err
	}
	n := copy(p, f.event)
	f.event = f.event[n:]
	return n, nil
}

// next returns the lines up to an empty one, or as much as is looked at.
func (f *usageFilter) next() (event []byte, err error) {
	empty := true // the line is, so far
	for len(event) < filterMost {
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

// isUsageChunk reports whether an event is the chunk that comes of include_usage: one with usage and without choices.
func isUsageChunk(event []byte) bool {
	if !bytes.Contains(event, []byte(`"usage"`)) {
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
