package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/bedrock"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// moreCalls are other calls of the SDKs.
var moreCalls = map[string]sdk{
	"openai, responses":    {"gpt-4o-mini", "openai-small", askResponses, nil},
	"openai, embeddings":   {"text-embedding-3-small", "openai-small", askEmbeddings, nil},
	"anthropic on bedrock": {"us.anthropic.claude-haiku-4-5-20251001-v1:0", "bedrock-small", askBedrockByAnthropic, nil},
}

// early reports when the first byte of an answer has come.
type early struct {
	base http.RoundTripper
	came func()
}

func (e *early) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := e.base.RoundTrip(r)
	if err == nil {
		response.Body = &earlyBody{response.Body, e.came}
	}
	return response, err
}

type earlyBody struct {
	io.ReadCloser
	came func()
}

func (b *earlyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.came()
	}
	return n, err
}

// responses answers calls of the API of that name. A response in the background is there at the third poll.
func (s *studio) responses(r *http.Request, stream, background bool) []string {
	answer := func(status, output, usage string) string {
		return `{"id":"resp_1","object":"response","model":"gpt-4o-mini","status":"` + status + `","output":[` + output + `]` + usage + `}`
	}
	whole := answer("completed", `{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"`+firstPiece+secondPiece+`"}]}`,
		s.usage(`,"usage":{"input_tokens":%d,"output_tokens":%d}`))
	switch {
	case r.Method == http.MethodGet:
		if s.polls++; s.polls < 3 {
			return []string{answer("in_progress", "", "")}
		}
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		return []string{answer("cancelled", "", "")}
	case background:
		return []string{answer("queued", "", "")}
	case stream:
		const delta = `data: {"type":"response.output_text.delta","delta":%q}` + "\n\n"
		return []string{
			`data: {"type":"response.created","response":` + answer("in_progress", "", "") + "}\n\n" + fmt.Sprintf(delta, firstPiece),
			fmt.Sprintf(delta, secondPiece), `data: {"type":"response.completed","response":` + whole + "}\n\n",
		}
	}
	return []string{whole}
}

// writeChunks writes the events of a stream as Bedrock passes on those of a model.
func writeChunks(w io.Writer, events string) {
	for event := range strings.SplitSeq(events, "\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok {
			continue
		}
		payload, _ := json.Marshal(map[string][]byte{"bytes": []byte(data)})
		m := eventstream.Message{Payload: payload}
		for name, value := range map[string]string{":event-type": "chunk", ":message-type": "event", ":content-type": "application/json"} {
			m.Headers.Set(name, eventstream.StringValue(value))
		}
		_ = eventstream.NewEncoder().Encode(w, m)
	}
}

func newOpenAI(url string, client *http.Client, key string) openai.Client {
	return openai.NewClient(option.WithHTTPClient(client), option.WithBaseURL(url+"/openai/v1/"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func askResponses(ctx context.Context, url string, client *http.Client, model string, q question) (string, error) {
	c := newOpenAI(url, client, q.key)
	content := responses.ResponseInputMessageContentListParam{responses.ResponseInputContentParamOfInputText(q.text)}
	if q.photo != nil {
		photo := responses.ResponseInputContentParamOfInputImage(responses.ResponseInputImageDetailAuto)
		photo.OfInputImage.ImageURL = param.NewOpt("data:image/png;base64," + base64.StdEncoding.EncodeToString(q.photo))
		content = append(content, photo)
	}
	params := responses.ResponseNewParams{
		Model: model, MaxOutputTokens: openai.Int(maxTokens),
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(content, responses.EasyInputMessageRoleUser)}},
	}
	if !q.stream {
		answer, err := c.Responses.New(ctx, params)
		if err != nil {
			return "", err
		}
		return answer.OutputText(), nil
	}
	stream, text := c.Responses.NewStreaming(ctx, params), ""
	for stream.Next() {
		text += stream.Current().Delta
	}
	return text, errors.Join(stream.Err(), stream.Close())
}

// askEmbeddings returns the text of other calls where a vector has come.
func askEmbeddings(ctx context.Context, url string, client *http.Client, model string, q question) (string, error) {
	c := newOpenAI(url, client, q.key)
	answer, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String(q.text)}})
	if err != nil || len(answer.Data) != 1 || len(answer.Data[0].Embedding) != 1 {
		return "", err
	}
	return firstPiece + secondPiece, nil
}

// A below client sends its requests below the path of a provider.
type below struct {
	base http.RoundTripper
	path string
}

func (b below) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.RawPath, r.URL.Path = b.path+r.URL.EscapedPath(), b.path+r.URL.Path
	return b.base.RoundTrip(r)
}

// askBedrockByAnthropic calls InvokeModel, as Anthropic's SDK does on Bedrock. The SDK knows calls by their whole path, so that its base
// may have no path of its own.
func askBedrockByAnthropic(ctx context.Context, url string, client *http.Client, model string, q question) (string, error) {
	return askMessages(ctx, anthropic.NewClient(
		bedrock.WithConfig(aws.Config{
			Region: "us-east-1", BearerAuthTokenProvider: bedrock.NewStaticBearerTokenProvider(q.key), AuthSchemePreference: []string{"httpBearerAuth"},
		}),
		anthropicoption.WithBaseURL(url), anthropicoption.WithHTTPClient(&http.Client{Transport: below{client.Transport, "/bedrock"}}), anthropicoption.WithMaxRetries(0),
	), model, q)
}

// In TestResponsesInTheBackground, OpenAI's SDK polls a response through the gateway, and cancels one.
func TestResponsesInTheBackground(t *testing.T) {
	s := &studio{}
	w := newStudio(t, s)
	c := newOpenAI(w.url, w.client, "search-key")
	params := responses.ResponseNewParams{
		Model: "gpt-4o-mini", MaxOutputTokens: openai.Int(maxTokens), Background: openai.Bool(true),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Why?")},
	}
	const bound = maxTokens + 1
	answer, err := c.Responses.New(t.Context(), params)
	for answer != nil && err == nil && answer.Status != responses.ResponseStatusCompleted {
		if got := w.taken(t, "acme-search", "openai-small"); got != bound {
			t.Fatalf("%d tokens are taken while the response is made, want %d", got, bound)
		}
		answer, err = c.Responses.Get(t.Context(), answer.ID, responses.ResponseGetParams{})
	}
	if err != nil || answer.OutputText() != firstPiece+secondPiece || s.polls != 3 {
		t.Errorf("the response is %+v, %v, after %d polls", answer, err, s.polls)
	}
	if got := w.taken(t, "acme-search", "openai-small"); got != inputTokens+outputTokens {
		t.Errorf("%d tokens are charged", got)
	}
	if _, err := c.Responses.New(t.Context(), params); err != nil {
		t.Errorf("Responses.New() = %v", err)
	}
	if answer, err = c.Responses.Cancel(t.Context(), "resp_1"); err != nil || answer.Status != responses.ResponseStatusCancelled {
		t.Errorf("the response is %+v, %v", answer, err)
	}
	w.wait(t)
	if got := w.taken(t, "acme-search", "openai-small"); got != inputTokens+outputTokens+bound {
		t.Errorf("%d tokens are charged", got)
	}
	c = newOpenAI(w.url, w.client, "other-key")
	if _, err := c.Responses.Get(t.Context(), "resp_1", responses.ResponseGetParams{}); err == nil {
		t.Error("an unknown key polls")
	}
}
