// Package declaration is a file of limits as a checked data model. An application declares limits for its resources,
// and an operator keeps limits for the system and for entities. [Load] and [LoadForGo] read the file as YAML and report
// every mistake, not just the first. The grammar is described in docs/typed.md and docs/limits-file.md.
package declaration

import (
	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// A Declaration is a valid declaration. Slices are in the order of the document.
type Declaration struct {
	File         string
	Namespace    string // "" where the file does not say
	NamespacePos document.Pos
	System       *System // nil for none
	Resources    []*Resource
	Entities     []*Entity
}

// A System has the default limits of all resources, and settings of the namespace.
type System struct {
	Pos           document.Pos
	Limits        []*Limit
	OnUnavailable string // "block", "allow", or "" for neither
	RetentionDays int64  // of audit events; 0 for the default
}

// A Resource is a thing that an application consumes.
type Resource struct {
	Pos           document.Pos
	Name          string
	Go            string // the name of its type
	Doc           string // may be empty
	Limits        []*Limit
	OnUnavailable string // as a System has it
	Cascade       string // "always", "never", "inherit", or "" where the document does not say it
	Within        *Wider // nil where the document does not say it, and for the resource of an entity
}

// A Wider is the resource that another one lies within.
type Wider struct {
	Pos  document.Pos
	Name string // "" for none
}

// An Entity is a party with limits of its own.
type Entity struct {
	Pos           document.Pos
	ID            string
	Limits        []*Limit // for every resource that it has no limits for; none where the file has none
	OnUnavailable string   // as a System has it, for every resource for which the entity does not say it
	Cascade       string   // so, too
	Resources     []*Resource
}

// A Limit is a limit that is declared.
type Limit struct {
	grammar.Limit
	Pos  document.Pos
	Go   string // the name of its field
	Unit string // what its tokens are, such as "requests"
	Doc  string // may be empty
}

// LimitNames returns the limits of all resources by their shared Go names. Each is there once, in the order of first
// occurrence.
func (d *Declaration) LimitNames() []*Limit {
	var names []*Limit
	seen := map[string]bool{}
	for _, r := range d.Resources {
		for _, l := range r.Limits {
			if !seen[l.Name] {
				seen[l.Name] = true
				names = append(names, l)
			}
		}
	}
	return names
}
