package enginetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A version is an item as it was until a write.
type version struct {
	item  json.RawMessage // nil for none
	until time.Time
}

// forward passes a call on. Before a write it keeps the present version. In a read that may lag, it puts kept versions
// in the place of later ones.
func (m *mean) forward(request *http.Request, call Call, about *subject) (*http.Response, error) {
	if m.Lag <= 0 {
		return m.base.RoundTrip(withBody(request, call.Body))
	}
	if about.write {
		for i := range about.items {
			if err := m.keep(request, about, i); err != nil {
				return nil, err
			}
		}
		return m.base.RoundTrip(withBody(request, call.Body))
	}
	reply, err := m.base.RoundTrip(withBody(request, call.Body))
	if err != nil || reply.StatusCode != http.StatusOK {
		return reply, err
	}
	switch call.Operation {
	case "GetItem", "Query", "BatchGetItem":
		return m.age(reply, call)
	default:
		return reply, nil
	}
}

// keep reads an item before it is written.
func (m *mean) keep(request *http.Request, about *subject, i int) error {
	body, err := json.Marshal(map[string]any{"TableName": about.table, "Key": about.keys[i], "ConsistentRead": true})
	if err != nil {
		return err
	}
	look := request.Clone(request.Context())
	look.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
	reply, err := m.base.RoundTrip(withBody(look, body))
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	var found struct{ Item json.RawMessage }
	if err := json.NewDecoder(reply.Body).Decode(&found); err != nil || reply.StatusCode != http.StatusOK {
		return err // such as for a missing table: the write will fail too
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if old, ok := m.past[about.items[i]]; !ok || now.Sub(old.until) > m.Lag {
		m.past[about.items[i]] = version{found.Item, now}
	}
	return nil
}

// before returns the version of an item in a lagging read, if it is not the present one. It shows
// it to half of the reads.
func (m *mean) before(item string) (version, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.past[item]
	if ok && time.Since(v.until) > m.Lag {
		delete(m.past, item)
		ok = false
	}
	return v, ok && m.random.IntN(2) == 0
}

// age returns a reply with old versions in place of some items.
func (m *mean) age(reply *http.Response, call Call) (*http.Response, error) {
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	_ = reply.Body.Close()
	aged, err := m.aged(body, call)
	if err != nil {
		return nil, fmt.Errorf("enginetest: age a reply: %w", err)
	}
	reply.Header.Del("X-Amz-Crc32")
	reply.Header.Del("Content-Length")
	reply.Body, reply.ContentLength = io.NopCloser(bytes.NewReader(aged)), int64(len(aged))
	return reply, nil
}

func (m *mean) aged(body []byte, call Call) ([]byte, error) {
	var asked struct {
		callJSON
		RequestItems map[string]struct{ ConsistentRead bool }
	}
	if err := json.Unmarshal(call.Body, &asked); err != nil {
		return nil, err
	}
	var content map[string]json.RawMessage
	if err := json.Unmarshal(body, &content); err != nil {
		return nil, err
	}
	var err error
	switch {
	case asked.ConsistentRead:
		return body, nil
	case call.Operation == "GetItem":
		key, keyErr := json.Marshal(keyOf(asked.Key))
		if keyErr != nil {
			return nil, keyErr
		}
		if v, ok := m.before(asked.TableName + " " + string(key)); ok {
			if delete(content, "Item"); v.item != nil {
				content["Item"] = v.item
			}
		}
	case call.Operation == "Query":
		if content["Items"], err = m.ageAll(asked.TableName, content["Items"], asked.IndexName != ""); err != nil {
			return nil, err
		}
	case call.Operation == "BatchGetItem":
		var tables map[string]json.RawMessage
		if err := json.Unmarshal(content["Responses"], &tables); err != nil {
			return nil, err
		}
		for name := range tables {
			if !asked.RequestItems[name].ConsistentRead {
				if tables[name], err = m.ageAll(name, tables[name], false); err != nil {
					return nil, err
				}
			}
		}
		if content["Responses"], err = json.Marshal(tables); err != nil {
			return nil, err
		}
	}
	return json.Marshal(content)
}

// ageAll replaces items of a list by earlier versions, and leaves out those that did not exist. An
// index shows its present entry of an item that existed, since the entry may have been another one.
// Items that were deleted do not come back.
func (m *mean) ageAll(table string, list json.RawMessage, index bool) (json.RawMessage, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, err
	}
	shown := []json.RawMessage{}
	for _, item := range items {
		var attributes map[string]json.RawMessage
		if err := json.Unmarshal(item, &attributes); err != nil {
			return nil, err
		}
		key, err := json.Marshal(keyOf(attributes))
		if err != nil {
			return nil, err
		}
		v, old := m.before(table + " " + string(key))
		switch {
		case !old, index && v.item != nil:
			shown = append(shown, item)
		case v.item != nil:
			shown = append(shown, v.item)
		}
	}
	return json.Marshal(shown)
}
