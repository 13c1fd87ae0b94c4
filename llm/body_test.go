package llm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestPhotos sends photos before the model to a server, as the SDKs of OpenAI and Anthropic write them. The estimate
// is that of a picture. The server reads the sent body, and the call is charged the reported usage.
func TestPhotos(t *testing.T) {
	for _, size := range []int{500 << 10, 900 << 10, 2 << 20, 15 << 20} {
		photo := strings.Repeat("QUJD", size/3)
		for _, test := range []struct{ name, path, body, answer string }{
			{
				"chat", chatPath, `{"messages":[{"content":[{"text":"What is it","type":"text"},{"image_url":{"url":"data:image/jpeg;base64,` + photo + `"},"type":"image_url"}],"role":"user"}],"model":"m","max_tokens":90,"stream":true}`,
				`data: {"choices":[],"usage":{"prompt_tokens":1500,"completion_tokens":3}}` + "\n\n",
			},
			{
				"responses", "/v1/responses", `{"input":[{"content":[{"image_url":"data:image/jpeg;base64,` + photo + `","type":"input_image"}],"role":"user"}],"model":"m","max_output_tokens":90}`,
				`data: {"usage":{"input_tokens":1500,"output_tokens":3}}` + "\n\n",
			},
			{
				"messages", "/v1/messages", `{"max_tokens":90,"messages":[{"content":[{"source":{"data":"` + photo + `","media_type":"image/jpeg","type":"base64"},"type":"image"}],"role":"user"}],"model":"m"}`,
				`data: {"usage":{"input_tokens":1500,"output_tokens":3},"stop_reason":"end_turn"}` + "\n\n",
			},
		} {
			for _, again := range []bool{true, false} {
				name := fmt.Sprintf("%s of %d bytes, read again: %v", test.name, size, again)
				temporary := t.TempDir()
				t.Setenv("TMPDIR", temporary)
				limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1_000_000))
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					taken := 1_000_000 - left(t, limiter, "m")["tpm"]
					if taken < 1000 || taken > 1200 {
						t.Errorf("%s: %d tokens are taken, want those of a picture", name, taken)
					}
					got, err := io.ReadAll(r.Body)
					want := test.body
					if strings.Contains(want, `"stream":true`) {
						want = `{"stream_options":{"include_usage":true},` + want[1:]
					}
					if err != nil || string(got) != want || again && r.ContentLength != int64(len(want)) {
						t.Errorf("%s: the server reads %d bytes of %d, %v, want %d", name, len(got), r.ContentLength, err, len(want))
					}
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, test.answer)
				}))
				base := &http.Transport{DisableKeepAlives: true}
				transport, reports := newTransport(t, limiter, base, llm.WithIncludeUsage())
				r := newRequest(t, "", test.body)
				r.URL.Host, r.URL.Path = server.Listener.Addr().String(), test.path
				if !again {
					r.GetBody, r.ContentLength, r.Body = nil, -1, io.NopCloser(r.Body)
				}
				response, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				server.Close()
				if got := reports.one(t); got.Charged["tpm"] != 1503 || !got.Usage.Complete {
					t.Errorf("%s: Report = %+v, want 1503 tokens", name, got)
				}
				if files, err := os.ReadDir(temporary); err != nil || len(files) > 0 {
					t.Errorf("%s: %d temporary files are left, %v", name, len(files), err)
				}
			}
		}
	}
}

// TestBodiesAreReadAgain reads a body as often as a base asks for it, also at once with the first.
func TestBodiesAreReadAgain(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 100_000))
	body := `{"stream":true,"model":"m","user":"` + strings.Repeat("word ", 1000) + `"}`
	want := `{"stream_options":{"include_usage":true},` + body[1:]
	for _, memory := range []int64{10, 1000, 1 << 20} {
		for _, again := range []bool{true, false} {
			transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
				if _, err := io.CopyN(io.Discard, r.Body, 500); err != nil {
					t.Errorf("io.CopyN() = %v", err)
				}
				for range 2 {
					b := check.Call(r.GetBody()).Must(t, "GetBody()")
					if got, err := io.ReadAll(b); err != nil || string(got) != want || r.ContentLength != int64(len(want)) {
						t.Errorf("in memory %d, again %v: the body is %d bytes of %d, %v, want %d", memory, again, len(got), r.ContentLength, err, len(want))
					}
					_, _ = b.Close(), b.Close()
				}
				if got, err := io.ReadAll(r.Body); err != nil || string(got) != want[500:] {
					t.Errorf("in memory %d, again %v: the rest is %d bytes, %v", memory, again, len(got), err)
				}
				_ = r.Body.Close()
				return nil, errors.New("no answer")
			}), llm.WithBodies(memory, 1<<20), llm.WithIncludeUsage())
			r := newRequest(t, chatPath, body)
			if !again {
				r.GetBody = nil
			}
			_, _ = transport.RoundTrip(r)
		}
	}
}

func TestTextInFiles(t *testing.T) {
	text, picture := strings.Repeat("word ", 100_000), strings.Repeat("QUJD", 100_000)
	for _, test := range []struct {
		name, source string
		want         int64
	}{
		{"a text", `{"type":"text","media_type":"text/plain","data":"` + text + `"}`, 125_000},
		{"a text before its type", `{"data":"` + text + `","media_type":"","type":"text"}`, 125_000},
		{"a picture", `{"type":"base64","media_type":"","data":"` + picture + `"}`, 1000},
		{"a picture with slashes that are escaped", `{"type":"base64","data":"` + strings.ReplaceAll(picture, "Q", `\/`) + `"}`, 1000},
		{"a text and a picture", `[{"type":"text","data":"` + text + `"},{"data":"` + picture + `","type":"base64"}]`, 126_000},
		{"a picture in a text", `{"data":"` + text + `","type":"text","x":{"data":"` + picture + `"}}`, 126_000},
		{"no picture", `{"type":"base64","data":""}`, 0},
		{"what is no string", `{"data":5,"url":null}`, 0},
	} {
		call, err := llm.Inspect(newRequest(t, "/v1/messages", `{"messages":[{"content":[{"source":`+test.source+`}]}],"model":"m"}`))
		if err != nil || call.Input < test.want || call.Input > test.want+10 {
			t.Errorf("%s: Inspect() = %+v, %v, want %d tokens", test.name, call, err, test.want)
		}
	}
}

func TestMultipart(t *testing.T) {
	const form = "--b\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n"
	body := fmt.Sprintf(form, "model", "m") + fmt.Sprintf(form, "prompt", "12345678") + fmt.Sprintf(form, "max_tokens", "7") +
		fmt.Sprintf(form, `file"; filename="a.wav`, strings.Repeat("x", 100_000)) + "--b--\r\n"
	r := newRequest(t, chatPath, body)
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	call, err := llm.Inspect(r)
	if want := (llm.Call{API: llm.APIOpenAIChat, Model: "m", Models: []string{"m"}, Input: 1002, Output: 7}); err != nil || !reflect.DeepEqual(call, want) {
		t.Errorf("Inspect() = %+v, %v, want %+v", call, err, want)
	}
	if got, err := io.ReadAll(r.Body); err != nil || string(got) != body {
		t.Errorf("the body is %d bytes after Inspect, %v", len(got), err)
	}
	r = newRequest(t, chatPath, body[:200])
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	var invalid *zlimit.ValidationError
	if _, err := llm.Inspect(r); !errors.As(err, &invalid) || invalid.Field != "body" {
		t.Errorf("Inspect() of a form without end = %v", err)
	}
}

// FuzzInspect compares what is read of a body with encoding/json, however the body comes in pieces.
func FuzzInspect(f *testing.F) {
	for _, body := range []string{
		`{"model":"a","model":"b","messages":[{"content":"text"}]}`, `{"mod\u0065l":"\ud83d\ude00","x":{"":{"model":"c"}}}`, `{"":{"model":"a"}}`,
		`{"messages":[{"source":{"data":"x","type":"text"}}],"model":"a\"b"}`, `{"model":null,"a.b":"\n\/\\"}`, ` [1,{"model":"x"}] `, `{"model":{"model":"x"},"model":"y"}`,
	} {
		f.Add([]byte(body), uint64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		var want map[string]any
		if json.Unmarshal(body, &want) != nil || want == nil || depth(want) > 200 {
			return
		}
		source := rand.New(rand.NewPCG(seed, 1))
		var first llm.Call
		for i := range 3 {
			r := newRequest(t, chatPath, "")
			r.Body = &pieces{rest: bytes.Clone(body), lengths: func(int) int { return 1 + source.IntN(1<<(3*i)) }}
			call, err := llm.Inspect(r)
			if errors.As(err, new(*zlimit.ValidationError)) {
				return // a bound that cannot be read
			}
			if err != nil {
				t.Fatalf("Inspect(%q) = %v", body, err)
			}
			if i == 0 {
				first = call
			} else if !reflect.DeepEqual(call, first) {
				t.Fatalf("Inspect(%q) = %+v in other pieces, want %+v", body, call, first)
			}
			if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, body) {
				t.Fatalf("the body is %q after Inspect, %v, want %q", got, err, body)
			}
		}
		if model, _ := want["model"].(string); model != "" && len(model) < 40 && first.Model != model { // an empty one is that of another member
			t.Fatalf("Inspect(%q) names the model %q, want %q", body, first.Model, model)
		}
	})
}

// depth returns how many brackets are open at most.
func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			deepest = max(deepest, 1+depth(member))
		}
	case []any:
		for _, element := range v {
			deepest = max(deepest, 1+depth(element))
		}
	}
	return deepest
}

// TestTextOfRequests compares the estimate of random requests with one that is made of their values.
func TestTextOfRequests(t *testing.T) {
	names := []string{"type", "data", "url", "text", "content", "a.b", "", "model"}
	rapid.Check(t, func(rt *rapid.T) {
		var value func(level int) any
		value = func(level int) any {
			switch kind := rapid.IntRange(0, 4).Draw(rt, "kind"); {
			case kind == 0 && level < 5:
				object := map[string]any{}
				for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 4, rapid.ID).Draw(rt, "names") {
					object[name] = value(level + 1)
				}
				return object
			case kind == 1 && level < 5:
				array := make([]any, rapid.IntRange(0, 3).Draw(rt, "length"))
				for i := range array {
					array[i] = value(level + 1)
				}
				return array
			case kind == 2:
				return rapid.SampledFrom([]any{nil, true, 17, 1e30}).Draw(rt, "scalar")
			case kind == 3:
				return "text"
			default:
				return rapid.StringMatching("[a-z ]{0,40}").Draw(rt, "string")
			}
		}
		request := map[string]any{"model": "m", "messages": value(0)}
		body := check.Call(json.Marshal(request)).Must(rt, "json.Marshal()")
		call, err := llm.Inspect(newRequest(t, chatPath, string(body)))
		text, opaque := textOf(request, "", false)
		text -= len("m")
		if want := int64((text+3)/4 + 1000*opaque); err != nil || call.Input != want || call.Model != "m" {
			rt.Fatalf("Inspect(%s) = %+v, %v, want the model m and %d tokens", body, call, err, want)
		}
	})
}

// textOf returns the bytes of text in a value below a name, and how many pictures and files there are: one in an object, and one in each
// string of a list. Strings of a source are text where the object says so.
func textOf(v any, name string, isText bool) (text, opaque int) {
	holds := 0
	add := func(member any, name string, isText bool) {
		s, ok := member.(string)
		switch {
		case !ok:
			t, o := textOf(member, name, isText)
			text, opaque = text+t, opaque+o
		case name == "type":
		case name != "data" && name != "url":
			text += len(s)
		case isText:
			text += len(s)
		default:
			holds += len(s)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		if name == "data" {
			return dataOf(v), 0
		}
		for name, member := range v {
			add(member, name, v["type"] == "text")
		}
	case []any:
		for i, element := range v {
			opaque += min(holds, 1)
			holds = 0
			last := false // the last string of a list of types decides, which no API has
			for _, other := range v[i:] {
				last = last || name == "type" && other == "text"
			}
			add(element, name, last)
		}
	case string:
		add(v, name, isText)
	}
	if holds > 0 {
		opaque++
	}
	return text, opaque
}

// dataOf returns the bytes of names and scalars in data that a model reads.
func dataOf(v any) (text int) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			text += len(name) + dataOf(member)
		}
	case []any:
		for _, element := range v {
			text += dataOf(element)
		}
	case string:
		text = len(v)
	default:
		written, _ := json.Marshal(v) // of a number or a word
		text = len(written)
	}
	return text
}

// TestModelAtTheTail names another model behind a mebibyte of space: the last one counts, as at the providers.
func TestModelAtTheTail(t *testing.T) {
	call, err := llm.Inspect(newRequest(t, chatPath, `{"model":"gpt-4o-mini",`+strings.Repeat(" ", 1<<20)+`"model":"gpt-4o"}`))
	if err != nil || call.Model != "gpt-4o" {
		t.Errorf("Inspect() = %+v, %v, want gpt-4o", call, err)
	}
}

// TestDeployments asks Azure, where the path names the model and the body need not.
func TestDeployments(t *testing.T) {
	for _, body := range []string{`{"model":"gpt-4o-mini","stream":true}`, `{"stream":true}`} {
		call, err := llm.Inspect(newRequest(t, "/openai/deployments/gpt-4o/chat/completions", body))
		if err != nil || call.Model != "gpt-4o" || !call.Stream {
			t.Errorf("Inspect(%s) = %+v, %v, want a stream of gpt-4o", body, call, err)
		}
	}
}
