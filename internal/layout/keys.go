package layout

import (
	"strconv"
	"strings"
)

// keyReader takes a key string apart, from left to right. It is strict: each accepted string is the one that its
// parts make.
type keyReader struct {
	rest string
	bad  bool
}

// readKey starts to read a key string of the form that starts with prefix.
func readKey(text, prefix string) keyReader {
	rest, ok := strings.CutPrefix(text, prefix)
	return keyReader{rest, !ok}
}

// cut returns what comes before the separator, and goes past it; "" is the end of the string.
func (r *keyReader) cut(separator string) string {
	if separator == "" {
		field := r.rest
		r.rest = ""
		return field
	}
	field, rest, ok := strings.Cut(r.rest, separator)
	r.rest = rest
	r.bad = r.bad || !ok
	return field
}

// text reads a field up to a separator. No field is empty, has a "#", or has a forbidden character.
func (r *keyReader) text(separator string, forbidden ...byte) string {
	field := r.cut(separator)
	r.bad = r.bad || field == "" || strings.IndexByte(field, '#') >= 0
	for _, c := range forbidden {
		r.bad = r.bad || strings.IndexByte(field, c) >= 0
	}
	return field
}

// number reads a field that is a number from 0 in its shortest form, up to a separator.
func (r *keyReader) number(separator string) int {
	field := r.cut(separator)
	n, err := strconv.Atoi(field)
	if err != nil || field[0] < '0' || field[0] == '0' && field != "0" {
		r.bad = true
	}
	return n
}

// done reports whether the string was of the form, from its start to its end.
func (r *keyReader) done() bool { return !r.bad && r.rest == "" }

// keyPrefix joins literal text and fields, which take turns, up to the first empty field.
func keyPrefix(parts ...string) string {
	for i := 1; i < len(parts); i += 2 {
		if parts[i] == "" {
			parts = parts[:i]
			break
		}
	}
	return strings.Join(parts, "")
}
