package llm

import (
	"bytes"
	"encoding/json"
)

// A scanner finds values in JSON that comes in pieces of any size. It keeps only the path of the place where it is and
// the scalar that it was asked for. Neither memory nor time depends on how a document is cut.
//
// A path joins the names of members with dots. Arrays do not appear in it: the elements of an array have its path. Text
// that is not JSON breaks the scanner until its next reset.
type scanner struct {
	// interest returns the use of a scalar at a path.
	interest func(path []byte) interest
	// scalar takes a scalar that was asked for, as it is written. It must not keep raw.
	scalar func(path, raw []byte)
	// long takes the beginning of a scalar that was asked for and is longer than is kept; nil for no one to take it.
	long func(path, raw []byte)
	// text takes a piece of a string that is counted, and its length in bytes. Of an escape it gets the length alone. It must not keep the piece.
	text func(piece []byte, bytes int)
	// document is called at the end of an object that is in no other object.
	document func()
	// closed is called before the end of each object and array, whose path it gets; nil for no one to call.
	closed func(path []byte)
	// named is called behind the name of a member, with the path that it makes and the bytes of the name; nil for no one to call.
	named func(path []byte, bytes int64)

	start   start
	state   scanState
	open    []byte // the brackets that are open
	marks   []int  // for each of them, how long the path was before it
	path    []byte
	key     []byte // of a member, or a scalar that was asked for, as far as it was read
	escaped bool   // the key has an escape
	tooLong bool   // the key or scalar is longer than is kept
	hex     int    // digits that an escape still has
	want    interest
	first   byte  // of the scalar that begins
	from    int64 // where the key begins
	at      int64 // bytes before the one that is scanned
	inside  int64 // bytes up to the first member of the last document
}

// An interest is the use of a scalar.
type interest uint8

const (
	ignored  interest = iota
	kept              // to be handed over as it is written
	counted           // a string whose length counts
	measured          // a scalar of any kind whose length counts
)

type scanState uint8

const (
	scanValue  scanState = iota // a value may begin
	scanMember                  // a key or the end of an object
	scanKey
	scanKeyEscape
	scanColon
	scanString
	scanStringEscape
	scanStringHex
	scanLiteral // a number, true, false or null
	scanAfter   // a comma or the end of the open value
	scanBroken
)

// Bounds of a scanner's buffers. No name or number that it looks for comes near them.
const (
	scanDepth  = 256
	scanScalar = 256
)

// reset makes the scanner ready for another document.
func (s *scanner) reset() {
	s.state, s.open, s.marks, s.path, s.key = scanValue, s.open[:0], s.marks[:0], s.path[:0], s.key[:0]
}

func (s *scanner) write(p []byte) {
	for len(p) > 0 {
		switch s.state {
		case scanBroken:
			s.at += int64(len(p))
			return
		case scanString:
			rest := s.string(p)
			s.at += int64(len(p) - len(rest))
			p = rest
		default:
			s.byte(p[0])
			s.at++
			p = p[1:]
		}
	}
}

// string scans the inside of a string up to its end or an escape.
func (s *scanner) string(p []byte) []byte {
	n := endOfText(p)
	rest := []byte(nil)
	if n < 0 {
		n = len(p)
	} else {
		rest = p[n+1:]
	}
	s.take(p[:n], n)
	switch {
	case n == len(p):
	case p[n] == '\\':
		s.state = scanStringEscape
		s.keep(p[n])
	default:
		s.keep(p[n])
		s.end()
	}
	return rest
}

// endOfText returns where the first quote or backslash is; -1 for none. It looks at a few bytes at a time, so that a text full of
// backslashes is not searched for its quote over and over.
func endOfText(p []byte) int {
	const window = 512
	for at := 0; at < len(p); at += window {
		piece := p[at:min(at+window, len(p))]
		quote := bytes.IndexByte(piece, '"')
		if quote >= 0 {
			piece = piece[:quote]
		}
		if escape := bytes.IndexByte(piece, '\\'); escape >= 0 {
			return at + escape
		}
		if quote >= 0 {
			return at + quote
		}
	}
	return -1
}

// take notes a piece of a string, and how many bytes of text it is.
func (s *scanner) take(piece []byte, length int) {
	switch s.want {
	case counted, measured:
		s.text(piece, length)
	case kept:
		for _, b := range piece {
			s.keep(b)
		}
	case ignored:
	}
}

// keep adds a byte to the key or the scalar, unless it is too long to be one that was asked for.
func (s *scanner) keep(b byte) {
	switch {
	case s.want != kept && s.state != scanKey && s.state != scanKeyEscape:
	case len(s.key) == scanScalar:
		s.tooLong = true
	default:
		s.key = append(s.key, b)
	}
}

// byte scans a byte outside of strings, or one of a key or an escape.
func (s *scanner) byte(b byte) {
	switch s.state {
	case scanKey:
		s.keep(b)
		switch b {
		case '\\':
			s.escaped, s.state = true, scanKeyEscape
		case '"':
			s.name()
		}
		return
	case scanKeyEscape:
		s.keep(b)
		s.state = scanKey
		return
	case scanStringEscape:
		s.escape(b)
		return
	case scanStringHex:
		s.keep(b)
		if s.hex--; s.hex == 0 {
			s.state = scanString
		}
		return
	case scanLiteral:
		switch {
		case delimits(b):
			s.end() // and the byte is what follows
		case !ofLiteral(b): // such as a comment, which some readers leave out with all its content
			s.state = scanBroken
			return
		default:
			s.literal(b)
			return
		}
	default:
	}
	if b == ' ' || b == '\t' || b == '\n' || b == '\r' || s.start.skips(b) {
		return
	}
	s.token(b)
}

// delimits reports whether a byte ends a number or a word.
func delimits(b byte) bool {
	return b == ',' || b == '}' || b == ']' || b == ' ' || b == '\t' || b == '\n' || b == '\r'
}

// ofLiteral reports whether a byte may stand in a number or a word.
func ofLiteral(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b == 'E' || b == '.' || b == '-' || b == '+'
}

// escape scans the byte after a backslash in a string.
func (s *scanner) escape(b byte) {
	s.keep(b)
	s.state = scanString
	length := 1
	if b == 'u' {
		s.state, s.hex, length = scanStringHex, 4, 3 // most characters so written take three bytes
	}
	if s.want == counted || s.want == measured {
		s.text(nil, length)
	}
}

// token scans a byte that is not space, between keys and scalars.
func (s *scanner) token(b byte) {
	switch {
	case s.state == scanMember && b == '"':
		s.state, s.escaped, s.tooLong, s.key, s.from = scanKey, false, false, append(s.key[:0], b), s.at
	case s.state == scanColon && b == ':':
		s.state = scanValue
	case s.state == scanAfter && b == ',' && len(s.open) > 0:
		s.next()
	case (b == '}' || b == ']') && len(s.open) > 0 && s.open[len(s.open)-1] == b-2: // the brackets of ASCII are two apart
		s.close(b)
	case s.state == scanAfter && len(s.open) == 0: // documents may follow one another
		s.state = scanValue
		s.token(b)
	case s.state != scanValue:
		s.state = scanBroken
	case b == '{', b == '[':
		s.enter(b)
	default:
		s.begin(b)
	}
}

func (s *scanner) enter(b byte) {
	if len(s.open) == scanDepth {
		s.state = scanBroken
		return
	}
	if len(s.open) == 0 {
		s.inside = s.at + 1
	}
	s.open, s.marks = append(s.open, b), append(s.marks, len(s.path))
	if b == '{' {
		s.state = scanMember
	}
}

// next goes on to the next member or element.
func (s *scanner) next() {
	last := len(s.open) - 1
	s.path = s.path[:s.marks[last]]
	s.state = scanValue
	if s.open[last] == '{' {
		s.state = scanMember
	}
}

// close ends an object or an array.
func (s *scanner) close(b byte) {
	last := len(s.open) - 1
	s.path = s.path[:s.marks[last]]
	if s.closed != nil {
		s.closed(s.path)
	}
	s.open, s.marks = s.open[:last], s.marks[:last]
	s.state = scanAfter
	if b == '}' && bytes.IndexByte(s.open, '{') < 0 {
		s.document()
	}
}

// name takes the key of a member into the path.
func (s *scanner) name() {
	s.state = scanColon
	if len(s.path) > 0 {
		s.path = append(s.path, '.')
	}
	var name []byte
	switch {
	case s.tooLong:
	case s.escaped:
		name = s.unescape()
	default:
		name = s.key[1 : len(s.key)-1]
	}
	if len(name) == 0 || bytes.IndexByte(name, '.') >= 0 { // it would make the path of another place
		name = noName
	}
	s.path = append(s.path, name...)
	if s.named != nil {
		s.named(s.path, s.at-s.from-1) // without its quotes
	}
}

// unescape returns the name that a key with an escape is.
func (s *scanner) unescape() []byte {
	var text string
	if json.Unmarshal(s.key, &text) != nil {
		s.state = scanBroken
	}
	return []byte(text)
}

// noName stands for a name that is not asked for.
var noName = []byte{'"'}

func (s *scanner) begin(b byte) {
	s.first = b
	s.want, s.tooLong, s.key = s.interest(s.path), false, s.key[:0]
	s.state = scanLiteral
	switch {
	case b == '"':
		s.state = scanString
		s.keep(b)
		return
	case b != '-' && (b < '0' || b > '9') && b != 't' && b != 'f' && b != 'n':
		s.state = scanBroken
		return
	}
	s.literal(b)
}

// literal takes a byte of a number or a word.
func (s *scanner) literal(b byte) {
	if s.want == measured {
		s.text(nil, 1)
	}
	s.keep(b)
}

// isNumber reports whether the scalar that begins is a number.
func (s *scanner) isNumber() bool { return s.first == '-' || s.first >= '0' && s.first <= '9' }

// end hands over a scalar.
func (s *scanner) end() {
	s.state = scanAfter
	switch {
	case s.want != kept:
	case !s.tooLong:
		s.scalar(s.path, s.key)
	case s.long != nil:
		s.long(s.path, s.key)
	}
	s.want = ignored
}
