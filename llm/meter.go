package llm

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Meter is the body of a model's answer that finds the usage while it is read. A Meter passes the answer on
// unchanged, byte by byte and without delay. It keeps some three kilobytes for an answer of any length. A body compressed
// with gzip is metered too, by a goroutine that ends with Close or at the end of the body. Other compressions are
// passed through and not understood, and their bytes count as text.
//
// Read must be called by one goroutine at a time; Close and Usage may be called at any time.
type Meter struct {
	tally *tally
	body  io.ReadCloser
	feed  io.Writer
	// reader takes the answer apart.
	reader writer

	unzip     *io.PipeWriter // takes the compressed bytes; nil for an uncompressed body
	unzipped  chan struct{}  // closed when all of it was taken
	stopUnzip sync.Once

	mu    sync.Mutex
	atEnd bool
}

// NewMeter returns the body of the answer to a call as a Meter. The header says how the answer is framed: Content-Type
// text/event-stream or application/vnd.amazon.eventstream, and JSON otherwise; Content-Encoding gzip. Events that come as
// another type, and JSON that comes as events, are known by their beginning. The Meter closes the body when it is closed.
func NewMeter(call Call, header http.Header, body io.ReadCloser) *Meter {
	return newMeter(call, formatOf(call.API), header, body)
}

func newMeter(call Call, f *format, header http.Header, body io.ReadCloser) *Meter {
	m := &Meter{body: body}
	t := newTally(call, f)
	t.headers(header)
	m.tally = t
	m.reader = t.newWriter(header.Get("Content-Type"))
	sink := lockedWriter{t, m.reader}
	switch strings.ToLower(header.Get("Content-Encoding")) {
	case "", "identity":
		m.feed = sink
	case "gzip", "x-gzip":
		m.decompress(sink)
	default:
		m.reader = unreadable{t}
		m.feed = lockedWriter{t, m.reader}
	}
	return m
}

// reading returns what takes the answer apart.
func (m *Meter) reading() writer {
	if f, ok := m.reader.(*framed); ok {
		return f.reading()
	}
	return m.reader
}

// gzipMagic begins a body that is compressed with gzip.
const gzipMagic = "\x1f\x8b"

// decompress starts a goroutine that unpacks the bytes read.
func (m *Meter) decompress(to io.Writer) {
	r, w := io.Pipe()
	m.feed, m.unzip, m.unzipped = w, w, make(chan struct{})
	go func() {
		defer close(m.unzipped)
		packed := bufio.NewReader(r)
		if magic, _ := packed.Peek(len(gzipMagic)); string(magic) != gzipMagic { // unpacked on the way
			_, _ = io.Copy(to, packed)
		} else if z, err := gzip.NewReader(packed); err == nil {
			_, _ = io.Copy(to, z) // as far as it can be unpacked
		}
		_, _ = io.Copy(io.Discard, packed) // other bytes than gzip must not hold up the reader
	}()
}

// Read reads the body.
func (m *Meter) Read(p []byte) (int, error) {
	n, err := m.body.Read(p)
	if n > 0 {
		_, _ = m.feed.Write(p[:n]) // a closed pipe takes no more
	}
	if err != nil {
		m.stop()
	}
	if err == io.EOF {
		m.mu.Lock()
		m.atEnd = true
		m.mu.Unlock()
	}
	return n, err
}

// Close closes the body. An answer that was not read by then is not metered further.
func (m *Meter) Close() error {
	err := m.body.Close()
	m.stop()
	return err
}

// stop ends the unpacking, and waits for the bytes under way.
func (m *Meter) stop() {
	if m.unzip == nil {
		return
	}
	m.stopUnzip.Do(func() { _ = m.unzip.Close() })
	<-m.unzipped
}

// Usage returns the usage of the call, as far as the answer was read. It is final after Read has returned an error, and
// after Close. Counts that the provider has not reported are estimated. The estimate of the prompt is [Call.Input]. The
// estimate of the answer is based on the text so far, or is [Call.Output] if the answer has ended and nothing of it was
// understood.
func (m *Meter) Usage() Usage {
	m.mu.Lock()
	atEnd := m.atEnd
	m.mu.Unlock()
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	return m.tally.usage(atEnd)
}

// retryDelay returns how long an error asks to wait, as far as it was read.
func (m *Meter) retryDelay() time.Duration {
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	return m.tally.facts.delay
}

// refusal returns a response as one of status 429 where its answer is a rate limit, with any status.
func (m *Meter) refusal(r *http.Response) *http.Response {
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	if !m.tally.facts.limited || r.StatusCode == http.StatusTooManyRequests {
		return r
	}
	limited := *r
	limited.StatusCode = http.StatusTooManyRequests
	return &limited
}

// parts returns what models other than the answering one took of the usage.
func (m *Meter) parts() []part {
	m.tally.mu.Lock()
	defer m.tally.mu.Unlock()
	return slices.Clone(m.tally.parts)
}
