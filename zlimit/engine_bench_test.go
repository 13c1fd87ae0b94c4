//go:build unix

package zlimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// cpuTime returns the time that the processors have spent on this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	check.Fatal(b, "syscall.Getrusage()", syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkEngine makes acquires of a known bucket, one after the other. It compares them with the same call of the bare
// SDK, and with an HTTP client that sends the bytes of that request. All run on the engine, which is a process of its own,
// and take turns. It reports the median duration and the processor time of this process against the bare call. What is
// floor of both is net/http and the kernel.
func BenchmarkEngine(b *testing.B) {
	last := &lastRequest{}
	plain := &http.Transport{DisableCompression: true} // as programs have it, and not as tests do
	b.Cleanup(plain.CloseIdleConnections)
	l, client, table := benchTable(b, func(http.RoundTripper) http.RoundTripper {
		last.base = plain
		return last
	})
	last.kept = true
	bare, warm := bareUpdate(client, table, shardKey(l, "key-1", 0).Key().PK), acquirer(l)
	ways := []*way{
		{name: "sdk", call: func(int) error { return bare() }},
		{name: "zlimit", call: func(int) error { return warm() }},
		{name: "floor", call: func(int) error { return last.again() }},
	}
	cpu := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, w := range ways {
			before := cpuTime(b)
			w.burst(b, 1, 100)
			cpu[i] = append(cpu[i], cpuTime(b)-before)
		}
	}
	b.ReportMetric(0, "ns/op") // of all together: means nothing
	for i, w := range ways[1:] {
		b.ReportMetric(ratio(w.medians, ways[0].medians), w.name+"-p50-x-sdk")
		b.ReportMetric(ratio(cpu[i+1], cpu[0]), w.name+"-cpu-x-sdk")
	}
	b.ReportMetric(float64(median(cpu[1]).Nanoseconds())/100, "cpu-ns")
}

// BenchmarkLimits finds the limits of an entity and a resource, and compares the cost with a GetItem of the bare SDK. The
// limits are read again, as at a first use, or held in memory, as later. All take turns.
func BenchmarkLimits(b *testing.B) {
	l, client, table := benchTable(b, func(engine http.RoundTripper) http.RoundTripper { return engine })
	key := map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: shardKey(l, "key-1", 0).Key().PK}, "SK": &types.AttributeValueMemberS{Value: "#STATE"},
	}
	resolve := func() error {
		_, err := l.Limits.Resolve(context.Background(), "key-1", "gpt-4")
		return err
	}
	ways := []*way{
		{name: "sdk", call: func(int) error {
			_, err := client.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: &table, Key: key})
			return err
		}},
		{name: "read", call: func(int) error {
			l.Limits.InvalidateAll()
			return resolve()
		}},
		{name: "held", call: func(int) error { return resolve() }},
	}
	for b.Loop() {
		for _, w := range ways {
			w.burst(b, 1, 100)
		}
	}
	b.ReportMetric(0, "ns/op") // of all together: means nothing
	for _, w := range ways[1:] {
		b.ReportMetric(ratio(w.medians, ways[0].medians), w.name+"-p50-x-sdk")
	}
}

// lastRequest is a transport that remembers the last request that passed before it is kept.
type lastRequest struct {
	base   http.RoundTripper
	kept   bool
	url    string
	header http.Header
	body   []byte
}

func (t *lastRequest) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.kept {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		t.url, t.header, t.body = r.URL.String(), r.Header.Clone(), body
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return t.base.RoundTrip(r)
}

// again sends the request once more.
func (t *lastRequest) again() error {
	r, err := http.NewRequest(http.MethodPost, t.url, bytes.NewReader(t.body))
	if err != nil {
		return err
	}
	r.Header = t.header
	response, err := t.base.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// BenchmarkOwnTime is [BenchmarkOverhead] in processor time, which other programs on the machine disturb less.
func BenchmarkOwnTime(b *testing.B) {
	l := newReady(b)
	before := cpuTime(b)
	for b.Loop() {
		acquire(b, l, benchRequest)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
