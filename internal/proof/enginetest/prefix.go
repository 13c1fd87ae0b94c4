package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"
)

// caseful is a transport to an engine whose begins_with takes gpt for the
// beginning of GPT-4. DynamoDB compares bytes, as the engine does in BETWEEN: so
// the key condition of a query is rewritten to that on its way.
type caseful struct{ base *http.Transport }

// RoundTrip implements http.RoundTripper.
func (c caseful) RoundTrip(request *http.Request) (*http.Response, error) {
	if operation(request) != "Query" {
		return c.base.RoundTrip(withOwnBody(request))
	}
	body, err := readRequest(request)
	if err != nil {
		return nil, err
	}
	if body, err = withoutPrefix(body); err != nil {
		return nil, err
	}
	return c.base.RoundTrip(withBody(request, body))
}

// withOwnBody returns a request whose body ends after its length. The SDK closes
// the body of a request when it has the reply. The transport may look for the
// end of the body just then, and would close the connection because of the error.
func withOwnBody(request *http.Request) *http.Request {
	if request.Body == nil || request.ContentLength <= 0 {
		return request
	}
	sent := request.Clone(request.Context())
	sent.Body = io.NopCloser(io.LimitReader(request.Body, request.ContentLength))
	return sent
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (c caseful) CloseIdleConnections() { c.base.CloseIdleConnections() }

var (
	prefixCondition = regexp.MustCompile(`begins_with\s*\(\s*([#\w]+)\s*,\s*(:\w+)\s*\)`)
	// lastValue is the name of the last key with the prefix, which no query has
	// by itself.
	lastValue = ":enginetestLast"
)

// maxSortKey is the length of the longest sort key in bytes.
const maxSortKey = 1024

// withoutPrefix returns the body of a query that asks for a range of keys where
// the other asks for a prefix.
func withoutPrefix(body []byte) ([]byte, error) {
	var condition struct{ KeyConditionExpression string }
	if err := json.Unmarshal(body, &condition); err != nil {
		return nil, fmt.Errorf("enginetest: Query: %w", err)
	}
	match := prefixCondition.FindStringSubmatch(condition.KeyConditionExpression)
	if match == nil {
		return body, nil
	}
	var query map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&query); err != nil {
		return nil, fmt.Errorf("enginetest: Query: %w", err)
	}
	values, _ := query["ExpressionAttributeValues"].(map[string]any)
	value, _ := values[match[2]].(map[string]any)
	prefix, ok := value["S"].(string)
	if !ok {
		return body, nil // for the engine to refuse
	}
	values[lastValue] = map[string]any{"S": prefix + strings.Repeat(string(utf8.MaxRune), max(0, maxSortKey-len(prefix))/utf8.UTFMax)}
	query["KeyConditionExpression"] = prefixCondition.ReplaceAllString(condition.KeyConditionExpression, "$1 BETWEEN $2 AND "+lastValue)
	return json.Marshal(query)
}
