package llm

import (
	"context"
	"fmt"
	"net/http"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Unknown is the treatment of a request without a format that may make a model work.
type Unknown uint8

// How a [Transport] treats unknown requests.
const (
	// UnknownRefuse does not send the request, and returns a [*zlimit.ValidationError]. It is the default.
	UnknownRefuse Unknown = iota
	// UnknownObserve sends the request, charges nothing, and reports it.
	UnknownObserve
	// UnknownEstimate charges the request, its text and the bound of an answer, which stays charged. The model is that of the body, or
	// "unknown" where the body names none. A connection that is upgraded, such as a WebSocket, is refused.
	UnknownEstimate
	// UnknownPass sends the request as if there were no limits, and calls no observer.
	UnknownPass
)

// WithUnknown sets the treatment of requests without a format. Requests of methods GET, HEAD, OPTIONS and DELETE never
// count as unknown, and are sent as they are, unless they upgrade the connection. [Transport.Unknown] counts the others, and
// [WithObserver] is called for each.
func WithUnknown(u Unknown) Option { return func(c *config) { c.unknown = u } }

// WithFormats adds formats. They come before [Formats], and the first one that matches a path counts.
func WithFormats(formats ...Format) Option {
	return func(c *config) { c.formats = append(c.formats, formats...) }
}

// unknownFormat is that of [UnknownEstimate].
var unknownFormat = (&Format{API: APIUnknown, DefaultModel: "unknown"}).compile()

// Unknown returns the number of requests without a format, with any outcome.
func (t *Transport) Unknown() int64 { return t.unknown.Load() }

// works reports whether a request may make a model work, on any path.
func works(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, "", http.MethodHead, http.MethodOptions, http.MethodDelete:
		return r.Header.Get("Upgrade") != ""
	default:
		return true
	}
}

// classify returns the pattern of a call and its model. It returns unknown for a request that may be a call and is not known.
func (t table) classify(r *http.Request) (p *pattern, model string, unknown bool) {
	if !works(r) {
		return nil, "", false
	}
	p, model = t.find(r.URL.Path)
	switch {
	case p == nil || r.Method != http.MethodPost:
		return nil, "", true
	case p.format.Free:
		return nil, "", false
	default:
		return p, model, false
	}
}

type unknownError struct {
	error
	name string // of the request
}

func (e *unknownError) Unwrap() error { return e.error }

// meet treats an unknown request as configured. It returns a pattern for one that is charged; without one and an error
// the request is sent as it is.
func (t *Transport) meet(r *http.Request) (*pattern, error) {
	t.unknown.Add(1)
	name := fmt.Sprintf("%s %s", r.Method, r.URL.Path)
	switch u := t.config.unknown; {
	case u == UnknownPass || u == UnknownObserve:
		return nil, nil //nolint:nilnil // it is sent as it is
	case u == UnknownEstimate && r.Header.Get("Upgrade") == "":
		return &pattern{format: unknownFormat}, nil
	default:
		err := &unknownError{invalid("request", name, "is no call that is known; see WithFormats and WithUnknown"), name}
		t.config.observe(r.Context(), Report{Call: Call{API: APIUnknown}, Unknown: name, Charged: zlimit.Amounts{}, Err: err})
		return nil, err
	}
}

// pass sends a request as it is, and reports an unknown one. A request for the response of a held call may settle that.
func (t *Transport) pass(r *http.Request, unknown bool) (*http.Response, error) {
	if h := t.held.find(r); h != nil && !unknown {
		return t.poll(r, h)
	}
	name := r.Method + " " + r.URL.Path
	response, err := t.config.base.RoundTrip(r)
	if unknown && t.config.unknown == UnknownObserve {
		report := Report{Call: Call{API: APIUnknown}, Unknown: name, Charged: zlimit.Amounts{}, Err: err}
		if err == nil {
			report.Status = response.StatusCode
		}
		t.config.observe(context.WithoutCancel(r.Context()), report)
	}
	return response, err
}
