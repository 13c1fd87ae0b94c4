package declaration

import (
	"encoding/json"

	"github.com/zlimit/zlimit-go/internal/grammar"
)

// Forms of names and of rates, as editors check them. Package grammar has the rules.
const (
	nameForm      = `^[A-Za-z0-9_.\-:@/+|=~%]+$`
	limitNameForm = `^[A-Za-z][A-Za-z0-9_.\-]*$`
	amountForm    = `\$?\d+(_\d+)*([kMG]|\.\d{1,9})?` // of money, decimal places
	rateForm      = `^ *` + amountForm + ` *(: *` + amountForm + ` *|slots?)?/ *([0-9.]*[a-z][a-z0-9.]*|session:[a-z0-9.]+|(day|week|month) *@.+|cron *".+" *@.+)( +carry .+)?( +when .+)?( +floors .+)?( +(soft|shadow))? *$`
	maxLimitName  = 64
)

// JSONSchema returns a JSON Schema of declarations, by which editors check and complete a document. [Load] reports
// further mistakes, such as a key used twice.
func JSONSchema() ([]byte, error) {
	type object = map[string]any
	closed := func(doc string, properties object, required ...string) object {
		o := object{"type": "object", "description": doc, "additionalProperties": false, "properties": properties, "minProperties": 1}
		if len(required) > 0 {
			o["required"] = required
		}
		return o
	}
	named := func(doc, pattern string, longest int, of any) object {
		return object{
			"type": "object", "description": doc, "minProperties": 1,
			"propertyNames": object{"pattern": pattern, "maxLength": longest}, "additionalProperties": of,
		}
	}
	ref := func(name string) object { return object{"$ref": "#/$defs/" + name} }
	text := func(doc string) object { return object{"type": "string", "description": doc} }
	limit := func(doc string, number object) object {
		return object{"anyOf": []object{ref("rate"), closed(doc, object{
			"rate": ref("rate"),
			"burst": object{
				"anyOf":       []object{number, {"type": "string", "pattern": "^" + amountForm + "$"}},
				"description": "the capacity: the largest burst, in tokens or dollars as rate; by default the amount of rate",
			},
			"unit": text("what its tokens are, for the comment of a Go field"),
			"doc":  text("one line for the comment of a Go field"),
			"go":   object{"type": "string", "pattern": goName.String(), "description": "name of the Go field"},
		}, "rate")}}
	}
	limits := named("the limits of the level", limitNameForm, maxLimitName, ref("limit"))
	limits["maxProperties"] = maxLimits
	limits["properties"] = object{grammar.Money: ref("dollars")}
	schema := closed("Limits of a namespace", object{
		"namespace": object{"type": "string", "minLength": 1, "maxLength": maxNamespace, "description": "the namespace that the limits are for"},
		"system":    ref("system"),
		"resources": named("resources, with the limits of entities without limits of their own", nameForm, grammar.MaxName, ref("resource")),
		"entities":  named("entities with limits of their own", nameForm, grammar.MaxName, ref("entity")),
	})
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "zlimit limits"
	schema["anyOf"] = []object{{"required": []string{"system"}}, {"required": []string{"resources"}}, {"required": []string{"entities"}}}
	says := func(o object, keys ...string) object { // an object with one of the keys at least
		var any []object
		for _, key := range keys {
			any = append(any, object{"required": []string{key}})
		}
		o["anyOf"] = any
		return o
	}
	schema["$defs"] = object{
		"limits": limits,
		"rate": object{
			"type": "string", "pattern": rateForm,
			"description": "what a bucket holds and what flows in, CAPACITY[:REFILL]/PERIOD, such as 500/min or 60000:30000/min; of a quota AMOUNT/TIMES, such as 1M/month@Europe/Berlin",
		},
		"limit":   limit("a token bucket", object{"type": "integer", "minimum": 1, "maximum": int64(grammar.MaxTokens)}),
		"dollars": limit("a token bucket in dollars", object{"type": "number", "exclusiveMinimum": 0, "maximum": int64(grammar.MaxTokens / grammar.Nanos)}),
		"cascade": object{
			"enum":        []string{"always", "never", "inherit"},
			"description": "whether requests charge the parent of their entity; inherit leaves it to the next level and to the entity, and without it what is stored stays",
		},
		"on_unavailable": object{
			"enum":        []string{"block", "allow"},
			"description": "what happens to requests while the store is unavailable; without it, what the next level says",
		},
		"system": closed("the limits of last resort, and settings of the namespace", object{
			"limits":               ref("limits"),
			"on_unavailable":       ref("on_unavailable"),
			"audit_retention_days": object{"type": "integer", "minimum": 1, "maximum": maxRetentionDays, "description": "days that audit events are kept; by default as set for the table: 90, unless it is deployed with another number"},
		}),
		"resource": says(closed("what an application consumes", object{
			"limits":         ref("limits"),
			"on_unavailable": ref("on_unavailable"),
			"cascade":        ref("cascade"),
			"within": object{
				"type": []string{"string", "null"}, "maxLength": grammar.MaxName, "pattern": `^[A-Za-z0-9_.\-:@/+|=~%]*$`,
				"description": "the wider resource that requests of this one are charged to as well, such as models; empty for none, and without it what is stored stays",
			},
			"doc": text("one line for the comment of the Go type"),
			"go":  object{"type": "string", "pattern": goName.String(), "description": "name of the Go type"},
		}), "limits", "on_unavailable", "cascade", "within"),
		"entity": closed("somebody with limits of its own", object{
			"limits":         ref("limits"),
			"on_unavailable": ref("on_unavailable"),
			"cascade":        ref("cascade"),
			"resources": named("limits for single resources", nameForm, grammar.MaxName, closed("the limits for one resource", object{
				"limits":         ref("limits"),
				"on_unavailable": ref("on_unavailable"),
				"cascade":        ref("cascade"),
			})),
		}),
	}
	return json.MarshalIndent(schema, "", "  ")
}
