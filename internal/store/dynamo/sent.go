package dynamo

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"sync/atomic"
	"time"
)

// A trail has the known facts about the requests of one call of a write.
//
// They were certainly not sent when the transport was asked for a connection and had none. A transport that does not
// report them leaves both counts at 0, and so leaves the question open.
type trail struct {
	start      time.Time
	asked, got atomic.Int32
	hooks      httptrace.ClientTrace
}

// trace returns a context whose requests are noted in a trail, which starts now.
func trace(ctx context.Context) (context.Context, *trail) {
	t := &trail{start: time.Now()}
	t.hooks.GetConn = func(string) { t.asked.Add(1) }
	t.hooks.GotConn = func(httptrace.GotConnInfo) { t.got.Add(1) }
	return httptrace.WithClientTrace(ctx, &t.hooks), t
}

// unsent reports whether certainly nothing was sent.
func (t *trail) unsent() bool { return t.asked.Load() > 0 && t.got.Load() == 0 }

// A patient transport ends a request without a deadline after replyTimeout, so a dead connection is not waited for
// without end. It sends the headers of a request together with its body. A request of which an idle connection took
// nothing, since the server had closed it, goes out on another one.
type patient struct{ base *http.Transport }

// Resends marks the transport as one that may have the body of a request once more, see [wire.Resender].
func (patient) Resends() {}

// RoundTrip implements [http.RoundTripper].
func (p patient) RoundTrip(request *http.Request) (*http.Response, error) {
	request, err := whole(request)
	if err != nil {
		return nil, err
	}
	if _, bounded := request.Context().Deadline(); bounded {
		return p.base.RoundTrip(request)
	}
	ctx, cancel := context.WithTimeout(request.Context(), replyTimeout)
	reply, err := p.base.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	reply.Body = boundBody{reply.Body, cancel}
	return reply, nil
}

// whole returns a request whose body net/http can send with the headers. It also is for requests of the SDK, which
// closes a body when the reply is there. Just then net/http may look for its end, and would close the connection under
// the reply.
func whole(request *http.Request) (*http.Request, error) {
	if request.ContentLength <= 0 || reflect.TypeOf(request.Body) == inMemory {
		return request, nil
	}
	body, err := io.ReadAll(io.LimitReader(request.Body, request.ContentLength))
	if closing := request.Body.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	sent := *request
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	sent.Body, err = sent.GetBody()
	return &sent, err
}

// inMemory is the type of a body that net/http knows to be in memory.
var inMemory = reflect.TypeOf(io.NopCloser(new(bytes.Reader)))

// CloseIdleConnections closes the idle connections of the transport, for [http.Client.CloseIdleConnections].
func (p patient) CloseIdleConnections() { p.base.CloseIdleConnections() }

// A boundBody releases the timeout of its request when it is closed.
type boundBody struct {
	io.ReadCloser
	release context.CancelFunc
}

// Close implements [io.Closer].
func (b boundBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
