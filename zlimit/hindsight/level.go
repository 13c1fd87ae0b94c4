package hindsight

import (
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

// LevelOf returns the level whose change an audit event records. Its String names it for people, as in "resource gpt".
// Of an event about an entity's record it is the entity.
func LevelOf(e *zlimit.AuditEvent) zlimit.Level {
	resource, isResource := strings.CutPrefix(e.Entity, zlimit.AuditResource(""))
	switch {
	case isResource:
		return zlimit.Level{Resource: resource}
	case e.Entity == zlimit.AuditSystem:
		return zlimit.Level{}
	case e.Resource == zlimit.DefaultResource:
		return zlimit.Level{Entity: e.Entity}
	default:
		return zlimit.Level{Entity: e.Entity, Resource: e.Resource}
	}
}
