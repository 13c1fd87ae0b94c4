package llm

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// isFine reports whether the place of an error says that there is none.
func isFine(raw []byte) bool {
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "", "0", "200", "false", "null", "none", "ok", "success", "succeeded":
		return true
	default:
		return false
	}
}

// fail notes an error, of which a text is a code or a message.
func (t *tally) fail(text string) {
	d := &t.document
	d.failed = true
	d.limited = d.limited || isLimit(text)
	if d.delay == 0 {
		d.delay = delayIn(text)
	}
}

// limits are what providers call a rate limit, without signs between the words.
var limits = []string{"ratelimit", "resourceexhausted", "throttl", "toomanyrequests", "tokensperminute", "requestsperminute"}

// isLimit reports whether the code or the message of an error is of a rate limit.
func isLimit(text string) bool {
	if text == "429" {
		return true
	}
	plain := plainOf(text)
	for _, limit := range limits {
		if strings.Contains(plain, limit) {
			return true
		}
	}
	return false
}

// plainOf returns a text in lower case, without signs between the words.
func plainOf(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(text))
}

// waits finds the time to wait in the text of an error, such as "try again in 1m2.5s" or "retry after 20 seconds".
var waits = regexp.MustCompile(`(?i)(?:again|retry|wait)[a-z ]{0,12}\b(?:in|after)?:? ?((?:[0-9]+(?:\.[0-9]+)?(?:ms|h|m|s))+|([0-9]+(?:\.[0-9]+)?) ?(milliseconds?|seconds?|minutes?))`)

// delayIn returns how long the text of an error asks to wait; 0 for none.
func delayIn(text string) time.Duration {
	found := waits.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	if found[2] == "" {
		d, _ := time.ParseDuration(found[1])
		return d
	}
	n, _ := strconv.ParseFloat(found[2], 64)
	unit := time.Second
	switch found[3][1] {
	case 'i':
		if unit = time.Minute; strings.HasPrefix(strings.ToLower(found[3]), "milli") {
			unit = time.Millisecond
		}
	default:
	}
	return time.Duration(min(n, 1e6) * float64(unit))
}

// reasons are parts of the reasons for which an answer ends before the model has ended it.
var reasons = []string{
	"filter", "safety", "guard", "armor", "prohibited", "blocklist", "blocked", "sensitive", "violat", "toxic", "spii", "recitation", "language", "refus", "reject", "moderat",
	"error", "malformed", "unexpected", "fail", "abort", "cancel", "timeout", "timedout", "insufficient", "overload", "noimage", "imageother", "missingthought", "toomanytool",
}

// isWithheld reports whether an answer that ends for a reason was ended by a filter or an error.
func isWithheld(reason string) bool {
	plain := plainOf(reason)
	if plain == "other" {
		return true
	}
	for _, part := range reasons {
		if strings.Contains(plain, part) {
			return true
		}
	}
	return false
}

// serviceOf returns the name of a class of service. Vertex AI has it within the type of the traffic.
func serviceOf(text string) string {
	if rest, ok := strings.CutPrefix(text, "ON_DEMAND"); ok {
		if rest = strings.TrimPrefix(rest, "_"); rest == "" {
			return "standard"
		}
		return strings.ToLower(rest)
	}
	return strings.ToLower(text)
}
