// Package limits is an application's declaration of the limits that it works under as a checked data model. [Load] reads
// it from YAML and reports everything that is wrong with it at once; what it returns can be generated from without
// further checks. The grammar is described in docs/typed.md.
package limits

import (
	"time"

	"github.com/zlimit/zlimit-go/internal/document"
)

// A Declaration is a valid declaration. Slices are in the order of the document.
type Declaration struct {
	Resources []*Resource
}

// A Resource is what an application consumes.
type Resource struct {
	Pos    document.Pos
	Name   string
	Go     string // the name of its type
	Doc    string // may be empty
	Limits []*Limit
}

// A Limit is a token bucket that is declared for a resource.
type Limit struct {
	Pos      document.Pos
	Name     string
	Go       string // the name of its field
	Unit     string // what its tokens are, such as "requests"
	Doc      string // may be empty
	Capacity int64  // tokens
	Refill   int64  // tokens that flow in per period
	Period   time.Duration
}

// LimitNames returns the limits of all resources by the Go name that they share, each once, in the order in which they
// occur first.
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
