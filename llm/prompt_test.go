package llm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/llm"
)

// ids returns n token ids, or other numbers, as elements of a list.
func ids(n int) string {
	var list strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&list, ",%d", 1000+i%9000)
	}
	return list.String()[1:]
}

// TestPromptsAsTokenIDs estimates prompts in all forms that servers document: texts, token ids, lists of either, and lists of both. A prompt
// of a list takes the bound of each of its choices.
func TestPromptsAsTokenIDs(t *testing.T) {
	const completions, embeddings = "/v1/completions", "/v1/embeddings"
	one, long := ids(8000), `"`+strings.Repeat("abcd", 8000)+`"`
	for _, test := range []struct {
		name, path, body string
		input, output    int64
	}{
		{"a text", completions, `"max_tokens":100,"prompt":` + long, 8000, 100},
		{"texts", completions, `"max_tokens":100,"n":3,"prompt":[` + long + `,"abcd"]`, 8001, 600},
		{"ids", completions, `"max_tokens":100,"prompt":[` + one + `]`, 8000, 100},
		{"ids, and several choices", completions, `"max_tokens":100,"n":2,"best_of":5,"prompt":[` + one + `]`, 8000, 500},
		{"lists of ids", completions, `"max_tokens":100,"n":2,"prompt":[[` + one + `],[` + one + `],[7]]`, 16_001, 600},
		{"an empty list", completions, `"max_tokens":100,"prompt":[]`, 0, 100},
		{"no prompt", completions, `"max_tokens":100,"prompt":null`, 0, 100},
		{"ids in an object", completions, `"max_tokens":100,"prompt":{"prompt_token_ids":[` + one + `]}`, 8000, 100},
		{"ids beside the prompt", completions, `"max_tokens":100,"prompt":"","prompt_token_ids":[` + one + `]`, 8000, 100},
		{"input ids of SGLang", chatPath, `"max_tokens":100,"input_ids":[` + one + `]`, 8000, 100},
		{"ids and texts of llama.cpp", "/completion", `"n_predict":100,"prompt":[12,34,` + long + `,56]`, 8003, 100},
		{"lists of both", "/completion", `"n_predict":100,"prompt":[[12,"abcd"],"abcd",{"prompt_string":"abcd"}]`, 4, 300},
		{"a prefix", "/infill", `"n_predict":100,"input_prefix":[` + one + `],"input_suffix":"abcd"`, 8001, 100},
		{"a context of Ollama", "/api/generate", `"prompt":"abcd","options":{"num_predict":100},"context":[` + one + `]`, 8001, 100},
		{"an embedding of a text", embeddings, `"input":` + long, 8000, 0},
		{"embeddings of texts", embeddings, `"input":[` + long + `,` + long + `]`, 16_000, 0},
		{"an embedding of ids", embeddings, `"input":[` + one + `]`, 8000, 0},
		{"embeddings of ids", embeddings, `"input":[[` + one + `],[` + one + `],[` + one + `]]`, 24_000, 0},
		{"an embedding of llama.cpp", embeddings, `"content":[` + one + `]`, 8000, 0},
		{"ids that are no prompt", completions, `"max_tokens":100,"prompt":"abcd","stop_token_ids":[` + one + `],"logit_bias":{"50256":-100}`, 1, 100},
		{"numbers that are no ids", chatPath, `"max_tokens":100,"temperature":0.7,"seed":5,"messages":[{"content":"abcd"}]`, 1, 100},
	} {
		call, err := llm.Inspect(newRequest(t, test.path, `{"model":"m",`+test.body+`}`))
		if err != nil || call.Input != test.input || call.Output != test.output {
			t.Errorf("%s: Inspect() = %d and %d tokens, %v, want %d and %d", test.name, call.Input, call.Output, err, test.input, test.output)
		}
	}
}

// TestDataOfTools estimates arguments and results of tools that are objects, and parameters of tools: a model reads their names and numbers.
// A text there is one under any name. A picture beside them is one.
func TestDataOfTools(t *testing.T) {
	rows, picture := ids(2000), strings.Repeat("QUJD", 100_000) // a number and its comma are 5 bytes, of which the number is 4
	for _, test := range []struct {
		name, path, body string
		want             int64
	}{
		{"a call of Anthropic", "/v1/messages", `"messages":[{"content":[{"type":"tool_use","input":{"rows":[` + rows + `]}}]}]`, 2001},
		{"a text of a call", "/v1/messages", `"messages":[{"content":[{"type":"tool_use","input":{"data":"` + picture + `"}}]}]`, 100_001},
		{"a result of Anthropic", "/v1/messages", `"messages":[{"content":[{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","data":"` + picture + `"}}]}]}]`, 1000},
		{"a call of Gemini", "/v1beta/models/m:generateContent", `"contents":[{"parts":[{"functionCall":{"name":"abcd","args":{"rows":[` + rows + `],"all":true}}}]}]`, 2004},
		{"a result of Gemini", "/v1beta/models/m:generateContent", `"contents":[{"parts":[{"functionResponse":{"name":"abcd","response":{"rows":[` + rows + `]}}}]}]`, 2002},
		{"a result of Converse", "/model/m/converse", `"messages":[{"content":[{"toolResult":{"content":[{"json":{"rows":[` + rows + `]}},{"image":{"source":{"bytes":"` + picture + `"}}}]}}]}]`, 3001},
		{"a call of Converse", "/model/m/converse", `"messages":[{"content":[{"toolUse":{"input":{"rows":[` + rows + `]}}}]}]`, 2001},
		{"a call of Ollama", "/api/chat", `"messages":[{"tool_calls":[{"function":{"arguments":{"rows":[` + rows + `]}}}]}]`, 2001},
		{"a result of a response", "/v1/responses", `"input":[{"type":"function_call_output","output":[{"type":"input_image","image_url":"data:image/png;base64,` + picture + `"}]}]`, 1000},
		{"data of a decision", "/v1/decisions", `"input":[{"content":[{"type":"json","data":{"rows":[` + rows + `],"url":"abcdefgh"}}]}]`, 2004},
		{"documents of Cohere", chatPath, `"documents":[{"data":{"rows":[` + rows + `]}}]`, 2001},
		{"parameters", chatPath, `"tools":[{"function":{"parameters":{"type":"object","properties":{"` + strings.Repeat("name", 500) + `":{"type":"string"}}}}}]`, 503},
	} {
		call, err := llm.Inspect(newRequest(t, test.path, `{"model":"m",`+test.body+`}`))
		if err != nil || call.Input != test.want {
			t.Errorf("%s: Inspect() = %d tokens, %v, want %d", test.name, call.Input, err, test.want)
		}
	}
}

// TestPicturesAndFiles estimates pictures, sounds and files by the names that providers have for them: a thousand tokens for each.
func TestPicturesAndFiles(t *testing.T) {
	file := strings.Repeat("QUJD", 100_000)
	in := func(part string) string { return `"messages":[{"content":[` + part + `]}]` }
	for _, test := range []struct {
		name, path, body string
		want             int64
	}{
		{"a file of OpenAI", chatPath, in(`{"type":"file","file":{"file_id":"file-1"}}`), 1000},
		{"a picture of a response", "/v1/responses", `"input":[{"content":[{"type":"input_image","file_id":"file-1"},{"type":"input_file","file_id":"file-2"}]}]`, 2000},
		{"a document of Anthropic", "/v1/messages", in(`{"type":"document","source":{"type":"file","file_id":"file_1"}}`), 1000},
		{"a document of Mistral", chatPath, in(`{"type":"document_url","document_url":"data:application/pdf;base64,` + file + `"}`), 1000},
		{"a sound of Mistral", chatPath, in(`{"type":"input_audio","input_audio":"` + file + `"}`), 1000},
		{"a sound of OpenAI", chatPath, in(`{"type":"input_audio","input_audio":{"data":"` + file + `","format":"wav"}}`), 1001},
		{"a video of vLLM", chatPath, in(`{"type":"video_url","video_url":{"url":"data:video/mp4;base64,` + file + `"}}`), 1000},
		{"the pictures of a video of Qwen", chatPath, in(`{"type":"video","video":["https://a.example/1","https://a.example/2","https://a.example/3"]}`), 3000},
		{"pictures of Ollama", "/api/chat", `"messages":[{"content":"abcd","images":["` + file + `","` + file + `",""]}]`, 2001},
		{"a picture of Vertex AI", "/v1/projects/p/locations/l/publishers/google/models/m:predict", `"instances":[{"text":"abcd","image":{"bytesBase64Encoded":"` + file + `"}}]`, 1001},
		{"pictures of Titan", "/model/m/invoke", `"inputText":"abcd","inputImage":"` + file + `"`, 1001},
		{"pictures of Cohere", "/model/m/invoke", `"input_type":"","images":["data:image/png;base64,` + file + `","data:image/png;base64,` + file + `"]`, 2000},
		{"a picture that a model has drawn", "/v1/responses", `"input":[{"type":"image_generation_call","result":"` + file + `"},{"result":"` + file + `","type":"image_generation_call"}]`, 2000},
		{"another result", "/v1/responses", `"input":[{"type":"other_call","result":"` + file + `"}]`, 100_000},
		{"results of a search", "/v1/messages", in(`{"content":[{"type":"web_search_result","url":"https://a.example/1234","title":"abcdefgh"}]}`), 8},
		{"citations", "/v1/messages", in(`{"text":"abcd","citations":[{"url":"https://a.example/1234"},{"url":"https://a.example/1234"}]}`), 12},
		{"annotations", "/v1/responses", `"input":[{"content":[{"text":"abcd","annotations":[{"type":"url_citation","url":"https://a.example/1234"}]}]}]`, 7},
		{"sources of a search", "/v1/responses", `"input":[{"action":{"type":"search","sources":[{"type":"url","url":"https://a.example/1234"}]}}]`, 6},
		{"a picture at an address", "/v1/messages", in(`{"source":{"type":"url","url":"https://a.example/1234"}}`), 1000},
		{"a voice", "/v1beta/models/m:generateContent", `"generationConfig":{"speechConfig":{"voiceConfig":{"replicatedVoiceConfig":{"voiceSampleAudio":"` + file + `"}}}}`, 1000},
		{"a video of TwelveLabs", "/model/m/invoke", `"inputPrompt":"abcd","mediaSource":{"base64String":"` + file + `"}`, 1001},
	} {
		call, err := llm.Inspect(newRequest(t, test.path, `{"model":"m",`+test.body+`}`))
		if err != nil || call.Input != test.want {
			t.Errorf("%s: Inspect() = %d tokens, %v, want %d", test.name, call.Input, err, test.want)
		}
	}
}
