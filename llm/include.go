package llm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
)

// askForUsage asks for a stream of chat completions to end with its usage. It reports whether it changed the request.
// It does not change a request that asks already, or is too long to be read whole.
func (x *exchange) askForUsage(r *http.Request) bool {
	if x.call.API != OpenAIChat || !x.call.Stream || x.call.includesUsage || !x.call.Whole {
		return false
	}
	changed, err := withUsageOption(x.body.head)
	if err != nil {
		return false // which the provider will say
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(changed), x.body}
	r.ContentLength = int64(len(changed))
	if r.Header.Get("Content-Length") != "" {
		r.Header.Set("Content-Length", strconv.Itoa(len(changed)))
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(changed)), nil }
	r.Header.Del("Accept-Encoding") // the chunk can only be taken out of what is not compressed
	return true
}

// withUsageOption returns the body of a request with stream_options.include_usage set.
func withUsageOption(body []byte) ([]byte, error) {
	var members, options map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	if raw := members["stream_options"]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &options); err != nil {
			return nil, err
		}
	}
	if options == nil {
		options = map[string]json.RawMessage{}
	}
	options["include_usage"] = json.RawMessage("true")
	var err error
	if members["stream_options"], err = json.Marshal(options); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(members); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// A usageFilter takes the chunk with the usage out of a stream of chat completions. It holds back an event until it is
// whole, and passes on everything else byte by byte.
type usageFilter struct {
	io.Closer
	source  *bufio.Reader
	event   []byte // to be returned
	err     error  // after the event
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
		if isUsageChunk(f.event) {
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
