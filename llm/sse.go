package llm

import "bytes"

// A writer takes a body in pieces of any size.
type writer interface{ write(p []byte) }

// An eventReader takes the data out of server-sent events, as the HTML standard defines them. Lines end with LF, CR or
// both, and a byte order mark may come first. Lines of other fields and comments are skipped. The reader keeps a
// field's name and no data.
type eventReader struct {
	data    *scanner
	failure func() // called for an event whose name is error; nil for no one to call

	line    []byte // the beginning of a line, up to what identifies the field
	inData  bool   // the rest of the line is data
	skip    bool   // the rest of the line is of no interest
	space   bool   // a space may come between the name of the field and the data
	afterCR bool   // a line feed belongs to the line before
	start   start
	written bool // the event has data
}

const (
	byteOrderMark = "\xef\xbb\xbf"
	dataField     = "data:"

	errorEvent       = "event:error"
	errorEventSpaced = "event: error"
)

// A start finds the byte order mark that a text may begin with.
type start struct {
	begun bool // there was a byte that is not of the mark
	mark  int  // bytes of the mark so far
}

// skips reports whether a byte, the next one of the text, belongs to the mark.
func (s *start) skips(b byte) bool {
	if !s.begun && s.mark < len(byteOrderMark) && b == byteOrderMark[s.mark] {
		s.mark++
		return true
	}
	s.begun = true
	return false
}

// write takes a piece of the stream.
func (r *eventReader) write(p []byte) {
	for len(p) > 0 {
		if r.inData && !r.space || r.skip {
			p = r.rest(p)
			continue
		}
		r.byte(p[0])
		p = p[1:]
	}
}

func (r *eventReader) rest(p []byte) []byte {
	n := bytes.IndexAny(p, "\r\n")
	piece := p
	if n >= 0 {
		piece = p[:n]
	}
	if r.inData {
		r.data.write(piece)
	}
	if n < 0 {
		return nil
	}
	r.byte(p[n])
	return p[n+1:]
}

// byte takes a byte of the beginning of a line, or of its end.
func (r *eventReader) byte(b byte) {
	if r.start.skips(b) {
		return
	}
	switch {
	case b == '\n' && r.afterCR:
		r.afterCR = false
	case b == '\n', b == '\r':
		r.afterCR = b == '\r'
		r.endLine()
	case r.inData: // the first byte of the data
		r.space = false
		if b != ' ' {
			r.data.write([]byte{b})
		}
	case b == '{' && len(r.line) == 0: // an error that a server writes without the name of a field
		r.afterCR, r.inData, r.written = false, true, true
		r.data.reset()
		r.data.write([]byte{b})
	default:
		r.afterCR = false
		r.line = append(r.line, b)
		switch {
		case string(r.line) == dataField:
			r.inData, r.space = true, true
			if r.written {
				r.data.write([]byte{'\n'})
			}
			r.written = true
		case !bytes.HasPrefix([]byte(dataField), r.line) && !bytes.HasPrefix([]byte(errorEvent), r.line) && !bytes.HasPrefix([]byte(errorEventSpaced), r.line):
			r.skip = true
		}
	}
}

// endLine ends a line, and the event when the line is empty.
func (r *eventReader) endLine() {
	if !r.skip && r.failure != nil && (string(r.line) == errorEvent || string(r.line) == errorEventSpaced) {
		r.failure()
	}
	if len(r.line) == 0 && !r.inData && !r.skip {
		r.data.reset()
		r.written = false
	}
	r.line, r.inData, r.skip, r.space = r.line[:0], false, false, false
}
