package llm

import "strings"

// A framed body is taken apart by what it begins with. Many servers that stream events call them JSON or plain text, and many answer an
// error as JSON in place of a stream.
type framed struct {
	events   *eventReader
	document *scanner
	to       writer // nil before the first byte
	declared writer
	start    start
}

// newFramed returns what takes events or JSON apart; events says which of them the type of the body declares.
func (t *tally) newFramed(events bool) *framed {
	f := &framed{document: t.newScanner()}
	f.events = &eventReader{data: f.document, failure: func() { t.facts.failed = true }}
	if f.declared = f.document; events {
		f.declared = f.events
	}
	return f
}

// write takes a piece of the body.
func (f *framed) write(p []byte) {
	for f.to == nil && len(p) > 0 {
		if b := p[0]; !f.start.skips(b) && !strings.ContainsRune(" \t\r\n", rune(b)) {
			f.to = f.choose(b)
			break
		}
		p = p[1:]
	}
	if len(p) > 0 {
		f.to.write(p)
	}
}

// choose returns what takes a body apart by its first byte.
func (f *framed) choose(first byte) writer {
	switch first {
	case '{', '[':
		return f.document
	case ':', 'd', 'e', 'i', 'r': // a comment, data, event, id, retry
		return f.events
	default:
		return f.declared
	}
}

// reading returns what takes the body apart, as far as is known.
func (f *framed) reading() writer {
	if f.to == nil {
		return f.declared
	}
	return f.to
}
