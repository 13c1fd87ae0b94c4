package llm_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestPathsThatServersReadInTwoWays asks a model by paths that end like those of free calls, and that a server may bring to the path
// of a call. None of them is sent.
func TestPathsThatServersReadInTwoWays(t *testing.T) {
	for _, path := range []string{
		"/v1/chat/completions/.", "/v1/chat/completions/%2e", "/v1/chat/completions/./", "/v1/chat/completions/x/..", "/v1/files/../chat/completions/..",
		"/v1beta/models/big:generateContent;:countTokens", "/v1beta/models/big:generateContent%3f:countTokens", "/v1beta/models/big:generateContent%23:countTokens",
		"/v1/chat/completions/%252e", `/v1/chat/completions/%5c`, "/v1/uploads/../chat/completions/../parts",
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
		transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			t.Errorf("%s is sent", r.URL)
			return nil, errors.New("sent")
		}))
		if _, err := transport.RoundTrip(newRequest(t, path, `{"model":"big"}`)); !errors.As(err, new(*zlimit.ValidationError)) || transport.Unknown() != 1 {
			t.Errorf("%s: RoundTrip() = %v, want it refused as unknown", path, err)
		}
	}
}

// TestFormsThatAreMore reads bodies whose Content-Type claims a form. Another reader may find another model in them.
func TestFormsThatAreMore(t *testing.T) {
	part := func(model string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + model + "\r\n"
	}
	const form, end = "multipart/form-data; boundary=b", "--b--\r\n"
	for _, test := range []struct {
		name, body string
		types      []string
		field      string
	}{
		{"a form", part("small") + end, []string{form}, ""},
		{"behind JSON", `{"model":"big"}` + "\r\n" + part("small") + end, []string{form}, "body"},
		{"behind an empty line", "\r\n" + part("small") + end, []string{form}, "body"},
		{"of two models", part("big") + part("small") + end, []string{form}, "model"},
		{"without a boundary", part("small") + end, []string{"multipart/form-data"}, "body"},
		{"of two boundaries", part("small") + end, []string{form, "multipart/form-data; boundary=c"}, "Content-Type"},
		{"JSON, too", `{"model":"big"}`, []string{"application/json", form}, "Content-Type"},
	} {
		r := newRequest(t, "/v1/images/edits", test.body)
		r.Header["Content-Type"] = test.types
		call, err := llm.Inspect(r)
		var invalid *zlimit.ValidationError
		switch {
		case test.field == "" && (err != nil || call.Model != "small"):
			t.Errorf("%s: Inspect() = %+v, %v, want the model small", test.name, call, err)
		case test.field != "" && (!errors.As(err, &invalid) || invalid.Field != test.field):
			t.Errorf("%s: Inspect() = %+v, %v, want an error of %s", test.name, call, err, test.field)
		}
	}
}

// TestStreamsBehindSpace asks for the usage of a stream whose object begins behind more space than is held in memory.
func TestStreamsBehindSpace(t *testing.T) {
	space := strings.Repeat(" \n", 1<<20)
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
	transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		got, err := io.ReadAll(r.Body)
		if want := space + `{"stream_options":{"include_usage":true},"model":"m","stream":true}`; err != nil || string(got) != want {
			t.Errorf("the request ends with %q, %v", got[max(0, len(got)-80):], err)
		}
		return nil, errors.New("no answer")
	}), llm.WithIncludeUsage())
	_, _ = transport.RoundTrip(newRequest(t, chatPath, space+`{"model":"m","stream":true}`))
}

// TestWaysToAskForAStream covers values of stream as lenient servers read them.
func TestWaysToAskForAStream(t *testing.T) {
	for value, want := range map[string]bool{"true": true, `"true"`: true, "1": true, `"yes"`: true, "false": false, `"false"`: false, "0": false, "null": false} {
		if call, err := llm.Inspect(newRequest(t, chatPath, `{"model":"m","stream":`+value+`}`)); err != nil || call.Stream != want {
			t.Errorf("stream %s: Inspect() = %+v, %v, want %v", value, call, err, want)
		}
	}
}

// TestSilentBases fails calls in a base that does not report how far they came: the provider may have them, so that the prompt is
// charged.
func TestSilentBases(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
	transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("the connection broke")
	}))
	if _, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","messages":"12345678","max_tokens":50}`)); err == nil {
		t.Error("RoundTrip() = nil")
	}
	if got := reports.one(t); !maps.Equal(got.Charged, zlimit.Amounts{"rpm": 1, "tpm": 2}) {
		t.Errorf("Charged = %v, want the prompt", got.Charged)
	}
}

// TestBodiesThatServersReadInTwoWays covers bodies in which another reader may find another model. None of them is read.
func TestBodiesThatServersReadInTwoWays(t *testing.T) {
	const small = `{"model":"small"}`
	part := func(header, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"model\"" + header + "\r\n\r\n" + value + "\r\n--b--\r\n"
	}
	const form = "multipart/form-data; boundary=b"
	for name, test := range map[string]struct {
		body, kind, encoding string
		field                string // "" for a body that is read
	}{
		"JSON":                             {small, "application/json", "", ""},
		"JSON of a vendor":                 {small, "application/vnd.acme+json; charset=UTF-8", "identity", ""},
		"no type":                          {small, "", "", ""},
		"plain text":                       {small, "text/plain;charset=utf-8", "", ""},
		"a form in a line":                 {`{"model":"small","x":"&model=big&"}`, "application/x-www-form-urlencoded", "", "Content-Type"},
		"protocol buffers":                 {small, "application/x-protobuf", "", "Content-Type"},
		"another kind of parts":            {small, "multipart/mixed; boundary=b", "", "Content-Type"},
		"two types in one":                 {small, "application/json, multipart/form-data; boundary=b", "", "Content-Type"},
		"another alphabet":                 {`{"model":"small","+AG0-odel":"big"}`, "application/json; charset=utf-7", "", "Content-Type"},
		"compressed":                       {small, "application/json", "br", "Content-Encoding"},
		"compressed twice":                 {small, "application/json", "identity, gzip", "Content-Encoding"},
		"a name in upper case":             {`{"model":"small","MODEL":"big"}`, "application/json", "", "body"},
		"a name in upper case, escaped":    {`{"Mode\u006c":"big","model":"small"}`, "application/json", "", "body"},
		"a name in upper case, further in": {`{"model":"small","x":{"MODEL":"big"}}`, "application/json", "", ""},
		"a comment":                        {`{"model":"big","x":1/*,"model":"small","y":1*/}`, "application/json", "", "body"},
		"a comment to the end of a line":   {"{\"model\":\"big\",\"x\":1//,\"model\":\"small\"\n}", "application/json", "", "body"},
		"a comma that is missing":          {`{"x":1"model":"big","model":"small"}`, "application/json", "", "body"},
		"no number":                        {`{"model":"small","x":tru/e}`, "application/json", "", "body"},
		"numbers and words":                {`{"model":"small","x":[-1.5E+3,true,false,null]}`, "application/json", "", ""},
		"many levels":                      {`{"model":"small","x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, "application/json", "", "body"},
		"many levels of objects":           {strings.Repeat(`{"x":`, 5000) + `{"model":"big"}` + strings.Repeat("}", 5000), "application/json", "", "body"},
		"UTF-16":                           {"\xff\xfe{\x00\"\x00m\x00", "application/json", "", "body"},
		"an encoded part":                  {part("\r\nContent-Transfer-Encoding: base64", "Z3B0LTRv"), form, "", "model"},
		"a part that is not encoded":       {part("\r\nContent-Transfer-Encoding: 8bit", "small"), form, "", ""},
		"a part that is a file":            {part("; filename=x", "big"), form, "", "model"},
	} {
		r := newRequest(t, "/v1/images/edits", test.body)
		r.Header.Set("Content-Type", test.kind)
		r.Header.Set("Content-Encoding", test.encoding)
		call, err := llm.Inspect(r)
		var invalid *zlimit.ValidationError
		switch {
		case test.field == "" && (err != nil || call.Model != "small"):
			t.Errorf("%s: Inspect() = %+v, %v, want the model small", name, call, err)
		case test.field != "" && (!errors.As(err, &invalid) || invalid.Field != test.field):
			t.Errorf("%s: Inspect() = %+v, %v, want an error of %s", name, call, err, test.field)
		}
	}
	for _, kind := range []string{"application/x-www-form-urlencoded", "application/octet-stream"} { // the path names the model
		r := newRequest(t, "/v1beta/models/big:generateContent", small)
		r.Header.Set("Content-Type", kind)
		if call, err := llm.Inspect(r); err != nil || call.Model != "big" {
			t.Errorf("%s: Inspect() = %+v, %v, want the model big", kind, call, err)
		}
	}
}
