package llm

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
)

// A Call is a request to a model, as far as it is known before the answer.
type Call struct {
	// API is the protocol of the call; "" for a request that asks no model.
	API API `json:"api"`
	// Model is the model that is asked; "" when the request names none.
	Model string `json:"model"`
	// Models are all models that the request names, each once and Model first: also those that stand in for it, and those
	// that work for its tools.
	Models []string `json:"models,omitempty"`
	// Service and Speed are the class of service and the speed that the request asks for, such as "priority" and "fast"; "" if it does
	// not say. The answer says which ones it had.
	Service string `json:"service,omitempty"`
	Speed   string `json:"speed,omitempty"`
	// Betas are the features that the body of the request turns on by name, as bodies for Claude do on Bedrock and Vertex AI, each once.
	// Those of headers are not among them.
	Betas []string `json:"betas,omitempty"`
	// Stream says that the answer is requested in pieces.
	Stream bool `json:"stream"`
	// Input estimates the tokens of the prompt: one for each four bytes of text, one for each token id, 1,000 for each picture or
	// file of any size.
	Input int64 `json:"input"`
	// Output is the most tokens that the answer may take, over all of its choices, or the default where the request does
	// not say. It is the greatest number that the request has for it, under any name.
	Output int64 `json:"output"`

	sound string // the format of sound that the request asks for
}

// Bounds and defaults of calls.
const (
	defaultMemory = 1 << 20
	defaultMost   = 128 << 20
	defaultOutput = 1024
)

// Inspect reads the model and the estimate of a request. It reads the body to its end, keeps it as a [Transport] does,
// and puts it back. For a request to no model that it knows it returns a Call with API "", without reading anything. It
// returns an error if the body cannot be read, or its model cannot be determined.
func Inspect(r *http.Request) (Call, error) {
	p, model, _ := known.classify(r)
	if p == nil {
		return Call{}, nil
	}
	q, s, err := inspect(r, p, model, &config{memory: defaultMemory, most: defaultMost, output: defaultOutput})
	if err != nil {
		return Call{}, err
	}
	defer s.release()
	r.Body, err = s.open(edit{})
	return q.call, err
}

func inspect(r *http.Request, p *pattern, model string, c *config) (*question, *spool, error) {
	q := newQuestion(Call{API: p.format.API, Model: model, Stream: p.stream})
	q.polled = p.format.stage != nil
	s, err := fill(r, c.memory, c.most, q)
	if err != nil {
		return nil, nil, err
	}
	kind, params, err := q.kind(r.Header)
	switch {
	case err != nil:
	case kind == formType:
		err = q.form(s, params["boundary"])
	default:
		err = q.check(s.size)
	}
	if err == nil {
		err = q.invalid
	}
	if err != nil {
		s.release()
		return nil, nil, err
	}
	q.call.Input = plus(plus(tokensOf(q.bytes), q.ids), times(opaqueTokens, q.opaque))
	if q.compacts { // which reads the prompt once more
		q.call.Input = times(2, q.call.Input)
	}
	q.call.Service = cmp.Or(q.call.Service, p.format.service)
	q.call.Models = q.named(p.format.DefaultModel)
	switch {
	case p.format.InputOnly:
	case p.format.spoken:
		q.estimateOutput(spokenTokens(q.bytes))
	default:
		q.estimateOutput(c.output)
	}
	return q, s, nil
}

// formType is the type of forms that are read; other bodies are JSON.
const formType = "multipart/form-data"

// kind returns the type of a body. Where the body names the model, a body is refused that another reader may take for
// something else: an encoded one, or one of another type or alphabet.
func (q *question) kind(h http.Header) (kind string, params map[string]string, err error) {
	types, text := h.Values("Content-Type"), h.Get("Content-Type")
	kind, params, err = mime.ParseMediaType(text)
	encoding, charset := strings.Join(h.Values("Content-Encoding"), ", "), strings.ToLower(params["charset"])
	switch {
	case len(types) > 1:
		return "", nil, invalid("Content-Type", strings.Join(types, ", "), "must appear once, to determine how to read the body")
	case q.fixed || q.call.API == APIUnknown:
		return kind, params, nil
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return "", nil, invalid("Content-Encoding", encoding, "must be identity, to find the model in the body")
	case text == "":
		return "", nil, nil
	case err != nil || kind != formType && !isJSON(kind):
		return "", nil, invalid("Content-Type", text, "must be JSON or a multipart form, to find the model in the body")
	case charset != "" && charset != "utf-8" && charset != "us-ascii":
		return "", nil, invalid("Content-Type", text, "must have the charset utf-8, to find the model in the body")
	}
	return kind, params, nil
}

// isJSON reports whether bodies of a type are read as JSON. Browsers send JSON as text/plain.
func isJSON(kind string) bool {
	return kind == "application/json" || kind == "text/json" || kind == "text/plain" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// A question is the parsed body of a request, written to it in pieces of any size.
type question struct {
	call       Call
	scanner    scanner
	fixed      bool  // the path names the model
	streams    bool  // the path says that the answer is streamed
	bytes      int64 // of text
	opaque     int64 // pictures and files
	ids        int64 // of tokens, each of which is one
	most       int64 // tokens of one choice, by any name
	bounded    bool  // one of them is a bound that the API has
	unbounded  bool  // a bound is that there is none
	choices    int64 // of each prompt
	prompts    prompts
	compacts   bool     // the provider may summarize the prompt before
	models     []string // besides that of the call
	invalid    error    // of the first setting that cannot be read
	documents  int
	nested     bool // a document is inside an array
	polled     bool // the response may be made in the background
	background bool // the response is made there
	alike      bool // a member named like the model in another case, which some servers take for it

	means   meaning  // of the scalar that is scanned
	sources []source // by the number of brackets that are open
	source  *source  // whose string is read; nil for text
	drawn   *source  // whose result is read; nil for another string

	option *edit // that makes the open stream_options ask for usage; one without text where they ask already
	usage  *edit // the same for the last stream_options; nil if there are none
}

// A source is an object that may hold a picture, a file or a text.
type source struct {
	data  int64 // bytes of its strings
	parts int64 // of a list, those that are not empty
	begun bool  // the present string is not
	text  bool  // the strings are text, as the type beside them says
	drawn int64 // bytes of its result, which is a picture if the type beside it says so
	draws bool  // it does
}

func newQuestion(c Call) *question {
	q := &question{call: c, fixed: c.Model != "", streams: c.Stream, choices: 1}
	q.scanner = scanner{interest: q.interest, scalar: q.scalar, long: q.long, text: q.text, document: q.document, closed: q.closed, named: q.member}
	return q
}

// The settings of all APIs that matter, by their path. Bounds and models are found by their names.
var settings = map[string]func(q *question, raw []byte){
	"model":  (*question).model,
	"stream": func(q *question, raw []byte) { q.call.Stream = q.streams || !isFalse(raw) },
	"stream_options": func(q *question, raw []byte) {
		q.usage = q.instead(raw, `{"include_usage":true}`)
	},
	"service_tier":                 (*question).service,
	"serviceTier":                  (*question).service,
	"serviceTier.type":             (*question).service,
	"speed":                        (*question).speed,
	"audio.format":                 (*question).sound,
	"response_format":              (*question).sound,
	"performanceConfig.latency":    (*question).speed,
	"stream_options.include_usage": func(q *question, raw []byte) { q.option = q.instead(raw, "true") },
	"context_management.edits.type": func(q *question, raw []byte) {
		q.compacts = q.compacts || bytes.HasPrefix(raw, []byte(`"compact`))
	},
}

// isFalse reports whether servers take a scalar for false. Lenient ones take all others for true, such as 1 and "true".
func isFalse(raw []byte) bool {
	switch string(raw) {
	case "", "0", "null", "false", `""`, `"0"`, `"false"`:
		return true
	default:
		return false
	}
}

// opaqueNames are the members that hold pictures and files, or where they are.
var opaqueNames = set("data", "bytes", "url", "uri", "image_url", "file_url", "file_data", "fileUri", "file_uri", "file_id", "images", "b64_json",
	"document_url", "audio_url", "video_url", "input_audio", "audio", "image", "mask", "video", "prompt_embeds", "image_embeds", // as strings, of Mistral, Qwen and vLLM
	"voiceSampleAudio", "voice_sample_audio", "consentAudio", "consent_audio",
	"bytesBase64Encoded", "gcsUri", "inputImage", "maskImage", "base64String") // of the makers of models on Vertex AI and Bedrock

func (q *question) Write(p []byte) (int, error) {
	q.scanner.write(p)
	return len(p), nil
}

func (q *question) interest(path []byte) interest {
	q.source, q.drawn = nil, nil
	q.alike = q.alike || len(path) == len("model") && string(path) != "model" && bytes.EqualFold(path, []byte("model"))
	if settings[string(path)] != nil {
		if string(path) == "model" && !q.fixed { // the last one counts, also when it cannot be read
			q.call.Model = ""
		}
		return kept
	}
	name := path[bytes.LastIndexByte(path, '.')+1:]
	if q.means = meaningOf(path, name); q.means == meansText && q.standsIn(path, name) {
		q.means = meansModel
	}
	if q.means != meansText {
		return kept
	}
	switch {
	case isOwnData(path):
		return measured
	case string(name) == "type", q.polled && string(path) == "background":
		return kept
	case opaqueNames[string(name)] && !isReference(path):
		q.source = q.inside()
		q.source.begun = false
	case string(name) == "result":
		q.drawn = q.inside()
	default:
		q.element(path)
		q.id(path, name)
	}
	return counted
}

func (q *question) scalar(path, raw []byte) {
	if set := settings[string(path)]; set != nil {
		set(q, raw)
		return
	}
	switch {
	case q.means != meansText:
		q.mean(path, raw)
	case string(path) == "background":
		q.background = !isFalse(raw)
	default:
		q.inside().typed(string(raw))
	}
}

// long takes a scalar that is too long to be a setting. Other readers may read it.
func (q *question) long(path, raw []byte) {
	if settings[string(path)] == nil && q.means != meansText {
		q.mean(path, raw)
	}
}

// text counts strings, and other values of JSON that a model reads.
func (q *question) text(_ []byte, bytes int) {
	if s := q.source; s != nil {
		if s.data += int64(bytes); bytes > 0 && !s.begun {
			s.parts, s.begun = s.parts+1, true
		}
		return
	}
	if q.drawn != nil {
		q.drawn.drawn += int64(bytes)
		return
	}
	q.bytes += int64(bytes)
}

func (q *question) inside() *source {
	depth := len(q.scanner.open)
	for len(q.sources) <= depth {
		q.sources = append(q.sources, source{})
	}
	return &q.sources[depth]
}

// closed counts the content of an object, now that its type is known.
func (q *question) closed(path []byte) {
	s := q.inside()
	switch {
	case !s.draws:
		q.bytes += s.drawn
	case s.drawn > 0:
		q.opaque++
	}
	switch {
	case s.text:
		q.bytes += s.data
	case q.scanner.open[len(q.scanner.open)-1] == '[':
		q.opaque += s.parts
	case s.data > 0:
		q.opaque++
	}
	*s = source{}
	if len(path) > 0 && len(path) < scanScalar && meaningOf(path, path[bytes.LastIndexByte(path, '.')+1:]) == meansBound && q.scanner.open[len(q.scanner.open)-1] == '{' {
		q.refuse(path, []byte("an object"), boundRule)
	}
	q.list(path)
	if len(q.scanner.open) != 2 || string(path) != "stream_options" {
		return
	}
	if q.usage = q.option; q.usage == nil {
		q.usage = &edit{q.scanner.at, q.scanner.at, `,"include_usage":true`}
		if q.scanner.state == scanMember { // there is no option
			q.usage.text = q.usage.text[1:]
		}
	}
	q.option = nil
}

func (q *question) document() {
	q.documents++
	q.nested = q.nested || len(q.scanner.open) > 0
}

// instead returns the edit that replaces the scalar ending here by a text, if the scalar is null or false.
func (q *question) instead(raw []byte, text string) *edit {
	if string(raw) != "false" && string(raw) != "null" {
		return &edit{}
	}
	return &edit{q.scanner.at - int64(len(raw)), q.scanner.at, text}
}

func (q *question) model(raw []byte) {
	name := ""
	if !q.fixed && json.Unmarshal(raw, &name) == nil {
		q.call.Model = name
	}
	if len(q.scanner.open) > 1 { // one of a list, of which a server may ask any
		q.alsoModel([]byte("model"), raw)
	}
}

// service notes the requested class of service. Numbers and similar name none.
func (q *question) service(raw []byte) {
	name := ""
	_ = json.Unmarshal(raw, &name)
	q.call.Service = cmp.Or(serviceOf(name), q.call.Service)
}

// speed notes the requested speed, as service does.
func (q *question) speed(raw []byte) {
	name := ""
	_ = json.Unmarshal(raw, &name)
	q.call.Speed = cmp.Or(strings.ToLower(name), q.call.Speed)
}

// sound notes the requested format of sound. Other formats of responses are objects, or no sound.
func (q *question) sound(raw []byte) {
	name := ""
	_ = json.Unmarshal(raw, &name)
	q.call.sound = cmp.Or(name, q.call.sound)
}

// check looks at a body that was written whole. A body that another parser reads differently may name another model
// there, so it is refused. Where the path names the model, it counts by its length.
func (q *question) check(size int64) error {
	if q.alike && !q.fixed && q.call.API != APIUnknown {
		return invalid("body", "", "must write the name of its model in lower case")
	}
	if q.documents == 1 && !q.nested && q.scanner.state != scanBroken {
		return nil
	}
	if !q.fixed && q.call.API != APIUnknown {
		return invalid("body", "", "must be one object of JSON, of at most "+strconv.Itoa(scanDepth)+" levels, to find its model")
	}
	q.bytes, q.opaque, q.ids = size, 0, 0
	if !q.fixed {
		q.call.Model = ""
	}
	return nil
}

// form reads the body of a form, in which files are parts. A form may have text before its first boundary, which another reader could
// take for JSON with another model. So a body that does not begin with the boundary is refused, and so is a second model.
func (q *question) form(s *spool, boundary string) error {
	opened, err := s.open(edit{})
	if err != nil {
		return err
	}
	defer opened.Close()
	body, first := bufio.NewReader(opened), "--"+boundary
	if begin, _ := body.Peek(len(first)); boundary == "" || string(begin) != first {
		return invalid("body", "", "must begin with the boundary of a form, as its Content-Type says")
	}
	q.bytes, q.opaque, q.ids, q.invalid = 0, 0, 0, nil
	models := 0
	for parts := multipart.NewReader(body, boundary); ; {
		part, err := parts.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return invalid("body", "", "must be a form, as its Content-Type says: "+err.Error())
		case part.FormName() == "model" && !q.fixed && (part.FileName() != "" || isEncoded(part.Header.Get("Content-Transfer-Encoding"))):
			return invalid("model", "", "must be in the form as it is, without a file or an encoding")
		case part.FileName() != "":
			q.opaque++
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, scanScalar+1))
		rest, _ := io.Copy(io.Discard, part)
		switch name := part.FormName(); {
		case err != nil: // which the next part says
		case name == "model" && !q.fixed:
			if models++; models > 1 {
				return invalid("model", string(value[:min(len(value), scanScalar)]), "must be in the form once")
			}
			if len(value) <= scanScalar {
				q.call.Model = string(value)
			}
		case settings[name] != nil && !strings.HasPrefix(name, "stream_") && name != "model":
			settings[name](q, value)
		case meaningOf([]byte(name), []byte(name)) != meansText:
			q.means = meaningOf([]byte(name), []byte(name))
			q.mean([]byte(name), value)
		default:
			q.bytes += int64(len(value)) + rest
		}
	}
}

// isEncoded reports whether an encoding of a part changes its content.
func isEncoded(encoding string) bool {
	switch strings.ToLower(encoding) {
	case "", "7bit", "8bit", "binary":
		return false
	default:
		return true
	}
}
