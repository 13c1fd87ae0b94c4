package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go/auth/bearer"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"google.golang.org/genai"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A studio is an upstream for the SDKs of all providers. It answers with a text, in one piece or as a stream, and with what the
// call took, unless that is to be left out.
type studio struct {
	silent bool          // it reports no usage
	hold   chan struct{} // if it is not nil, a stream waits for it after its first piece
	polls  int           // of a response in the background

	mu   sync.Mutex
	last int // bytes of the last request
}

// What the studio answers, and says that it took.
const (
	firstPiece, secondPiece = "Blue, ", "mostly."
	inputTokens             = 700
	outputTokens            = 41
)

// ServeHTTP implements [http.Handler].
func (s *studio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the gateway has broken off
	}
	s.mu.Lock()
	s.last = len(body)
	s.mu.Unlock()
	var question struct{ Stream bool }
	_ = json.Unmarshal(body, &question)
	stream := question.Stream || strings.Contains(r.URL.Path, "tream")
	var pieces []string
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/chat/completions"):
		pieces = s.openAI(stream)
	case strings.Contains(path, "/responses"):
		pieces = s.responses(r, stream, bytes.Contains(body, []byte(`"background":true`)))
	case strings.HasSuffix(path, "/embeddings"):
		pieces = []string{`{"object":"list","model":"text-embedding-3-small","data":[{"object":"embedding","index":0,"embedding":[0.5]}]` + s.usage(`,"usage":{"prompt_tokens":%d,"total_tokens":0}`) + `}`}
	case strings.HasSuffix(path, "/invoke"):
		pieces = s.anthropic(false)
	case strings.HasSuffix(path, "/invoke-with-response-stream"):
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		s.send(w, s.anthropic(true), func(piece string) { writeChunks(w, piece) })
		return
	case strings.HasSuffix(path, "/messages"):
		pieces = s.anthropic(stream)
	case strings.Contains(path, "enerateContent"):
		pieces = s.gemini(stream)
	default:
		s.bedrock(w, stream)
		return
	}
	w.Header().Set("Content-Type", map[bool]string{false: "application/json", true: "text/event-stream"}[stream])
	s.send(w, pieces, func(piece string) { _, _ = io.WriteString(w, piece) })
}

// send sends pieces, and waits after the first one of several for as long as the studio is held.
func (s *studio) send(w http.ResponseWriter, pieces []string, write func(string)) {
	for i, piece := range pieces {
		write(piece)
		w.(http.Flusher).Flush()
		if i == 0 && len(pieces) > 1 && s.hold != nil {
			<-s.hold
		}
	}
}

// usage returns a member that reports the usage, or an empty text.
func (s *studio) usage(format string) string {
	if s.silent {
		return ""
	}
	return fmt.Sprintf(format, []any{inputTokens, outputTokens}[:strings.Count(format, "%")]...)
}

func (s *studio) openAI(stream bool) []string {
	const usage = `"usage":{"prompt_tokens":%d,"completion_tokens":%d}`
	if !stream {
		return []string{`{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"` + firstPiece + secondPiece +
			`"},"finish_reason":"stop"}]` + s.usage(`,`+usage) + `}`}
	}
	const chunk = `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}` + "\n\n"
	pieces := []string{fmt.Sprintf(chunk, firstPiece), fmt.Sprintf(chunk, secondPiece)}
	if !s.silent {
		pieces = append(pieces, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"choices\":[],"+s.usage(usage)+"}\n\n")
	}
	return append(pieces, "data: [DONE]\n\n")
}

func (s *studio) anthropic(stream bool) []string {
	const message = `"id":"1","type":"message","role":"assistant","model":"claude"`
	if !stream {
		return []string{`{` + message + `,"content":[{"type":"text","text":"` + firstPiece + secondPiece + `"}],"stop_reason":"end_turn"` +
			s.usage(`,"usage":{"input_tokens":%d,"output_tokens":%d}`) + `}`}
	}
	event := func(kind, members string) string {
		return fmt.Sprintf("event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, members)
	}
	const delta = `,"index":0,"delta":{"type":"text_delta","text":%q}`
	pieces := []string{
		event("message_start", `,"message":{`+message+`,"content":[]`+s.usage(`,"usage":{"input_tokens":%d,"output_tokens":1}`)+`}`) +
			event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`) +
			event("content_block_delta", fmt.Sprintf(delta, firstPiece)),
		event("content_block_delta", fmt.Sprintf(delta, secondPiece)) + event("content_block_stop", `,"index":0`),
	}
	usage := s.usage(`,"usage":{"input_tokens":%d,"output_tokens":%d}`)
	return append(pieces, event("message_delta", `,"delta":{"stop_reason":"end_turn"}`+usage), event("message_stop", ""))
}

func (s *studio) gemini(stream bool) []string {
	usage := s.usage(`,"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d}`)
	answer := func(text, more string) string {
		return fmt.Sprintf(`{"candidates":[{"content":{"role":"model","parts":[{"text":%q}]},"index":0}]%s}`, text, more)
	}
	if !stream {
		return []string{answer(firstPiece+secondPiece, usage)}
	}
	return []string{"data: " + answer(firstPiece, "") + "\n\n", "data: " + answer(secondPiece, usage) + "\n\n"}
}

func (s *studio) bedrock(w http.ResponseWriter, stream bool) {
	usage := s.usage(`"usage":{"inputTokens":%d,"outputTokens":%d,"totalTokens":0}`)
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		more := ""
		if usage != "" {
			more = "," + usage
		}
		s.send(w, []string{`{"output":{"message":{"role":"assistant","content":[{"text":"` + firstPiece + secondPiece + `"}]}},"stopReason":"end_turn"` + more + `}`},
			func(piece string) { _, _ = io.WriteString(w, piece) })
		return
	}
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	const delta = `contentBlockDelta {"contentBlockIndex":0,"delta":{"text":%q}}`
	pieces := []string{fmt.Sprintf(delta, firstPiece), fmt.Sprintf(delta, secondPiece), `messageStop {"stopReason":"end_turn"}`, `metadata {` + usage + `}`}
	s.send(w, pieces, func(piece string) {
		kind, payload, _ := strings.Cut(piece, " ")
		m := eventstream.Message{Payload: []byte(payload)}
		for name, value := range map[string]string{":event-type": kind, ":message-type": "event", ":content-type": "application/json"} {
			m.Headers.Set(name, eventstream.StringValue(value))
		}
		_ = eventstream.NewEncoder().Encode(w, m)
	})
}

// A question is a call of an SDK: a text and perhaps a photo.
type question struct {
	text, key string
	photo     []byte
	stream    bool
}

// An sdk is one of those that providers publish.
type sdk struct {
	model, resource string
	ask             func(ctx context.Context, url string, client *http.Client, model string, q question) (string, error)
	status          func(error) int // of the response that is the error
}

// sdks are those of the providers whose calls the gateway passes on.
var sdks = map[string]sdk{
	"openai":    {"gpt-4o-mini", "openai-small", askOpenAI, statusOf(func(e *openai.Error) int { return e.StatusCode })},
	"anthropic": {"claude-sonnet-4-5", "claude-large", askAnthropic, statusOf(func(e *anthropic.Error) int { return e.StatusCode })},
	"gemini":    {"gemini-2.5-flash", "gemini-small", askGemini, geminiStatus},
	"bedrock": {
		"us.anthropic.claude-haiku-4-5-20251001-v1:0", "bedrock-small", askBedrock,
		statusOf(func(e *smithyhttp.ResponseError) int { return e.HTTPStatusCode() }),
	},
}

// statusOf returns how the status of an error of a type is reported.
func statusOf[E error](of func(E) int) func(error) int {
	return func(err error) int {
		var e E
		if !errors.As(err, &e) {
			return 0
		}
		return of(e)
	}
}

func geminiStatus(err error) int {
	var e genai.APIError
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code
}

func askOpenAI(ctx context.Context, url string, client *http.Client, model string, q question) (string, error) {
	c := openai.NewClient(option.WithHTTPClient(client), option.WithBaseURL(url+"/openai/v1/"), option.WithAPIKey(q.key), option.WithMaxRetries(0))
	content := []openai.ChatCompletionContentPartUnionParam{openai.TextContentPart(q.text)}
	if q.photo != nil {
		at := "data:image/png;base64," + base64.StdEncoding.EncodeToString(q.photo)
		content = append(content, openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: at}))
	}
	params := openai.ChatCompletionNewParams{
		Model: model, MaxTokens: openai.Int(maxTokens), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(content)},
	}
	if !q.stream {
		answer, err := c.Chat.Completions.New(ctx, params)
		if err != nil {
			return "", err
		}
		return answer.Choices[0].Message.Content, nil
	}
	stream, text := c.Chat.Completions.NewStreaming(ctx, params), ""
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			text += choice.Delta.Content
		}
	}
	return text, errors.Join(stream.Err(), stream.Close())
}

func askAnthropic(ctx context.Context, url string, client *http.Client, model string, q question) (string, error) {
	c := anthropic.NewClient(
		anthropicoption.WithHTTPClient(client), anthropicoption.WithBaseURL(url+"/anthropic"), anthropicoption.WithAPIKey(q.key), anthropicoption.WithMaxRetries(0),
	)
	return askMessages(ctx, c, model, q)
}

// askMessages asks for a message, by a client of any place.
func askMessages(ctx context.Context, c anthropic.Client, model string, q question) (string, error) {
	content := []anthropic.ContentBlockParamUnion{anthropic.NewTextBlock(q.text)}
	if q.photo != nil {
		content = append(content, anthropic.NewImageBlockBase64("image/png", base64.StdEncoding.EncodeToString(q.photo)))
	}
	params := anthropic.MessageNewParams{
		Model: model, MaxTokens: maxTokens, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(content...)},
	}
	if !q.stream {
		answer, err := c.Messages.New(ctx, params)
		if err != nil {
			return "", err
		}
		return answer.Content[0].Text, nil
	}
	stream, text := c.Messages.NewStreaming(ctx, params), ""
	for stream.Next() {
		text += stream.Current().Delta.Text
	}
	return text, errors.Join(stream.Err(), stream.Close())
}

func askGemini(ctx context.Context, url string, client *http.Client, model string, q question) (string, error) {
	c, err := genai.NewClient(ctx, &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: q.key, HTTPClient: client, HTTPOptions: genai.HTTPOptions{BaseURL: url + "/gemini"},
	})
	if err != nil {
		return "", err
	}
	parts := []*genai.Part{genai.NewPartFromText(q.text)}
	if q.photo != nil {
		parts = append(parts, genai.NewPartFromBytes(q.photo, "image/png"))
	}
	contents := []*genai.Content{genai.NewContentFromParts(parts, genai.RoleUser)}
	config := &genai.GenerateContentConfig{MaxOutputTokens: maxTokens}
	if !q.stream {
		answer, err := c.Models.GenerateContent(ctx, model, contents, config)
		if err != nil {
			return "", err
		}
		return answer.Text(), nil
	}
	text := ""
	for answer, err := range c.Models.GenerateContentStream(ctx, model, contents, config) {
		if err != nil {
			return text, err
		}
		text += answer.Text()
	}
	return text, nil
}

// askBedrock sends the key as the SDK sends an API key of Bedrock.
func askBedrock(ctx context.Context, url string, client *http.Client, model string, q question) (string, error) {
	c := bedrockruntime.New(bedrockruntime.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(url + "/bedrock"), HTTPClient: client, RetryMaxAttempts: 1,
		BearerAuthTokenProvider: bearer.StaticTokenProvider{Token: bearer.Token{Value: q.key}}, AuthSchemePreference: []string{"httpBearerAuth"},
	})
	content := []types.ContentBlock{&types.ContentBlockMemberText{Value: q.text}}
	if q.photo != nil {
		content = append(content, &types.ContentBlockMemberImage{
			Value: types.ImageBlock{Format: types.ImageFormatPng, Source: &types.ImageSourceMemberBytes{Value: q.photo}},
		})
	}
	messages := []types.Message{{Role: types.ConversationRoleUser, Content: content}}
	config := &types.InferenceConfiguration{MaxTokens: aws.Int32(maxTokens)}
	if !q.stream {
		answer, err := c.Converse(ctx, &bedrockruntime.ConverseInput{ModelId: &model, Messages: messages, InferenceConfig: config})
		if err != nil {
			return "", err
		}
		return answer.Output.(*types.ConverseOutputMemberMessage).Value.Content[0].(*types.ContentBlockMemberText).Value, nil
	}
	answer, err := c.ConverseStream(ctx, &bedrockruntime.ConverseStreamInput{ModelId: &model, Messages: messages, InferenceConfig: config})
	if err != nil {
		return "", err
	}
	stream, text := answer.GetStream(), ""
	for event := range stream.Events() {
		if delta, ok := event.(*types.ConverseStreamOutputMemberContentBlockDelta); ok {
			text += delta.Value.Delta.(*types.ContentBlockDeltaMemberText).Value
		}
	}
	return text, errors.Join(stream.Err(), stream.Close())
}

// maxTokens bounds the answers that the SDKs ask for.
const maxTokens = 1000

// newStudio starts a gateway before a studio, with limits that no call reaches.
func newStudio(t *testing.T, s *studio) *testbed {
	t.Helper()
	upstream := httptest.NewServer(s)
	t.Cleanup(upstream.Close)
	return openGateway(t, upstream.URL)
}

// taken returns the tokens that a team has consumed of a resource, by all of its calls.
func (w *testbed) taken(t *testing.T, team, resource string) int64 {
	t.Helper()
	for b, err := range w.limiter.Entities.Buckets(t.Context(), team) {
		if err != nil {
			t.Fatalf("Entities.Buckets() = %v", err)
		}
		if b.Resource == resource {
			return b.Consumed["tokens"].Tokens()
		}
	}
	return 0
}

// spend lets a level have one token a day, and takes it.
func (w *testbed) spend(t *testing.T, level zlimit.Level) {
	t.Helper()
	if err := w.limiter.Limits.Set(t.Context(), level, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1)}}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	request := zlimit.Request{Entity: level.Entity, Resource: level.Resource, Consume: zlimit.Amounts{"tokens": 1}}
	if _, err := w.limiter.Acquire(t.Context(), request); err != nil {
		t.Fatalf("Acquire() = %v", err)
	}
}

// In TestSDKs, the SDK of each provider calls through the gateway: small and large, whole answers and streams, with usage and without. The text
// arrives, the provider gets the whole request, and the team and its organization are charged what was reported. If nothing was, they are charged an
// estimate, which a photo does not raise by its bytes. A stream goes on when its first byte has reached the caller.
func TestSDKs(t *testing.T) {
	sizes := []int{0, 1 << 20, 20 << 20}
	if testing.Short() {
		sizes = sizes[:2]
	}
	all := maps.Clone(moreCalls)
	maps.Copy(all, sdks)
	for name, sdk := range all {
		for _, silent := range []bool{false, true} {
			s := &studio{silent: silent}
			w := newStudio(t, s)
			early := &early{base: w.client.Transport}
			w.client.Transport = early
			for _, size := range sizes {
				for _, stream := range []bool{false, true} {
					embeds := name == "openai, embeddings"
					large := size > 1<<20
					if large && (silent || !stream && moreCalls[name].ask != nil) || embeds && (stream || size > 0) {
						continue
					}
					s.hold = make(chan struct{})
					early.came = sync.OnceFunc(func() { close(s.hold) })
					what := fmt.Sprintf("%s, stream %t, silent %t, a photo of %d bytes", name, stream, silent, size)
					q := question{text: "Why is the sky blue? " + strings.Repeat("Tell. ", 150), key: "search-key", stream: stream}
					if size > 0 {
						q.photo = bytes.Repeat([]byte{7, 1, 5}, size/3)
					}
					before := w.taken(t, "acme-search", sdk.resource)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of a stream whose beginning is held back
					text, err := sdk.ask(ctx, w.url, w.client, sdk.model, q)
					cancel()
					if err != nil || text != firstPiece+secondPiece {
						t.Errorf("%s: the answer is %q, %v", what, text, err)
					}
					w.wait(t)
					if s.last < size {
						t.Errorf("%s: the provider gets %d bytes", what, s.last)
					}
					took := w.taken(t, "acme-search", sdk.resource) - before
					if parent := w.taken(t, account, sdk.resource); parent != before+took {
						t.Errorf("%s: the organization is charged %d, the team %d", what, parent, before+took)
					}
					reported := int64(inputTokens + outputTokens)
					if embeds {
						reported = inputTokens
					}
					if least, most := int64(200), int64(5000); silent && (took < least || took > most) || !silent && took != reported {
						t.Errorf("%s: %d tokens are charged", what, took)
					}
				}
			}
		}
	}
}

// In TestSDKsAreRefused, the SDK of each provider meets each refusal. Its error has the status, and nothing is charged.
func TestSDKsAreRefused(t *testing.T) {
	w := newStudio(t, &studio{})
	for name, sdk := range sdks {
		for _, stream := range []bool{false, true} {
			for _, test := range []struct {
				what, key, model string
				spent            bool
				status           int
			}{
				{"an unknown key", "other-key", sdk.model, false, http.StatusUnauthorized},
				{"a model that the key is not for", "batch-key", map[string]string{
					"openai": "gpt-4o", "anthropic": "claude-opus-4-5", "gemini": "gemini-2.5-pro", "bedrock": "us.anthropic.claude-opus-4-1-20250805-v1:0",
				}[name], false, http.StatusForbidden},
				{"limits that are spent", "search-key", sdk.model, true, http.StatusTooManyRequests},
			} {
				if test.spent && !stream {
					w.spend(t, zlimit.Level{Entity: "acme-search", Resource: sdk.resource})
				}
				before := w.taken(t, account, sdk.resource)
				_, err := sdk.ask(t.Context(), w.url, w.client, test.model, question{text: "Why?", key: test.key, stream: stream})
				if got := sdk.status(err); got != test.status {
					t.Errorf("%s, stream %t, %s: the error is %v, of status %d, want %d", name, stream, test.what, err, got, test.status)
				}
				w.wait(t)
				if after := w.taken(t, account, sdk.resource); after != before {
					t.Errorf("%s, stream %t, %s: %d tokens are charged", name, stream, test.what, after-before)
				}
			}
		}
	}
}

// In TestSDKsLeave, a caller of each SDK ends its stream after the first piece. The gateway reads on, and charges all of it.
func TestSDKsLeave(t *testing.T) {
	for name, sdk := range sdks {
		s := &studio{hold: make(chan struct{})}
		w := newStudio(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		w.client.Transport = &early{base: w.client.Transport, came: cancel}
		text, err := sdk.ask(ctx, w.url, w.client, sdk.model, question{text: "Why?", key: "search-key", stream: true})
		if err == nil && name != "bedrock" || strings.Contains(text, secondPiece) { // the SDK of Bedrock may end with its context without an error
			t.Errorf("%s: the answer is %q, %v, though the provider has sent one piece", name, text, err)
		}
		cancel()
		close(s.hold)
		w.wait(t)
		if got := w.taken(t, "acme-search", sdk.resource); got != inputTokens+outputTokens {
			t.Errorf("%s: %d tokens are charged", name, got)
		}
	}
}
