package llm

import "bytes"

// idNames are the members that may have a prompt as token ids, in lists of any depth. The members of OpenAI and of the servers that are
// compatible with it come first. The others are from vLLM, SGLang, TGI, llama.cpp and Ollama.
var idNames = set("prompt", "input", "inputs", "prompt_token_ids", "token_ids", "input_ids", "content", "input_prefix", "input_suffix", "context", "tokens")

// ownData are members whose value is JSON that a model reads: arguments and results of tools as objects, and the parameters of tools. Their
// names and numbers are text of the prompt as well as their strings.
var ownData = set("arguments", "args", "response", "json", "input", "properties")

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
func (q *question) id(name []byte) {
	if open := q.scanner.open; len(open) > 0 && open[len(open)-1] == '[' && q.scanner.isNumber() && idNames[string(name)] {
		q.ids++
	}
}

// member counts the name of a member of JSON that a model reads.
func (q *question) member(path []byte, bytes int64) {
	if isOwnData(path) {
		q.bytes += bytes
	}
}
