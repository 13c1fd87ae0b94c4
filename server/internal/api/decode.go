package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"
	"github.com/getkin/kin-openapi/openapi3"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// specification reads openapi.yaml, by whose schemas requests are read.
func specification() *openapi3.T {
	text, _ := documents.ReadFile("openapi.yaml") // it is embedded
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		panic(err) // which every test would see
	}
	return document
}

// A form is what a request may have: the parameters of a GET, and the body of others.
type form struct {
	*openapi3.Schema

	optional bool // the body may be missing
}

// formOf returns the form of the requests of a pattern; an empty one for those without a body.
func formOf(document *openapi3.T, pattern string) form {
	method, path, _ := strings.Cut(pattern, " ")
	operation := document.Paths.Value(path).GetOperation(method)
	switch body := operation.RequestBody; {
	case method == http.MethodGet:
		query := openapi3.NewObjectSchema().WithoutAdditionalProperties()
		for _, p := range operation.Parameters {
			if p.Value.In == openapi3.ParameterInQuery {
				query.WithPropertyRef(p.Value.Name, p.Value.Schema)
			}
			if p.Value.In == openapi3.ParameterInQuery && p.Value.Required {
				query.Required = append(query.Required, p.Value.Name)
			}
		}
		return form{query, false}
	case body == nil:
		return form{}
	default:
		return form{body.Value.Content.Get("application/json").Schema.Value, !body.Value.Required}
	}
}

// on returns the call of a function of a request.
func on[Q any](serve func(*call, *Q) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		q := new(Q)
		if err := c.read(q); err != nil {
			return nil, err
		}
		return serve(c, q)
	}
}

// read reads a request by its form.
func (c *call) read(to any) error {
	var value any
	var err error
	switch {
	case c.r.Method == http.MethodGet:
		value, err = c.form.parameters(c.r.URL.RawQuery)
	case c.form.optional && c.r.ContentLength == 0:
		return nil
	default:
		var body []byte
		body, err = c.body()
		if err == nil && c.form.optional && len(body) == 0 { // of a length that was not known
			return nil
		}
		if err == nil {
			value, err = decode(body)
		}
	}
	if err == nil {
		err = c.form.check(value)
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(value) // with defaults, and each number in one form
	if err == nil {
		err = limitError(value, json.Unmarshal(text, to))
	}
	return err
}

// parameters reads the parameters of a request, of which none comes twice. An empty one is as none.
func (f *form) parameters(query string) (any, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, invalid("query", query, "must be of the form name=value&name=value")
	}
	all := map[string]any{}
	for name, given := range values {
		if len(given) > 1 {
			return nil, invalid(name, given[1], "is given twice")
		}
		if given[0] == "" {
			continue
		}
		var value any = given[0]
		if p := f.Properties[name]; p != nil && !p.Value.Type.Is(openapi3.TypeString) {
			_ = json.Unmarshal([]byte(given[0]), &value) // a number or a flag, or else a text, which is none
		}
		all[name] = value
	}
	return all, nil
}

// decode reads JSON in which no name comes twice: so a request means the same to every reader.
func decode(text []byte) (value any, err error) {
	if !utf8.Valid(text) {
		return nil, invalid("body", "", "must be UTF-8")
	}
	switch {
	case !json.Valid(text):
		return nil, invalid("body", "", "must be JSON")
	case json.Unmarshal(text, &value) != nil:
		return nil, invalid("body", "", "has a number that is too large")
	}
	return value, twice(json.NewDecoder(bytes.NewReader(text)), nil)
}

// twice returns an error for a name that comes twice in an object, and for a null, which no field takes. The text is valid.
func twice(d *json.Decoder, at []string) error {
	opened, _ := d.Token()
	if opened == nil {
		return invalid(cmp.Or(pathOf(at), "body"), "null", "must have a value, or be left out")
	}
	if _, ok := opened.(json.Delim); !ok {
		return nil
	}
	seen := map[string]bool{}
	for i := 0; d.More(); i++ {
		name := strconv.Itoa(i)
		if opened == json.Delim('{') {
			token, _ := d.Token()
			name = token.(string)
		}
		here := slices.Concat(at, []string{name})
		if seen[name] {
			return invalid(pathOf(here), "", "is given twice")
		}
		seen[name] = true
		if err := twice(d, here); err != nil {
			return err
		}
	}
	_, _ = d.Token() // which closes it
	return nil
}

// times checks that a time is one of RFC 3339.
var times = openapi3.WithStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(text string) error {
	_, err := time.Parse(time.RFC3339, text)
	return err
}))

// check returns the rule that a request breaks, with the field. It sets defaults.
func (f *form) check(value any) error {
	return ruleOf(f.VisitJSON(value, times, openapi3.VisitAsRequest(), openapi3.DefaultsSet(func() {})), nil)
}

// ruleOf writes the error of a value. The value of a secret is left out.
func ruleOf(err error, above []string) error {
	var broken *openapi3.SchemaError
	if !errors.As(err, &broken) {
		return err
	}
	at, given, schema := slices.Concat(above, broken.JSONPointer()), textOf(broken.Value), broken.Schema
	fields, isObject := broken.Value.(map[string]any)
	switch {
	case broken.SchemaField == "oneOf" && isObject: // a limit, as an object or a text
		return ruleOf(schema.OneOf[1].Value.VisitJSON(fields), at)
	case broken.SchemaField == "required":
		return invalid(pathOf(at), "", "must be given")
	case broken.SchemaField == "properties":
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if schema.Properties[name] == nil {
				return invalid(pathOf(slices.Concat(at, []string{name})), textOf(fields[name]), "is no field of this request")
			}
		}
	case schema.Format == "password":
		if given = ""; broken.SchemaField != "type" {
			return fmt.Errorf("%w: %s", leasetoken.ErrInvalid, rule(broken.SchemaField, schema))
		}
	}
	return invalid(cmp.Or(pathOf(at), "body"), given, cmp.Or(rule(broken.SchemaField, schema), broken.Reason))
}

// rule says what a field of a schema asks for; "" where the schema says it well enough.
func rule(field string, s *openapi3.Schema) string {
	types := map[string]string{"integer": "a whole number", "boolean": "true or false", "array": "an array", "object": "an object", "string": "a text"}
	switch field {
	case "type", "nullable":
		return "must be " + types[s.Type.Slice()[0]]
	case "minimum", "maximum":
		return fmt.Sprintf("must be a whole number from %.0f to %.0f", *cmp.Or(s.Min, new(float64(-maxInteger))), *cmp.Or(s.Max, new(float64(maxInteger))))
	case "enum":
		var names []string
		for _, name := range s.Enum {
			names = append(names, cmp.Or(textOf(name), "nothing"))
		}
		return "must be " + english.WordSeries(names, "or")
	case "minProperties", "maxProperties":
		return fmt.Sprintf("must have from %d to %d amounts", s.MinProps, *s.MaxProps)
	case "maxItems":
		return fmt.Sprintf("must have at most %d values", *s.MaxItems)
	case "minLength":
		return "must not be empty"
	case "maxLength":
		return fmt.Sprintf("must have at most %d characters", *s.MaxLength)
	case "pattern":
		return "must be " + s.Title
	case "format":
		return "must be a time of RFC 3339, such as 2026-11-28T12:00:00Z"
	case "oneOf":
		return `must be a text such as "tpm=10000/min", or an object`
	}
	return ""
}

// amounts are the objects with amounts by limit.
var amounts = []string{"consume", "actual", "adjust", "amounts"}

// pathOf writes where a value is: amounts are in brackets, as elements of arrays are.
func pathOf(at []string) (path string) {
	for i, name := range at {
		_, err := strconv.Atoi(name)
		switch {
		case i == 0:
			path = name
		case err == nil || slices.Contains(amounts, at[i-1]):
			path += "[" + name + "]"
		default:
			path += "." + name
		}
	}
	return path
}

// textOf returns a value as text.
func textOf(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, _ := json.Marshal(value) // it was read from JSON
	return string(text)
}

// limitError names which limit of a request is wrong: the field of an object, or the part of a text.
func limitError(value any, err error) error {
	object, _ := value.(map[string]any)
	limits, _ := object["limits"].([]any)
	for i, limit := range limits {
		var wrong *zlimit.ValidationError
		raw, _ := json.Marshal(limit) // it was read from JSON
		if err == nil || !errors.As(json.Unmarshal(raw, new(zlimit.Limit)), &wrong) {
			continue
		}
		path := "limits[" + strconv.Itoa(i) + "]"
		_, part, _ := strings.Cut(wrong.Field, " ")
		fields, _ := limit.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if part != "" && strings.HasPrefix(name, strings.ReplaceAll(part, " ", "_")) {
				return invalid(path+"."+name, wrong.Value, wrong.Reason)
			}
		}
		return invalid(path, textOf(limit), strings.TrimSpace(part+" "+wrong.Reason))
	}
	return err
}

// invalid returns the error of a field that breaks a rule.
func invalid(path, value, rule string) error {
	return &zlimit.ValidationError{Field: shown(path), Value: shown(value), Reason: rule}
}

// shown returns a value as an error shows it.
func shown(value string) string {
	const most = 100
	if len(value) <= most {
		return strings.ToValidUTF8(value, "�")
	}
	return strings.ToValidUTF8(value[:most], "�") + "…"
}
