package connectlimit

import (
	"context"
	"net"
	"net/http/httptrace"
	"sync"
	"time"
)

// A wire ends the sending side of a refused stream over HTTP/1.1, so that the server does not take the messages before
// for all. There, net/http closes the connection of a cancelled stream, but waits for the end of its messages before it
// says so. An end that comes before would reach the server. The wire therefore stops writes to the connection first.
//
// Streams over HTTP/2 share their connection, and end with their response. A client that is not of net/http shows no
// connection, and ends a cancelled stream by itself. A wire is safe for concurrent use.
type wire struct {
	end func() // ends the messages; does not wait

	mu   sync.Mutex
	conn net.Conn // the latest that the stream was given
	one  bool     // it speaks HTTP/1.1
	cut  bool     // the stream is refused
}

// trace returns a context whose requests show their connection.
func (w *wire) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.conn, w.one = got.Conn, false
		},
		WroteHeaderField: func(name string, _ []string) {
			if name != "Host" { // which HTTP/2 does not have
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.one = true
			w.stop()
		},
	})
}

// refuse ends the messages, now or as soon as there is a connection.
func (w *wire) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	w.stop()
}

// stop ends the messages of a refused stream over HTTP/1.1, without the server noticing. The wire is locked.
func (w *wire) stop() {
	if !w.one || !w.cut {
		return
	}
	if err := w.conn.SetWriteDeadline(time.Unix(1, 0)); err != nil { // it is closed, or has no deadlines
		_ = w.conn.Close()
	}
	w.end()
}
