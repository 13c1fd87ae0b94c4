package llm

import (
	"bytes"
	"strings"
)

// idNames are the members that may have a prompt as token ids, in lists of any depth. The members of OpenAI and of the servers that are
// compatible with it come first. The others are from vLLM, SGLang, TGI, llama.cpp and Ollama.
var idNames = set("prompt", "input", "inputs", "prompt_token_ids", "token_ids", "input_ids", "input_prefix", "input_suffix", "context", "tokens")

// ownData are members whose value is JSON that a model reads: arguments and results of tools as objects, the parameters of tools, and documents. Their
// names and numbers are text of the prompt as well as their strings.
var ownData = set("arguments", "args", "response", "json", "data", "input", "input_examples", "properties")

// isOwnData reports whether a place is within JSON that a model reads. A member of the request itself has the settings of a call.
func isOwnData(path []byte) bool {
	_, rest, _ := bytes.Cut(path, []byte{'.'})
	for len(rest) > 0 {
		segment, after, more := bytes.Cut(rest, []byte{'.'})
		if more && ownData[string(segment)] {
			return true
		}
		rest = after
	}
	return false
}

// references are members with addresses of what a model has found, and of servers. Nothing is read there for the prompt.
var references = set("citations", "annotations", "sources", "action", "mcp_servers")

// isReference reports whether a place is within a reference.
func isReference(path []byte) bool {
	for rest := path; len(rest) > 0; {
		segment, after, _ := bytes.Cut(rest, []byte{'.'})
		if references[string(segment)] {
			return true
		}
		rest = after
	}
	return false
}

// typed takes the type of an object, as it is written. A result of a search has an address beside its text.
func (s *source) typed(raw string) {
	s.text = raw == `"text"` || strings.HasSuffix(raw, `_result"`)
	s.draws = raw == `"image_generation_call"`
}

// prompts are the prompts of a completion, each of which is answered. They are a list of texts, or of objects and lists of token ids. A list
// with a token id among its elements is one prompt, in which llama.cpp reads texts, too.
type prompts struct {
	texts, lists int64
	ids          bool
}

// count returns the number of prompts, at least one.
func (p *prompts) count() int64 {
	if p.ids {
		return p.lists + 1
	}
	return max(1, p.lists+p.texts)
}

// element takes a scalar within a list of prompts.
func (q *question) element(path []byte) {
	if open := q.scanner.open; string(path) == "prompt" && len(open) == 2 && open[1] == '[' {
		if q.scanner.isNumber() {
			q.prompts.ids = true
		} else {
			q.prompts.texts++
		}
	}
}

// list takes the end of a list or an object within a list of prompts.
func (q *question) list(path []byte) {
	if open := q.scanner.open; string(path) == "prompt" && len(open) == 3 && open[1] == '[' {
		q.prompts.lists++
	}
}

// id takes a token id of a prompt.
func (q *question) id(path, name []byte) {
	open := q.scanner.open
	if len(open) == 0 || open[len(open)-1] != '[' || !q.scanner.isNumber() {
		return
	}
	if idNames[string(name)] || string(path) == "content" { // of llama.cpp, and not of a message
		q.ids++
	}
}

// member counts the name of a member of JSON that a model reads.
func (q *question) member(path []byte, bytes int64) {
	if isOwnData(path) {
		q.bytes += bytes
	}
}
