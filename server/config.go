// Package server is zlimitd: the limits of a store for gateways and services in every language. Envoy asks by gRPC, others by HTTP.
//
// Package api serves HTTP, and package envoylimit serves gRPC. The page makes its headlines, balances, forecasts and charts here, and not in a
// browser, so its screens work without scripts. Requests of HTTP are read by the schemas of openapi.yaml: each error names a field, its value and the rule.
package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/envoylimit"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// A Config is the file of a server. The zero value serves a store in memory on the loopback.
type Config struct {
	// Store is the name of the store, as zlimit.Open takes it. The default is memory:.
	Store string `yaml:"store"`
	// Namespace is that of the limits. The default is default.
	Namespace string `yaml:"namespace"`
	// Namespaces are further ones, which callers choose over HTTP. Gateways use Namespace alone.
	Namespaces []string `yaml:"namespaces"`
	// Setup creates the table if there is none, and registers the namespaces.
	Setup bool `yaml:"setup"`
	// GRPC is the address of the gRPC port, 127.0.0.1:8081 by default.
	GRPC string `yaml:"grpc"`
	// HTTP is the address of the HTTP port, 127.0.0.1:8080 by default.
	HTTP string `yaml:"http"`
	// TLS protects both ports.
	TLS TLS `yaml:"tls"`
	// Callers are who may call, and what. Without callers everybody may do everything, on the loopback alone.
	Callers []auth.Caller `yaml:"callers"`
	// SigningKeys sign leases: the first one signs, the others still open what they have signed. Replicas share them. Without keys a
	// server signs with a random one, and its leases end with it.
	SigningKeys []SigningKey `yaml:"signing_keys"`
	// Dashboard serves the page for people at the HTTP port. Callers with the role read sign in by their keys.
	Dashboard bool `yaml:"dashboard"`
	// Drain says how the server ends.
	Drain Drain `yaml:"drain"`
	// RateLimit has the limits that gateways ask by Envoy's protocol. Its files are relative to the directory of the config.
	RateLimit envoylimit.Config `yaml:"ratelimit"`
}

// TLS has the files of certificates.
type TLS struct {
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// ClientCA is the authority of the certificates that clients must have.
	ClientCA string `yaml:"client_ca"`
}

// A SigningKey is a key that signs leases.
type SigningKey struct {
	ID string `yaml:"id"`
	// File has the secret: at least 32 bytes, besides space at its ends.
	File string `yaml:"file"`
}

// Drain says how a server ends. It first reports that it is not ready, for Delay, and still serves. It then takes no new requests, and
// ends those that run within Timeout.
type Drain struct {
	Delay   time.Duration `yaml:"delay"`   // 5 seconds by default
	Timeout time.Duration `yaml:"timeout"` // 20 seconds by default
}

// variables are the environment variables that replace a text of the file.
func (c *Config) variables() map[string]*string {
	return map[string]*string{
		"ZLIMITD_STORE": &c.Store, "ZLIMITD_NAMESPACE": &c.Namespace, "ZLIMITD_GRPC": &c.GRPC, "ZLIMITD_HTTP": &c.HTTP,
	}
}

// Load reads a config and the files that it names. The path may be empty, for the defaults. Environment variables replace what the file
// says: ZLIMITD_STORE, ZLIMITD_NAMESPACE, ZLIMITD_GRPC and ZLIMITD_HTTP. A key that does not exist and a second document are an
// error with their line.
func Load(path string, env func(string) string) (*Config, error) {
	c := &Config{}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := c.decode(text); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for name, field := range c.variables() {
		*field = cmp.Or(env(name), *field)
	}
	c.fill()
	if err := c.RateLimit.ReadFiles(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("ratelimit: %w", err)
	}
	files := []*string{&c.TLS.Certificate, &c.TLS.Key, &c.TLS.ClientCA}
	for i := range c.SigningKeys {
		files = append(files, &c.SigningKeys[i].File)
	}
	for _, file := range files {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(path, "config"), err)
	}
	return c, nil
}

// decode reads the text of a file, which may be empty. Keys that do not exist, and a second document, are an error with their line.
func (c *Config) decode(text []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var second yaml.Node
	err := d.Decode(c)
	if err == nil {
		err = d.Decode(&second)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("line %d: there is a second document: it belongs in a file of its own", second.Line)
}

// fill sets the defaults.
func (c *Config) fill() {
	c.Store = cmp.Or(c.Store, "memory:")
	c.Namespace = cmp.Or(c.Namespace, zlimit.DefaultNamespace)
	c.GRPC = cmp.Or(c.GRPC, "127.0.0.1:8081")
	c.HTTP = cmp.Or(c.HTTP, "127.0.0.1:8080")
	c.Drain.Delay = cmp.Or(c.Drain.Delay, 5*time.Second)
	c.Drain.Timeout = cmp.Or(c.Drain.Timeout, 20*time.Second)
}

// check returns the first rule that a config breaks.
func (c *Config) check() error {
	if err := c.checkPorts(); err != nil {
		return err
	}
	if (c.TLS.Certificate == "") != (c.TLS.Key == "") || c.TLS.ClientCA != "" && c.TLS.Certificate == "" {
		return errors.New("tls: must have certificate and key together, and both beside client_ca")
	}
	if _, err := c.TLS.config(false); err != nil {
		return err
	}
	if c.Drain.Delay < 0 || c.Drain.Timeout < 0 {
		return errors.New("drain: delay and timeout must not be negative")
	}
	if _, err := c.callers(); err != nil {
		return err
	}
	served := append([]string{c.Namespace}, c.Namespaces...)
	for i, name := range served {
		if i > 0 && (name == "" || slices.Contains(served[:i], name)) {
			return fmt.Errorf("namespaces[%d]: must be a name that is served once, got %q", i-1, name)
		}
	}
	if err := c.checkStore(served); err != nil {
		return err
	}
	for i := range c.Callers {
		for _, name := range c.Callers[i].Namespaces {
			if !slices.Contains(served, name) {
				return fmt.Errorf("callers[%d] namespaces: must be served, which namespace and namespaces say, got %q", i, name)
			}
		}
	}
	keys, err := c.keys()
	if err == nil {
		_, err = leasetoken.NewSigner(keys...)
	}
	if err != nil {
		return err
	}
	if len(c.SigningKeys) == 0 && c.authenticates() {
		return errors.New("signing_keys: must be given for callers: replicas settle the leases of one another")
	}
	if err := c.RateLimit.Check(); err != nil {
		return fmt.Errorf("ratelimit: %w", err)
	}
	return nil
}

// checkStore returns what is wrong with the name of the store, or with a namespace. It opens a store in memory alone.
func (c *Config) checkStore(namespaces []string) error {
	ctx := context.Background()
	var wrong *zlimit.ValidationError
	// The name of the store is checked before the namespace, which must not be empty: so nothing is opened.
	if _, err := zlimit.Open(ctx, c.Store, zlimit.WithNamespace("")); errors.As(err, &wrong) && wrong.Field == "store" {
		return fmt.Errorf("store: %s, got %q", wrong.Reason, wrong.Value)
	}
	for _, name := range namespaces {
		limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithNamespace(name), zlimit.WithSetup())
		if errors.As(err, &wrong) {
			return fmt.Errorf("namespace: %s, got %q", wrong.Reason, wrong.Value)
		}
		if err == nil {
			err = limiter.Close()
		}
		if err != nil {
			return err
		}
		if c.Store == "memory:" && !c.Setup && name != zlimit.DefaultNamespace {
			return fmt.Errorf("setup: must be true for a store in memory, which has no namespace %q yet", name)
		}
	}
	return nil
}

// authenticates reports whether callers must say who they are.
func (c *Config) authenticates() bool { return len(c.Callers) > 0 || c.TLS.ClientCA != "" }

// callers returns who may call.
func (c *Config) callers() (*auth.Callers, error) {
	if len(c.Callers) == 0 {
		return auth.Anyone(append([]string{c.Namespace}, c.Namespaces...)...), nil
	}
	return auth.New(c.Callers, c.Namespace, time.Now)
}

// keys returns the keys that sign leases, a random one for a config without.
func (c *Config) keys() ([]leasetoken.Key, error) {
	if len(c.SigningKeys) == 0 {
		return []leasetoken.Key{leasetoken.RandomKey()}, nil
	}
	keys := make([]leasetoken.Key, len(c.SigningKeys))
	for i, key := range c.SigningKeys {
		secret, err := os.ReadFile(key.File)
		if err != nil {
			return nil, fmt.Errorf("signing_keys[%d] file: %w", i, err)
		}
		keys[i] = leasetoken.Key{ID: key.ID, Secret: bytes.TrimSpace(secret)}
	}
	return keys, nil
}

// Warnings returns what a config does that its author may not expect, in order.
func (c *Config) Warnings() []string {
	warnings := c.RateLimit.Warnings()
	for _, port := range [][2]string{{"grpc", c.GRPC}, {"http", c.HTTP}} {
		if host, _, _ := net.SplitHostPort(port[1]); !auth.IsLoopback(host) && c.TLS.Certificate == "" {
			warnings = append(warnings, fmt.Sprintf("%s: keys of callers cross the network in clear text without tls", port[0]))
		}
	}
	return warnings
}
