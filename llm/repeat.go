package llm

import (
	"hash/maphash"
	"strings"
)

// wholes begin places of text that some servers write as a whole so far in an event of a stream, beside the pieces or in place of them.
var wholes = []string{"choices.message.", "response.output."}

// isWhole reports whether events may have the whole text so far at a place.
func isWhole(place string) bool {
	for _, whole := range wholes {
		if strings.HasPrefix(place, whole) || strings.Contains(place, "."+whole) {
			return true
		}
	}
	return false
}

// A repeat is the text at a place of a stream, which an event may have as a whole so far. It knows the last event by a hash.
type repeat struct {
	hash maphash.Hash // of the text so far
	now  int64        // its length
	same bool         // it begins as that of the last event

	last   int64 // length of the text of the last event; 0 for none
	sum    uint64
	proven bool // the last event has begun with the text of the one before
}

// write takes a piece of the text, or the length of an escape.
func (r *repeat) write(piece []byte, length int) {
	if piece == nil {
		_ = r.hash.WriteByte(byte(length))
		r.now += int64(length)
		r.compare()
		return
	}
	if rest := r.last - r.now; rest > 0 && rest < int64(len(piece)) {
		r.write(piece[:rest], int(rest))
		piece = piece[rest:]
	}
	_, _ = r.hash.Write(piece)
	r.now += int64(len(piece))
	r.compare()
}

// compare compares the text so far with that of the last event, if it is as long.
func (r *repeat) compare() {
	if r.now == r.last {
		r.same = r.hash.Sum64() == r.sum
	}
}

// more returns how much of the text did not come before. A text that is shorter than that of the last event may go on to repeat it, until
// the event has ended.
func (r *repeat) more(ended bool) int64 {
	switch {
	case r.now >= r.last && r.same:
		return r.now - r.last
	case r.now < r.last && r.proven && !ended:
		return 0
	default:
		return r.now
	}
}

// end ends an event.
func (r *repeat) end() {
	if r.now == 0 {
		return
	}
	r.proven = r.now >= r.last && r.same
	r.last, r.sum, r.now, r.same = r.now, r.hash.Sum64(), 0, false
	r.hash.Reset()
}
