package envoylimit

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Rule says which entity and resource a descriptor is charged to, and how much. Their limits are stored by other means.
type Rule struct {
	// Domain is that of the requests.
	Domain string `yaml:"domain"`
	// Keys are the keys of the descriptor, all of them in their order, at most 32.
	Keys []string `yaml:"keys"`
	// Entity and Resource may have values of the descriptor in braces, such as {user}.
	Entity   string `yaml:"entity"`
	Resource string `yaml:"resource"`
	// Consume is what each limit is charged: a number of tokens from 0, or "hits" for the hits of the descriptor.
	Consume map[string]string `yaml:"consume"`
}

// maxKeys bounds the entries of a descriptor.
const maxKeys = 32

// A rule is a [Rule] that was checked.
type rule struct {
	keys             []string
	entity, resource template
	fixed            zlimit.Amounts
	estimated        []string // limits that are charged the hits
}

func (r *Rule) compile() (*rule, error) {
	switch {
	case r.Domain == "":
		return nil, errors.New("domain must not be empty")
	case len(r.Keys) == 0 || len(r.Keys) > maxKeys:
		return nil, fmt.Errorf("keys must be from 1 to %d, got %d", maxKeys, len(r.Keys))
	case len(r.Consume) == 0:
		return nil, errors.New("consume must name a limit at least")
	}
	out := &rule{keys: r.Keys, fixed: zlimit.Amounts{}}
	for _, name := range slices.Sorted(maps.Keys(r.Consume)) {
		text := r.Consume[name]
		if text == hits {
			out.estimated = append(out.estimated, name)
			continue
		}
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("consume[%s] must be %q or a number of tokens from 0, got %q", name, hits, text)
		}
		out.fixed[name] = n
	}
	var err error
	if out.entity, err = parseTemplate("entity", r.Entity, r.Keys); err != nil {
		return nil, err
	}
	out.resource, err = parseTemplate("resource", r.Resource, r.Keys)
	return out, err
}

// amounts returns what a descriptor of some hits is charged.
func (r *rule) amounts(n int64) zlimit.Amounts {
	all := maps.Clone(r.fixed)
	for _, name := range r.estimated {
		all[name] = n
	}
	return all
}

// values returns the values of a descriptor, nil for one that the rule is not of.
func (r *rule) values(entries []*common.RateLimitDescriptor_Entry) []string {
	if len(r.keys) != len(entries) {
		return nil
	}
	values := make([]string, len(entries))
	for i, e := range entries {
		if e.GetKey() != r.keys[i] {
			return nil
		}
		values[i] = e.GetValue()
	}
	return values
}

// A template is text with values of a descriptor: the names of its keys in braces.
type template struct {
	text string
	keys []string
}

var braces = regexp.MustCompile(`\{([^}]*)(\}?)`)

func parseTemplate(field, text string, keys []string) (template, error) {
	if text == "" {
		return template{}, fmt.Errorf("%s must not be empty", field)
	}
	for _, found := range braces.FindAllStringSubmatch(text, -1) {
		if found[2] == "" || !slices.Contains(keys, found[1]) {
			return template{}, fmt.Errorf("%s must have keys of the rule in braces, got %q", field, text)
		}
	}
	return template{text, keys}, nil
}

// name returns the name of the text with values.
func (t template) name(values []string) string {
	return zlimit.Name(braces.ReplaceAllStringFunc(t.text, func(key string) string {
		value := orNone(values[slices.Index(t.keys, key[1:len(key)-1])])
		if key == t.text { // the name that other programs use
			return value
		}
		return escape.Replace(value) // what separates parts must not come from a value
	}))
}
