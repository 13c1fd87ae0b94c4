package stack

import (
	"context"
	"fmt"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Verdict says whether a version fits a stack.
type Verdict string

// The verdicts.
const (
	VerdictCompatible Verdict = "compatible"        // the same version
	VerdictUpgradable Verdict = "upgrade available" // this version is later
	VerdictTooOld     Verdict = "too old"           // this version is earlier
)

// A Check is what [Manager.Check] found.
type Check struct {
	Stack      string  `json:"stack"`
	Deployed   string  `json:"deployed"` // version that deployed the stack last
	Version    string  `json:"version"`  // of this package
	Verdict    Verdict `json:"verdict"`
	Aggregator bool    `json:"aggregator"` // whether the stack has one
	Functions  bool    `json:"functions"`  // whether it has an aggregator or a provisioner
	// Oldest is the version of the oldest programs that its table admits, "" for any. Those from there to Deployed fit.
	Oldest string `json:"oldest_client,omitempty"`
}

// Check compares the version that deployed a stack with this one. It costs one call of CloudFormation, and a consistent read of the table.
func (m *Manager) Check(ctx context.Context, name string) (*Check, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	s, err := m.describe(ctx, name)
	if err != nil {
		return nil, err
	}
	c := &Check{Stack: name, Deployed: tags(s)[tagVersion], Version: zlimit.Version, Verdict: VerdictCompatible, Aggregator: parameters(s)["Aggregator"] == "true"}
	c.Functions = c.Aggregator || parameters(s)["Provisioner"] == "true"
	switch order := compareVersions(c.Deployed, c.Version); {
	case order < 0:
		c.Verdict = VerdictUpgradable
	case order > 0:
		c.Verdict = VerdictTooOld
	}
	if c.Oldest, err = m.oldest(ctx, tableOf(s)); err != nil {
		return nil, err
	}
	return c, nil
}

// oldest returns the version of the oldest programs that a table admits, "" for any.
func (a *account) oldest(ctx context.Context, table string) (version string, err error) {
	if a.clients.Oldest == nil {
		return "", nil
	}
	if version, err = a.clients.Oldest(ctx, table); err != nil {
		return "", fmt.Errorf("stack: read which clients table %s admits: %w", table, err)
	}
	return version, nil
}
