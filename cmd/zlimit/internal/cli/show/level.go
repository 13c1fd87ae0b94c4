package show

import "github.com/zlimit/zlimit-go/zlimit"

// AboutResource names the resource of an audit event for people. An entity's level for every resource without a level of its own is
// "every other".
func AboutResource(e zlimit.AuditEvent) string {
	if e.Resource == zlimit.DefaultResource {
		return "every other"
	}
	return e.Resource
}
