package envoylimit

import (
	"regexp"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A limit is a rate_limit of a file. It is immutable.
type limit struct {
	path      string // domain and keys, for people
	resource  string // under which it is stored
	name      string // by which others replace it
	replaces  []string
	unit      pb.RateLimitResponse_RateLimit_Unit
	perUnit   uint32 // 0 refuses all
	unlimited bool
	shadow    bool
	quota     bool // refuses only together with all other quotas of a request
	metadata  map[string]any
	stored    zlimit.Limit // none for an unlimited one, and for one that refuses all
}

// A node is a descriptor of a file, with those below it.
type node struct {
	limit     *limit
	varies    bool             // values are counted apart
	children  map[string]*node // by key, or key_value
	wildcards []wildcard
}

// A wildcard is a child whose key_value has a *, which stands for any text.
type wildcard struct {
	pattern *regexp.Regexp
	node    *node
}

// patternOf returns the pattern of a text with stars.
func patternOf(text string) (*regexp.Regexp, error) {
	return regexp.Compile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "$")
}

// child returns the descriptor for an entry: the one with its value, else the first wildcard, else the one with the key alone.
func (n *node) child(key, value string) *node {
	text := key + "_" + value
	if c := n.children[text]; c != nil {
		return c
	}
	for i := range n.wildcards {
		if n.wildcards[i].pattern.MatchString(text) {
			return n.wildcards[i].node
		}
	}
	return n.children[key]
}

// hasFixed reports whether there is a limit whose values are all fixed.
func (n *node) hasFixed() bool {
	for _, c := range n.children {
		if !c.varies && (c.limit != nil || c.hasFixed()) {
			return true
		}
	}
	return false
}

// find returns the limit of a descriptor, and the entity whose requests it counts. The limit is nil where the file has none for exactly
// these entries.
func (n *node) find(entries []*common.RateLimitDescriptor_Entry) (*limit, string) {
	var values []string
	for _, e := range entries {
		if n = n.child(e.GetKey(), e.GetValue()); n == nil {
			return nil, ""
		}
		if n.varies {
			values = append(values, e.GetValue())
		}
	}
	return n.limit, entityOf(values)
}

// everybody is the entity of a limit whose path has no values that vary.
const everybody = "all"

// entityOf returns the entity of the values of a descriptor. Two lists never have the same entity. One value alone is the entity of its
// own [zlimit.Name], as other programs on the store name it.
func entityOf(values []string) string {
	switch len(values) {
	case 0:
		return everybody
	case 1:
		return zlimit.Name(orNone(values[0]))
	}
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = escape.Replace(orNone(v))
	}
	return zlimit.Name(strings.Join(parts, "|"))
}

// orNone returns a text that stands for an empty value, which no entity can be.
func orNone(value string) string {
	if value == "" {
		return "\x00"
	}
	return value
}

// escape keeps what separates the parts of names out of them.
var escape = strings.NewReplacer("%", "%25", "|", "%7C", "=", "%3D")

// A path is a domain, and keys with their values.
type path []string

// with returns the path to a descriptor below.
func (p path) with(key, value string) path {
	part := escape.Replace(key)
	if value != "" {
		part += "=" + escape.Replace(value)
	}
	return append(p[:len(p):len(p)], part)
}

// String returns the path as text, such as messaging|message_type=marketing|to_number.
func (p path) String() string { return strings.Join(p, "|") }

// resource returns the name of the stored limit.
func (p path) resource() string { return zlimit.Name(p.String()) }
