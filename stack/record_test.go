package stack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/iam"
)

// A recorder is a transport that writes down what the SDK asks, as IAM sees it.
type recorder struct {
	base  http.RoundTripper
	table string // whose name stands for the one of the template

	mu       sync.Mutex
	requests []iam.Request
	writes   map[string]map[string]bool // actions that change records, by the name of the record
	byHand   [][]iam.Request            // of each transaction with a record of an operation, its members
	unknown  []string
}

// tableARN is the table in the policies.
const tableARN = "arn:aws:dynamodb:" + cfn.Region + ":" + cfn.Account + ":table/limits"

// RoundTrip implements [http.RoundTripper].
func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		if err := request.Body.Close(); err != nil {
			return nil, err
		}
	}
	r.note(request, body)
	sent := request.Clone(request.Context())
	sent.Body = io.NopCloser(bytes.NewReader(body))
	return r.base.RoundTrip(sent)
}

// note writes a call down.
func (r *recorder) note(request *http.Request, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	target := request.Header.Get("X-Amz-Target")
	if target == "" {
		r.noteS3(request)
		return
	}
	service, operation, _ := strings.Cut(target, ".")
	var call map[string]any
	if err := json.Unmarshal(body, &call); err != nil || !strings.HasPrefix(service, "DynamoDB_") {
		r.unknown = append(r.unknown, target)
		return
	}
	switch operation {
	case "GetItem", "UpdateItem", "DeleteItem":
		r.add(operation, "", call["Key"])
	case "PutItem":
		r.add(operation, "", call["Item"])
	case "Scan":
		r.add(operation, "")
	case "Query":
		r.add(operation, text(call["IndexName"]), map[string]any{"PK": map[string]any{"S": queried(call)}})
	case "BatchGetItem":
		for _, asked := range call["RequestItems"].(map[string]any) {
			r.add(operation, "", at(asked, "Keys").([]any)...)
		}
	case "BatchWriteItem":
		for _, writes := range call["RequestItems"].(map[string]any) {
			var keys []any
			for _, w := range writes.([]any) {
				keys = append(keys, at(w, "DeleteRequest", "Key"))
			}
			r.add(operation, "", keys...)
		}
	case "TransactWriteItems":
		r.noteTransaction(call["TransactItems"].([]any))
	default:
		r.unknown = append(r.unknown, operation)
	}
}

// noteTransaction writes the actions of the members down. The documentation of DynamoDB does not say whether IAM sees the
// key of the member with an action, or those of all members. So each action is asked for both ways.
func (r *recorder) noteTransaction(members []any) {
	var names []string
	var keys []any
	for _, element := range members {
		for kind, w := range element.(map[string]any) {
			names = append(names, map[string]string{"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}[kind])
			if kind == "Put" {
				keys = append(keys, at(w, "Item"))
			} else {
				keys = append(keys, at(w, "Key"))
			}
		}
	}
	var all []string
	byHand, first := false, len(r.requests)
	for i, name := range names {
		r.add(name, "", keys[i])
		all = append(all, key(keys[i]))
		record, _ := recordOf(all[i], text(at(keys[i], "SK", "S")))
		byHand = byHand || record == "operation"
	}
	if byHand {
		r.byHand = append(r.byHand, slices.Clone(r.requests[first:]))
	}
	for _, name := range names {
		r.ask(name, "", all)
	}
}

func (r *recorder) noteS3(request *http.Request) {
	if request.Method != http.MethodPut {
		r.unknown = append(r.unknown, request.Method+" "+request.URL.Path)
		return
	}
	r.requests = append(r.requests, iam.Request{Action: "s3:PutObject", Resource: "arn:aws:s3:::" + strings.TrimPrefix(request.URL.Path, "/")})
}

// add writes an action on items down, and which records it changes.
func (r *recorder) add(action, index string, items ...any) {
	var leading []string // nil for a scan, which names no key
	for _, item := range items {
		leading = append(leading, key(item))
		if strings.HasSuffix(action, "Item") && !slices.Contains(readsItems, action) {
			r.noteWrite(action, item)
		}
	}
	r.ask(action, index, leading)
}

// readsItems are the actions on items that change none.
var readsItems = []string{"BatchGetItem", "ConditionCheckItem", "GetItem"}

// noteWrite writes down that an action changes a record.
func (r *recorder) noteWrite(action string, item any) {
	pk, sk := key(item), text(at(item, "SK", "S"))
	record, ok := recordOf(pk, sk)
	if !ok {
		r.unknown = append(r.unknown, action+" "+pk+" "+sk)
		return
	}
	if r.writes == nil {
		r.writes = map[string]map[string]bool{}
	}
	if r.writes[record] == nil {
		r.writes[record] = map[string]bool{}
	}
	r.writes[record][action] = true
}

// ask writes down what IAM is asked.
func (r *recorder) ask(action, index string, leading []string) {
	q := iam.Request{Action: "dynamodb:" + action, Resource: tableARN, Context: map[string][]string{}}
	if leading != nil {
		q.Context[leadingKeys] = leading
	}
	if index != "" {
		q.Resource += "/index/" + index
	}
	r.requests = append(r.requests, q)
}

const leadingKeys = "dynamodb:LeadingKeys"

// key returns the partition key of a key or an item of the table.
func key(v any) string { return text(at(v, "PK", "S")) }

func text(v any) string {
	s, _ := v.(string)
	return s
}

// queried returns the partition key that a query is about: what its condition compares first.
func queried(call map[string]any) string {
	condition := text(call["KeyConditionExpression"])
	_, after, _ := strings.Cut(condition, "=")
	placeholder := strings.Fields(after)[0]
	return text(at(call["ExpressionAttributeValues"], placeholder, "S"))
}

// A program is what spec/calls.yaml says of one, or what was recorded of it.
type program struct {
	Reads, Indexes, Bucket []string
	Writes                 map[string][]string
}

// recorded returns what was written down.
func (r *recorder) recorded() program {
	r.mu.Lock()
	defer r.mu.Unlock()
	reads, indexes, objects := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, q := range r.requests {
		service, action, _ := strings.Cut(q.Action, ":")
		switch {
		case service == "s3":
			objects[action] = true
		case strings.Contains(q.Resource, "/index/"):
			indexes[action] = true
		case !strings.HasSuffix(action, "Item") || slices.Contains(readsItems, action):
			reads[action] = true
		}
	}
	p := program{Reads: slices.Sorted(maps.Keys(reads)), Indexes: slices.Sorted(maps.Keys(indexes)), Bucket: slices.Sorted(maps.Keys(objects))}
	for record, actions := range r.writes {
		if p.Writes == nil {
			p.Writes = map[string][]string{}
		}
		p.Writes[record] = slices.Sorted(maps.Keys(actions))
	}
	return p
}

// statements returns those of a policy of the template.
func statements(text, id string, given map[string]string) ([]iam.Statement, error) {
	parsed, err := cfn.Parse(text)
	if err != nil {
		return nil, err
	}
	s, err := parsed.Evaluate("limits", given)
	if err != nil {
		return nil, err
	}
	r, ok := s.Resources[id]
	if !ok {
		return nil, fmt.Errorf("no %s", id)
	}
	if r.Type == "AWS::IAM::Role" {
		return iam.Parse(at(r.Properties["Policies"].([]any)[0], "PolicyDocument"))
	}
	return iam.Parse(r.Properties["PolicyDocument"])
}
