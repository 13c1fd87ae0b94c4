package llm

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Providers say in headers what is left of their limits. The names differ: x-ratelimit-remaining-requests,
// anthropic-ratelimit-input-tokens-remaining, x-ratelimit-remaining-req-minute, ratelimitbysize-remaining. So they are read by their
// words: one is that of a rest, and the others are the kind and the period of the limit.

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
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour, "month": 31 * 24 * time.Hour,
}

// kindWords are the words for the kind of a limit.
var kindWords = map[string]string{
	"requests": "requests", "request": "requests", "req": "requests", "tokens": "tokens", "token": "tokens",
	"input": "input", "prompt": "input", "output": "output", "completion": "output", "generated": "output",
}

// A heading is the name of a header about a limit.
type heading struct {
	kind   string
	period time.Duration
}

// parseHeading parses the name of a header, in small letters; what is the word that it must have, such as remaining. It returns false
// for a header that is not about a limit, or of a kind of limit that is not known.
func parseHeading(name, what string) (h heading, ok bool) {
	words := strings.Split(strings.TrimPrefix(name, "x-"), "-")
	bySize := false
	family, found := false, false
	tokens, side := false, ""
	for _, word := range words {
		switch kind := kindWords[word]; {
		case word == "ratelimit":
			family = true
		case word == "ratelimitbysize":
			family, bySize = true, true
		case word == what:
			found = true
		case word == "anthropic":
		case kind == "tokens":
			tokens = true
		case kind == "requests":
			h.kind = kind
		case kind != "":
			side = kind
		case periods[word] > 0:
			h.period = periods[word]
		default:
			return h, false
		}
	}
	switch {
	case side != "" && tokens:
		h.kind = side + "-tokens"
	case tokens || bySize:
		h.kind = "tokens"
	case side != "":
		return h, false
	case h.kind == "": // x-ratelimit-remaining
		h.kind = "requests"
	}
	if h.period == 0 {
		h.period = time.Minute
	}
	return h, family && found
}

// figuresOf returns what the headers of a response say to be left, by the kind of the limit.
func figuresOf(headers http.Header, now time.Time) map[string][]figure {
	figures := map[string][]figure{}
	resets := map[heading]time.Duration{}
	for name, values := range headers {
		name = strings.ToLower(name)
		if len(values) == 0 || !strings.Contains(name, "ratelimit") {
			continue
		}
		if h, ok := parseHeading(name, "reset"); ok {
			resets[h] = resetIn(values[0], now)
			continue
		}
		h, ok := parseHeading(name, "remaining")
		n, err := strconv.ParseInt(strings.TrimSpace(values[0]), 10, 64)
		if ok && err == nil && n >= 0 {
			figures[h.kind] = append(figures[h.kind], figure{left: min(n, maxAmount), period: h.period})
		}
	}
	for kind, left := range figures {
		for i := range left {
			left[i].reset = resets[heading{kind, left[i].period}]
		}
	}
	return figures
}

// resetIn returns how long it takes until a reset: as a duration such as 1m2.5s, in seconds, or as a time; 0 for another text.
func resetIn(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if d, err := time.ParseDuration(text); err == nil {
		return max(0, d)
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return max(0, at.Sub(now))
	}
	s, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !(s > 0):
		return 0
	case s > 1e9: // seconds of an epoch
		return max(0, time.Unix(int64(min(s, 1e11)), 0).Sub(now))
	default:
		return time.Duration(min(s, longestWait.Seconds()) * float64(time.Second))
	}
}
