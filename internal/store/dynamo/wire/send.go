package wire

import (
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// transportOf returns the transport of an HTTP client that adds nothing to it but redirects, nil for another client. An
// [http.Client] copies the headers of each request for a redirect, which DynamoDB does not answer.
func transportOf(client dynamodb.HTTPClient) http.RoundTripper {
	c, ok := client.(*http.Client)
	switch {
	case !ok || c.Jar != nil || c.Timeout != 0:
		return nil
	case c.Transport == nil:
		return http.DefaultTransport
	default:
		return c.Transport
	}
}

// send sends a request, and returns what the HTTP client would, but a redirect where that would follow it, see [Path.isFollowed].
func (p *Path) send(request *http.Request) (*http.Response, error) {
	transport := transportOf(p.options.HTTPClient)
	if transport == nil {
		return p.options.HTTPClient.Do(request)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, &url.Error{Op: "Post", URL: request.URL.Redacted(), Err: err}
	}
	if response.Body == nil {
		response.Body = http.NoBody
	}
	return response, nil
}

// isFollowed reports whether the HTTP client may follow a reply, which is a redirect. Without another copy of the body, it follows
// redirects that turn a request into one without a body.
func (p *Path) isFollowed(response *http.Response) bool {
	if p.resends {
		return false
	}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		return valueOf(response.Header, "Location") != ""
	default:
		return false
	}
}

// valueOf returns the first value of a header, whose name is in canonical form; "" without one.
func valueOf(header http.Header, name string) string {
	if values := header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
