package emit

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/zlimit/zlimit-go/gen/internal/calls"
	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// stackText is the template of a deployment, except what follows from the schema and the calls.
//
//go:embed stack.yaml
var stackText string

const callsFile = "spec/calls.yaml"

// stackFile is the hand-written template, without what is derived from the schema and the calls.
const stackFile = "gen/internal/emit/stack.yaml"

// Stack returns the CloudFormation template of a deployment by its path in the module. The schema and the calls decide
// the content of the table, the changes for the aggregator, and the keys and actions of the policies.
func Stack(s *schema.Schema, c *calls.Calls) (map[string][]byte, error) {
	d := stackData{schema: s, calls: c}
	parsed, err := template.New("stack.yaml").Delims("[[", "]]").Option("missingkey=error").Parse(stackText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, &d); err != nil {
		return nil, fmt.Errorf("stack/template.yaml: %w", err)
	}
	return map[string][]byte{"stack/template.yaml": narrow(b.Bytes())}, nil
}

// object is the beginning of one that is an element of a list, and goes on in the next lines.
var object = regexp.MustCompile(`^- [A-Za-z]+:( |$)`)

// padding is the space within braces, or text in quotes, which stays as it is.
var padding = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|\{ | \}`)

// narrow halves the indentation, and leaves out the spaces within braces: CloudFormation takes a template of 51,200 bytes at most.
func narrow(text []byte) []byte {
	var b bytes.Buffer
	var open []int // indentation of the objects that a line is part of
	for line := range bytes.Lines(text) {
		rest := bytes.TrimLeft(line, " ")
		indentation := len(line) - len(rest)
		for len(open) > 0 && indentation <= open[len(open)-1] && len(rest) > 1 {
			open = open[:len(open)-1]
		}
		b.WriteString(strings.Repeat(" ", indentation/2+len(open)))
		b.WriteString(padding.ReplaceAllStringFunc(string(rest), func(part string) string {
			if part == "{ " || part == " }" {
				return strings.TrimSpace(part)
			}
			return part // is in quotes
		}))
		if object.Match(rest) {
			open = append(open, indentation)
		}
	}
	return b.Bytes()
}

// stackData is the input of the template.
type stackData struct {
	schema *schema.Schema
	calls  *calls.Calls
	alarms []string // names that Alarm was given so far, for the dashboard
}

// Header is the first line.
func (d *stackData) Header() string {
	return header(stackFile + ", " + schemaFile + " and " + callsFile)
}

// Layout is the version of the layout.
func (d *stackData) Layout() string { return d.schema.Version }

// TTL is the attribute that holds the time of expiry.
func (d *stackData) TTL() string { return d.schema.TTL }

// ofIndexes are more properties of each global index. Ceilings of writes are missing: an index below the table's would throttle the
// table, and one at the table's does nothing.
const ofIndexes = `          OnDemandThroughput: !If [HasReadCeiling, { MaxReadRequestUnits: !Ref MaxReadUnits }, !Ref AWS::NoValue]
          WarmThroughput: !If [HasWarmth, { ReadUnitsPerSecond: !Ref WarmReadUnits, WriteUnitsPerSecond: !Ref WarmWriteUnits }, !Ref AWS::NoValue]
`

// Table is the key of the table with its indexes, as properties of the table.
func (d *stackData) Table() string {
	var b strings.Builder
	tableShape(&b, d.schema, ofIndexes)
	return strings.TrimRight(b.String(), "\n")
}

// GlobalIndexes are the names of the global indexes.
func (d *stackData) GlobalIndexes() (names []string) {
	for _, x := range d.schema.Indexes {
		if !x.Local {
			names = append(names, x.Name)
		}
	}
	return names
}

// Changes is the filter for changes of a record.
func (d *stackData) Changes(record string) (string, error) { return d.filter(record, nil) }

// Expiries is the filter for items of a record that expired.
func (d *stackData) Expiries(record string) (string, error) {
	return d.filter(record, map[string]any{
		"eventName":    []string{"REMOVE"},
		"userIdentity": map[string]any{"type": []string{"Service"}, "principalId": []string{"dynamodb.amazonaws.com"}},
	})
}

// filter returns the pattern of an event source for the changes of a record. It matches the literal part of the
// record's sort key, since no other record has a sort key that begins so.
func (d *stackData) filter(record string, more map[string]any) (string, error) {
	r := d.record(record)
	if r == nil {
		return "", fmt.Errorf("no record %s", record)
	}
	literal, whole := leading(r.SK)
	for _, other := range d.schema.Records {
		theirs, _ := leading(other.SK)
		if other != r && (whole && theirs == literal || !whole && (strings.HasPrefix(theirs, literal) || strings.HasPrefix(literal, theirs))) {
			return "", fmt.Errorf("the sort keys of %s and %s begin alike: a filter cannot distinguish them", r.Name, other.Name)
		}
	}
	var rule any = literal
	if !whole {
		rule = map[string]string{"prefix": literal}
	}
	pattern := map[string]any{"dynamodb": map[string]any{"Keys": map[string]any{"SK": map[string]any{"S": []any{rule}}}}}
	for key, value := range more {
		pattern[key] = value
	}
	text, err := json.Marshal(pattern)
	return string(text), err
}

func (d *stackData) record(name string) *schema.Record {
	for _, r := range d.schema.Records {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// leading returns the text at the beginning of a key, and whether it is the whole key.
func leading(t *schema.Template) (literal string, whole bool) {
	for _, p := range t.Parts {
		if p.Field != nil {
			return literal, false
		}
		literal += p.Literal
	}
	return literal, true
}

// partitionKeys returns the forms of the partition keys of the table and of all indexes.
func (d *stackData) partitionKeys() (all []*schema.Template) {
	for _, r := range d.schema.Records {
		all = append(all, r.PK)
		for _, e := range r.Entries {
			all = append(all, e.PK)
		}
	}
	return all
}

// TenantKeys are the patterns of the partition keys of one namespace, in which id stands for its ID.
func (d *stackData) TenantKeys(id string) ([]string, error) {
	var patterns []string
	for _, t := range d.partitionKeys() {
		if t.Parts[0].Field == nil {
			continue // of the registry
		}
		if t.Parts[0].Field.Name != "ns" {
			return nil, fmt.Errorf("partition key %q does not begin with a namespace", t.Text)
		}
		pattern := id
		if len(t.Parts) > 1 {
			rest := t.Parts[1].Literal
			if rest == "" || !strings.Contains(t.Parts[0].Field.Forbid+"#", rest[:1]) {
				return nil, fmt.Errorf("partition key %q does not part the namespace from the rest", t.Text)
			}
			pattern += rest[:1] + "*"
		}
		if !slices.Contains(patterns, pattern) {
			patterns = append(patterns, pattern)
		}
	}
	slices.Sort(patterns)
	return patterns, nil
}

// pings is the pattern of the partition keys that are read to see whether the table answers. No record has them.
const pings = "_/PING#*"

// registryKeys are the partition keys outside its namespace that a tenant reads: of the registry, and of the items read by a ping.
func (d *stackData) registryKeys() (keys []string) {
	for _, r := range d.schema.Records {
		if text, whole := leading(r.PK); whole && !slices.Contains(keys, text) {
			keys = append(keys, text)
		}
	}
	return append(keys, pings)
}

// RegistryPatterns are the patterns of the partition keys of the registry, those in indexes included.
func (d *stackData) RegistryPatterns() (patterns []string) {
	for _, t := range d.partitionKeys() {
		text, whole := leading(t)
		if !whole {
			continue
		}
		if ns, _, found := strings.Cut(text, "/"); found {
			text = ns + "/*"
		}
		if !slices.Contains(patterns, text) {
			patterns = append(patterns, text)
		}
	}
	slices.Sort(patterns)
	return patterns
}

func (d *stackData) program(name string) (*calls.Program, error) {
	if p := d.calls.Program(name); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no program %s", name)
}

// A grant is an allowed action on the table.
type grant struct {
	Program *calls.Program
	Table   []string // reads that the table alone takes
	Both    []string // reads that the table and its indexes take
	ByKey   []string // reads that name keys
	Keys    []string // patterns of the partition keys that the program writes
	Own     []string // of a tenant
	Apart   bool     // whether Keys would allow writes in the registry, of which the program makes none
}

// Grant returns the permissions of a program.
func (d *stackData) Grant(name string) (*grant, error) {
	p, err := d.program(name)
	if err != nil {
		return nil, err
	}
	g := &grant{Program: p}
	for _, a := range p.Reads {
		if a != "Scan" {
			g.ByKey = append(g.ByKey, a)
		}
		if slices.Contains(p.Indexes, a) {
			g.Both = append(g.Both, a)
		} else {
			g.Table = append(g.Table, a)
		}
	}
	if len(g.Both) != len(p.Indexes) {
		return nil, fmt.Errorf("program %s: every action on indexes must be a read of the table", name)
	}
	for _, record := range p.Records() {
		r := d.record(record)
		if r == nil {
			return nil, fmt.Errorf("program %s writes %s: there is no such record", name, record)
		}
		g.Keys = append(g.Keys, partitions(r.PK, "*"))
		if r.PK.Parts[0].Field != nil { // not of the registry
			g.Own = append(g.Own, partitions(r.PK, d.tenant()))
		}
	}
	for _, keys := range []*[]string{&g.Keys, &g.Own} {
		slices.Sort(*keys)
		all := slices.Compact(*keys)
		*keys = slices.DeleteFunc(slices.Clone(all), func(key string) bool {
			return slices.ContainsFunc(all, func(other string) bool { return other != key && covers(other, key) })
		})
	}
	for _, key := range d.registryKeys() {
		_, rest, _ := strings.Cut(key, "/")
		g.Apart = g.Apart || slices.Contains(g.Keys, "*/"+rest) && !slices.Contains(g.Keys, key)
	}
	return g, nil
}

// covers reports whether a pattern allows all keys that another one does.
func covers(pattern, other string) bool {
	beginning, open := strings.CutSuffix(pattern, "*")
	return open && strings.HasPrefix(other, beginning)
}

// partitions returns the pattern of the partition keys of a form, in which id stands for the ID of the namespace.
func partitions(t *schema.Template, id string) string {
	var b strings.Builder
	for _, p := range t.Parts {
		switch {
		case p.Field == nil:
			b.WriteString(p.Literal)
		case p.Field.Name == "ns":
			b.WriteString(id)
		default:
			return b.String() + "*"
		}
	}
	return b.String()
}

// Registry are the actions by which a tenant finds its namespace.
func (d *stackData) Registry() []string { return d.calls.Registry }

// DynamoDB writes actions as a list of IAM.
func (d *stackData) DynamoDB(actions []string) string { return iamActions("dynamodb", actions) }

// S3 writes actions as a list of IAM.
func (d *stackData) S3(actions []string) string { return iamActions("s3", actions) }

func iamActions(service string, actions []string) string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = service + ":" + a
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// List writes texts as a list of YAML.
func (d *stackData) List(texts []string) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = `"` + t + `"`
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// A word is a name in the form of logical IDs.
type word string

// Lower is the word within a name.
func (w word) Lower() string { return strings.ToLower(string(w)) }

// Program is the program that a policy is for.
func (w word) Program() string { return w.Lower() }

// Throttles are the kinds of calls that DynamoDB throttles.
func (d *stackData) Throttles() []word { return []word{"Read", "Write"} }

// Policies are the programs that have policies.
func (d *stackData) Policies() []word { return []word{"Acquire", "Operate", "Full", "Read"} }

// A role is one that programs and people of the account take on.
type role struct{ Name, Policy word }

// Lower is the role within a name.
func (r role) Lower() string { return r.Name.Lower() }

// Roles are the roles beside the aggregator's.
func (d *stackData) Roles() []role {
	return []role{{"App", "Acquire"}, {"Operator", "Operate"}, {"Admin", "Full"}, {"Reader", "Read"}}
}

// An alarm is one of the stack. Its name is also that of its section in docs/operations.md.
type alarm struct{ ID, Condition, Name, What string }

// Alarm returns an alarm, with its meaning in a sentence.
func (d *stackData) Alarm(id, condition, name, what string) alarm {
	if condition != "HasProvisionerAlarms" {
		d.alarms = append(d.alarms, name)
	}
	return alarm{id, condition, name, what}
}

// AlarmList is a list in JSON of the alarms before it, of every stack with an aggregator and alarms. ${A} stands for
// the beginning of their ARNs.
func (d *stackData) AlarmList() string {
	return `["${A}` + strings.Join(d.alarms, `","${A}`) + `"]`
}

// Graph is a widget of the dashboard about some metrics.
func (d *stackData) Graph(title, statistic, metrics string) string {
	return fmt.Sprintf(`{"type":"metric","width":12,"properties":{"region":"${AWS::Region}","title":%q,"stat":%q,"metrics":[%s]}}`, title, statistic, metrics)
}

// A named resource has a name by a parameter with the form of such names.
type named struct{ Kind, What string }

// Named returns the name of a resource of a kind, Role or Policy.
func (d *stackData) Named(kind, what string) named { return named{kind, what} }

// TenantTag is the tag of principals that holds the ID of their namespace.
func (d *stackData) TenantTag() string { return "zlimit-namespace" }

// TenantPatterns are the partition keys that a tenant reads, as a list of YAML.
func (d *stackData) TenantPatterns() (string, error) {
	patterns, err := d.TenantKeys(d.tenant())
	return d.List(append(patterns, d.registryKeys()...)), err
}

// tenant is what stands for the ID of a tenant's namespace in its policies.
func (d *stackData) tenant() string { return "${aws:PrincipalTag/" + d.TenantTag() + "}" }
