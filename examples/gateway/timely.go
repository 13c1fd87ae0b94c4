package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// bodyTimeout bounds how long the body of a request may take. The answer may take longer, since models stream. A test
// shortens it.
var bodyTimeout = 30 * time.Second

// errLate says that a body did not come in time.
var errLate = errors.New("the body of the request did not come in time")

// timely bounds the time in which a handler is sent the body of a request. A time-out of the server would bound the answer
// as well.
func timely(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		r.Body = &timelyBody{r.Body, control}
		next.ServeHTTP(w, r)
	})
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
		err = errLate
	case errors.Is(err, io.EOF):
		_ = b.control.SetReadDeadline(time.Time{}) // which fails for a connection that is gone
	}
	return n, err
}
