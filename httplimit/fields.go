package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The names of the fields, in canonical form.
const (
	fieldPolicy = "Ratelimit-Policy"
	fieldState  = "Ratelimit"
)

// maxInteger is the largest integer of a structured field, by RFC 9651.
const maxInteger = 999_999_999_999_999

// describe sets the fields for limits. The values are kept in an array of the caller's.
func (m *middleware) describe(header http.Header, statuses zlimit.Statuses, values *[2]string) {
	if len(statuses) == 0 {
		return
	}
	var space [512]byte
	b := m.appendPolicies(space[:0], statuses)
	end := len(b)
	text := string(m.appendStates(b, statuses))
	values[0], values[1] = text[:end], text[end:]
	header[fieldPolicy], header[fieldState] = values[0:1:1], values[1:2:2]
	if m.legacy {
		setLegacy(header, statuses)
	}
}

// appendPolicies appends the value of RateLimit-Policy: for each limit its capacity and the time in which that flows in.
func (m *middleware) appendPolicies(b []byte, statuses zlimit.Statuses) []byte {
	for i, s := range statuses {
		b = appendName(b, i, s)
		b = appendParameter(b, ";q=", s.Limit.Capacity)
		b = appendParameter(b, ";w=", max(1, untilTokens(s.Limit, s.Limit.Capacity)))
		b = m.appendPartition(b, s)
	}
	return b
}

// appendStates appends the value of RateLimit: for each limit what is left, and after how long it has more.
func (m *middleware) appendStates(b []byte, statuses zlimit.Statuses) []byte {
	refused := slices.ContainsFunc(statuses, func(s zlimit.Status) bool { return s.Exceeded })
	for i, s := range statuses {
		b = appendName(b, i, s)
		b = appendParameter(b, ";r=", max(0, s.Available))
		if wait := waitFor(s, refused); wait > 0 {
			b = appendParameter(b, ";t=", wait)
		}
		b = m.appendPartition(b, s)
	}
	return b
}

// waitFor returns in how many seconds a limit has more: until it is full, or where nothing is left until it has a
// token. Of a refused request only the limits that refused it have a time: until the request fits, at most that of
// Retry-After.
func waitFor(s zlimit.Status, refused bool) int64 {
	switch {
	case refused:
		return seconds(s.RetryAfter)
	case s.Available <= 0:
		return untilTokens(s.Limit, 1-s.Available)
	default:
		return untilTokens(s.Limit, s.Limit.Capacity-s.Available)
	}
}

// appendName appends the name of a limit as a string of a structured field; names hold no characters to escape.
func appendName(b []byte, index int, s zlimit.Status) []byte {
	if index > 0 {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, s.Limit.Name...)
	return append(b, '"')
}

func appendParameter(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), min(n, maxInteger), 10)
}

// appendPartition appends the parameter pk, where it is asked for.
func (m *middleware) appendPartition(b []byte, s zlimit.Status) []byte {
	if m.partition == nil {
		return b
	}
	mac := hmac.New(sha256.New, m.partition)
	mac.Write([]byte(s.Entity))
	b = append(b, ";pk=:"...)
	b = base64.StdEncoding.AppendEncode(b, mac.Sum(nil)[:12])
	return append(b, ':')
}

// untilTokens returns in how many seconds tokens flow into a limit, rounded up; 0 for none.
func untilTokens(l zlimit.Limit, tokens int64) int64 {
	if tokens <= 0 || l.RefillAmount <= 0 {
		return 0
	}
	perSecond := uint64(l.RefillAmount) * 1000 // in the unit of the product, since periods are whole milliseconds
	high, low := bits.Mul64(uint64(tokens), uint64(l.RefillPeriod/time.Millisecond))
	if high >= perSecond {
		return maxInteger
	}
	s, rest := bits.Div64(high, low, perSecond)
	if rest > 0 {
		s++
	}
	return int64(min(s, maxInteger))
}

// seconds returns whole seconds, rounded up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// setLegacy sets the fields that were deployed before the draft, for the limit of which the smallest part is left.
func setLegacy(header http.Header, statuses zlimit.Statuses) {
	least := statuses[0]
	for _, s := range statuses[1:] {
		if float64(s.Available)/float64(s.Limit.Capacity) < float64(least.Available)/float64(least.Limit.Capacity) {
			least = s
		}
	}
	header.Set("X-RateLimit-Limit", strconv.FormatInt(least.Limit.Capacity, 10))
	header.Set("X-RateLimit-Remaining", strconv.FormatInt(max(0, least.Available), 10))
	header.Set("X-RateLimit-Reset", strconv.FormatInt(waitFor(least, least.Exceeded), 10))
}
