package token

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// version is the first byte of a payload.
const version = 1

// leasePrefix begins the token of a lease, before base64. Such a token is in the payload as its bytes, so that they are not in
// base64 twice.
const leasePrefix = "zl1."

// encode returns the payload of claims.
func (c *Claims) encode() []byte {
	w := []byte{version}
	w = binary.AppendVarint(w, c.Expires.UnixMilli())
	w = binary.AppendVarint(w, c.Last.UnixMilli())
	w = appendText(appendText(w, c.Namespace), c.Caller)
	w = binary.AppendUvarint(w, uint64(len(c.Leases)))
	for i := range c.Leases {
		l := &c.Leases[i]
		if data, ok := packed(l.Token); ok {
			w = appendText(append(w, 1), string(data))
		} else {
			w = appendText(append(w, 0), l.Token)
		}
		w = appendText(appendText(w, l.Entity), l.Resource)
		names := make([]string, 0, len(l.Amounts))
		for name := range l.Amounts {
			names = append(names, name)
		}
		slices.Sort(names)
		w = binary.AppendUvarint(w, uint64(len(names)))
		for _, name := range names {
			w = binary.AppendVarint(appendText(w, name), l.Amounts[name])
		}
	}
	return w
}

func appendText(w []byte, text string) []byte {
	return append(binary.AppendUvarint(w, uint64(len(text))), text...)
}

// packed returns the bytes of the token of a lease, false for a token of another form.
func packed(token string) ([]byte, bool) {
	text, ok := strings.CutPrefix(token, leasePrefix)
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return data, ok && err == nil && unpacked(data) == token
}

func unpacked(data []byte) string {
	return leasePrefix + base64.RawURLEncoding.EncodeToString(data)
}

// decode returns the claims of a payload.
func decode(data []byte) (*Claims, bool) {
	r := reader{rest: data}
	if r.byte() != version {
		return nil, false
	}
	c := &Claims{Expires: time.UnixMilli(r.int()).UTC(), Last: time.UnixMilli(r.int()).UTC(), Namespace: r.text(), Caller: r.text()}
	for range r.count(MaxLeases) {
		var l Lease
		isPacked := r.byte() == 1
		if l.Token = r.text(); isPacked {
			l.Token = unpacked([]byte(l.Token))
		}
		l.Entity, l.Resource = r.text(), r.text()
		n := r.count(len(r.rest))
		l.Amounts = make(map[string]int64, n)
		for range n {
			name := r.text()
			l.Amounts[name] = r.int()
		}
		c.Leases = append(c.Leases, l)
	}
	return c, !r.failed && len(r.rest) == 0 && len(c.Leases) > 0
}

// A reader reads what encode has written. After a value that cannot be read all others are zero.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) fail() { r.rest, r.failed = nil, true }

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) int() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count reads a number of at most some.
func (r *reader) count(most int) int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(most) {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

func (r *reader) text() string {
	n := r.count(len(r.rest))
	if n > len(r.rest) {
		r.fail()
		return ""
	}
	text := string(r.rest[:n])
	r.rest = r.rest[n:]
	return text
}
