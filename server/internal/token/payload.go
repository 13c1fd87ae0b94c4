package token

import (
	"encoding/asn1"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"
)

// version is the first value of a payload.
const version = 2

// leasePrefix begins the token of a lease, before base64. Such a token is in the payload as its bytes, so that they are not in
// base64 twice.
const leasePrefix = "zl1."

// The form of a payload, as DER.
type (
	payload struct {
		Version           int
		Expires, Last     int64  // milliseconds
		Namespace, Caller string `asn1:"utf8"`
		Leases            []sealed
	}
	sealed struct {
		Packed           bool
		Token            []byte
		Entity, Resource string `asn1:"utf8"`
		Amounts          []amount
	}
	amount struct {
		Limit  string `asn1:"utf8"`
		Tokens int64
	}
)

// encode returns the payload of claims.
func (c *Claims) encode() ([]byte, error) {
	p := payload{version, c.Expires.UnixMilli(), c.Last.UnixMilli(), c.Namespace, c.Caller, nil}
	for i := range c.Leases {
		l := &c.Leases[i]
		s := sealed{Token: []byte(l.Token), Entity: l.Entity, Resource: l.Resource}
		text, ok := strings.CutPrefix(l.Token, leasePrefix)
		if data, err := base64.RawURLEncoding.Strict().DecodeString(text); ok && err == nil && unpacked(data) == l.Token {
			s.Packed, s.Token = true, data
		}
		for _, name := range slices.Sorted(maps.Keys(l.Amounts)) {
			s.Amounts = append(s.Amounts, amount{name, l.Amounts[name]})
		}
		p.Leases = append(p.Leases, s)
	}
	return asn1.Marshal(p)
}

func unpacked(data []byte) string {
	return leasePrefix + base64.RawURLEncoding.EncodeToString(data)
}

// decode returns the claims of a payload.
func decode(data []byte) (*Claims, bool) {
	var p payload
	rest, err := asn1.Unmarshal(data, &p)
	if err != nil || len(rest) > 0 || p.Version != version || len(p.Leases) == 0 || len(p.Leases) > MaxLeases {
		return nil, false
	}
	c := &Claims{Expires: time.UnixMilli(p.Expires).UTC(), Last: time.UnixMilli(p.Last).UTC(), Namespace: p.Namespace, Caller: p.Caller}
	for i := range p.Leases {
		s := &p.Leases[i]
		l := Lease{Token: string(s.Token), Entity: s.Entity, Resource: s.Resource, Amounts: make(map[string]int64, len(s.Amounts))}
		if s.Packed {
			l.Token = unpacked(s.Token)
		}
		for _, a := range s.Amounts {
			l.Amounts[a.Limit] = a.Tokens
		}
		c.Leases = append(c.Leases, l)
	}
	return c, true
}
