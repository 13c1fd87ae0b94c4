// Package wire writes small values as bytes, and reads them back. A text that comes more than once is written once.
package wire

import "encoding/binary"

// A Writer appends values to bytes. Its zero value is ready to use.
type Writer struct {
	Bytes []byte
	texts map[string]int // by its number, from 1
}

// Int appends a number.
func (w *Writer) Int(n int64) { w.Bytes = binary.AppendVarint(w.Bytes, n) }

// Flag appends whether something is so.
func (w *Writer) Flag(is bool) {
	n := int64(0)
	if is {
		n = 1
	}
	w.Int(n)
}

// Text appends a text, or the number of an equal one before it.
func (w *Writer) Text(text string) {
	if n, ok := w.texts[text]; ok {
		w.Int(int64(n))
		return
	}
	if w.texts == nil {
		w.texts = map[string]int{}
	}
	w.texts[text] = len(w.texts) + 1
	w.Int(0)
	w.Int(int64(len(text)))
	w.Bytes = append(w.Bytes, text...)
}

// A Reader reads what a [Writer] has written, in the same order. After a value that cannot be read all others are zero.
type Reader struct {
	rest   []byte
	texts  []string
	failed bool
}

// NewReader returns a reader of bytes, which it does not change.
func NewReader(bytes []byte) *Reader { return &Reader{rest: bytes} }

// Int reads a number. A number has one form alone.
func (r *Reader) Int() int64 {
	n, size := binary.Varint(r.rest)
	if r.failed || size <= 0 || len(binary.AppendVarint(nil, n)) != size {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// Within reads a number from least to most.
func (r *Reader) Within(least, most int64) int64 {
	n := r.Int()
	if n < least || n > most {
		r.fail()
		return least
	}
	return n
}

// Count reads how many values follow, of a byte each at least.
func (r *Reader) Count() int { return int(r.Within(0, int64(len(r.rest)))) }

// Flag reads whether something is so.
func (r *Reader) Flag() bool { return r.Within(0, 1) == 1 }

// Text reads a text.
func (r *Reader) Text() string {
	if at := r.Within(0, int64(len(r.texts))); at > 0 && !r.failed {
		return r.texts[at-1]
	}
	n := r.Count()
	if r.failed || n > len(r.rest) {
		r.fail()
		return ""
	}
	text := string(r.rest[:n])
	r.rest, r.texts = r.rest[n:], append(r.texts, text)
	return text
}

// OK reports whether all values could be read so far.
func (r *Reader) OK() bool { return !r.failed }

// Done reports whether all values could be read, and nothing is left.
func (r *Reader) Done() bool { return !r.failed && len(r.rest) == 0 }

func (r *Reader) fail() { r.failed, r.rest = true, nil }
