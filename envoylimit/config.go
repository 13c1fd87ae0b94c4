package envoylimit

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Config has the limits to enforce, and how requests of Envoy are answered. Its form in YAML is the section ratelimit in the file of zlimitd.
type Config struct {
	// Paths are patterns of files in the form of envoyproxy/ratelimit, which [Config.ReadFiles] reads.
	Paths []string `yaml:"files"`
	// Files are the contents of files in the form of envoyproxy/ratelimit, in order.
	Files []File `yaml:"-"`
	// MergeDomains lets several files have descriptors of one domain.
	MergeDomains bool `yaml:"merge_domains"`
	// ShadowMode answers OK to every request, whatever its limits say.
	ShadowMode bool `yaml:"shadow_mode"`
	// NearLimit is the part of a limit from which on hits are counted as near, from 0 to 1; 0 stands for 0.8.
	NearLimit float64 `yaml:"near_limit"`
	// Headers adds the headers RateLimit-Limit, -Remaining and -Reset to answers, for gateways that do not make them.
	Headers bool `yaml:"headers"`
	// Domains have settings by the name of a domain, which must have a file or a rule.
	Domains map[string]Domain `yaml:"domains"`
	// Rules map descriptors to entities and resources whose limits are stored. They come before the files, in their order.
	Rules []Rule `yaml:"rules"`
}

// A File is a file of limits in the form of envoyproxy/ratelimit.
type File struct {
	Name string // for errors
	Text []byte
}

// A Domain has the settings of a domain.
type Domain struct {
	// Windows says how the limits of its file count; aligned without it.
	Windows Windows `yaml:"windows"`
	// Lease is how long an estimate may be settled, from [zlimit.MinTokenTime] to [zlimit.MaxTokenTime]. Answers have a lease in their
	// metadata then. 0 stands for none.
	Lease time.Duration `yaml:"lease"`
	// CountRefused charges each descriptor by itself, also where another one refuses the request, as envoyproxy/ratelimit does.
	CountRefused bool `yaml:"count_refused"`
	// Metadata adds the descriptors, and the metadata of limits that are not exceeded, to the metadata of answers.
	Metadata bool `yaml:"metadata"`
	// OnUnavailable says what happens while the store is unavailable.
	OnUnavailable zlimit.FailurePolicy `yaml:"on_unavailable"`
}

// Load reads a config from a file of YAML, and the files that it names, relative to its directory. A key that does not exist and a second
// document are an error with their line. The config that it returns passes [Config.Check].
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	if err = decode(text, c); err == nil || errors.Is(err, io.EOF) {
		err = c.ReadFiles(filepath.Dir(path))
	}
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ReadFiles replaces Files by the contents of Paths, of which relative ones are below a directory. A pattern, as [filepath.Match] has it, that
// no file matches is an error.
func (c *Config) ReadFiles(dir string) error {
	c.Files = nil
	for _, pattern := range c.Paths {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(dir, pattern)
		}
		paths, err := filepath.Glob(pattern) // in order
		if err != nil {
			return fmt.Errorf("files: %w: %q", err, pattern)
		}
		if len(paths) == 0 {
			return fmt.Errorf("files: no file matches %q", pattern)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			c.Files = append(c.Files, File{Name: path, Text: text})
		}
	}
	return nil
}

// Check returns what is wrong with a config, nil if it can be served. Each error names the file or the field, the value and the rule. It does
// no I/O: it checks Files, and not Paths.
func (c *Config) Check() error {
	_, err := c.table()
	return err
}

// Warnings returns which requests pass without being counted, in the order of domains. The config must pass [Config.Check].
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

// table returns the config as requests are matched with it. It has the domains of files and rules.
func (c *Config) table() (*table, error) {
	t := &table{domains: map[string]*domain{}, shadow: c.ShadowMode, headers: c.Headers, near: c.NearLimit}
	if t.near == 0 {
		t.near = 0.8
	}
	if !(t.near >= 0 && t.near <= 1) {
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
