package leasetoken

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"
)

// version is the first value of a payload. A change of the form takes the next one, and decode reads both for as long as a lease lasts.
const version = 1

// leasePrefix begins the token of a lease, before base64. Such a token is in the payload as its bytes, so that they are not in
// base64 twice.
const leasePrefix = "zl1."

// The form of a payload, which is DER.
type (
	payload struct {
		Version       int
		Expires, Last int64  // milliseconds since 1970
		Namespace     string `asn1:"utf8"`
		Caller        string `asn1:"utf8"`
		Leases        []payloadLease
	}
	payloadLease struct {
		Packed   bool // whether the token is without its prefix and base64
		Token    []byte
		Entity   string `asn1:"utf8"`
		Resource string `asn1:"utf8"`
		Amounts  []payloadAmount
	}
	payloadAmount struct {
		Limit  string `asn1:"utf8"`
		Tokens int64
	}
)

// encode returns the payload of claims.
func (c *Claims) encode() ([]byte, error) {
	p := payload{Version: version, Expires: c.Expires.UnixMilli(), Last: c.Last.UnixMilli(), Namespace: c.Namespace, Caller: c.Caller}
	for _, l := range c.Leases {
		text, ok := strings.CutPrefix(l.Token, leasePrefix)
		data, err := base64.RawURLEncoding.Strict().DecodeString(text)
		of := payloadLease{Packed: ok && err == nil && unpacked(data) == l.Token, Token: []byte(l.Token), Entity: l.Entity, Resource: l.Resource}
		if of.Packed {
			of.Token = data
		}
		for _, name := range slices.Sorted(maps.Keys(l.Amounts)) {
			of.Amounts = append(of.Amounts, payloadAmount{name, l.Amounts[name]})
		}
		p.Leases = append(p.Leases, of)
	}
	return asn1.Marshal(p)
}

func unpacked(data []byte) string {
	return leasePrefix + base64.RawURLEncoding.EncodeToString(data)
}

// decode returns the claims of a payload, of which there is one form.
func decode(data []byte) (*Claims, bool) {
	var p payload
	if _, err := asn1.Unmarshal(data, &p); err != nil || p.Version != version || len(p.Leases) == 0 || len(p.Leases) > MaxLeases {
		return nil, false
	}
	c := &Claims{Namespace: p.Namespace, Caller: p.Caller, Expires: time.UnixMilli(p.Expires).UTC(), Last: time.UnixMilli(p.Last).UTC()}
	for _, of := range p.Leases {
		l := Lease{Token: string(of.Token), Entity: of.Entity, Resource: of.Resource, Amounts: map[string]int64{}}
		if of.Packed {
			l.Token = unpacked(of.Token)
		}
		for _, a := range of.Amounts {
			l.Amounts[a.Limit] = a.Tokens
		}
		c.Leases = append(c.Leases, l)
	}
	again, err := c.encode()
	return c, err == nil && bytes.Equal(again, data)
}
