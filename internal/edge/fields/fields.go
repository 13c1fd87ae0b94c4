// Package fields writes the fields RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10, for HTTP and
// for calls of gRPC and Connect.
package fields

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Format decides on the fields besides the limits.
type Format struct {
	Partition []byte            // the key of the parameter pk; nil for none
	Units     map[string]string // the quota units of limits that are no requests, by name
}

// NanoDollars is the quota unit of limits in money. A limit whose name says that it is in money has it, unless another one
// than tokens is set.
const NanoDollars = "nano-usd"

// maxInteger is the largest integer of a structured field, by RFC 9651.
const maxInteger = 999_999_999_999_999

// SetUnit sets the quota unit of a limit. It panics for a text that is no unit, with the name of the package.
func (f *Format) SetUnit(pkg, limit, unit string) {
	if unit == "" || strings.ContainsFunc(unit, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		panic(pkg + ": the quota unit of " + limit + " must be printable ASCII without quotes and backslashes")
	}
	if f.Units == nil {
		f.Units = map[string]string{}
	}
	f.Units[limit] = unit
}

// Values returns the values of RateLimit-Policy and RateLimit.
func (f *Format) Values(statuses zlimit.Statuses) (policy, state string) {
	var space [512]byte
	b := f.appendPolicies(space[:0], statuses)
	end := len(b)
	text := string(f.appendStates(b, statuses))
	return text[:end], text[end:]
}

// InOrder returns statuses in the order of the fields, after any outcome. Limits of an entity come before limits of its parent, and
// limits of a resource before limits of a wider one, by name.
func InOrder(statuses zlimit.Statuses) zlimit.Statuses {
	order := func(a, b zlimit.Status) int {
		return cmp.Or(cmp.Compare(a.Ancestor, b.Ancestor), cmp.Compare(a.Wider, b.Wider), cmp.Compare(a.Limit.Name, b.Limit.Name))
	}
	if slices.IsSortedFunc(statuses, order) {
		return statuses
	}
	return slices.SortedFunc(slices.Values(statuses), order)
}

// Policy returns the name of the policy of a limit, with the level that has it: such as rpm, parent:rpm, and
// parent2:rpm of the parent's parent. Limits of wider resources are wider:rpm, parent:wider:rpm and so on.
func Policy(s zlimit.Status) string { return string(appendPolicy(nil, s)) }

func appendPolicy(b []byte, s zlimit.Status) []byte {
	b = appendRung(b, "parent", s.Ancestor)
	b = appendRung(b, "wider", s.Wider)
	return append(b, s.Limit.Name...)
}

// appendRung appends where a level stands beside the first one; nothing for that one.
func appendRung(b []byte, name string, rung int) []byte {
	if rung == 0 {
		return b
	}
	b = append(b, name...)
	if rung > 1 {
		b = strconv.AppendInt(b, int64(rung), 10)
	}
	return append(b, ':')
}

// appendPolicies appends the value of RateLimit-Policy: for each limit its capacity and the time in which that flows
// in. A quota has no such time.
func (f *Format) appendPolicies(b []byte, statuses zlimit.Statuses) []byte {
	for i, s := range statuses {
		b = appendName(b, i, s)
		b = appendParameter(b, ";q=", s.Now().Capacity)
		if unit := f.unit(s.Limit); unit != "" {
			b = append(append(append(b, `;qu="`...), unit...), '"')
		}
		switch {
		case s.Limit.Session > 0:
			b = appendParameter(b, ";w=", int64(s.Limit.Session/time.Second))
		case s.Limit.Resets == "" && s.Limit.Term == 0:
			b = appendParameter(b, ";w=", max(1, untilTokens(s.Now(), s.Now().Capacity)))
		}
		b = f.appendPartition(b, s)
	}
	return b
}

// unit returns the quota unit of a limit; "" for that of requests, which is left out. Slots count concurrent requests, and
// a limit in money nano-dollars.
func (f *Format) unit(l zlimit.Limit) string {
	unit, ok := f.Units[l.Name]
	switch {
	case l.Name == grammar.Money && (!ok || unit == "tokens"):
		return NanoDollars
	case !ok && l.Term > 0:
		return "concurrent-requests"
	default:
		return unit
	}
}

// appendStates appends the value of RateLimit: for each limit its rest, and the time until it has more.
func (f *Format) appendStates(b []byte, statuses zlimit.Statuses) []byte {
	refused := slices.ContainsFunc(statuses, func(s zlimit.Status) bool { return s.Exceeded })
	for i, s := range statuses {
		b = appendName(b, i, s)
		b = appendParameter(b, ";r=", max(0, s.Available))
		if wait := Wait(s, refused); wait > 0 {
			b = appendParameter(b, ";t=", wait)
		}
		b = f.appendPartition(b, s)
	}
	return b
}

// Wait returns in how many seconds a limit has more: until it is full, or if nothing is left until it has a token. A
// quota has more when it resets. In the answer to a rejected request only the limits that rejected it have a time: until
// the request fits, at most Retry-After.
func Wait(s zlimit.Status, refused bool) int64 {
	switch {
	case refused && s.RetryAfter == zlimit.Never:
		return 0
	case refused:
		return seconds(s.RetryAfter)
	case !s.ResetsAt.IsZero() && s.Available < s.Now().Capacity:
		return max(1, seconds(time.Until(s.ResetsAt)))
	case !s.ResetsAt.IsZero(), s.Limit.Session > 0:
		return 0
	case s.Limit.Term > 0: // unknown
		return 0
	case s.Available <= 0:
		return untilTokens(s.Now(), 1-s.Available)
	default:
		return untilTokens(s.Now(), s.Now().Capacity-s.Available)
	}
}

// appendName appends the name of a policy as a string of a structured field; names hold no characters to escape.
func appendName(b []byte, index int, s zlimit.Status) []byte {
	if index > 0 {
		b = append(b, ", "...)
	}
	return append(appendPolicy(append(b, '"'), s), '"')
}

func appendParameter(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), min(n, maxInteger), 10)
}

// appendPartition appends the parameter pk, if configured.
func (f *Format) appendPartition(b []byte, s zlimit.Status) []byte {
	if f.Partition == nil {
		return b
	}
	mac := hmac.New(sha256.New, f.Partition)
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
