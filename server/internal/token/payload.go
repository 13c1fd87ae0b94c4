package token

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// version is the first value of a payload. A change of the form takes the next one, and decode reads both for as long as a lease lasts.
const version = 1

// leasePrefix begins the token of a lease, before base64. Such a token is in the payload as its bytes, so that they are not in
// base64 twice.
const leasePrefix = "zl1."

// encode returns the payload of claims, as DER:
//
//	SEQUENCE {
//	  version INTEGER, expires INTEGER, last INTEGER, -- milliseconds since 1970
//	  namespace UTF8String, caller UTF8String,
//	  leases SEQUENCE OF SEQUENCE {
//	    packed BOOLEAN, token OCTET STRING, entity UTF8String, resource UTF8String,
//	    amounts SEQUENCE OF SEQUENCE { limit UTF8String, tokens INTEGER }}}
func (c *Claims) encode() ([]byte, error) {
	b := cryptobyte.NewBuilder(nil)
	sequence(b, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(version)
		b.AddASN1Int64(c.Expires.UnixMilli())
		b.AddASN1Int64(c.Last.UnixMilli())
		addText(b, c.Namespace)
		addText(b, c.Caller)
		sequence(b, func(b *cryptobyte.Builder) {
			for i := range c.Leases {
				sequence(b, c.Leases[i].encode)
			}
		})
	})
	return b.Bytes()
}

func (l *Lease) encode(b *cryptobyte.Builder) {
	text, ok := strings.CutPrefix(l.Token, leasePrefix)
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	packed := ok && err == nil && unpacked(data) == l.Token
	if !packed {
		data = []byte(l.Token)
	}
	b.AddASN1Boolean(packed)
	b.AddASN1OctetString(data)
	addText(b, l.Entity)
	addText(b, l.Resource)
	sequence(b, func(b *cryptobyte.Builder) {
		for _, name := range slices.Sorted(maps.Keys(l.Amounts)) {
			sequence(b, func(b *cryptobyte.Builder) {
				addText(b, name)
				b.AddASN1Int64(l.Amounts[name])
			})
		}
	})
}

func sequence(b *cryptobyte.Builder, f cryptobyte.BuilderContinuation) { b.AddASN1(asn1.SEQUENCE, f) }

func addText(b *cryptobyte.Builder, text string) {
	b.AddASN1(asn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte(text)) })
}

func unpacked(data []byte) string {
	return leasePrefix + base64.RawURLEncoding.EncodeToString(data)
}

// decode returns the claims of a payload.
func decode(data []byte) (*Claims, bool) {
	rest := cryptobyte.String(data)
	var payload, leases cryptobyte.String
	var of, expires, last int64
	c := &Claims{}
	ok := rest.ReadASN1(&payload, asn1.SEQUENCE) && rest.Empty() &&
		payload.ReadASN1Integer(&of) && of == version && payload.ReadASN1Integer(&expires) && payload.ReadASN1Integer(&last) &&
		readText(&payload, &c.Namespace) && readText(&payload, &c.Caller) &&
		payload.ReadASN1(&leases, asn1.SEQUENCE) && payload.Empty() && !leases.Empty()
	c.Expires, c.Last = time.UnixMilli(expires).UTC(), time.UnixMilli(last).UTC()
	for ok && !leases.Empty() && len(c.Leases) <= MaxLeases {
		var l Lease
		ok = l.decode(&leases)
		c.Leases = append(c.Leases, l)
	}
	return c, ok && len(c.Leases) <= MaxLeases
}

// decode reads the next lease.
func (l *Lease) decode(from *cryptobyte.String) bool {
	var s, token, amounts cryptobyte.String
	var packed bool
	if !from.ReadASN1(&s, asn1.SEQUENCE) || !s.ReadASN1Boolean(&packed) || !s.ReadASN1(&token, asn1.OCTET_STRING) ||
		!readText(&s, &l.Entity) || !readText(&s, &l.Resource) || !s.ReadASN1(&amounts, asn1.SEQUENCE) || !s.Empty() {
		return false
	}
	if l.Token = string(token); packed {
		l.Token = unpacked(token)
	}
	l.Amounts = map[string]int64{}
	for !amounts.Empty() {
		var a cryptobyte.String
		var limit string
		var tokens int64
		if !amounts.ReadASN1(&a, asn1.SEQUENCE) || !readText(&a, &limit) || !a.ReadASN1Integer(&tokens) || !a.Empty() {
			return false
		}
		l.Amounts[limit] = tokens
	}
	return true
}

func readText(s *cryptobyte.String, text *string) bool {
	var data cryptobyte.String
	ok := s.ReadASN1(&data, asn1.UTF8String)
	*text = string(data)
	return ok
}
