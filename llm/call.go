package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// A Call is what a request asks of a model, as far as it can be told before the answer.
type Call struct {
	// API is the protocol of the call; 0 for a request that asks no model.
	API API `json:"api"`
	// Model is the model that is asked; "" when the request names none, or not within its peeked part.
	Model string `json:"model"`
	// Stream says that the answer is asked for in pieces.
	Stream bool `json:"stream"`
	// Input estimates the tokens of the prompt: one for each four bytes of text, 1,000 for each picture or file.
	Input int64 `json:"input"`
	// Output is the most tokens that the answer may take, over all of its choices, or the default where the request does
	// not say.
	Output int64 `json:"output"`
	// Whole says that all of the body was read to tell this. Otherwise the body is longer than the peek, and its rest was
	// estimated by its length.
	Whole bool `json:"whole"`

	includesUsage bool // a stream was asked to end with its usage
}

// Bounds and defaults of calls.
const (
	defaultPeek   = 1 << 20
	defaultOutput = 1024
)

// Inspect tells what a request asks, and leaves the request as it was. It reads at most a mebibyte of the body, and
// puts that back before the rest. For a request to no model it returns a Call with API 0, without reading anything. It
// returns an error for a body that cannot be read.
func Inspect(r *http.Request) (Call, error) {
	call, body, err := inspect(r, defaultPeek, defaultOutput)
	if err == nil && call.API != 0 {
		r.Body = body
	}
	return call, err
}

// A peekedBody is a body whose beginning was read before.
type peekedBody struct {
	io.Reader
	io.Closer
	head []byte
}

func inspect(r *http.Request, peek int64, output int64) (Call, *peekedBody, error) {
	var call Call
	call.API, call.Model, call.Stream = route(r.URL)
	if call.API == 0 || r.Method != http.MethodPost || r.Body == nil || r.Body == http.NoBody {
		return Call{}, nil, nil
	}
	head, err := io.ReadAll(io.LimitReader(r.Body, peek+1))
	if err != nil {
		return Call{}, nil, fmt.Errorf("llm: read the request: %w", err)
	}
	body := &peekedBody{io.MultiReader(bytes.NewReader(head), r.Body), r.Body, head}
	call.Whole = int64(len(head)) <= peek
	q := question{call: &call, choices: 1, most: -1}
	if call.API == GeminiContent || call.API == BedrockConverse {
		q.fixed = true // the path names the model
	}
	s := scanner{interest: q.interest, scalar: q.scalar, text: q.text, document: func() {}}
	s.write(head)
	call.Input = tokensOf(q.bytes)
	if rest := r.ContentLength - int64(len(head)); !call.Whole && rest > 0 {
		call.Input = plus(call.Input, tokensOf(rest))
	}
	call.Output = output
	if q.most >= 0 {
		call.Output = q.most
	}
	call.Output = times(call.Output, q.choices)
	return call, body, nil
}

// A question is what the body of a request says.
type question struct {
	call      *Call
	fixed     bool // the body names neither the model nor whether to stream
	bytes     int64
	most      int64 // tokens of one choice; -1 for not said
	preferred bool  // a newer name of the same setting was there
	choices   int64
}

// The settings of all APIs that matter, by their path.
var settings = map[string]func(q *question, raw []byte){
	"model":                             (*question).model,
	"stream":                            func(q *question, raw []byte) { q.call.Stream = q.call.Stream || !q.fixed && string(raw) == "true" },
	"n":                                 (*question).count,
	"generationConfig.candidateCount":   (*question).count,
	"generation_config.candidate_count": (*question).count,
	"max_completion_tokens":             func(q *question, raw []byte) { q.limit(raw); q.preferred = true },
	"max_tokens": func(q *question, raw []byte) {
		if !q.preferred {
			q.limit(raw)
		}
	},
	"max_output_tokens":                   (*question).limit,
	"generationConfig.maxOutputTokens":    (*question).limit,
	"generation_config.max_output_tokens": (*question).limit,
	"inferenceConfig.maxTokens":           (*question).limit,
	"stream_options.include_usage":        func(q *question, raw []byte) { q.call.includesUsage = string(raw) == "true" },
}

// opaqueNames are the members that hold pictures and files, or where they are.
var opaqueNames = set("data", "bytes", "url", "image_url", "file_url", "file_data", "fileUri", "file_uri")

func (q *question) interest(path []byte) interest {
	if settings[string(path)] != nil {
		return kept
	}
	name := path[bytes.LastIndexByte(path, '.')+1:]
	if opaqueNames[string(name)] {
		return opaque
	}
	return counted
}

func (q *question) scalar(path, raw []byte) { settings[string(path)](q, raw) }

// text counts strings. Pieces of what is no string, such as numbers, are not counted.
func (q *question) text(bytes int) { q.bytes += int64(bytes) }

func (q *question) model(raw []byte) {
	name := ""
	if !q.fixed && json.Unmarshal(raw, &name) == nil {
		q.call.Model = name
	}
}

// limit notes the most tokens of a choice. A value that is no number of tokens is left to the provider, which refuses
// it.
func (q *question) limit(raw []byte) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n >= 0 {
		q.most = n
	}
}

func (q *question) count(raw []byte) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n > 0 {
		q.choices = n
	}
}
