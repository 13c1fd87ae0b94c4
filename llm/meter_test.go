package llm_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An answer is a body of a provider, and what it says of its usage.
type answer struct {
	name, contentType string
	call              llm.Call
	body              []byte
	want              llm.Usage
}

// answers are one of each API, whole and streamed.
func answers(t testing.TB) []answer {
	const sse, json = "text/event-stream; charset=utf-8", "application/json"
	return []answer{
		{"chat, streamed", sse, llm.Call{API: llm.APIOpenAIChat}, read(t, "chat.sse"), llm.Usage{
			Model: "gpt-4o-mini-2024-07-18", Input: 86, CacheRead: 1920, Output: 300, Reasoning: 128, Complete: true,
		}},
		{"responses, streamed", sse, llm.Call{API: llm.APIOpenAIResponses}, read(t, "responses.sse"), llm.Usage{
			Model: "gpt-5-2025-08-07", Input: 200, CacheRead: 100, CacheWrite: 28, Output: 52, Reasoning: 40, Complete: true,
		}},
		{"messages, streamed, with two totals", sse, llm.Call{API: llm.APIAnthropicMessages}, read(t, "anthropic.sse"), llm.Usage{
			Model: "claude-sonnet-4-5-20250929", Input: 480, CacheRead: 1000, CacheWrite: 200, Output: 120, Searches: 1, Service: "standard", Complete: true,
		}},
		{"Gemini, streamed", sse, llm.Call{API: llm.APIGeminiContent}, read(t, "gemini.sse"), llm.Usage{
			Model: "gemini-2.5-flash", Input: 17, CacheRead: 32, Output: 30, Reasoning: 23, Complete: true,
		}},
		{"Gemini, streamed as an array", json, llm.Call{API: llm.APIGeminiContent}, read(t, "gemini.json"), llm.Usage{
			Model: "gemini-2.5-flash", Input: 17, CacheRead: 32, Output: 30, Reasoning: 23, Complete: true,
		}},
		{
			"Converse of Claude, streamed", "application/vnd.amazon.eventstream",
			llm.Call{API: llm.APIBedrockConverse, Model: "anthropic.claude-sonnet-4"},
			events(t, read(t, "bedrock.events")),
			llm.Usage{Model: "anthropic.claude-sonnet-4", Input: 25, CacheRead: 70, CacheWrite: 20, Output: 31, Complete: true},
		},
		{
			"Converse of GPT, streamed", "application/vnd.amazon.eventstream",
			llm.Call{API: llm.APIBedrockConverse, Model: "openai.gpt-oss-120b-1:0"},
			events(t, bytes.ReplaceAll(read(t, "bedrock.events"), []byte(`"inputTokens":25`), []byte(`"inputTokens":115`))),
			llm.Usage{Model: "openai.gpt-oss-120b-1:0", Input: 25, CacheRead: 70, CacheWrite: 20, Output: 31, Complete: true},
		},
		{"chat", json, llm.Call{API: llm.APIOpenAIChat}, read(t, "chat.json"), llm.Usage{
			Model: "gpt-4o-mini", Input: 20, Output: 5, Complete: true,
		}},
		{"responses", json, llm.Call{API: llm.APIOpenAIResponses}, read(t, "responses.json"), llm.Usage{
			Model: "gpt-5", Input: 30, CacheRead: 6, Output: 87, Reasoning: 80, Complete: true,
		}},
		{"messages", json, llm.Call{API: llm.APIAnthropicMessages}, read(t, "anthropic.json"), llm.Usage{
			Model: "claude-sonnet-4-5-20250929", Input: 12, CacheRead: 5, Output: 6, Complete: true,
		}},
		{"Converse", json, llm.Call{API: llm.APIBedrockConverse, Model: "amazon.nova-lite-v1:0"}, read(t, "bedrock.json"), llm.Usage{
			Model: "amazon.nova-lite-v1:0", Input: 30, Output: 62, Complete: true,
		}},
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	return check.Call(os.ReadFile(filepath.Join("testdata", "streams", name))).Must(t, "os.ReadFile()")
}

// events encodes lines of a type and a payload as an AWS event stream.
func events(t testing.TB, lines []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	for line := range strings.Lines(string(lines)) {
		kind, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		m := eventstream.Message{Payload: []byte(payload)}
		m.Headers.Set(":event-type", eventstream.StringValue(kind))
		m.Headers.Set(":message-type", eventstream.StringValue("event"))
		check.Fatal(t, "Encode()", eventstream.NewEncoder().Encode(&b, m))
	}
	return b.Bytes()
}

// pieces is a body that comes in pieces of given lengths.
type pieces struct {
	rest    []byte
	lengths func(left int) int
	err     error // at the end; nil for io.EOF
}

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.rest) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		return 0, io.EOF
	}
	n := min(len(to), max(1, min(p.lengths(len(p.rest)), len(p.rest))))
	copy(to, p.rest[:n])
	p.rest = p.rest[n:]
	return n, nil
}

func (*pieces) Close() error { return nil }

// metered reads a body through a meter, checks that the bytes are the same, and returns the usage.
func metered(t testing.TB, a answer, encoding string, body *pieces) llm.Usage {
	t.Helper()
	all := body.rest
	header := http.Header{"Content-Type": {a.contentType}}
	if encoding != "" {
		header.Set("Content-Encoding", encoding)
	}
	m := llm.NewMeter(a.call, header, body)
	got, err := io.ReadAll(m)
	if err != nil && body.err == nil {
		t.Fatalf("%s: ReadAll() = %v", a.name, err)
	}
	if !bytes.Equal(got, all) {
		t.Fatalf("%s: the body is changed:\n%q\nwant\n%q", a.name, got, all)
	}
	check.Fatal(t, "Close()", m.Close())
	return m.Usage()
}

func TestCutAtEveryByte(t *testing.T) {
	for _, a := range answers(t) {
		for i := range len(a.body) + 1 {
			first := true
			body := &pieces{rest: a.body, lengths: func(left int) int {
				if first {
					first = false
					return i
				}
				return left
			}}
			if got := metered(t, a, "", body); got != a.want {
				t.Fatalf("%s, cut after %d bytes: Usage() = %+v, want %+v", a.name, i, got, a.want)
			}
		}
	}
}

func TestByteByByte(t *testing.T) {
	for _, a := range answers(t) {
		if got := metered(t, a, "", &pieces{rest: a.body, lengths: func(int) int { return 1 }}); got != a.want {
			t.Errorf("%s: Usage() = %+v, want %+v", a.name, got, a.want)
		}
	}
}

// TestForms gives the same answers in the forms that servers and proxies may make of them, in random pieces.
func TestForms(t *testing.T) {
	all := answers(t)
	rapid.Check(t, func(rt *rapid.T) {
		a := all[rapid.IntRange(0, len(all)-1).Draw(rt, "answer")]
		if strings.HasPrefix(a.contentType, "text/event-stream") {
			end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(rt, "line end")
			text := string(a.body)
			if rapid.Bool().Draw(rt, "comments") {
				text = strings.ReplaceAll(text, "data: ", ": keep-alive\ndata: ")
			}
			if rapid.Bool().Draw(rt, "no space") {
				text = strings.ReplaceAll(text, "data: ", "data:")
			}
			if rapid.Bool().Draw(rt, "other fields") {
				text = strings.ReplaceAll(text, "data:", "id: 7\nretry\ndat: {\ndata:")
			}
			if rapid.Bool().Draw(rt, "data in several lines") {
				text = strings.ReplaceAll(text, `,"`, ",\ndata: \"")
			}
			if rapid.Bool().Draw(rt, "byte order mark") {
				text = "\xef\xbb\xbf" + text
			}
			a.body = []byte(strings.ReplaceAll(text, "\n", end))
		} else if a.contentType == "application/json" && rapid.Bool().Draw(rt, "byte order mark") {
			a.body = append([]byte("\xef\xbb\xbf"), a.body...)
		}
		encoding := ""
		if rapid.Bool().Draw(rt, "gzip") {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(a.body)
			_ = z.Close()
			encoding, a.body = "gzip", b.Bytes()
		}
		source := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "pieces"), 1))
		if got := metered(t, a, encoding, &pieces{rest: a.body, lengths: func(int) int { return 1 + source.IntN(64) }}); got != a.want {
			rt.Fatalf("%s: Usage() = %+v, want %+v", a.name, got, a.want)
		}
	})
}

// TestAborted ends a stream after each of its bytes. The usage is complete only once all of it was reported, and never
// less than the time before.
func TestAborted(t *testing.T) {
	for _, a := range answers(t) {
		if a.contentType == "application/json" {
			continue // nothing is reported before the end
		}
		a.call.Input, a.call.Output = 50, 4000
		var last llm.Usage
		for i := range len(a.body) + 1 {
			got := metered(t, a, "", &pieces{rest: a.body[:i], lengths: func(left int) int { return left }, err: io.ErrUnexpectedEOF})
			if got.Output > 300 || got.Output < last.Output && !got.Complete || got.Complete && got != a.want {
				t.Fatalf("%s, ended after %d bytes: Usage() = %+v, after %+v", a.name, i, got, last)
			}
			last = got
		}
		if last != a.want {
			t.Errorf("%s, ended without an end: Usage() = %+v, want %+v", a.name, last, a.want)
		}
	}
}

func TestWhatIsNotReportedIsEstimated(t *testing.T) {
	for _, test := range []struct {
		name, contentType, body string
		err                     error
		want                    llm.Usage
	}{
		{"a stream without usage", "text/event-stream", `data: {"choices":[{"delta":{"content":"four letters"}}]}` + "\n\ndata: [DONE]\n\n", nil, llm.Usage{Input: 50, Output: 3}},
		{"an abort before the first token", "text/event-stream", "", io.ErrUnexpectedEOF, llm.Usage{Input: 50}},
		{"an abort after the first token", "text/event-stream", `data: {"choices":[{"delta":{"content":"A"`, io.ErrUnexpectedEOF, llm.Usage{Input: 50, Output: 1}},
		{"a page", "text/html", "<html>{}</html>", nil, llm.Usage{Input: 50, Output: 4000}},
		{"an empty answer", "application/json", "", nil, llm.Usage{Input: 50, Output: 4000}},
		{"a negative number", "application/json", `{"usage":{"prompt_tokens":7,"completion_tokens":-3}}`, nil, llm.Usage{Input: 50, Output: 4000}},
		{"a huge number", "application/json", `{"usage":{"prompt_tokens":7,"completion_tokens":1000000001}}`, nil, llm.Usage{Input: 50, Output: 4000}},
		{"a negative number at the end of a stream", "text/event-stream", `data: {"choices":[{"delta":{"content":"four letters"}}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":-3}}` + "\n\n", nil, llm.Usage{Input: 50, Output: 3}},
		{"a huge number at the end of a stream", "text/event-stream", `data: {"choices":[{"delta":{"content":"four letters"}}]}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":1000000001,"completion_tokens":5}}` + "\n\n", nil, llm.Usage{Input: 50, Output: 3}},
		{"an event that is no JSON", "text/event-stream", "data: busy\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}` + "\n\n", nil, llm.Usage{Input: 7, Output: 5, Complete: true}},
		{"a number that no integer holds", "application/json", `{"usage":{"prompt_tokens":1e999,"completion_tokens":5}}`, nil, llm.Usage{Input: 50, Output: 4000}},
		{"a fraction", "application/json", `{"usage":{"prompt_tokens":7.5,"completion_tokens":5}}`, nil, llm.Usage{Input: 50, Output: 4000}},
		{"a string for a number", "application/json", `{"usage":{"prompt_tokens":"7","completion_tokens":5}}`, nil, llm.Usage{Input: 7, Output: 5, Complete: true}},
		{"more of the prompt from the cache than it has", "application/json", `{"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":9}}}`, nil, llm.Usage{Input: 7, CacheRead: 9, Output: 5, Complete: true}},
		{"a name with an escape", "application/json", `{"us\u0061ge":{"prompt_tokens":7,"completion_tokens":5}}`, nil, llm.Usage{Input: 7, Output: 5, Complete: true}},
		{"a byte order mark before the only event", "text/event-stream", "\xef\xbb\xbfdata: " + `{"usage":{"prompt_tokens":7,"completion_tokens":5}}`, nil, llm.Usage{Input: 7, Output: 5, Complete: true}},
		{"text after the report", "text/event-stream", `data: {"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":5}}` + "\n\n" + `data: {"choices":[{"delta":{"content":"four letters"}}]}` + "\n\n", nil, llm.Usage{Input: 7, Output: 8}},
		{"usage in the text", "application/json", `{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":7}"}}]}`, nil, llm.Usage{Input: 50, Output: 7}},
		{"brackets without end", "application/json", strings.Repeat("[", 100_000), nil, llm.Usage{Input: 50, Output: 4000}},
		{"compressed by what is not understood", "application/json", "\x28\xb5\x2f\xfd", nil, llm.Usage{Input: 50, Output: 4000}},
	} {
		a := answer{test.name, test.contentType, llm.Call{API: llm.APIOpenAIChat, Input: 50, Output: 4000}, nil, llm.Usage{}}
		body := &pieces{rest: []byte(test.body), lengths: func(left int) int { return left }, err: test.err}
		if got := metered(t, a, "", body); got != test.want {
			t.Errorf("%s: Usage() = %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestNotGzip reads bodies that claim to be gzip and are not, and bodies that end too early. One that was unpacked on the way is understood.
func TestNotGzip(t *testing.T) {
	a := answers(t)[0]
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(a.body)
	_ = z.Close()
	if got := metered(t, a, "gzip", &pieces{rest: a.body, lengths: func(left int) int { return left }}); got != a.want {
		t.Errorf("Usage() = %+v, want %+v", got, a.want)
	}
	for _, body := range [][]byte{b.Bytes()[:b.Len()/2], bytes.Repeat([]byte{0}, 1<<20)} {
		if got := metered(t, a, "gzip", &pieces{rest: body, lengths: func(left int) int { return left }}); got.Complete {
			t.Errorf("Usage() = %+v, want one that is not complete", got)
		}
	}
}

// TestBrokenEventStreams changes bytes of an event stream, and puts a message before it that is longer than is read.
func TestBrokenEventStreams(t *testing.T) {
	a := answers(t)[5]
	whole := a.body
	for i := range whole {
		a.body = bytes.Clone(whole)
		a.body[i] ^= 0x40
		if got := metered(t, a, "", &pieces{rest: a.body, lengths: func(left int) int { return left }}); got.Complete && got != a.want {
			t.Fatalf("with byte %d changed: Usage() = %+v", i, got)
		}
	}
	long := fmt.Sprintf(`image {"bytes":%q}`, strings.Repeat("A", 2<<20))
	a.body = append(events(t, []byte(long)), whole...)
	if got := metered(t, a, "", &pieces{rest: a.body, lengths: func(int) int { return 4096 }}); got != a.want {
		t.Errorf("after a long message: Usage() = %+v, want %+v", got, a.want)
	}
}

func TestInspect(t *testing.T) {
	const body = `{"model":"m","max_tokens":7,"stream":true,"messages":"1234"}`
	r := newRequest(t, "/openai/deployments/x/chat/completions", body)
	got, err := llm.Inspect(r)
	want := llm.Call{API: llm.APIOpenAIChat, Model: "x", Models: []string{"x"}, Stream: true, Input: 1, Output: 7}
	if err != nil || !reflect.DeepEqual(got, want) || got.API.String() != "openai chat" {
		t.Errorf("Inspect() = %+v, %v, want %+v", got, err, want)
	}
	if left, err := io.ReadAll(r.Body); err != nil || string(left) != body {
		t.Errorf("the body is %q, %v after Inspect", left, err)
	}
	if got, err := llm.Inspect(newRequest(t, "/openai/deployments/x/chat/completions", "\xef\xbb\xbf"+body)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Inspect() after a byte order mark = %+v, %v, want %+v", got, err, want)
	}
	if got, err := llm.Inspect(newRequest(t, "/v1/models", body)); err != nil || !reflect.DeepEqual(got, llm.Call{}) {
		t.Errorf("Inspect() of no call = %+v, %v", got, err)
	}
}

// FuzzMeter reads anything, as a stream and as a body: nothing panics, no usage is negative, the parts of a class are at most the class, and
// the bytes are the same.
func FuzzMeter(f *testing.F) {
	for _, a := range answers(f) {
		f.Add(string(a.call.API), a.contentType, a.body)
	}
	for _, r := range recordings(f) {
		if call, err := llm.Inspect(r.request(f)); err == nil {
			f.Add(string(call.API), r.header.Get("Content-Type"), r.answer)
		}
	}
	f.Fuzz(func(t *testing.T, api, contentType string, body []byte) {
		a := answer{"fuzz", contentType, llm.Call{API: llm.API(api), Stream: len(body)%2 == 0, Output: 1000}, nil, llm.Usage{}}
		u := metered(t, a, "", &pieces{rest: body, lengths: func(int) int { return 7 }})
		if u.Input < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || u.Output < 0 || u.Reasoning < 0 || u.Total() < 0 {
			t.Errorf("Usage() = %+v", u)
		}
		for _, class := range []struct{ of, parts, least int64 }{
			{u.Input, u.AudioInput + u.ImageInput + u.VideoInput, min(u.AudioInput, u.ImageInput, u.VideoInput)},
			{u.CacheRead, u.AudioCacheRead + u.ImageCacheRead, min(u.AudioCacheRead, u.ImageCacheRead)},
			{u.CacheWrite, u.CacheWriteHour + u.CacheWrite12Hours, min(u.CacheWriteHour, u.CacheWrite12Hours)},
			{u.Output, u.AudioOutput + u.ImageOutput + u.VideoOutput, min(u.AudioOutput, u.ImageOutput, u.VideoOutput)},
		} {
			if class.parts > class.of || class.least < 0 {
				t.Errorf("Usage() = %+v, want the parts of a class within it", u)
			}
		}
		once := metered(t, a, "", &pieces{rest: body, lengths: func(left int) int { return left }})
		if once != u {
			t.Errorf("Usage() in one piece = %+v, in pieces %+v", once, u)
		}
	})
}
