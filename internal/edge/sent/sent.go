// Package sent reports whether any part of a net/http request can have been sent.
package sent

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// A Trace follows whether a request is given a connection. It is safe for concurrent use.
type Trace struct{ asked, given atomic.Bool }

// Context returns a context whose requests are followed.
func (t *Trace) Context(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { t.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { t.given.Store(true) },
	})
}

// Never reports that nothing of the requests left: each asked for a connection, and none was given one. A request on a
// connection may have been served, with any error. So may a request of a client outside net/http, which does not say
// when it asks. Never is asked when the client has returned.
func (t *Trace) Never() bool { return t.asked.Load() && !t.given.Load() }
