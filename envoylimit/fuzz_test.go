package envoylimit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// FuzzFile reads any text as a file of limits. A file that passes the check can be stored, and answers requests.
func FuzzFile(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte("domain: d\ndescriptors: [{key: '*', value: '*a**', rate_limit: {unit: year, requests_per_unit: 4294967295}}]"))
	f.Add([]byte("domain: d\ndescriptors: [{key: k, metadata: {a: [1, {b: .nan}]}, rate_limit: {unlimited: true}}]"))
	f.Add([]byte("domain: '|%='\ndescriptors: [{key: 'a|b', value: '=', rate_limit: {unit: day, requests_per_unit: 1}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Count(text, []byte("&")) > 2 {
			t.Skip("aliases of aliases") // which package yaml bounds to some 100,000 descriptors: storing them takes seconds; see TestAliases
		}
		c := &Config{Files: []File{{Name: "f.yaml", Text: text}}}
		table, err := c.table()
		if err != nil {
			return
		}
		limiter, _ := zlimittest.New(t)
		s := check.Call(New(t.Context(), limiter, c)).Must(t, "New of a checked file")
		for name := range table.domains {
			if _, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: name, Descriptors: list(descriptor("a=b"), descriptor("a=b", "c="))}); err != nil {
				t.Errorf("ShouldRateLimit = %v", err)
			}
		}
	})
}

// TestAliases reads a file with aliases, and refuses one whose aliases of aliases make a billion descriptors of it.
func TestAliases(t *testing.T) {
	const few = "domain: d\ndescriptors: [{key: a, rate_limit: &l {unit: day, requests_per_unit: 1}}, {key: b, rate_limit: *l}]"
	check.Error(t, "Check of a file with an alias", (&Config{Files: []File{{Name: "f.yaml", Text: []byte(few)}}}).Check())
	many := "domain: d\ndescriptors:\n- {key: k0, descriptors: &a0 [{key: a}]}\n"
	for i := range 9 {
		alias := fmt.Sprintf("{key: %%d, descriptors: *a%d}", i)
		many += fmt.Sprintf("- {key: k%d, descriptors: &a%d [", i+1, i+1)
		for j := range 10 {
			many += fmt.Sprintf(alias+",", j)
		}
		many += "]}\n"
	}
	if err := (&Config{Files: []File{{Name: "f.yaml", Text: []byte(many)}}}).Check(); err == nil || !strings.Contains(err.Error(), "excessive aliasing") {
		t.Errorf("Check of a file with aliases of aliases = %v, want excessive aliasing", err)
	}
}

// FuzzRequest sends any message. An answer has a status for each descriptor.
func FuzzRequest(f *testing.F) {
	negative := withHits(descriptor("user=ann"), 1)
	negative.IsNegativeHits = true
	for _, r := range []*pb.RateLimitRequest{
		{Domain: "shop", Descriptors: list(descriptor("user=ann", "path=/"), descriptor("file=docs/x"))},
		{Domain: "shop", Descriptors: list(withHits(descriptor("lease=zl1.k.AAAA.AAAA"), 3))},
		{Domain: "shop", Descriptors: list(negative), HitsAddend: 7},
		{Domain: "other", Descriptors: list(withHits(descriptor("user="), 1<<62))},
	} {
		data := check.Call(proto.Marshal(r)).Must(f, "proto.Marshal()")
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r pb.RateLimitRequest
		if proto.Unmarshal(data, &r) != nil {
			return
		}
		c := shopConfig()
		c.Domains = map[string]Domain{"shop": {Lease: time.Minute, Metadata: true}}
		s, _, _ := newService(t, c)
		answer, err := s.ShouldRateLimit(t.Context(), &r)
		if err == nil && len(answer.GetStatuses()) != len(r.GetDescriptors()) {
			t.Errorf("%d statuses for %d descriptors", len(answer.GetStatuses()), len(r.GetDescriptors()))
		}
		if err == nil {
			if _, err := proto.Marshal(answer); err != nil {
				t.Errorf("the answer cannot be sent: %v", err)
			}
		}
	})
}
