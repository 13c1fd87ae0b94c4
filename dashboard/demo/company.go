package demo

import (
	"context"
	_ "embed"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

//go:embed company.yaml
var text []byte

// A company is what company.yaml says.
type company struct {
	Entities  []member
	Resources []struct {
		Name   string
		Limits []zlimit.Limit
	}
	Deeds   []deed
	Callers []caller
	Taken   []struct {
		Entity  string
		Amounts zlimit.Amounts
	}
	Slots []struct {
		Entity string
		Calls  int
		Paid   bool
	}
}

// A member is an entity, with what it spent in dollars.
type member struct {
	ID, Name, Parent string
	Cascade          bool
	Limits           []zlimit.Limit // for [Resource]; nil for the limits of the resource
	Spent, Before    float64        // of this month up to the beginning of the demo, and of the whole last one
	TokensPerDollar  float64        `yaml:"tokens_per_dollar"`
}

// A deed is what an operator did before the demo begins.
type deed struct {
	Ago        time.Duration
	By, Entity string
	Patch      *zlimit.Limit
	TopUp      zlimit.Amounts `yaml:"top_up"`
	Bypass     bool
}

// A caller is what someone asks for in a second.
type caller struct {
	Entity  string
	ASecond float64 `yaml:"a_second"`
	Tokens  float64
	More    zlimit.Amounts
	Next    bool // of the shadow limit, too
	Waits   bool
}

// found makes the entities and their limits.
func (d *Demo) found(ctx context.Context) {
	ctx = zlimit.ContextWithPrincipal(ctx, "setup")
	set := func(entity, resource string, limits []zlimit.Limit) {
		if limits != nil {
			d.play(func() error {
				return d.Limiter.Limits.Set(ctx, zlimit.Level{Entity: entity, Resource: resource}, zlimit.Config{Limits: limits})
			})
		}
	}
	for _, r := range d.company.Resources {
		set("", r.Name, r.Limits)
	}
	for _, m := range d.company.Entities {
		d.play(func() error {
			return ignored(d.Limiter.Entities.Create(ctx, zlimit.Entity{ID: m.ID, Name: m.Name, ParentID: m.Parent, Cascade: m.Cascade}))
		})
		set(m.ID, Resource, m.Limits)
	}
}

func (d *Demo) do(ctx context.Context, what *deed) error {
	ctx = zlimit.ContextWithPrincipal(ctx, what.By)
	at := zlimit.Level{Entity: what.Entity, Resource: Resource}
	switch {
	case what.Patch != nil:
		return d.Limiter.Limits.Patch(ctx, at, *what.Patch)
	case what.Bypass:
		return ignored(d.Limiter.Limits.Bypass(ctx, at, nil))
	default:
		return ignored(d.Limiter.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: at.Entity, Resource: Resource, Amounts: what.TopUp, OperationID: "ticket-412"}))
	}
}
