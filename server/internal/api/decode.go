package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A specification is what openapi.yaml says of requests. They are read by its schemas.
type specification struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct{ Schemas map[string]*jsonschema.Schema }
}

// A form is what a request may have: the parameters of a GET, and the body of others.
type form struct {
	*specification

	schema   *jsonschema.Schema
	optional bool // the body may be missing
}

func newSpecification() *specification {
	text, _ := documents.ReadFile("openapi.yaml") // it is embedded
	var all any
	s := &specification{}
	err := yaml.Unmarshal(text, &all)
	if err == nil {
		text, err = json.Marshal(all)
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		panic(err) // which every test would see
	}
	return s
}

// form returns the form of the requests of a pattern.
func (s *specification) form(pattern string) form {
	method, path, _ := strings.Cut(pattern, " ")
	var operation struct {
		Parameters []struct {
			Name, In string
			Required bool
			Schema   *jsonschema.Schema
		}
		RequestBody struct {
			Required bool
			Content  map[string]struct{ Schema *jsonschema.Schema }
		}
	}
	if err := json.Unmarshal(s.Paths[path][strings.ToLower(method)], &operation); err != nil {
		panic(pattern + " is not in the document: " + err.Error())
	}
	if method != http.MethodGet {
		return form{s, operation.RequestBody.Content["application/json"].Schema, !operation.RequestBody.Required}
	}
	query := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, p := range operation.Parameters {
		if p.In == "query" {
			query.Properties[p.Name] = p.Schema
		}
		if p.In == "query" && p.Required {
			query.Required = append(query.Required, p.Name)
		}
	}
	return form{s, query, false}
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
	case c.form.optional && c.r.ContentLength == 0 && c.r.Header.Get("Content-Type") == "":
		return nil
	default:
		var body []byte
		if body, err = c.body(); err == nil {
			value, err = c.form.value("", body, c.form.schema)
		}
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// parameters reads the parameters of a request: each is known, and none comes twice. An empty one is as none.
func (f *form) parameters(query string) (any, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, invalid("query", query, "must be of the form name=value&name=value")
	}
	all := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value, schema := values.Get(name), f.schema.Properties[name]
		switch {
		case schema == nil:
			return nil, invalid(shown(name), value, "is no parameter of this request")
		case len(values[name]) > 1:
			return nil, invalid(name, values[name][1], "is given twice")
		case value == "":
			continue
		}
		raw := []byte(value)
		if schema.Type != "integer" && schema.Type != "boolean" {
			raw, _ = json.Marshal(value) // of a text
		}
		if all[name], err = f.value(name, raw, schema); err != nil {
			return nil, err
		}
	}
	for name, schema := range f.schema.Properties {
		if _, given := all[name]; !given && schema.Default != nil {
			all[name] = schema.Default
		}
	}
	return all, missing("", all, f.schema)
}

// invalid returns the error of a field that breaks a rule.
func invalid(path, value, rule string) error {
	return &zlimit.ValidationError{Field: path, Value: shown(value), Reason: rule}
}

// shown returns a value as an error shows it.
func shown(value string) string {
	const most = 100
	if len(value) <= most {
		return strings.ToValidUTF8(value, "�")
	}
	return strings.ToValidUTF8(value[:most], "�") + "…"
}

// member returns the path of a field of an object.
func member(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// missing returns an error if an object lacks a field.
func missing(path string, all map[string]any, schema *jsonschema.Schema) error {
	for _, name := range schema.Required {
		if _, ok := all[name]; !ok {
			return invalid(member(path, name), "", "must be given")
		}
	}
	return nil
}

// value reads a value by a schema. The path names it in errors.
func (s *specification) value(path string, raw json.RawMessage, schema *jsonschema.Schema) (any, error) {
	if name, ok := strings.CutPrefix(schema.Ref, "#/components/schemas/"); ok {
		schema = s.Components.Schemas[name]
	}
	if len(schema.OneOf) == 2 {
		return s.limit(path, raw, schema)
	}
	switch schema.Type {
	case "object":
		return s.object(path, raw, schema)
	case "array":
		var all []json.RawMessage
		if raw[0] != '[' || json.Unmarshal(raw, &all) != nil {
			return nil, invalid(path, string(raw), "must be an array")
		}
		if schema.MaxItems != nil && len(all) > *schema.MaxItems {
			return nil, invalid(path, strconv.Itoa(len(all))+" values", fmt.Sprintf("must have at most %d", *schema.MaxItems))
		}
		values := make([]any, len(all))
		for i := range all {
			var err error
			if values[i], err = s.value(path+"["+strconv.Itoa(i)+"]", all[i], schema.Items); err != nil {
				return nil, err
			}
		}
		return values, nil
	case "integer":
		return integer(path, raw, schema)
	case "boolean":
		if text := string(raw); text != "true" && text != "false" {
			return nil, invalid(path, text, "must be true or false")
		}
		return raw, nil
	case "number":
		return raw, nil
	default:
		return text(path, raw, schema)
	}
}

// limit reads a limit, which is a text or an object.
func (s *specification) limit(path string, raw json.RawMessage, schema *jsonschema.Schema) (any, error) {
	switch raw[0] {
	case '"':
	case '{':
		if _, err := s.value(path, raw, schema.OneOf[1]); err != nil {
			return nil, err
		}
	default:
		return nil, invalid(path, string(raw), `must be a text such as "tpm=10000/min", or an object`)
	}
	if err := json.Unmarshal(raw, new(zlimit.Limit)); err != nil {
		return nil, limitError(path, raw, schema.OneOf[1], err)
	}
	return raw, nil
}

// limitError names what is wrong with a limit: the field of an object, or the part of a text.
func limitError(path string, raw json.RawMessage, object *jsonschema.Schema, err error) error {
	var wrong *zlimit.ValidationError
	if !errors.As(err, &wrong) {
		return invalid(path, string(raw), "must be a limit")
	}
	_, part, _ := strings.Cut(wrong.Field, " ")
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		if raw[0] == '{' && part != "" && strings.HasPrefix(name, strings.ReplaceAll(part, " ", "_")) {
			return invalid(member(path, name), wrong.Value, wrong.Reason)
		}
	}
	return invalid(path, string(raw), strings.TrimSpace(part+" "+wrong.Reason))
}

// patterns are compiled once.
var patterns sync.Map

func matches(pattern, value string) bool {
	of, ok := patterns.Load(pattern)
	if !ok {
		of, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return of.(*regexp.Regexp).MatchString(value)
}

// text reads a string. A value of the format password is not shown.
func text(path string, raw json.RawMessage, schema *jsonschema.Schema) (value string, err error) {
	if raw[0] != '"' || json.Unmarshal(raw, &value) != nil {
		if schema.Format == "password" {
			raw = nil
		}
		return "", invalid(path, string(raw), "must be a string")
	}
	if schema.Pattern != "" && !matches(schema.Pattern, value) {
		return "", invalid(path, value, "must be "+strings.ToLower(schema.Description[:1])+schema.Description[1:])
	}
	if schema.Format == "date-time" {
		if _, err := time.Parse(time.RFC3339, value); err != nil {
			return "", invalid(path, value, "must be a time of RFC 3339, such as 2026-11-28T12:00:00Z")
		}
	}
	if len(schema.Enum) > 0 && !slices.Contains(schema.Enum, any(value)) {
		names := make([]string, 0, len(schema.Enum))
		for _, name := range schema.Enum {
			if name != "" {
				names = append(names, name.(string))
			}
		}
		last := len(names) - 1
		return "", invalid(path, value, "must be "+strings.Join(names[:last], ", ")+" or "+names[last])
	}
	return value, nil
}

// integer reads a whole number between bounds, in any form that JSON has for it.
func integer(path string, raw json.RawMessage, schema *jsonschema.Schema) (int64, error) {
	const most = 1<<53 - 1
	bound := func(given *float64, usual int64) int64 {
		if given == nil {
			return usual
		}
		return int64(*given)
	}
	from, to := bound(schema.Minimum, -most), bound(schema.Maximum, most)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if f, failed := strconv.ParseFloat(string(raw), 64); err != nil && failed == nil && f == math.Trunc(f) && math.Abs(f) <= most {
		n, err = int64(f), nil
	}
	if err != nil || n < from || n > to {
		return 0, invalid(path, string(raw), fmt.Sprintf("must be a whole number from %d to %d", from, to))
	}
	return n, nil
}

// object reads an object, or amounts by limit. Field names are exact, none comes twice, and each is known. So a request means the same to every
// reader.
func (s *specification) object(path string, raw []byte, schema *jsonschema.Schema) (any, error) {
	amounts := schema.MaxProperties != nil
	all := map[string]any{}
	err := eachMember(raw, func(name string, value json.RawMessage) (err error) {
		at, of := member(path, name), schema.Properties[name]
		if amounts {
			at, of = path+"["+name+"]", schema.AdditionalProperties
		}
		_, twice := all[name]
		switch {
		case of == nil:
			return invalid(at, string(value), "is no field of this request")
		case twice:
			return invalid(at, string(value), "is given twice")
		case string(value) == "null" && !amounts:
			return invalid(at, "null", "must not be null; leave the field out")
		}
		all[name], err = s.value(at, value, of)
		return err
	})
	switch {
	case err == errNotObject && amounts: //nolint:errorlint // it is never wrapped
		return nil, invalid(path, string(raw), "must be an object of amounts by limit")
	case err == errNotObject: //nolint:errorlint // likewise
		return nil, invalid(cmp.Or(path, "body"), string(raw), "must be a JSON object")
	case err != nil:
		return nil, err
	case amounts && (len(all) < *schema.MinProperties || len(all) > *schema.MaxProperties):
		return nil, invalid(path, strconv.Itoa(len(all))+" amounts", fmt.Sprintf("must have from %d to %d", *schema.MinProperties, *schema.MaxProperties))
	}
	return all, missing(path, all, schema)
}

var errNotObject = invalid("body", "", "must be a JSON object")

// eachMember calls a function for each member of an object, in their order.
func eachMember(raw []byte, each func(name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if !utf8.Valid(raw) {
		return invalid("body", "", "must be UTF-8")
	}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errNotObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return errNotObject
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return errNotObject
		}
		if err := each(name.(string), value); err != nil { // the decoder takes no other names
			return err
		}
	}
	if _, err := d.Token(); err != nil || len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
		return errNotObject // it is not closed, or more follows
	}
	return nil
}
