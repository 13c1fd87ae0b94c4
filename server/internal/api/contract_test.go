package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// A contract is the document, by which every request of every test is checked. The schemas of OpenAPI 3.1 are those of JSON Schema.
type contract struct {
	root    map[string]any
	schemas map[string]*jsonschema.Resolved // by their text
	mu      sync.Mutex
	used    map[string]bool // operations that succeeded, and their answers
}

var document = sync.OnceValue(func() *contract {
	text, err := documents.ReadFile("openapi.yaml")
	if err != nil {
		panic(err)
	}
	d := &contract{schemas: map[string]*jsonschema.Resolved{}, used: map[string]bool{}}
	if err := yaml.Unmarshal(text, &d.root); err != nil {
		panic(err)
	}
	return d
})

// at returns a part of the document, with references followed.
func (d *contract) at(from any, keys ...string) any {
	for _, key := range keys {
		m, _ := d.follow(from).(map[string]any)
		from = m[key]
	}
	return d.follow(from)
}

func (d *contract) follow(v any) any {
	if m, ok := v.(map[string]any); ok {
		if ref, ok := m["$ref"].(string); ok && !strings.HasPrefix(ref, "#/components/schemas/") {
			found := d.at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			if found == nil {
				panic("no " + ref)
			}
			return found
		}
	}
	return v
}

// schema returns a schema of the document.
func (d *contract) schema(v any) (*jsonschema.Resolved, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.schemas[string(text)]; found != nil {
		return found, nil
	}
	all, err := json.Marshal(map[string]any{"allOf": []any{v}, "$defs": d.at(d.root, "components", "schemas")})
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(all), "#/components/schemas/", "#/$defs/")), &s); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(nil)
	if err == nil {
		d.schemas[string(text)] = resolved
	}
	return resolved, err
}

func (d *contract) validate(schema, value any) error {
	s, err := d.schema(schema)
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// operation returns the operation of a request, with the values of its path; nil for none.
func (d *contract) operation(method, path string) (operation map[string]any, parameters []any, values map[string]string) {
	have := strings.Split(path, "/")
	paths := d.at(d.root, "paths").(map[string]any)
	for _, pattern := range slices.Sorted(maps.Keys(paths)) {
		want := strings.Split(pattern, "/")
		values = map[string]string{}
		if len(want) != len(have) {
			continue
		}
		fits := true
		for i, part := range want {
			if name, ok := strings.CutPrefix(part, "{"); ok {
				values[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(have[i])
			} else if part != have[i] {
				fits = false
			}
		}
		if found, ok := d.at(paths[pattern], strings.ToLower(method)).(map[string]any); ok && fits {
			shared, _ := d.at(paths[pattern], "parameters").([]any)
			own, _ := d.at(found, "parameters").([]any)
			return found, append(slices.Clone(shared), own...), values
		}
	}
	return nil, nil, nil
}

// request checks a request with a body.
func (d *contract) request(r *http.Request, body string) error {
	operation, parameters, path := d.operation(r.Method, r.URL.EscapedPath())
	if operation == nil {
		return fmt.Errorf("no operation %s %s", r.Method, r.URL.Path)
	}
	query, known := r.URL.Query(), map[string]bool{}
	for _, p := range parameters {
		p := d.follow(p).(map[string]any)
		name, in := p["name"].(string), p["in"].(string)
		var values []string
		switch in {
		case "path":
			values = []string{path[name]}
		case "query":
			values, known[name] = query[name], true
		default:
			values = r.Header.Values(name)
		}
		if len(values) == 0 {
			if p["required"] == true {
				return fmt.Errorf("%s is missing", name)
			}
			continue
		}
		var value any = values[0]
		switch d.at(p, "schema", "type") {
		case "integer":
			n, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil {
				return err
			}
			value = float64(n)
		case "boolean":
			value = values[0] == "true"
		}
		if err := d.validate(p["schema"], value); err != nil || len(values) > 1 {
			return fmt.Errorf("%s %q: %w", name, values, err)
		}
	}
	for name := range query {
		if !known[name] {
			return fmt.Errorf("no parameter %s", name)
		}
	}
	content, _ := d.at(operation, "requestBody", "content", "application/json").(map[string]any)
	switch {
	case body == "" && d.at(operation, "requestBody", "required") == true:
		return fmt.Errorf("the body is missing")
	case body == "":
		return nil
	case content == nil:
		return fmt.Errorf("the operation has no body")
	}
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		return err
	}
	return d.validate(content["schema"], value)
}

// answer checks an answer.
func (d *contract) answer(r *http.Request, got *response) error {
	operation, _, _ := d.operation(r.Method, r.URL.EscapedPath())
	if operation == nil {
		return fmt.Errorf("no operation %s %s", r.Method, r.URL.Path)
	}
	status := strconv.Itoa(got.StatusCode)
	answer, _ := d.at(operation, "responses", status).(map[string]any)
	if answer == nil && got.StatusCode >= 400 {
		answer, _ = d.at(operation, "responses", "default").(map[string]any)
	}
	if answer == nil {
		return fmt.Errorf("no answer %s", status)
	}
	d.mu.Lock()
	d.used[operation["operationId"].(string)+" "+status] = true
	d.mu.Unlock()
	headers, _ := d.at(answer, "headers").(map[string]any)
	for name, h := range headers {
		value := got.Header.Get(name)
		if value == "" && d.at(h, "required") == true {
			return fmt.Errorf("no field %s", name)
		}
		if n, err := strconv.ParseFloat(value, 64); value != "" && d.at(h, "schema", "type") == "integer" && (err != nil || d.validate(d.at(h, "schema"), n) != nil) {
			return fmt.Errorf("field %s: %q", name, value)
		}
	}
	contents, _ := d.at(answer, "content").(map[string]any)
	kind := got.Header.Get("Content-Type")
	content, ok := contents[kind]
	switch {
	case len(contents) == 0 && len(got.text) == 0:
		return nil
	case !ok:
		return fmt.Errorf("no content %s", kind)
	case !strings.HasSuffix(kind, "json"):
		return nil
	}
	var value any
	if err := json.Unmarshal(got.text, &value); err != nil {
		return err
	}
	return d.validate(d.at(content, "schema"), value)
}

// agree holds a request and its answer against the document.
func agree(t testing.TB, r *http.Request, body string, got *response) {
	t.Helper()
	if got.StatusCode == http.StatusNotFound || got.StatusCode == http.StatusMethodNotAllowed {
		if as[client.Problem](t, got).Code == "" {
			t.Errorf("%s %s: %d without a code: %s", r.Method, r.URL, got.StatusCode, got.text)
		}
		if operation, _, _ := document().operation(r.Method, r.URL.EscapedPath()); operation == nil {
			return
		}
	}
	if err := document().answer(r, got); err != nil {
		t.Errorf("%s %s %s: the answer %d %s is not of the document: %v", r.Method, r.URL, body, got.StatusCode, got.text, err)
	}
	if err := document().request(r, body); err != nil && got.StatusCode < 300 {
		t.Errorf("%s %s %s: the request succeeds, and is not of the document: %v", r.Method, r.URL, body, err)
	}
	if cache := got.Header.Get("Cache-Control"); cache != "no-store" && !strings.HasSuffix(r.URL.Path, ".yaml") {
		t.Errorf("%s %s: Cache-Control = %q, want no-store", r.Method, r.URL, cache)
	}
}

// TestRoutesAreDocumented compares the routes of the handler with the operations of the document.
func TestRoutesAreDocumented(t *testing.T) {
	check.Error(t, "the document", specification().Validate(t.Context()))
	h := &handler{}
	routed := map[string]bool{"GET /v1/openapi.yaml": true}
	for _, rt := range h.routes() {
		routed[rt.pattern] = true
	}
	ids := map[string]bool{}
	for path, item := range document().at(document().root, "paths").(map[string]any) {
		for _, method := range []string{"get", "put", "post", "delete"} {
			operation, ok := document().at(item, method).(map[string]any)
			if !ok {
				continue
			}
			pattern := strings.ToUpper(method) + " " + path
			if !routed[pattern] {
				t.Errorf("%s is in the document, and is no route", pattern)
			}
			delete(routed, pattern)
			id, _ := operation["operationId"].(string)
			if id == "" || ids[id] || operation["summary"] == nil {
				t.Errorf("%s: operationId = %q, want one of its own, and a summary", pattern, id)
			}
			ids[id] = true
			for status, answer := range operation["responses"].(map[string]any) {
				contents, _ := document().at(answer, "content").(map[string]any)
				for kind, content := range contents {
					if _, err := document().schema(document().at(content, "schema")); err != nil {
						t.Errorf("%s %s %s: %v", pattern, status, kind, err)
					}
				}
			}
		}
	}
	for pattern := range routed {
		t.Errorf("%s is a route, and not in the document", pattern)
	}
}

// TestClientIsDocumented compares the types of package client with the schemas of the document.
func TestClientIsDocumented(t *testing.T) {
	for name, v := range map[string]any{
		"AcquireRequest": client.AcquireRequest{}, "Charge": client.Charge{}, "Acquired": client.Acquired{}, "Limit": client.Limit{}, "SettleRequest": client.SettleRequest{},
		"Settlement": client.Settlement{}, "Settled": client.Settled{}, "Extended": client.Extended{}, "Problem": client.Problem{},
	} {
		properties, _ := document().at(document().root, "components", "schemas", name, "properties").(map[string]any)
		want, got := slices.Sorted(maps.Keys(properties)), fieldsOf(reflect.TypeOf(v))
		slices.Sort(got)
		if !slices.Equal(got, want) || len(want) == 0 {
			t.Errorf("the type %s has the fields\n%v, and the schema\n%v", name, got, want)
		}
	}
}

// fieldsOf returns the names of the fields of a struct in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, fieldsOf(f.Type)...)
		case name != "-":
			names = append(names, name)
		}
	}
	return names
}
