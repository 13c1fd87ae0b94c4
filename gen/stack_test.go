package main

import (
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/gen/internal/calls"
	"github.com/zlimit/zlimit-go/gen/internal/emit"
	"github.com/zlimit/zlimit-go/gen/internal/schema"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// templateOf returns the template that follows from a schema and the calls of the module.
func templateOf(t *testing.T, text string) string {
	t.Helper()
	files := check.Call(stackFiles(t, text, string(readFile(t, callsSpec)))).Must(t, "stackFiles()")
	return string(files["stack/template.yaml"])
}

func stackFiles(t *testing.T, text, asked string) (map[string][]byte, error) {
	t.Helper()
	s := check.Call(schema.Load(specFile, []byte(text))).Must(t, "schema.Load()")
	c := check.Call(calls.Load(callsSpec, []byte(asked))).Must(t, "calls.Load()")
	return emit.Stack(s, c)
}

// TestStackFollows changes the schema: filters, leading keys and what alarms watch follow.
func TestStackFollows(t *testing.T) {
	text := string(readFile(t, specFile))
	for _, test := range []struct{ name, old, new, want, gone string }{
		{"the key of buckets", `sk: "#STATE"`, `sk: "#NOW"`, `{"S":["#NOW"]}`, "#STATE"},
		{"the key of audit events", `sk: "#AUDIT#{event_id}"`, `sk: "#EVENT#{event_id}"`, `{"prefix":"#EVENT#"}`, "#AUDIT#"},
		{"the name of an index", "GSI3", "Owners", "Value: Owners}", "GSI3"},
		{"the key of the registry", "_/SYSTEM#", "_/REGISTRY#", `"_/REGISTRY#", "_/PING#*"]`, "_/SYSTEM#"},
		{"the partitions of buckets", "{ns}/BUCKET#", "{ns}/SHARD#", `{"dynamodb:LeadingKeys": ["*/SHARD#*"]}`, "BUCKET#"},
	} {
		changed := strings.ReplaceAll(text, test.old, test.new)
		if got := templateOf(t, changed); !strings.Contains(got, test.want) || strings.Contains(got, test.gone) {
			t.Errorf("%s: the template has no %s, or has %s still", test.name, test.want, test.gone)
		}
	}
}

// TestStackErrors asks for what a filter or a policy cannot express.
func TestStackErrors(t *testing.T) {
	text, asked := string(readFile(t, specFile)), string(readFile(t, callsSpec))
	for _, test := range []struct{ name, old, new, want string }{
		{"two records with keys that begin alike", `sk: "#RESOURCES"`, `sk: "#AUDIT#RESOURCES"`, "begin alike"},
		{"a record that is none", "      usage: [BatchWriteItem]\n", "      release: [BatchWriteItem]\n", "program full writes release: there is no such record"},
		{"an index that is written", "    indexes: [Query]", "    indexes: [PutItem]", "every action on indexes must be a read of the table"},
		{"a tenant's key without a namespace", `pk: "{ns}/AUDIT#{entity}"`, `pk: "{entity}#AUDIT#{ns}"`, "does not begin with a namespace"},
	} {
		changed, other := strings.Replace(text, test.old, test.new, 1), strings.Replace(asked, test.old, test.new, 1)
		if changed == text && other == asked {
			t.Fatalf("%s: %q is neither in the schema nor in the calls", test.name, test.old)
		}
		if _, err := stackFiles(t, changed, other); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Stack() = %v, want an error with %q", test.name, err, test.want)
		}
	}
}
