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

	"github.com/zlimit/zlimit-go/internal/cfn"
	"github.com/zlimit/zlimit-go/internal/iam"
)

// A recorder is a transport that writes down what the SDK asks, as IAM sees it.
type recorder struct {
	base  http.RoundTripper
	table string // whose name stands for the one of the template

	mu       sync.Mutex
	requests []iam.Request
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
		r.add(operation, "", key(call["Key"]))
	case "PutItem":
		r.add(operation, "", key(call["Item"]))
	case "Scan":
		r.add(operation, "")
	case "Query":
		r.add(operation, text(call["IndexName"]), queried(call))
	case "BatchGetItem":
		for _, asked := range call["RequestItems"].(map[string]any) {
			var keys []string
			for _, k := range at(asked, "Keys").([]any) {
				keys = append(keys, key(k))
			}
			r.add(operation, "", keys...)
		}
	case "BatchWriteItem":
		for _, writes := range call["RequestItems"].(map[string]any) {
			var keys []string
			for _, w := range writes.([]any) {
				keys = append(keys, key(at(w, "DeleteRequest", "Key")))
			}
			r.add(operation, "", keys...)
		}
	case "TransactWriteItems": // IAM asks for the actions of the members
		for _, element := range call["TransactItems"].([]any) {
			for kind, w := range element.(map[string]any) {
				name := map[string]string{"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}[kind]
				if kind == "Put" {
					r.add(name, "", key(at(w, "Item")))
				} else {
					r.add(name, "", key(at(w, "Key")))
				}
			}
		}
	default:
		r.unknown = append(r.unknown, operation)
	}
}

func (r *recorder) noteS3(request *http.Request) {
	if request.Method != http.MethodPut {
		r.unknown = append(r.unknown, request.Method+" "+request.URL.Path)
		return
	}
	r.requests = append(r.requests, iam.Request{Action: "s3:PutObject", Resource: "arn:aws:s3:::" + strings.TrimPrefix(request.URL.Path, "/")})
}

// add writes an action on items down.
func (r *recorder) add(action, index string, leading ...string) {
	q := iam.Request{Action: "dynamodb:" + action, Resource: tableARN, Context: map[string][]string{}}
	if leading != nil { // a scan names no key
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

// recorded returns what was written down, by the kind of thing that it is about: table, indexes or bucket.
func (r *recorder) recorded() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sets := map[string]map[string]bool{"table": {}, "indexes": {}, "bucket": {}}
	for _, q := range r.requests {
		service, action, _ := strings.Cut(q.Action, ":")
		switch {
		case service == "s3":
			sets["bucket"][action] = true
		case strings.Contains(q.Resource, "/index/"):
			sets["indexes"][action] = true
		default:
			sets["table"][action] = true
		}
	}
	all := map[string][]string{}
	for kind, set := range sets {
		if len(set) > 0 {
			all[kind] = slices.Sorted(maps.Keys(set))
		}
	}
	return all
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
