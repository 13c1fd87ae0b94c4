package enginetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Throughput is how often one partition key is served.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html
type Throughput struct {
	// Writes and Reads are capacity units per second. DynamoDB serves 1,000 and
	// 3,000.
	Writes, Reads float64
	// Burst is the time whose unused units are kept.
	Burst time.Duration
	// OnDemand makes the engine answer like a table in on-demand mode.
	OnDemand bool
	// Key is the name of the partition key.
	Key string
	// Now is the clock.
	Now func() time.Time
}

// Partitions serves each partition key as often as DynamoDB does and throttles
// what goes beyond. It counts each item as one unit, which holds for writes of up
// to 1 KB and reads of up to 4 KB. It is safe for concurrent use.
type Partitions struct {
	Throughput

	mu            sync.Mutex
	writes, reads map[string]*budget
	throttled     int
}

// budget has the remaining units of a key. A call is served while there is anything left, and may leave a debt: its
// cost is known when it is done.
type budget struct {
	units float64
	at    time.Time
}

// NewPartitions returns partitions that have not been used for long.
func NewPartitions(t Throughput) *Partitions {
	return &Partitions{Throughput: t, writes: map[string]*budget{}, reads: map[string]*budget{}}
}

// Write takes units for a write of each key, of all keys or of none. It returns
// the indexes of the keys that are throttled.
func (p *Partitions) Write(units float64, keys ...string) (throttled []int) {
	return p.take(p.writes, p.Writes, units, keys)
}

// Read takes units for a read of each key, as Write does.
func (p *Partitions) Read(units float64, keys ...string) (throttled []int) {
	return p.take(p.reads, p.Reads, units, keys)
}

// Throttled returns the number of calls that were throttled.
func (p *Partitions) Throttled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.throttled
}

func (p *Partitions) take(of map[string]*budget, rate, units float64, keys []string) (throttled []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, most := p.Now(), rate*p.Burst.Seconds()
	for i, key := range keys {
		b := of[key]
		if b == nil {
			b = &budget{units: most, at: now}
			of[key] = b
		}
		if now.After(b.at) {
			b.units = min(b.units+rate*now.Sub(b.at).Seconds(), most)
			b.at = now
		}
		if b.units <= 0 {
			throttled = append(throttled, i)
		}
	}
	if throttled != nil {
		p.throttled++
		return throttled
	}
	for _, key := range keys {
		of[key].units -= units
	}
	return nil
}

// Transport returns a transport that passes served calls on to base, and answers the rest as
// DynamoDB does. A batch read is throttled as a whole, where DynamoDB leaves keys unprocessed while
// it serves others; queries, scans and batch writes are all served.
func (p *Partitions) Transport(base http.RoundTripper) http.RoundTripper {
	return &throttle{p, base}
}

type throttle struct {
	*Partitions
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *throttle) RoundTrip(request *http.Request) (*http.Response, error) {
	call, err := callOf(request)
	if err != nil {
		return nil, err
	}
	throttled, err := t.serve(call)
	if err != nil {
		return nil, err
	}
	if throttled != nil {
		return t.refuse(request, call, throttled)
	}
	return t.base.RoundTrip(withBody(request, call.Body))
}

// itemJSON is the part of a call about one item.
type itemJSON struct {
	Key, Item map[string]struct{ S string }
}

// serve takes the cost of a call, and returns the indexes of its throttled items.
func (t *throttle) serve(call Call) (throttled []int, err error) {
	var content struct {
		itemJSON
		ConsistentRead bool
		TransactItems  []map[string]itemJSON
		RequestItems   json.RawMessage
	}
	if err := json.Unmarshal(call.Body, &content); err != nil {
		return nil, fmt.Errorf("enginetest: %s: %w", call.Operation, err)
	}
	key := func(i itemJSON) string { return i.Key[t.Key].S + i.Item[t.Key].S }
	units := func(consistent bool) float64 {
		if consistent {
			return 1
		}
		return 0.5
	}
	switch call.Operation {
	case "UpdateItem", "PutItem", "DeleteItem":
		return t.Write(1, key(content.itemJSON)), nil
	case "GetItem":
		return t.Read(units(content.ConsistentRead), key(content.itemJSON)), nil
	case "TransactWriteItems":
		keys := make([]string, len(content.TransactItems))
		for i, action := range content.TransactItems {
			for _, item := range action { // one
				keys[i] = key(item)
			}
		}
		return t.Write(2, keys...), nil
	case "BatchGetItem":
		var tables map[string]struct {
			Keys           []map[string]struct{ S string }
			ConsistentRead bool
		}
		if err := json.Unmarshal(content.RequestItems, &tables); err != nil {
			return nil, fmt.Errorf("enginetest: %s: %w", call.Operation, err)
		}
		for _, table := range tables {
			var keys []string
			for _, k := range table.Keys {
				keys = append(keys, k[t.Key].S)
			}
			if throttled = t.Read(units(table.ConsistentRead), keys...); throttled != nil {
				return throttled, nil
			}
		}
	}
	return nil, nil
}

// refuse answers a call whose items at the indexes are throttled.
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html#API_TransactWriteItems_Errors
func (t *throttle) refuse(request *http.Request, call Call, throttled []int) (*http.Response, error) {
	kind, code := ThroughputExceeded, "ProvisionedThroughputExceeded"
	if t.OnDemand {
		kind, code = Throttled, "ThrottlingError"
	}
	if !strings.HasPrefix(call.Operation, "Transact") {
		return refusal(request, kind, call)
	}
	return cancelled(request, call, code, answers[kind].message, throttled...)
}
