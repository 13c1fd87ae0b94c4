package httplimit

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// ErrBodyTimeout is what reading the body of a request returns once the time of [BodyTimeout] is over. [ProblemOf] has status 408 for it.
var ErrBodyTimeout = errors.New("httplimit: the body of the request did not come in time")

// BodyTimeout returns middleware that bounds the time for reading the body of a request, from the call of the handler
// on. The answer may take longer, such as a stream: a ReadTimeout of the server would bound both. Reading the body
// fails with [ErrBodyTimeout] then. It panics for a time that is not positive. A server that has no deadlines, such as
// one of a test, is left without.
func BodyTimeout(timeout time.Duration) func(http.Handler) http.Handler {
	if timeout <= 0 {
		panic("httplimit: the time for bodies is " + timeout.String() + "; it must be positive")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			if r.Body != nil && r.Body != http.NoBody && control.SetReadDeadline(deadline(timeout)) == nil {
				within := *r
				within.Body = &timelyBody{r.Body, control}
				r = &within
			}
			next.ServeHTTP(w, r)
		})
	}
}

// deadline returns the end of a time from now on. Connections use the clock of the machine.
func deadline(timeout time.Duration) time.Time {
	return time.Now().Add(timeout) //nolint:forbidigo // a connection knows no other clock
}

// A timelyBody has a deadline, which ends with the body.
type timelyBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timelyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrBodyTimeout
	case errors.Is(err, io.EOF):
		_ = b.control.SetReadDeadline(time.Time{}) // it fails for a connection that is gone
	}
	return n, err
}
