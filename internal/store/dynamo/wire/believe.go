package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// A reply that is not DynamoDB's, or not all of it, says nothing about its call: a gateway may have made it up. Package
// wire gives the SDK such a reply as one whose body breaks off, so that its outcome is unknown.

// A shape says which members a successful reply has.
type shape struct {
	always string   // a member of each reply; "" where a reply may be empty
	others []string // of a reply that may be empty
}

// shapes has the shapes of the calls that read and write items. An UpdateItem is taken to ask for the new item.
var shapes = map[string]shape{
	"UpdateItem":         {always: "Attributes"},
	"BatchGetItem":       {always: "Responses"},
	"Query":              {always: "Items"},
	"Scan":               {always: "Items"},
	"BatchWriteItem":     {always: "UnprocessedItems"},
	"GetItem":            {others: []string{"Item", "ConsumedCapacity"}},
	"PutItem":            {others: []string{"Attributes", "ConsumedCapacity", "ItemCollectionMetrics"}},
	"DeleteItem":         {others: []string{"Attributes", "ConsumedCapacity", "ItemCollectionMetrics"}},
	"TransactWriteItems": {others: []string{"ConsumedCapacity", "ItemCollectionMetrics"}},
}

// doubt returns why a reply to an operation is not believed, nil for one that is. A compressed body is left to its reader.
func doubt(op string, response *http.Response, body []byte) error {
	switch {
	case compressed(response.Header):
		return nil
	case response.StatusCode < 200 || response.StatusCode >= 300:
		if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' && !json.Valid(trimmed) {
			return errors.New("the reply is not one JSON object")
		}
		return nil // its status says something without a body
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the reply has status %d, want 200", response.StatusCode)
	case !json.Valid(body) || bytes.TrimLeft(body, " \t\r\n")[0] != '{':
		return errors.New("the reply is not one JSON object")
	}
	names := members(body)
	if slices.Contains(names, "__type") {
		return errors.New("the reply is an error with status 200")
	}
	is, ok := shapes[op]
	switch {
	case !ok:
	case is.always != "" && !slices.Contains(names, is.always):
		return fmt.Errorf("the reply lacks %s", is.always)
	case is.always == "" && len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(is.others, name) }):
		return fmt.Errorf("the reply has no member of %s", op)
	}
	return nil
}

// members returns the names of the members of a JSON object, as they are written.
func members(object []byte) (names []string) {
	depth := 0
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			from := i + 1
			for i = from; object[i] != '"'; i++ {
				if object[i] == '\\' {
					i++
				}
			}
			if rest := bytes.TrimLeft(object[i+1:], " \t\r\n"); depth == 1 && rest[0] == ':' {
				names = append(names, string(object[from:i]))
			}
		}
	}
	return names
}

// check compares a body with its checksum, if the reply has one. That of a compressed body is left to its reader.
func check(header http.Header, body []byte) error {
	text := valueOf(header, "X-Amz-Crc32")
	if text == "" || compressed(header) {
		return nil
	}
	want, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return fmt.Errorf("unable to parse checksum header %v, %w", text, err)
	}
	if got := crc32.ChecksumIEEE(body); got != uint32(want) {
		return fmt.Errorf("response did not match expected checksum, %d, %d", want, got)
	}
	return nil
}

func compressed(header http.Header) bool {
	encoding := valueOf(header, "Content-Encoding")
	return encoding != "" && encoding != "identity"
}

// Careful is an option of one call that the SDK makes. Replies that are not DynamoDB's get an error, as on a [Path].
func Careful(o *dynamodb.Options) {
	o.HTTPClient = &careful{o.HTTPClient, o.DisableValidateResponseChecksum}
	if !o.EnableAcceptEncodingGzip {
		o.DisableValidateResponseChecksum = true // the SDK's own check only logs
	}
}

// A careful client gives the body of a reply that is not believed an error in place of its end.
type careful struct {
	client    dynamodb.HTTPClient
	unchecked bool // checksums are left alone
}

// Do implements [dynamodb.HTTPClient].
func (c *careful) Do(request *http.Request) (*http.Response, error) {
	response, err := c.client.Do(request)
	if err != nil || response.Body == nil {
		return response, err
	}
	buffer := NewBuffer()
	defer buffer.Free()
	err = buffer.readFrom(response.Body, response.ContentLength)
	_ = response.Body.Close() // of no consequence once it is read
	if err == nil && !c.unchecked {
		err = check(response.Header, buffer.Bytes)
	}
	if err == nil {
		target := request.Header.Get("X-Amz-Target")
		err = doubt(target[strings.LastIndexByte(target, '.')+1:], response, buffer.Bytes)
	}
	response.Body = io.NopCloser(&broken{*strings.NewReader(string(buffer.Bytes)), err})
	return response, nil
}
