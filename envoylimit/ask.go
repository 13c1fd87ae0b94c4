package envoylimit

import (
	"math"
	"slices"
	"strconv"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The kinds of asks.
type askKind int

const (
	askNothing    askKind = iota // no limit matches
	askUnlimited                 // a limit that admits all
	askBlocked                   // a limit of 0
	askLimit                     // a stored limit, or one of the request
	askSettlement                // a lease
)

// An ask is what a descriptor asks, and the answer.
type ask struct {
	kind      askKind
	limit     *limit // of a file or an override, nil for a rule
	request   zlimit.Request
	amounts   zlimit.Amounts // of the request
	hits      int64
	question  bool     // of zero hits
	estimated []string // limits that a settlement corrects; none for hits that are known
	sealed    string   // the lease of a settlement

	lease    *zlimit.Lease
	statuses zlimit.Statuses
	refused  bool
}

// invalid returns the error for a field of a request that breaks a rule.
func invalid(field, value, rule string) error {
	return status.Errorf(codes.InvalidArgument, "%s: %s, got %q", field, rule, value)
}

// maxDescriptors bounds the descriptors of a request.
const maxDescriptors = 16

// ask reads what the descriptors of a request ask, without limits that others of them replace. It does no I/O.
func (t *turn) ask() error {
	r := t.request
	if r.GetDomain() == "" {
		return invalid("domain", "", "must not be empty")
	}
	if n := len(r.GetDescriptors()); n == 0 || n > maxDescriptors {
		return invalid("number of descriptors", strconv.Itoa(n), "must be from 1 to "+strconv.Itoa(maxDescriptors))
	}
	t.domain = t.domains[r.GetDomain()]
	known := t.domain != nil
	if !known { // as in envoyproxy/ratelimit, where a domain without limits admits all
		t.domain = &domain{name: r.GetDomain()}
	}
	t.asks = make([]ask, len(r.GetDescriptors()))
	for i, descriptor := range r.GetDescriptors() {
		if err := t.asks[i].read(t.domain, known, r, descriptor); err != nil {
			return status.Errorf(codes.InvalidArgument, "descriptors[%d] %s", i, status.Convert(err).Message())
		}
	}
	for i := range t.asks {
		if l := t.asks[i].limit; l != nil {
			for j := range t.asks {
				if other := t.asks[j].limit; other != nil && other.name != "" && slices.Contains(l.replaces, other.name) {
					t.asks[j].kind, t.asks[j].request = askNothing, zlimit.Request{}
				}
			}
		}
	}
	return nil
}

// leaseKey is the key of the descriptor that settles a lease.
const leaseKey = "lease"

// signedPrefix begins the tokens of package leasetoken.
const signedPrefix = "zl1."

// settles reports whether a descriptor settles a lease. A signed one is settled in every domain, also in one that this process does not have or
// that hands out none: during a reload of replicas, one process settles what another one with other files has handed out.
func settles(entries []*common.RateLimitDescriptor_Entry, d *domain) bool {
	return len(entries) == 1 && entries[0].GetKey() == leaseKey && (d.Lease > 0 || strings.HasPrefix(entries[0].GetValue(), signedPrefix))
}

// read reads a descriptor.
func (a *ask) read(d *domain, known bool, r *pb.RateLimitRequest, from *common.RateLimitDescriptor) error {
	entries := from.GetEntries()
	if n := len(entries); n == 0 || n > maxKeys {
		return invalid("number of entries", strconv.Itoa(n), "must be from 1 to "+strconv.Itoa(maxKeys))
	}
	for _, e := range entries {
		if e.GetKey() == "" {
			return invalid("key", "", "must not be empty")
		}
	}
	if err := a.readHits(r, from); err != nil {
		return err
	}
	own := from.GetHitsAddend() != nil
	if settles(entries, d) {
		if !own {
			return invalid("hits_addend", "", "must be given: it is the actual amount of the lease")
		}
		a.kind, a.sealed = askSettlement, entries[0].GetValue()
		return nil
	}
	estimate := own || r.GetHitsAddend() > 0
	if rule, values := d.rule(entries); rule != nil {
		return a.byRule(rule, values, estimate, from)
	}
	if from.GetLimit() != nil {
		if !known {
			return nil
		}
		if err := a.override(d, from); err != nil {
			return err
		}
	} else {
		var entity string
		if a.limit, entity = d.root.find(entries); a.limit != nil {
			a.request.Entity, a.request.Resource = entity, a.limit.resource
		}
	}
	switch {
	case a.limit == nil:
		return nil
	case a.limit.unlimited:
		a.kind = askUnlimited
	case a.limit.perUnit == 0 && !a.limit.shadow:
		a.kind = askBlocked
	case a.limit.perUnit == 0:
		a.kind = askNothing
	default:
		a.kind, a.amounts = askLimit, zlimit.Amounts{hits: a.hits}
		if estimate {
			a.estimated = []string{hits}
		}
	}
	if a.kind != askLimit {
		a.request = zlimit.Request{}
	}
	a.request.Consume, a.request.OnUnavailable = a.amounts, d.OnUnavailable
	return nil
}

// readHits reads the hits of a descriptor.
func (a *ask) readHits(r *pb.RateLimitRequest, from *common.RateLimitDescriptor) error {
	addend := max(1, uint64(r.GetHitsAddend()))
	if from.GetHitsAddend() != nil {
		addend = from.GetHitsAddend().GetValue()
	}
	if addend > math.MaxInt64 {
		return invalid("hits_addend", strconv.FormatUint(addend, 10), "must be at most "+strconv.Itoa(math.MaxInt64))
	}
	if from.GetIsNegativeHits() {
		return invalid("is_negative_hits", "true", "must be false: a refused request would give back what it never took; settle by a lease")
	}
	a.hits, a.question = int64(addend), addend == 0
	return nil
}

// rule returns the first rule for a descriptor, with its values.
func (d *domain) rule(entries []*common.RateLimitDescriptor_Entry) (*rule, []string) {
	for _, r := range d.rules {
		if values := r.values(entries); values != nil {
			return r, values
		}
	}
	return nil, nil
}

// byRule asks the stored limits that a rule says.
func (a *ask) byRule(r *rule, values []string, estimate bool, from *common.RateLimitDescriptor) error {
	if from.GetLimit() != nil {
		return invalid("limit", from.GetLimit().String(), "must be left out: a rule charges stored limits")
	}
	a.kind, a.amounts = askLimit, r.amounts(a.hits)
	a.request = zlimit.Request{Entity: r.entity.name(values), Resource: r.resource.name(values), Consume: a.amounts}
	if estimate {
		a.estimated = r.estimated
	}
	return nil
}

// override asks a limit that comes with the descriptor. It is a bucket, since a quota must be stored.
func (a *ask) override(d *domain, from *common.RateLimitDescriptor) error {
	l := from.GetLimit()
	unit := pb.RateLimitResponse_RateLimit_Unit(l.GetUnit())
	if _, ok := spans[unit]; !ok {
		return invalid("limit", l.GetUnit().String(), "must have a unit of second, minute, hour, day, week, month or year")
	}
	at := path{escape.Replace(d.name)}
	values := make([]string, len(from.GetEntries()))
	for i, e := range from.GetEntries() {
		at, values[i] = at.with(e.GetKey(), ""), e.GetValue()
	}
	at = append(at, "~override")
	a.limit = &limit{path: d.name + "|~override", resource: at.resource(), unit: unit, perUnit: l.GetRequestsPerUnit()}
	a.request.Entity, a.request.Resource = entityOf(values), a.limit.resource
	if a.limit.perUnit > 0 {
		a.request.Limits = []zlimit.Limit{WindowsBucket.limit(unit, int64(a.limit.perUnit))}
	}
	return nil
}
