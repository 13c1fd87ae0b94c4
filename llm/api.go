package llm

import "strings"

// An API names a way to ask a model, of one provider or of those that speak the same protocol. Users add their own by a
// [Format].
type API string

// The APIs that a [Transport] and a [Meter] know by themselves.
const (
	APIOpenAIChat         API = "openai chat"         // chat completions, of OpenAI and of the many servers that are compatible with it
	APIOpenAIResponses    API = "openai responses"    // responses
	APIOpenAICompletions  API = "openai completions"  // completions of a text
	APIOpenAIEmbeddings   API = "openai embeddings"   // embeddings
	APIOpenAIImages       API = "openai images"       // images, made or changed
	APIOpenAIAudio        API = "openai audio"        // transcriptions, translations and speech
	APIAnthropicMessages  API = "anthropic messages"  // messages
	APIGeminiContent      API = "gemini content"      // generateContent and streamGenerateContent, of the Gemini API and Vertex AI
	APIGeminiInteractions API = "gemini interactions" // interactions
	APIGeminiEmbeddings   API = "gemini embeddings"   // embedContent and batchEmbedContents
	APIVertexRaw          API = "vertex raw"          // rawPredict and streamRawPredict of Vertex AI, such as for Claude and Mistral
	APIVertexPredict      API = "vertex predict"      // predict and predictLongRunning of Vertex AI, such as images, videos and embeddings
	APIOllamaChat         API = "ollama chat"         // chat and generate of Ollama
	APIOllamaEmbeddings   API = "ollama embeddings"   // embed of Ollama
	APIBedrockConverse    API = "bedrock converse"    // Converse and ConverseStream of Amazon Bedrock
	APIBedrockInvoke      API = "bedrock invoke"      // InvokeModel and InvokeModelWithResponseStream
	APIBatches            API = "batches"             // batches of any provider, of which requests and prompts are counted, and no answers

	// APIUnknown is the API of a request without a format, see [WithUnknown].
	APIUnknown API = "unknown"
)

// String returns the name of the API.
func (a API) String() string { return string(a) }

// A pattern is the end of the paths of a call.
type pattern struct {
	prefix string // before a wildcard
	suffix string // behind it, or all of the pattern
	wild   string // the wildcard, "" for none
	stream bool
	format *format
}

// The wildcards of patterns.
const (
	wildModel   = "{model}" // one segment or more
	wildSegment = "*"       // one segment
)

func newPattern(path string, stream bool, f *format) pattern {
	p := pattern{suffix: path, stream: stream, format: f}
	for _, wild := range []string{wildModel, wildSegment} {
		if before, after, ok := strings.Cut(path, wild); ok {
			p.prefix, p.suffix, p.wild = before, after, wild
		}
	}
	return p
}

// match reports whether a path ends so, and returns the match of the wildcard.
func (p *pattern) match(path string) (wild string, ok bool) {
	path, ok = strings.CutSuffix(path, p.suffix)
	if !ok || p.wild == "" {
		return "", ok
	}
	i := strings.LastIndex(path, p.prefix)
	if i < 0 {
		return "", false
	}
	wild = path[i+len(p.prefix):]
	return wild, wild != "" && (p.wild == wildModel || !strings.Contains(wild, "/"))
}

// A table has the known calls by the ends of their paths, so that base paths of gateways do not matter.
type table []pattern

// isPlain reports whether a path means the same to all servers. Some servers take segments of dots out of paths.
// Some read the text after a semicolon, a percent sign or a backslash in another way.
func isPlain(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	return !strings.ContainsAny(path, ";%\\?#")
}

// find returns the first pattern for a path, and the model that the path names; nil for none.
func (t table) find(path string) (p *pattern, model string) {
	if !isPlain(path) {
		return nil, ""
	}
	path = strings.TrimSuffix(path, "/")
	for i := range t {
		if wild, ok := t[i].match(path); ok {
			if t[i].wild != wildModel {
				wild = ""
			}
			return &t[i], wild
		}
	}
	return nil, ""
}

// newTable returns the table of formats. The first format that matches a path counts.
func newTable(formats []Format) table {
	var t table
	for _, f := range formats {
		compiled := f.compile()
		for _, path := range f.Paths {
			t = append(t, newPattern(path, false, compiled))
		}
		for _, path := range f.Streams {
			t = append(t, newPattern(path, true, compiled))
		}
	}
	return t
}

// known is the table of the formats that need not be given.
var known = newTable(Formats())

// formatOf returns the format of an API that is known; one without anything for another.
func formatOf(api API) *format {
	for i := range known {
		if known[i].format.API == api {
			return known[i].format
		}
	}
	return &format{}
}
