package llm

import (
	"net/http"
	"strconv"
	"strings"
)

// readable returns the encoding to ask for, out of those that a client accepts: gzip, or none, since a meter
// understands these. A client that accepts neither gets the answer of a server without encodings.
func readable(accepted string) string {
	gzip, any := -1.0, 0.0
	for _, coding := range strings.Split(accepted, ",") {
		name, params, _ := strings.Cut(coding, ";")
		weight := 1.0
		if q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(params)), "q="); ok {
			weight, _ = strconv.ParseFloat(q, 64) // 0 for any other text
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip":
			gzip = weight
		case "*":
			any = weight
		}
	}
	if gzip > 0 || gzip < 0 && any > 0 {
		return "gzip"
	}
	return "identity"
}

// acceptReadable removes from a request the encodings of an answer that are not understood.
func acceptReadable(h http.Header) {
	if accepted := h.Values("Accept-Encoding"); len(accepted) > 0 {
		h.Set("Accept-Encoding", readable(strings.Join(accepted, ",")))
	}
}
