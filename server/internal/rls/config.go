package rls

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Config has the limits to enforce, and how requests of Envoy are answered.
type Config struct {
	// Files are read from paths by the caller.
	Files []File `yaml:"-"`
	// MergeDomains lets several files have descriptors of one domain.
	MergeDomains bool `yaml:"merge_domains"`
	// ShadowMode answers OK to every request, whatever its limits say.
	ShadowMode bool `yaml:"shadow_mode"`
	// NearLimit is the part of a limit from which on hits are counted as near; 0 stands for 0.8.
	NearLimit float64 `yaml:"near_limit"`
	// Headers adds the headers RateLimit-Limit, -Remaining and -Reset to answers, for gateways that do not make them.
	Headers bool `yaml:"headers"`
	// Domains have settings by the name of a domain.
	Domains map[string]Domain `yaml:"domains"`
	// Rules map descriptors to entities and resources whose limits are stored. They come before the files, in their order.
	Rules []Rule `yaml:"rules"`
}

// A Domain has the settings of a domain.
type Domain struct {
	// Windows says how the limits of its file count; aligned without it.
	Windows Windows `yaml:"windows"`
	// Lease is how long an estimate may be settled. Answers have a lease in their metadata then. 0 stands for none.
	Lease time.Duration `yaml:"lease"`
	// CountRefused charges each descriptor by itself, also where another one refuses the request, as envoyproxy/ratelimit does.
	CountRefused bool `yaml:"count_refused"`
	// Metadata adds the descriptors, and the metadata of limits that are not exceeded, to the metadata of answers.
	Metadata bool `yaml:"metadata"`
	// OnUnavailable says what happens while the store is unavailable.
	OnUnavailable zlimit.FailurePolicy `yaml:"on_unavailable"`
}

// A Rule says which entity and resource a descriptor is charged to, and how much. Their limits are stored by other means.
type Rule struct {
	Domain string `yaml:"domain"`
	// Keys are the keys of the descriptor, all of them in their order.
	Keys []string `yaml:"keys"`
	// Entity and Resource may have values of the descriptor in braces, such as {user}.
	Entity   string `yaml:"entity"`
	Resource string `yaml:"resource"`
	// Consume is what each limit is charged: a number, or "hits" for the hits of the descriptor.
	Consume map[string]Amount `yaml:"consume"`
}

// An Amount is what a rule charges a limit.
type Amount struct {
	Hits  bool // as many as the hits of the descriptor
	Fixed int64
}

// UnmarshalYAML reads a number, or hits.
func (a *Amount) UnmarshalYAML(decode func(any) error) error {
	var text string
	if err := decode(&text); err != nil {
		return err
	}
	if text == hits {
		a.Hits = true
		return nil
	}
	var err error
	if a.Fixed, err = strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64); err != nil || a.Fixed < 0 {
		return fmt.Errorf("amount must be %q or a number of tokens from 0, got %q", hits, text)
	}
	return nil
}

// maxKeys bounds the entries of a descriptor.
const maxKeys = 32

// A table is a config as requests are matched with it. It is immutable.
type table struct {
	domains      map[string]*domain
	shadow       bool
	headers      bool
	near         float64
	declarations []zlimit.Declaration
}

type domain struct {
	Domain
	name  string
	root  node
	rules []*rule
}

// Check returns what is wrong with a config, nil if it can be served.
func (c *Config) Check() error {
	_, err := c.table()
	return err
}

// table returns the config as requests are matched with it. It has the domains of files and rules.
func (c *Config) table() (*table, error) {
	t := &table{domains: map[string]*domain{}, shadow: c.ShadowMode, headers: c.Headers, near: c.NearLimit}
	if t.near == 0 {
		t.near = 0.8
	}
	if t.near < 0 || t.near > 1 {
		return nil, fmt.Errorf("near_limit must be from 0 to 1, got %v", c.NearLimit)
	}
	files := map[string]string{}
	for i := range c.Files {
		f := &c.Files[i]
		parsed, err := f.parse()
		if err != nil {
			return nil, err
		}
		if other := files[parsed.Domain]; other != "" && !c.MergeDomains {
			return nil, fmt.Errorf("%s: domain %q is in %s already: set merge_domains to have it in both", f.Name, parsed.Domain, other)
		}
		files[parsed.Domain] = f.Name
		d := t.domain(parsed.Domain, c)
		if err := d.Windows.check(); err != nil {
			return nil, fmt.Errorf("domain %q: %w", d.name, err)
		}
		if err := d.root.load(f, path{escape.Replace(d.name)}, parsed.Descriptors, d.Windows); err != nil {
			return nil, err
		}
	}
	for i := range c.Rules {
		r, err := c.Rules[i].compile()
		if err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
		d := t.domain(c.Rules[i].Domain, c)
		d.rules = append(d.rules, r)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Domains)) {
		if t.domains[name] == nil {
			return nil, fmt.Errorf("domains: %q has no file and no rule", name)
		}
		if lease := c.Domains[name].Lease; lease != 0 && (lease < zlimit.MinTokenTime || lease > zlimit.MaxTokenTime) {
			return nil, fmt.Errorf("domain %q: lease must be from %v to %v, got %v", name, zlimit.MinTokenTime, zlimit.MaxTokenTime, lease)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.domains)) {
		t.declare(&t.domains[name].root)
	}
	return t, nil
}

// domain returns the domain of that name, a new one if the table has none.
func (t *table) domain(name string, c *Config) *domain {
	if t.domains[name] == nil {
		t.domains[name] = &domain{Domain: c.Domains[name], name: name}
	}
	return t.domains[name]
}

// declare lists the limits to store, in order.
func (t *table) declare(n *node) {
	if l := n.limit; l != nil && l.stored.Name != "" {
		t.declarations = append(t.declarations, zlimit.Declaration{Resource: l.resource, Limits: []zlimit.Limit{l.stored}})
	}
	for _, key := range slices.Sorted(maps.Keys(n.children)) {
		t.declare(n.children[key])
	}
}

// A rule is a [Rule] that was checked.
type rule struct {
	keys             []string
	entity, resource template
	consume          map[string]Amount
	estimated        []string // limits that are charged the hits
}

func (r *Rule) compile() (*rule, error) {
	switch {
	case r.Domain == "":
		return nil, fmt.Errorf("domain must not be empty")
	case len(r.Keys) == 0 || len(r.Keys) > maxKeys:
		return nil, fmt.Errorf("keys must be from 1 to %d, got %d", maxKeys, len(r.Keys))
	case len(r.Consume) == 0:
		return nil, fmt.Errorf("consume must name a limit at least")
	}
	out := &rule{keys: r.Keys, consume: r.Consume}
	for _, name := range slices.Sorted(maps.Keys(r.Consume)) {
		if r.Consume[name].Hits {
			out.estimated = append(out.estimated, name)
		}
	}
	var err error
	if out.entity, err = parseTemplate("entity", r.Entity, r.Keys); err != nil {
		return nil, err
	}
	out.resource, err = parseTemplate("resource", r.Resource, r.Keys)
	return out, err
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

// Warnings returns what requests pass without being counted, in the order of domains. The config must be one that was checked.
func (c *Config) Warnings() []string {
	t, err := c.table()
	if err != nil {
		return []string{err.Error()}
	}
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(t.domains)) {
		d := t.domains[name]
		if len(d.rules) > 0 || d.root.hasFixed() {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("domain %q: every limit hangs on a value of the request. Envoy drops a descriptor whose header is missing, "+
			"and does not ask if none is left. Add a descriptor with a generic_key, whose limit holds for all", name))
	}
	return warnings
}

// DomainNames returns the domains that have limits, in order. The config must be one that was checked.
func (c *Config) DomainNames() []string {
	t, err := c.table()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.domains))
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
