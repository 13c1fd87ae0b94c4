package envoylimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// shop is a file in the form of envoyproxy/ratelimit that has all of it.
const shop = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
    descriptors:
      - key: path
        rate_limit: {unit: hour, requests_per_unit: 2}
      - key: path
        value: /admin
        rate_limit: {unit: minute, requests_per_unit: 0}
      - key: path
        value: /shadow
        shadow_mode: true
        rate_limit: {unit: minute, requests_per_unit: 1}
  - key: user
    value: vip
    rate_limit: {unlimited: true}
  - key: user
    value: guest
  - key: all
    value: "yes"
    rate_limit: {unit: MINUTE, requests_per_unit: 5, name: everybody}
  - key: plan
    value: gold
    rate_limit: {unit: day, requests_per_unit: 100, replaces: [{name: everybody}]}
  - key: file
    value: docs/*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: file
    value: a*c*e
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: service
    value: one
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
    metadata: {service: {name: one}}
  - key: service
    value: two
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
    metadata: {service: {name: two, tier: 2}}
  - key: burst
    detailed_metric: true
    value_to_metric: true
    rate_limit: {unit: second, requests_per_unit: 4}
`

func newService(t *testing.T, c *Config) (*Service, *zlimit.RateLimiter, *zlimittest.Clock) {
	t.Helper()
	limiter, clock := zlimittest.New(t)
	s, err := New(t.Context(), limiter, c, WithClock(clock.Now))
	check.Fatal(t, "New()", err)
	return s, limiter, clock
}

func shopConfig() *Config { return &Config{Files: []File{{Name: "shop.yaml", Text: []byte(shop)}}} }

// descriptor returns a descriptor of entries such as user=ann.
func descriptor(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func withHits(d *common.RateLimitDescriptor, hits uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func ask1(t *testing.T, s *Service, domain string, d ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	t.Helper()
	out := check.Call(s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: domain, Descriptors: d})).Must(t, "ShouldRateLimit()")
	if len(out.Statuses) != len(d) {
		t.Fatalf("ShouldRateLimit of %d descriptors = %d statuses", len(d), len(out.Statuses))
	}
	return out
}

// codesOf returns the overall code and the codes of descriptors, o for OK and x for OVER_LIMIT.
func codesOf(r *pb.RateLimitResponse) string {
	letter := func(c pb.RateLimitResponse_Code) string {
		if c == pb.RateLimitResponse_OVER_LIMIT {
			return "x"
		}
		return "o"
	}
	text := letter(r.OverallCode) + ":"
	for _, s := range r.Statuses {
		text += letter(s.Code)
	}
	return text
}

func TestCodes(t *testing.T) {
	gold, everybody := descriptor("plan=gold"), descriptor("all=yes")
	for _, test := range []struct {
		name  string
		asks  [][]*common.RateLimitDescriptor
		codes string
	}{
		{"a limit per value", repeat(4, descriptor("user=ann")), "o:o o:o o:o x:x"},
		{"another value has its own", append(repeat(3, descriptor("user=ann")), list(descriptor("user=bob"))), "o:o o:o o:o o:o"},
		{"unlimited", repeat(9, descriptor("user=vip")), strings.Repeat("o:o ", 9)},
		{"a value without a limit", repeat(9, descriptor("user=guest")), strings.Repeat("o:o ", 9)},
		{"a key that the file does not have", repeat(9, descriptor("other=x")), strings.Repeat("o:o ", 9)},
		{"fewer entries than the file", repeat(2, descriptor("user=guest", "path=/")), "o:o o:o"},
		{"a deeper limit", repeat(3, descriptor("user=ann", "path=/")), "o:o o:o x:x"},
		{"more entries than the file", repeat(4, descriptor("all=yes", "x=y")), "o:o o:o o:o o:o"},
		{"a limit of 0", repeat(1, descriptor("user=ann", "path=/admin")), "x:x"},
		{"shadow", repeat(3, descriptor("user=ann", "path=/shadow")), "o:o o:o o:o"},
		{"all or none", append(repeat(6, descriptor("user=ann"), everybody), list(everybody), list(everybody), list(everybody)), "o:oo o:oo o:oo x:xo x:xo x:xo o:o o:o x:x"},
		{"a replaced limit", append(repeat(5, everybody), list(everybody), list(everybody, gold), list(gold, everybody)), "o:o o:o o:o o:o o:o x:x o:oo o:oo"},
		{"a shared wildcard", [][]*common.RateLimitDescriptor{{descriptor("file=docs/a")}, {descriptor("file=docs/b")}, {descriptor("file=docs/c")}}, "o:o o:o x:x"},
		{"a wildcard per value", [][]*common.RateLimitDescriptor{{descriptor("file=abcde")}, {descriptor("file=ace")}, {descriptor("file=ace")}, {descriptor("file=ac")}}, "o:o o:o x:x o:o"},
		{"quotas refuse together", repeat(4, descriptor("service=one"), descriptor("service=two")), "o:oo o:xo x:xx x:xx"},
		{"a question of what is left", append(repeat(3, withHits(descriptor("user=ann"), 0)), append(repeat(3, descriptor("user=ann")), list(withHits(descriptor("user=ann"), 0)))...), "o:o o:o o:o o:o o:o o:o x:x"},
		{"a question beside a charge", append(repeat(3, descriptor("user=ann")), list(everybody, withHits(descriptor("user=ann"), 0)), list(withHits(descriptor("all=yes"), 5))), "o:o o:o o:o x:ox o:o"},
		{"more than one hit", [][]*common.RateLimitDescriptor{{withHits(descriptor("user=ann"), 2)}, {withHits(descriptor("user=ann"), 2)}, {descriptor("user=ann")}}, "o:o x:x o:o"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, _, _ := newService(t, shopConfig())
			var got []string
			for _, d := range test.asks {
				got = append(got, codesOf(ask1(t, s, "shop", d...)))
			}
			if want := strings.Fields(test.codes); !slices.Equal(got, want) {
				t.Errorf("codes = %v, want %v", got, want)
			}
		})
	}
}

func list(d ...*common.RateLimitDescriptor) []*common.RateLimitDescriptor { return d }

func repeat(n int, d ...*common.RateLimitDescriptor) [][]*common.RateLimitDescriptor {
	out := make([][]*common.RateLimitDescriptor, n)
	for i := range out {
		out[i] = d
	}
	return out
}

// TestCountRefused charges each descriptor by itself.
func TestCountRefused(t *testing.T) {
	c := shopConfig()
	c.Domains = map[string]Domain{"shop": {CountRefused: true}}
	s, _, _ := newService(t, c)
	var got []string
	for range 6 {
		got = append(got, codesOf(ask1(t, s, "shop", descriptor("user=ann"), descriptor("all=yes"))))
	}
	if want := "o:oo o:oo o:oo x:xo x:xo x:xx"; strings.Join(got, " ") != want {
		t.Errorf("codes = %v, want %s", got, want)
	}
}

func TestWindowsOfUnits(t *testing.T) {
	lengths := []time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 31 * day, 365 * day}
	for _, windows := range []Windows{WindowsAligned, WindowsBucket} {
		text := "domain: d\ndescriptors:\n"
		units := []string{"second", "minute", "hour", "day", "week", "month", "year"}
		for _, u := range units {
			text += "- {key: " + u + ", rate_limit: {unit: " + u + ", requests_per_unit: 2}}\n"
		}
		c := &Config{Files: []File{{Name: "d.yaml", Text: []byte(text)}}, Domains: map[string]Domain{"d": {Windows: windows}}}
		s, limiter, clock := newService(t, c)
		table := check.Call(c.table()).Must(t, "table()")
		if applied, err := limiter.Limits.Apply(t.Context(), table.declarations...); err != nil || len(applied.Set) > 0 {
			t.Fatalf("Apply a second time = %v, %v, want nothing to set", applied, err)
		}
		for i, u := range units {
			out := ask1(t, s, "d", withHits(descriptor(u+"=x"), 2))
			if got := codesOf(out); got != "o:o" {
				t.Fatalf("%s %s: first = %s", windows, u, got)
			}
			over := ask1(t, s, "d", descriptor(u+"=x"))
			if got := codesOf(over); got != "x:x" {
				t.Fatalf("%s %s: at the limit = %s", windows, u, got)
			}
			l := over.Statuses[0].CurrentLimit
			if l.Unit.String() != strings.ToUpper(u) || l.RequestsPerUnit != 2 {
				t.Errorf("%s %s: limit = %v", windows, u, l)
			}
			wait := over.Statuses[0].DurationUntilReset.AsDuration()
			if wait <= 0 || wait > lengths[i] {
				t.Errorf("%s %s: reset in %v, want at most %v", windows, u, wait, lengths[i])
			}
			clock.Advance(wait)
			if got := codesOf(ask1(t, s, "d", descriptor(u+"=x"))); got != "o:o" {
				t.Errorf("%s %s: after %v = %s", windows, u, wait, got)
			}
		}
	}
}

// TestOverride takes limits that come with descriptors, also of several at the same time.
func TestOverride(t *testing.T) {
	s, _, _ := newService(t, shopConfig())
	with := func(d *common.RateLimitDescriptor, n uint32) *common.RateLimitDescriptor {
		d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: typepb.RateLimitUnit_HOUR}
		return d
	}
	two := list(with(descriptor("user=ann"), 2), with(descriptor("user=ann", "path=/"), 1))
	got := []string{
		codesOf(ask1(t, s, "shop", two...)), codesOf(ask1(t, s, "shop", two...)), codesOf(ask1(t, s, "shop", two[0])), codesOf(ask1(t, s, "shop", two[0])),
		codesOf(ask1(t, s, "shop", descriptor("user=ann"))), codesOf(ask1(t, s, "shop", with(descriptor("user=ann"), 0))), codesOf(ask1(t, s, "unknown", two...)),
	}
	if want := "o:oo x:ox o:o x:x o:o x:x o:oo"; strings.Join(got, " ") != want {
		t.Errorf("codes = %v, want %s", got, want)
	}
}

func TestAnswer(t *testing.T) {
	c := shopConfig()
	c.Headers, c.Domains = true, map[string]Domain{"shop": {Metadata: true}}
	s, _, _ := newService(t, c)
	ask1(t, s, "shop", descriptor("user=ann"))
	out := ask1(t, s, "shop", descriptor("user=ann"), descriptor("all=yes"), descriptor("service=one"), descriptor("service=two"), descriptor("user=vip"))
	var headers []string
	for _, h := range out.ResponseHeadersToAdd {
		headers = append(headers, h.Key+"="+h.Value)
	}
	if want := "RateLimit-Limit=1 RateLimit-Remaining=0 RateLimit-Reset=60"; strings.Join(headers, " ") != want {
		t.Errorf("headers = %v, want %s", headers, want)
	}
	if n := out.Statuses[0].LimitRemaining; n != 1 {
		t.Errorf("remaining = %d, want 1", n)
	}
	if n := out.Statuses[1].CurrentLimit.Name; n != "everybody" {
		t.Errorf("name = %q, want everybody", n)
	}
	if n := out.Statuses[4].LimitRemaining; n != 1<<32-1 {
		t.Errorf("remaining of an unlimited one = %d", n)
	}
	service := out.DynamicMetadata.AsMap()["metadata"].(map[string]any)["service"]
	if got := fmt.Sprint(service); got != "map[name:one tier:2]" {
		t.Errorf("metadata of the first, and of the second what the first lacks = %s", got)
	}
	descriptors := out.DynamicMetadata.AsMap()["descriptors"].([]any)
	if got := fmt.Sprint(descriptors[0]); len(descriptors) != 5 || got != "map[entries:[user=ann]]" {
		t.Errorf("descriptors = %v", descriptors)
	}
	if again := ask1(t, s, "shop", descriptor("service=one"), descriptor("service=two")); fmt.Sprint(again.DynamicMetadata.AsMap()["metadata"]) != "map[service:map[name:two tier:2]]" {
		t.Errorf("metadata after a quota = %v", again.DynamicMetadata)
	}
}

// TestGlobalShadow answers OK, and says by the statuses what would have been refused.
func TestGlobalShadow(t *testing.T) {
	c := shopConfig()
	c.ShadowMode = true
	s, _, _ := newService(t, c)
	var got []string
	for range 4 {
		got = append(got, codesOf(ask1(t, s, "shop", descriptor("user=ann"))))
	}
	if want := "o:o o:o o:o o:x"; strings.Join(got, " ") != want {
		t.Errorf("codes = %v, want %s", got, want)
	}
}

func TestInvalidRequests(t *testing.T) {
	c := shopConfig()
	c.Domains = map[string]Domain{"shop": {Lease: time.Minute}}
	c.Rules = []Rule{{Domain: "shop", Keys: []string{"rule"}, Entity: "{rule}", Resource: "r", Consume: map[string]string{"rpm": "1"}}}
	s, _, _ := newService(t, c)
	negative := withHits(descriptor("user=ann"), 1)
	negative.IsNegativeHits = true
	limited := descriptor("rule=x")
	limited.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typepb.RateLimitUnit_DAY}
	noUnit := descriptor("user=x")
	noUnit.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
	for _, test := range []struct {
		domain string
		asks   []*common.RateLimitDescriptor
		want   string
	}{
		{"", list(descriptor("user=ann")), `domain: must not be empty, got ""`},
		{"shop", nil, `number of descriptors: must be from 1 to 16, got "0"`},
		{"shop", repeat(1, make([]*common.RateLimitDescriptor, 17)...)[0], `number of descriptors: must be from 1 to 16, got "17"`},
		{"shop", list(descriptor("user=ann"), descriptor()), `descriptors[1] number of entries: must be from 1 to 32, got "0"`},
		{"shop", list(descriptor("=ann")), `descriptors[0] key: must not be empty, got ""`},
		{"shop", list(withHits(descriptor("user=ann"), 1<<63)), `descriptors[0] hits_addend: must be at most 9223372036854775807, got "9223372036854775808"`},
		{"shop", list(negative), `descriptors[0] is_negative_hits: must be false: a refused request would give back what it never took; settle by a lease, got "true"`},
		{"shop", list(descriptor("lease=x")), `descriptors[0] hits_addend: must be given: it is the actual amount of the lease, got ""`},
		{"shop", list(withHits(descriptor("lease=x"), 1)), `leasetoken: invalid lease: must be a token of this service, which begins with zl1.`},
		{"shop", list(limited), `descriptors[0] limit: must be left out: a rule charges stored limits, got "requests_per_unit:1 unit:DAY"`},
		{"shop", list(noUnit), `descriptors[0] limit: must have a unit of second, minute, hour, day, week, month or year, got "UNKNOWN"`},
	} {
		_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: test.domain, Descriptors: test.asks})
		got := strings.ReplaceAll(status.Convert(err).Message(), "  ", " ") // protobuf varies its spaces
		if status.Code(err) != codes.InvalidArgument || got != test.want {
			t.Errorf("ShouldRateLimit(%q, %v) = %v %q, want %q", test.domain, test.asks, status.Code(err), got, test.want)
		}
	}
}

// TestLease settles estimates by what the gateway sends home.
func TestLease(t *testing.T) {
	c := &Config{
		Files:   []File{{Name: "llm.yaml", Text: []byte("domain: llm\ndescriptors:\n- {key: user, rate_limit: {unit: day, requests_per_unit: 1000}}\n- {key: all, value: x, rate_limit: {unit: day, requests_per_unit: 10}}\n")}},
		Domains: map[string]Domain{"llm": {Lease: 10 * time.Minute}},
		Rules: []Rule{{Domain: "llm", Keys: []string{"team", "model"}, Entity: "{team}", Resource: "{model}", Consume: map[string]string{
			"tokens": "hits", "requests": "1",
		}}},
	}
	s, limiter, clock := newService(t, c)
	err := limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt-5"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 500), zlimit.PerDay("requests", 5)}})
	check.Fatal(t, "Limits.Set()", err)
	left := func() string {
		var text []string
		for _, of := range [][2]string{{"ann", "llm|user"}, {everybody, "llm|all=x"}, {"red", "gpt-5"}} {
			statuses, err := limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: of[0], Resource: of[1]})
			check.Fatal(t, "Available()", err)
			for _, status := range statuses {
				text = append(text, fmt.Sprint(status.Limit.Name, "=", status.Available))
			}
		}
		return strings.Join(text, " ")
	}
	out := ask1(t, s, "llm", withHits(descriptor("user=ann"), 300), descriptor("all=x"), withHits(descriptor("team=red", "model=gpt-5"), 300))
	if got, want := left(), "hits=700 hits=9 requests=4 tokens=200"; got != want {
		t.Fatalf("left after the estimate = %s, want %s", got, want)
	}
	lease := out.DynamicMetadata.GetFields()["lease"].GetStringValue()
	settle := withHits(descriptor("lease="+lease), 120)
	for range 2 { // the second changes nothing
		if out := ask1(t, s, "llm", settle); codesOf(out) != "o:o" || out.DynamicMetadata != nil {
			t.Errorf("settlement = %v", out)
		}
		if got, want := left(), "hits=880 hits=9 requests=4 tokens=380"; got != want {
			t.Errorf("left after the settlement = %s, want %s", got, want)
		}
	}
	request := &pb.RateLimitRequest{Domain: "llm", Descriptors: list(withHits(descriptor("lease="+lease), 0))}
	if _, err := s.ShouldRateLimit(t.Context(), request); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another amount = %v, want AlreadyExists", err)
	}
	refused := ask1(t, s, "llm", withHits(descriptor("user=ann"), 300), withHits(descriptor("team=red", "model=gpt-5"), 400))
	if codesOf(refused) != "x:ox" || refused.DynamicMetadata != nil {
		t.Errorf("a refused request = %v, want no lease", refused)
	}
	if got, want := left(), "hits=880 hits=9 requests=4 tokens=380"; got != want {
		t.Errorf("left after a refusal = %s, want %s", got, want)
	}
	if out := ask1(t, s, "llm", descriptor("all=x")); out.DynamicMetadata != nil {
		t.Errorf("a request without an estimate = %v, want no lease", out)
	}
	open := ask1(t, s, "llm", withHits(descriptor("user=ann"), 80)).DynamicMetadata.GetFields()["lease"].GetStringValue()
	clock.Advance(11 * time.Minute)
	request.Descriptors = list(withHits(descriptor("lease="+open), 0))
	if _, err := s.ShouldRateLimit(t.Context(), request); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("an expired lease = %v, want FailedPrecondition", err)
	}
	if got, want := left(), "hits=800 hits=9 requests=4 tokens=380"; !strings.HasPrefix(got, want[:8]) {
		t.Errorf("left after an expired lease = %s, want the estimate to stand: %s", got, want)
	}
}

// TestDisabled refuses callers of an entity that an operator has disabled, so that no gateway lets them pass as a failure.
func TestDisabled(t *testing.T) {
	s, limiter, _ := newService(t, shopConfig())
	ask1(t, s, "shop", descriptor("user=ann"))
	if _, err := limiter.Limits.Disable(t.Context(), zlimit.Level{Entity: "ann"}, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	for _, asks := range [][]*common.RateLimitDescriptor{{descriptor("user=ann")}, {descriptor("all=yes"), descriptor("user=ann")}, {withHits(descriptor("user=ann"), 0)}} {
		if out := ask1(t, s, "shop", asks...); out.OverallCode != pb.RateLimitResponse_OVER_LIMIT || out.Statuses[len(asks)-1].Code != pb.RateLimitResponse_OVER_LIMIT {
			t.Errorf("ShouldRateLimit(%v) = %v, want OVER_LIMIT", asks, out)
		}
	}
}

// TestReload keeps what was counted, changes limits, and keeps the old ones after an error.
func TestReload(t *testing.T) {
	s, _, _ := newService(t, shopConfig())
	for range 3 {
		ask1(t, s, "shop", descriptor("user=ann"))
	}
	more := &Config{Files: []File{{Name: "shop.yaml", Text: []byte(strings.Replace(shop, "requests_per_unit: 3", "requests_per_unit: 4", 1))}}}
	check.Fatal(t, "Reload()", s.Reload(t.Context(), more))
	if err := s.Reload(t.Context(), &Config{Files: []File{{Name: "shop.yaml", Text: []byte("domain: shop\ndescriptors: [{key: user}, {key: user}]")}}}); err == nil {
		t.Error("Reload of a wrong file = nil, want an error")
	}
	out := ask1(t, s, "shop", withHits(descriptor("user=bob"), 4))
	if codesOf(out) != "o:o" || out.Statuses[0].CurrentLimit.RequestsPerUnit != 4 {
		t.Errorf("after the reload = %v, want a limit of 4", out)
	}
}

// TestLeasesTooLong gives back what was taken where no token can be handed out.
func TestLeasesTooLong(t *testing.T) {
	var keys strings.Builder
	for i := range maxDescriptors {
		fmt.Fprintf(&keys, "- {key: key%d, rate_limit: {unit: day, requests_per_unit: 10}}\n", i)
	}
	c := &Config{Files: []File{{Name: "d.yaml", Text: []byte("domain: d\ndescriptors:\n" + keys.String())}}, Domains: map[string]Domain{"d": {Lease: time.Minute}}}
	s, limiter, _ := newService(t, c)
	var asks []*common.RateLimitDescriptor
	for i := range maxDescriptors {
		asks = append(asks, withHits(descriptor(fmt.Sprintf("key%d=%s", i, strings.Repeat("x", 250))), 4))
	}
	_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: asks})
	if err == nil || !strings.Contains(err.Error(), "must be at most 4096") {
		t.Fatalf("ShouldRateLimit = %v, want an error about the size of the token", err)
	}
	for i := range maxDescriptors {
		left, err := limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: strings.Repeat("x", 250), Resource: fmt.Sprintf("d|key%d", i)})
		if err != nil || left[0].Available != 10 {
			t.Errorf("key%d has %v left, %v, want all", i, left, err)
		}
	}
}

// TestCallers lets callers charge what they may, and settle their own leases.
func TestCallers(t *testing.T) {
	limiter, clock := zlimittest.New(t)
	who := func(ctx context.Context) (Caller, error) {
		switch names := metadata.ValueFromIncomingContext(ctx, "name"); {
		case len(names) == 0:
			return Caller{}, errors.New("no name")
		case names[0] == "gateway":
			return Caller{Name: names[0], MayCharge: func(entity string) bool { return strings.HasPrefix(entity, "a") }}, nil
		case names[0] == "viewer":
			return Caller{}, status.Error(codes.PermissionDenied, "a viewer charges nothing")
		default:
			return Caller{Name: names[0]}, nil
		}
	}
	c := shopConfig()
	c.Domains = map[string]Domain{"shop": {Lease: time.Minute}}
	s := check.Call(New(t.Context(), limiter, c, WithClock(clock.Now), WithCallers(who))).Must(t, "New()")
	ask := func(name string, d *common.RateLimitDescriptor) (*pb.RateLimitResponse, error) {
		ctx := t.Context()
		if name != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("name", name))
		}
		return s.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "shop", Descriptors: list(d)})
	}
	for _, test := range []struct {
		name, user string
		want       codes.Code
	}{
		{"gateway", "ann", codes.OK},
		{"gateway", "bob", codes.PermissionDenied},
		{"other", "bob", codes.OK},
		{"viewer", "ann", codes.PermissionDenied},
		{"", "ann", codes.Unauthenticated},
	} {
		if _, err := ask(test.name, descriptor("user="+test.user)); status.Code(err) != test.want {
			t.Errorf("caller %q for %s = %v, want %v", test.name, test.user, err, test.want)
		}
	}
	answer := check.Call(ask("gateway", withHits(descriptor("user=ann"), 1))).Must(t, "ask()")
	settlement := withHits(descriptor("lease="+answer.DynamicMetadata.GetFields()["lease"].GetStringValue()), 0)
	if _, err := ask("other", settlement); status.Code(err) != codes.PermissionDenied {
		t.Errorf("settlement by another caller = %v, want PermissionDenied", err)
	}
	_, err := ask("gateway", settlement)
	check.Error(t, "settlement", err)
}

// TestSharedLeases settles a lease in another process, by a key that both have, and in none without.
func TestSharedLeases(t *testing.T) {
	limiter, clock := zlimittest.New(t)
	c := shopConfig()
	c.Domains = map[string]Domain{"shop": {Lease: time.Minute}}
	held := leasetoken.NewHeld(clock.Now)
	service := func(opts ...Option) *Service {
		return check.Call(New(t.Context(), limiter, c, append(opts, WithClock(clock.Now), WithHeld(held), WithNamespace("default"))...)).Must(t, "New()")
	}
	shared := func() Option {
		return WithSigner(check.Call(leasetoken.NewSigner(leasetoken.Key{ID: "k", Secret: make([]byte, leasetoken.MinSecret)})).Must(t, "NewSigner()"))
	}
	count := func() int { return len(held.Of("default", "shop|user")) }
	answer := ask1(t, service(shared()), "shop", withHits(descriptor("user=ann"), 2))
	settlement := &pb.RateLimitRequest{Domain: "shop", Descriptors: list(withHits(descriptor("lease="+answer.DynamicMetadata.GetFields()["lease"].GetStringValue()), 0))}
	if n := count(); n != 1 {
		t.Errorf("%d leases are held, want 1", n)
	}
	if _, err := service().ShouldRateLimit(t.Context(), settlement); status.Code(err) != codes.InvalidArgument {
		t.Errorf("settlement without the key = %v, want InvalidArgument", err)
	}
	_, err := service(shared()).ShouldRateLimit(t.Context(), settlement)
	check.Error(t, "settlement by another process", err)
	if n := count(); n != 0 {
		t.Errorf("%d leases are held after the settlement, want none", n)
	}
}

// TestLeaseOfOtherConfig settles a signed lease in processes whose config does not have its domain, or no lease for it, as replicas do during a
// reload. What is no signed lease passes there as any descriptor without a limit, and a lease that cannot be settled is an error.
func TestLeaseOfOtherConfig(t *testing.T) {
	limiter, clock := zlimittest.New(t)
	file := func(domain string) File {
		return File{Name: domain, Text: []byte("domain: " + domain + "\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1000}}]")}
	}
	signer := check.Call(leasetoken.NewSigner(leasetoken.RandomKey())).Must(t, "NewSigner()")
	service := func(c *Config) *Service {
		return check.Call(New(t.Context(), limiter, c, WithClock(clock.Now), WithSigner(signer))).Must(t, "New()")
	}
	leases := func(domain string) map[string]Domain { return map[string]Domain{domain: {Lease: time.Minute}} }
	own := service(&Config{Files: []File{file("llm")}, Domains: leases("llm")})
	for _, test := range []struct {
		user, domain string
		by           *Service
	}{
		{"ann", "llm", service(&Config{Files: []File{file("other")}, Domains: leases("other")})},
		{"bob", "llm", service(&Config{Files: []File{file("llm")}})},
		{"eve", "other", own},
	} {
		t.Run(test.user, func(t *testing.T) {
			answer := ask1(t, own, "llm", withHits(descriptor("user="+test.user), 100))
			lease := answer.DynamicMetadata.GetFields()["lease"].GetStringValue()
			ask1(t, test.by, test.domain, withHits(descriptor("lease="+lease), 5))
			left := check.Call(limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: test.user, Resource: "llm|user"})).Must(t, "Available()")
			if got := left[0].Available; got != 995 {
				t.Errorf("%d are left, want 995: the estimate of 100 is settled by 5", got)
			}
			if got := codesOf(ask1(t, test.by, test.domain, withHits(descriptor("lease=of a car"), 5))); got != "o:o" {
				t.Errorf("a lease of something else = %s, want it to pass", got)
			}
			for lease, want := range map[string]codes.Code{lease: codes.AlreadyExists, lease + "x": codes.InvalidArgument} {
				request := &pb.RateLimitRequest{Domain: test.domain, Descriptors: list(withHits(descriptor("lease="+lease), 7))}
				if _, err := test.by.ShouldRateLimit(t.Context(), request); status.Code(err) != want {
					t.Errorf("a lease that cannot be settled = %v, want %v", err, want)
				}
			}
		})
	}
}

// TestNil makes no service of nothing, and takes options of nothing for the defaults.
func TestNil(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	if s, err := New(t.Context(), nil, shopConfig()); s != nil || err == nil || err.Error() != "envoylimit: the limiter must not be nil" {
		t.Errorf("New() without a limiter = %v, %v", s, err)
	}
	if s, err := New(t.Context(), limiter, nil); s != nil || err == nil || err.Error() != "envoylimit: the config must not be nil" {
		t.Errorf("New() without a config = %v, %v", s, err)
	}
	nothing := []Option{WithCallers(nil), WithSigner(nil), WithHeld(nil), WithMeterProvider(nil), WithLogger(nil), WithClock(nil)}
	c := shopConfig()
	c.Domains = map[string]Domain{"shop": {Lease: time.Minute}}
	s := check.Call(New(t.Context(), limiter, c, nothing...)).Must(t, "New()")
	if answer := ask1(t, s, "shop", withHits(descriptor("user=ann"), 1)); answer.DynamicMetadata == nil {
		t.Error("the answer to an estimate has no lease")
	}
}
