package llm

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Providers say in headers what is left of their limits. The names differ: x-ratelimit-remaining-requests,
// anthropic-ratelimit-input-tokens-remaining, x-ratelimit-remaining-req-minute, ratelimitbysize-remaining, x-rate-limit-remaining,
// x-tokenlimit-remaining. So they are read by their words: one is that of a rest, and the others are the kind and the period of the limit,
// and whose it is. Words before the first one of a limit are the name of a vendor. The structured RateLimit field is read by its parameters.

// A figure is what a provider says to be left of a limit.
type figure struct {
	left   int64
	period time.Duration // of the limit; a minute where the name has none
	reset  time.Duration // until it is full; 0 if unknown
}

// bounds reports whether a limit may have no more left than the figure. The rest of an hour bounds a limit of a minute, and the rest
// of a minute says nothing about a limit of a day.
func (f figure) bounds(l zlimit.Limit) bool {
	switch {
	case l.Session > 0:
		return l.Session <= f.period
	case l.RefillPeriod > 0:
		return l.RefillPeriod <= f.period
	}
	for _, cycle := range [...]string{"day", "week"} {
		if strings.Contains(l.String(), "/"+cycle+"@") {
			return periods[cycle] <= f.period
		}
	}
	return periods["month"] <= f.period
}

// periods are the words for the period of a limit.
var periods = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 31 * day,
	"sec": time.Second, "min": time.Minute, "minutes": time.Minute, "hr": time.Hour, "hourly": time.Hour, "daily": day, "monthly": 31 * day,
	"1s": time.Second, "1m": time.Minute, "60s": time.Minute, "1h": time.Hour, "1d": day, "24h": day,
}

const day = 24 * time.Hour

// kindWords are the words for the kind of a limit.
var kindWords = map[string]string{
	"requests": "requests", "request": "requests", "req": "requests", "calls": "requests", "tokens": "tokens", "token": "tokens",
	"input": "input", "prompt": "input", "output": "output", "completion": "output", "generated": "output",
}

// shortWords are words for a kind and a period.
var shortWords = map[string]heading{
	"rps": {"requests", time.Second}, "rpm": {"requests", time.Minute}, "rph": {"requests", time.Hour}, "rpd": {"requests", day},
	"tpm": {"tokens", time.Minute}, "tph": {"tokens", time.Hour}, "tpd": {"tokens", day},
	"itpm": {"input-tokens", time.Minute}, "otpm": {"output-tokens", time.Minute},
}

// ownerWords say whose limit it is. All of them bound the account.
var ownerWords = set("project", "organization", "org", "workspace", "account", "user", "key", "model", "global")

// A heading is the name of a header about a limit.
type heading struct {
	kind   string
	period time.Duration
}

// parseHeading parses the name of a header, in small letters; what is the word that it must have, such as remaining. It returns false
// for a header that is not about a limit, or of a kind of limit that is not known.
func parseHeading(name, what string) (h heading, ok bool) {
	found, tokens, side := false, strings.Contains(name, "ratelimitbysize") || strings.Contains(name, "tokenlimit"), ""
	for _, word := range limitWords(name) {
		switch kind := kindWords[word]; {
		case word == what:
			found = true
		case shortWords[word].kind != "":
			h = shortWords[word]
		case kind == "tokens":
			tokens = true
		case kind == "requests":
			h.kind = kind
		case kind != "":
			side = kind
		case periods[word] > 0:
			h.period = periods[word]
		case !ownerWords[word]:
			return h, false
		}
	}
	switch {
	case side != "" && tokens:
		h.kind = side + "-tokens"
	case tokens:
		h.kind = "tokens"
	case side != "":
		return h, false
	case h.kind == "": // x-ratelimit-remaining
		h.kind = "requests"
	}
	if h.period == 0 {
		h.period = time.Minute
	}
	return h, found
}

// limitWords returns the words of a header's name behind that of a limit; none for a header that has no such word.
func limitWords(name string) []string {
	for _, family := range [...]string{"ratelimitbysize", "ratelimit", "rate-limit", "tokenlimit", "token-limit"} {
		if before, after, ok := strings.Cut(name, family); ok && (after == "" || after[0] == '-') && (before == "" || strings.HasSuffix(before, "-")) {
			return strings.Split(strings.TrimPrefix(after, "-"), "-")
		}
	}
	return nil
}

// figuresOf returns what the headers of a response say to be left, by the kind of the limit.
func figuresOf(headers http.Header, now time.Time) map[string][]figure {
	figures := map[string][]figure{}
	resets := map[heading]time.Duration{}
	for name, values := range headers {
		if name = strings.ToLower(name); !strings.Contains(name, "limit") {
			continue
		}
		for _, value := range values {
			if h, ok := parseHeading(name, "reset"); ok {
				resets[h] = max(resets[h], resetIn(value, now))
			} else if h, ok := parseHeading(name, "remaining"); ok {
				if n, ok := restIn(value); ok {
					figures[h.kind] = append(figures[h.kind], figure{left: n, period: h.period})
				}
			}
		}
	}
	for kind, left := range figures {
		for i := range left {
			left[i].reset = resets[heading{kind, left[i].period}]
		}
	}
	structured(headers, figures)
	return figures
}

// restIn returns the rest that a header names; false for another text.
func restIn(text string) (n int64, ok bool) {
	text, _, _ = strings.Cut(text, ";") // of parameters
	x, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(x >= 0) {
		return 0, false
	}
	return int64(min(x, maxAmount)), true
}

// structured adds what the RateLimit field of the IETF says to be left, such as "default";r=50;t=30. Its policy of the same name has the
// window and the unit. In older drafts the field is such as limit=100, remaining=50, reset=30, and its policy 100;w=60. A field that is
// neither says nothing.
func structured(headers http.Header, figures map[string][]figure) {
	if older, err := httpsfv.UnmarshalDictionary(headers.Values("RateLimit")); err == nil {
		if n, ok := restIn(memberOf(older, "remaining")); ok {
			window := time.Duration(0) // the shortest, which the rest is of
			for _, policy := range paramsOf(headers.Values("RateLimit-Policy")) {
				if w := seconds(policy["w"]); w > 0 && (window == 0 || w < window) {
					window = w
				}
			}
			figures["requests"] = append(figures["requests"], figure{left: n, period: cmp.Or(window, time.Minute), reset: seconds(memberOf(older, "reset"))})
		}
	}
	policies := paramsOf(headers.Values("RateLimit-Policy"))
	for name, limit := range paramsOf(headers.Values("RateLimit")) {
		policy := policies[name]
		kind, known := quotaUnits[policy["qu"]]
		n, ok := restIn(limit["r"])
		if !known || !ok {
			continue
		}
		f := figure{left: n, period: time.Minute, reset: seconds(limit["t"])}
		if window := seconds(policy["w"]); window > 0 {
			f.period = window
		}
		figures[kind] = append(figures[kind], f)
	}
}

// quotaUnits are the units of policies. Without one, a policy is of requests.
var quotaUnits = map[string]string{"": "requests", "requests": "requests", "tokens": "tokens", "input-tokens": "input-tokens", "output-tokens": "output-tokens"}

// memberOf returns a member of a structured dictionary as text; "" for none.
func memberOf(d *httpsfv.Dictionary, name string) string {
	member, _ := d.Get(name)
	item, ok := member.(httpsfv.Item)
	if !ok {
		return ""
	}
	return fmt.Sprint(item.Value)
}

// paramsOf returns the parameters of the members of a structured list by their names, as text. Some providers write names as tokens, and
// numbers as strings.
func paramsOf(values []string) map[string]map[string]string {
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return nil
	}
	all := map[string]map[string]string{}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			continue
		}
		params := map[string]string{}
		for _, name := range item.Params.Names() {
			value, _ := item.Params.Get(name)
			params[name] = fmt.Sprint(value)
		}
		all[fmt.Sprint(item.Value)] = params
	}
	return all
}

// seconds returns a duration that is written as a number of seconds; 0 for another text.
func seconds(text string) time.Duration {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || !(s > 0) {
		return 0
	}
	return time.Duration(min(s, 366*day.Seconds()) * float64(time.Second))
}

// resetIn returns how long it takes until a reset: as a duration such as 1m2.5s, in seconds, or as a time, also in seconds or milliseconds
// since 1970; 0 for another text.
func resetIn(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if d, err := time.ParseDuration(text); err == nil {
		return max(0, d)
	}
	for _, parse := range [...]func(string) (time.Time, error){func(t string) (time.Time, error) { return time.Parse(time.RFC3339, t) }, http.ParseTime} {
		if at, err := parse(text); err == nil {
			return max(0, at.Sub(now))
		}
	}
	s, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(s > 0):
		return 0
	case s > 1e11: // milliseconds since 1970
		return max(0, time.UnixMilli(int64(min(s, 1e14))).Sub(now))
	case s > 1e9: // seconds since 1970
		return max(0, time.Unix(int64(s), 0).Sub(now))
	default:
		return time.Duration(min(s, longestWait.Seconds()) * float64(time.Second))
	}
}
