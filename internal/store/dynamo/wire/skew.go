package wire

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	// maxTrusted is the longest round trip whose reply is used for the server's time.
	maxTrusted = 15 * time.Minute
	// maxSkew is by how much the time of a signature may be wrong before an answer is put down to it.
	maxSkew = 4 * time.Minute
)

// A sighting is the server's clock as a reply shows it.
type sighting struct {
	skew  time.Duration // of the server's clock from this machine's
	known bool
}

// sightingOf returns the sighting of a reply, which is empty where the reply came from a cache.
func sightingOf(sent time.Time, reply Reply, header http.Header) sighting {
	trip := reply.Received.Sub(sent)
	if reply.Date.IsZero() || valueOf(header, "Age") != "" || trip > maxTrusted {
		return sighting{}
	}
	return sighting{reply.Date.Sub(sent.Add(trip / 2)), true}
}

// dateOf returns the time in the header of a reply, zero if it has none.
func (p *Path) dateOf(header http.Header) time.Time {
	text := valueOf(header, "Date")
	if text == "" {
		return time.Time{}
	}
	if last := p.date.Load(); last != nil && last.text == text {
		return last.time
	}
	parsed, err := smithyhttp.ParseTime(text)
	if err != nil {
		return time.Time{}
	}
	p.date.Store(&date{text, parsed})
	return parsed
}

// correction returns by how much the time of a signature is corrected.
func (p *Path) correction() time.Duration {
	if p.options.DisableClockSkewCorrection {
		return 0
	}
	return time.Duration(p.skew.Load())
}

// learnSkew keeps the sighting of the last reply to a call.
func (p *Path) learnSkew(seen sighting) {
	if seen.known && !p.options.DisableClockSkewCorrection {
		p.skew.Store(int64(seen.skew))
	}
}

// skewCodes are the codes of errors that a wrong time may cause.
var skewCodes = map[string]bool{
	"InvalidSignatureException": true,
	"SignatureDoesNotMatch":     true,
	"AuthFailure":               true,
	"RequestTimeTooSkewed":      true,
	"AccessDeniedException":     true,
}

// skewed reports whether an error is put down to the time of the signature.
func skewed(err error, used, seen time.Duration) bool {
	var api smithy.APIError
	return errors.As(err, &api) && skewCodes[api.ErrorCode()] && (used-seen).Abs() > maxSkew
}

// A skewError is an error of an attempt that another attempt, with the right time, may not meet.
type skewError struct{ err error }

func (e *skewError) Error() string { return fmt.Sprintf("Probable clock skew error: %v", e.err) }
func (e *skewError) Unwrap() error { return e.err }

// RetryableError makes the retryer try again.
func (*skewError) RetryableError() bool { return true }
