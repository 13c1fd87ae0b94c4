package models_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// server speaks the protocols of the providers.
var server *httptest.Server

func TestMain(m *testing.M) {
	server = httptest.NewServer(http.HandlerFunc(answer))
	code := m.Run()
	server.Close()
	os.Exit(code)
}

// answer sends a stream of a provider event by event, or its whole answer.
func answer(w http.ResponseWriter, r *http.Request) {
	name := ""
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/chat/completions"):
		name = "chat"
	case strings.HasSuffix(path, "/responses"):
		name = "responses"
	case strings.HasSuffix(path, "/messages"):
		name = "anthropic"
	case strings.HasSuffix(path, ":streamGenerateContent"):
		name = "gemini"
	case strings.HasSuffix(path, "/converse-stream"):
		converse(w)
		return
	}
	var question struct {
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !question.Stream && name != "gemini" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(stream(name + ".json"))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for event := range bytes.SplitAfterSeq(stream(name+".sse"), []byte("\n\n")) {
		if bytes.Contains(event, []byte(`"choices":[],`)) && !question.StreamOptions.IncludeUsage {
			continue
		}
		_, _ = w.Write(event)
		w.(http.Flusher).Flush()
	}
}

func converse(w io.Writer) {
	w.(http.ResponseWriter).Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	for line := range strings.Lines(string(stream("bedrock.events"))) {
		kind, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		m := eventstream.Message{Payload: []byte(payload)}
		m.Headers.Set(":event-type", eventstream.StringValue(kind))
		m.Headers.Set(":message-type", eventstream.StringValue("event"))
		m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
		_ = eventstream.NewEncoder().Encode(w, m)
	}
}

// stream returns a stream as a provider sends it.
func stream(name string) []byte {
	b, err := os.ReadFile(filepath.Join("..", "..", "llm", "testdata", "streams", name))
	if err != nil {
		panic(err)
	}
	return b
}
