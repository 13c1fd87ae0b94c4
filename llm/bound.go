package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A meaning is what a member of a request says by its name. Requests have bounds and models in many places and under
// many names, and servers read some that no other knows. So they are found by rules.
type meaning uint8

const (
	meansText meaning = iota // nothing that matters but its length
	meansBound
	meansChoices
	meansModel
	meansBeta
)

// free are members whose content is the application's own: arguments and results of tools, schemas, notes. Nothing there
// is a setting.
var free = set("input", "inputs", "arguments", "args", "response", "result", "results", "output", "outputs", "properties", "default", "examples", "example", "enum", "const", "metadata",
	"labels", "json", "data", "values", "variables", "documents", "logit_bias", "additionalProperties", "patternProperties", "$defs", "definitions",
	"schema", "responseSchema", "response_schema", "responseJsonSchema", "response_json_schema", "input_schema", "inputSchema", "items", "anyOf", "allOf", "oneOf")

// meaningOf returns what a member means; name is the last one of the path. Case, underscores and dashes do not matter in names, since
// some servers omit them.
func meaningOf(path, name []byte) meaning {
	if len(name) == 0 || len(name) > 64 {
		return meansText
	}
	found := meansText
	switch name[0] | 0x20 { // of the names below
	case 'm', 'n', 'b', 'c', 't', 'r':
		found = countMeaning(fold(name))
	}
	if found == meansText && mayBeModel(name) && isModelName(fold(name)) {
		found = meansModel
	}
	if found == meansText && isBetaName(name) {
		found = meansBeta
	}
	most := [...]int{meansBound: 4, meansChoices: 1, meansModel: len(path), meansBeta: 1}
	if found == meansText || bytes.Count(path, []byte{'.'}) > most[found] || isFree(path, name) || found != meansModel && isConversation(path) {
		return meansText
	}
	return found
}

// isConversation reports whether a path is within what is said.
func isConversation(path []byte) bool {
	first, _, _ := bytes.Cut(path, []byte{'.'})
	switch string(first) {
	case "messages", "contents", "system", "systemInstruction", "system_instruction", "prompt":
		return true
	default:
		return false
	}
}

// fold returns a name in lower case, without lines and dashes.
func fold(name []byte) string {
	var folded [64]byte
	n := 0
	for _, b := range name {
		switch {
		case b == '_' || b == '-':
		case b >= 'A' && b <= 'Z':
			folded[n] = b | 0x20
			n++
		default:
			folded[n] = b
			n++
		}
	}
	return string(folded[:n])
}

// countMeaning returns what a folded name of a number means.
func countMeaning(name string) meaning {
	switch name {
	case "maxlength", "maxgenlen", "numpredict", "npredict", "budgettokens", "maxtokencount", "maxtokenstosample", "maxoutputlength", "maxanswertokens":
		return meansBound
	case "thinkingbudget", "thinkingbudgettokens", "reasoningbudget", "reasoningbudgettokens":
		return meansBound
	case "n", "bestof", "candidatecount", "numreturnsequences", "numgenerations", "numresults", "numcompletions", "numchoices":
		return meansChoices
	}
	if !strings.HasPrefix(name, "max") || !strings.HasSuffix(name, "tokens") {
		return meansText
	}
	for _, other := range []string{"input", "prompt", "context", "content", "search", "history"} {
		if strings.Contains(name, other) {
			return meansText
		}
	}
	return meansBound
}

// mayBeModel reports, at little cost, whether a name may be that of a model.
func mayBeModel(name []byte) bool {
	switch name[len(name)-1] | 0x20 {
	case 'l', 's', 'd', 'e', 'k':
		return len(name) >= len("model")
	default:
		return len(name) > len("model") && name[0]|0x20 == 'm' && name[1]|0x20 == 'o' && name[2]|0x20 == 'd'
	}
}

// isModelName reports whether a folded name is one of models.
func isModelName(name string) bool {
	for _, end := range []string{"model", "models", "modelid", "modelids", "modelname", "modelnames", "fallback", "fallbacks"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	switch name {
	case "modellist", "modelgroup", "modeloverride", "modeloverrides", "modelalias", "modelaliases", "modelslug", "modelslugs", "modelarn", "modelpreference", "modelpreferences":
		return true
	default:
		return false
	}
}

// isBetaName reports whether a name is one of lists of beta features.
func isBetaName(name []byte) bool {
	if first, last := name[0]|0x20, name[len(name)-1]|0x20; first != 'a' && first != 'b' || last != 'a' && last != 's' {
		return false
	}
	switch fold(name) {
	case "anthropicbeta", "anthropicbetas", "betas":
		return true
	default:
		return false
	}
}

// isFree reports whether a path is within what is the application's own.
func isFree(path, name []byte) bool {
	for rest := path[:len(path)-len(name)]; len(rest) > 0; {
		segment, after, _ := bytes.Cut(rest, []byte{'.'})
		if free[string(segment)] {
			return true
		}
		rest = after
	}
	return false
}

// boundRule is what a bound has to be.
const boundRule = "must be a number of tokens, to bound the length of the answer"

// mean takes a scalar with a meaning. A text counts all the same.
func (q *question) mean(path, raw []byte) {
	if len(raw) > 1 && raw[0] == '"' && q.means != meansText {
		q.bytes += int64(len(raw) - 2)
	}
	switch q.means {
	case meansBound:
		q.bound(path, raw)
	case meansChoices:
		if n, ok := boundOf(raw); !ok && bytes.IndexByte(path, '.') < 0 {
			q.refuse(path, raw, "must be a number of choices")
		} else if n > q.choices {
			q.choices = n
		}
	case meansModel:
		q.alsoModel(path, raw)
	case meansBeta:
		q.beta(path, raw)
	case meansText:
	}
}

// betaRule is what the name of a feature has to be.
const betaRule = "must be the name of a beta feature, or a list of names"

// beta notes beta features: one, or several with commas between them.
func (q *question) beta(path, raw []byte) {
	text := ""
	switch err := json.Unmarshal(raw, &text); {
	case string(raw) == "null":
	case err != nil || len(raw) >= scanScalar:
		q.refuse(path, raw, betaRule)
	default:
		for name := range strings.SplitSeq(text, ",") {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(q.call.Betas, name) {
				q.call.Betas = append(q.call.Betas, name)
			}
		}
	}
}

// bounds are the names by which each API has the most tokens of an answer. A format of an application's own has them all.
var bounds = map[API][]string{
	APIOpenAIChat:         {"max_completion_tokens", "max_tokens"},
	APIOpenAICompletions:  {"max_tokens"},
	APIOpenAIResponses:    {"max_output_tokens"},
	APIAnthropicMessages:  {"max_tokens"},
	APIGeminiContent:      {"generationConfig.maxOutputTokens", "generation_config.max_output_tokens"},
	APIGeminiInteractions: {"generation_config.max_output_tokens"},
	APIOllamaChat:         {"options.num_predict"},
	APIBedrockConverse:    {"inferenceConfig.maxTokens"},
	"": { // of the makers of models on Bedrock and Vertex AI
		"max_tokens_to_sample", "max_gen_len", "maxTokens", "textGenerationConfig.maxTokenCount", "inferenceConfig.max_new_tokens", "inferenceConfig.maxNewTokens",
		"parameters.max_new_tokens", "parameters.maxOutputTokens", "n_predict",
	},
}

// isBound reports whether a path is a bound of the call's API, which every server of it obeys.
func (q *question) isBound(path []byte) bool {
	_, known := bounds[q.call.API]
	for api, names := range bounds {
		if !known || api == q.call.API {
			if slices.Contains(names, string(path)) {
				return true
			}
		}
	}
	return false
}

// bound notes the most tokens of a choice. The greatest of all bounds counts, whichever of them a server obeys. One that is
// not of the API does not make the estimate less than that of a request without a bound.
func (q *question) bound(path, raw []byte) {
	switch n, ok := boundOf(raw); {
	case !ok && (bytes.IndexByte(path, '.') < 0 || q.isBound(path)):
		q.refuse(path, raw, boundRule)
	case !ok: // of what no server is known to read
	case n == unsaidBound:
	case n < 0:
		q.unbounded = true
	default:
		q.most = max(q.most, n)
		q.bounded = q.bounded || q.isBound(path)
	}
}

func (q *question) refuse(path, raw []byte, rule string) {
	if q.invalid == nil {
		q.invalid = invalid(string(path), string(raw), rule)
	}
}

// unsaidBound is a bound that is null or empty.
const unsaidBound = math.MinInt64

// numbers are those that a server may read out of a scalar.
var numbers = regexp.MustCompile(`^[+-]?[0-9][0-9_]*(\.[0-9_]*)?([eE][+-]?[0-9]+)?$`)

// boundOf returns the number that a server may read in a scalar, rounded up.
func boundOf(raw []byte) (n int64, ok bool) {
	text := string(raw)
	if len(raw) >= scanScalar || len(raw) > 1 && raw[0] == '"' && json.Unmarshal(raw, &text) != nil {
		return 0, false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return min(n, maxAmount), true
	}
	if text = strings.TrimSpace(text); text == "" || text == "null" {
		return unsaidBound, true
	}
	if !numbers.MatchString(text) {
		return 0, false
	}
	x, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil && !math.IsInf(x, 0) {
		return 0, false
	}
	return int64(math.Ceil(min(max(x, -1), maxAmount))), true
}

// modelsMost is the most models that a request may name.
const modelsMost = 16

// alsoModel notes a model besides that of the call. A value other than a string names none.
func (q *question) alsoModel(path, raw []byte) {
	var name string
	switch {
	case len(raw) == scanScalar:
		q.refuse(path, raw, fmt.Sprintf("must be the name of a model, of less than %d bytes", scanScalar))
		return
	case q.fixed && string(path) == "model":
		return
	case json.Unmarshal(raw, &name) != nil || name == "":
		return
	}
	if at := strings.LastIndex("/"+name, "/models/"); at >= 0 { // of Google's names
		name = name[at+len("models/"):]
	}
	switch {
	case slices.Contains(q.models, name):
	case len(q.models) == modelsMost:
		q.refuse(path, raw, fmt.Sprintf("must be one of at most %d models that a request names", modelsMost))
	default:
		q.models = append(q.models, name)
	}
}

// named returns all models that the request names, and sets that of the call; other is the model of a request that
// names none.
func (q *question) named(other string) []string {
	if q.call.Model == "" {
		if q.call.Model = other; other == "" && len(q.models) > 0 {
			q.call.Model = q.models[0]
		}
	}
	if q.call.Model == "" {
		return nil
	}
	all := []string{q.call.Model}
	for _, name := range append(strings.Split(q.call.Model, ","), q.models...) { // some gateways ask a list of models
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// estimateOutput sets the most tokens that the answer may take; output is the most without a bound.
func (q *question) estimateOutput(output int64) {
	if output = max(output, q.most); q.bounded && !q.unbounded {
		output = q.most
	}
	q.call.Output = times(times(output, q.choices), q.prompts.count())
}

// standsIn reports whether a string names a model by where it is: in a list below a member of fallbacks, which is named by the model that
// they are for; the name or any other text of an object that a member of models is; and what some servers have in place of a model.
func (q *question) standsIn(path, name []byte) bool {
	above, open := path[:len(path)-len(name)], q.scanner.open
	if len(above) == 0 {
		return string(name) == "engine" || string(name) == "deployment" || string(name) == "deployment_id"
	}
	if bytes.HasSuffix(above, []byte("fallbacks.")) && open[len(open)-1] == '[' && !bytes.HasPrefix(name, []byte("stop")) && !isFree(path, name) {
		return true
	}
	above = above[:len(above)-1]
	outer := above[bytes.LastIndexByte(above, '.')+1:]
	if len(outer) == 0 || len(outer) > 64 || !mayBeModel(outer) || open[len(open)-1] != '{' || isFree(path, name) || isConversation(path) {
		return false
	}
	switch of := fold(outer); {
	case strings.HasSuffix(of, "models"):
		return len(name) > 0 && string(name) != "type" && string(name) != "provider"
	case strings.HasSuffix(of, "model"), strings.HasSuffix(of, "fallback"), strings.HasSuffix(of, "fallbacks"):
		return string(name) == "name" || string(name) == "id" || string(name) == "slug"
	default:
		return false
	}
}
