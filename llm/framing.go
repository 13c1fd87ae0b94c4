package llm

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
		if b := p[0]; !f.start.skips(b) && !isSpace(b) {
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
	if isEvents(first, f.declared == f.events) {
		return f.events
	}
	return f.document
}

// isEvents reports whether a body has events, by its first byte that is no space; declared says whether its type is that of events.
func isEvents(first byte, declared bool) bool {
	switch first {
	case '{', '[':
		return false
	case ':', 'd', 'e', 'i', 'r': // a comment, data, event, id, retry
		return true
	default:
		return declared
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// reading returns what takes the body apart, as far as is known.
func (f *framed) reading() writer {
	if f.to == nil {
		return f.declared
	}
	return f.to
}
