package faulttest

import (
	"io"
	"net/http"
	"sync/atomic"
)

// A RoundTripper is a function as a transport.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A Body is the text of an answer. Its last bytes come with its end, as in net/http's bodies with a length. One
// goroutine reads it, and any number close it.
type Body struct {
	Rest   string
	Closed atomic.Int64 // times
}

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	n := copy(p, b.Rest)
	if b.Rest = b.Rest[n:]; b.Rest == "" {
		return n, io.EOF
	}
	return n, nil
}

// Close implements [io.Closer].
func (b *Body) Close() error {
	b.Closed.Add(1)
	return nil
}
