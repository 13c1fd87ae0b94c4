// Package cfn is as much of CloudFormation as the tests of package stack need. It resolves a template with parameters,
// and contains a service that keeps stacks, with failures on request.
package cfn

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The account that everything is in.
const (
	Account   = "123456789012"
	Region    = "eu-central-1"
	Partition = "aws"
)

// A Template is a template of CloudFormation, with its functions in their long form.
type Template struct {
	Parameters map[string]Parameter `yaml:"Parameters"`
	Conditions map[string]any       `yaml:"Conditions"`
	Resources  map[string]Resource  `yaml:"Resources"`
	Outputs    map[string]Output    `yaml:"Outputs"`
}

// A Parameter is one that the template takes.
type Parameter struct {
	Type           string   `yaml:"Type"`
	Description    string   `yaml:"Description"`
	Default        any      `yaml:"Default"`
	AllowedValues  []any    `yaml:"AllowedValues"`
	AllowedPattern string   `yaml:"AllowedPattern"`
	MinValue       *float64 `yaml:"MinValue"`
	MaxValue       *float64 `yaml:"MaxValue"`
}

// A Resource is one that the template makes, where its condition holds.
type Resource struct {
	Type                string         `yaml:"Type"`
	Condition           string         `yaml:"Condition"`
	DeletionPolicy      string         `yaml:"DeletionPolicy"`
	UpdateReplacePolicy string         `yaml:"UpdateReplacePolicy"`
	Properties          map[string]any `yaml:"Properties"`
}

// An Output is one of the template.
type Output struct {
	Condition string `yaml:"Condition"`
	Value     any    `yaml:"Value"`
}

// Parse reads a template.
func Parse(text string) (*Template, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return nil, err
	}
	long(&root)
	t := &Template{}
	return t, root.Decode(t)
}

// Long reads a template as it is, with functions in their long form, for programs that know JSON alone.
func Long(text string) (map[string]any, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return nil, err
	}
	long(&root)
	var all map[string]any
	return all, root.Decode(&all)
}

// long replaces the short forms of functions, which are tags, by the long ones.
func long(n *yaml.Node) {
	for _, inner := range n.Content {
		long(inner)
	}
	name, short := strings.CutPrefix(n.Tag, "!")
	if !short || strings.HasPrefix(name, "!") {
		return
	}
	value := *n
	switch value.Tag = ""; {
	case name == "GetAtt" && value.Kind == yaml.ScalarNode:
		resource, attribute, _ := strings.Cut(value.Value, ".")
		value = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{
			{Kind: yaml.ScalarNode, Value: resource, Tag: "!!str"}, {Kind: yaml.ScalarNode, Value: attribute, Tag: "!!str"},
		}}
	case value.Kind == yaml.ScalarNode:
		value.Tag = "!!str"
	}
	if name != "Ref" && name != "Condition" {
		name = "Fn::" + name
	}
	*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: name, Tag: "!!str"}, &value}}
}

// A Stack is an evaluated template.
type Stack struct {
	Name      string
	Template  *Template
	Given     map[string]string // parameters, defaults included
	Resources map[string]Resource
	Outputs   map[string]string
}

// Evaluate evaluates the template under the name of a stack, with parameters. Those that are not given have their
// default.
func (t *Template) Evaluate(name string, given map[string]string) (s *Stack, err error) {
	s = &Stack{Name: name, Template: t, Given: map[string]string{}, Resources: map[string]Resource{}, Outputs: map[string]string{}}
	for p, value := range given {
		if _, known := t.Parameters[p]; !known {
			return nil, fmt.Errorf("parameter %s is not in the template", p)
		}
		s.Given[p] = value
	}
	for p, declared := range t.Parameters {
		if _, ok := s.Given[p]; ok {
			continue
		}
		if declared.Default == nil {
			return nil, fmt.Errorf("parameter %s has no value", p)
		}
		s.Given[p] = text(declared.Default)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	for id, r := range t.Resources {
		if r.Condition != "" && !s.holds(r.Condition) {
			continue
		}
		if r.Properties != nil {
			r.Properties = s.resolve(r.Properties).(map[string]any)
		}
		s.Resources[id] = r
	}
	for id, o := range t.Outputs {
		if o.Condition == "" || s.holds(o.Condition) {
			s.Outputs[id] = text(s.resolve(o.Value))
		}
	}
	return s, nil
}

// none is what AWS::NoValue comes to.
type none struct{}

func (s *Stack) holds(condition string) bool {
	c, ok := s.Template.Conditions[condition]
	if !ok {
		panic("no condition " + condition)
	}
	return s.resolve(c).(bool)
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		panic(fmt.Sprintf("%v is no text", v))
	}
}

// resolve returns a value with its functions evaluated.
func (s *Stack) resolve(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 1 {
			for name, argument := range v {
				if name == "Ref" || name == "Condition" || strings.HasPrefix(name, "Fn::") {
					if _, isText := argument.(string); name != "Condition" || isText {
						return s.call(name, argument)
					}
				}
			}
		}
		resolved := map[string]any{}
		for key, inner := range v {
			if r := s.resolve(inner); r != (none{}) {
				resolved[key] = r
			}
		}
		return resolved
	case []any:
		resolved := []any{}
		for _, inner := range v {
			if r := s.resolve(inner); r != (none{}) {
				resolved = append(resolved, r)
			}
		}
		return resolved
	default:
		return v
	}
}

func (s *Stack) call(name string, argument any) any {
	list, _ := argument.([]any)
	switch name {
	case "Ref":
		return s.ref(argument.(string))
	case "Condition":
		return s.holds(argument.(string))
	case "Fn::GetAtt":
		return s.attribute(list[0].(string), list[1].(string))
	case "Fn::If":
		if s.holds(list[0].(string)) {
			return s.resolve(list[1])
		}
		return s.resolve(list[2])
	case "Fn::Equals":
		return text(s.resolve(list[0])) == text(s.resolve(list[1]))
	case "Fn::Not":
		return !s.resolve(list[0]).(bool)
	case "Fn::And":
		return !slices.ContainsFunc(list, func(c any) bool { return !s.resolve(c).(bool) })
	case "Fn::Or":
		return slices.ContainsFunc(list, func(c any) bool { return s.resolve(c).(bool) })
	case "Fn::Sub":
		return s.substitute(argument)
	case "Fn::Join":
		var parts []string
		for _, part := range s.resolve(list[1]).([]any) {
			parts = append(parts, text(part))
		}
		return strings.Join(parts, list[0].(string))
	case "Fn::Split":
		var parts []any
		for part := range strings.SplitSeq(text(s.resolve(list[1])), list[0].(string)) {
			parts = append(parts, part)
		}
		return parts
	case "Fn::Select":
		i, _ := strconv.Atoi(text(s.resolve(list[0])))
		return s.resolve(list[1]).([]any)[i]
	default:
		panic("no function " + name)
	}
}

func (s *Stack) substitute(argument any) string {
	form, variables := "", map[string]any{}
	switch a := argument.(type) {
	case string:
		form = a
	case []any:
		form, variables = a[0].(string), a[1].(map[string]any)
	}
	var b strings.Builder
	for rest := form; ; {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, next, _ := strings.Cut(after, "}")
		rest = next
		switch v, ok := variables[name]; {
		case ok:
			b.WriteString(text(s.resolve(v)))
		case strings.HasPrefix(name, "!"):
			b.WriteString("${" + name[1:] + "}")
		case strings.Contains(name, ".") && !strings.HasPrefix(name, "AWS::"):
			resource, attribute, _ := strings.Cut(name, ".")
			b.WriteString(text(s.attribute(resource, attribute)))
		default:
			b.WriteString(text(s.ref(name)))
		}
	}
}

// ref returns the value of a parameter, a pseudo parameter or a resource.
func (s *Stack) ref(name string) any {
	switch name {
	case "AWS::NoValue":
		return none{}
	case "AWS::StackName":
		return s.Name
	case "AWS::Region":
		return Region
	case "AWS::AccountId":
		return Account
	case "AWS::Partition":
		return Partition
	case "AWS::URLSuffix":
		return "amazonaws.com"
	}
	if value, ok := s.Given[name]; ok {
		return value
	}
	r, ok := s.Template.Resources[name]
	if !ok {
		panic("Template error: no " + name)
	}
	if r.Condition != "" && !s.holds(r.Condition) {
		panic("Template error: Unresolved resource dependencies [" + name + "]")
	}
	if r.Type == "AWS::IAM::ManagedPolicy" {
		return s.attribute(name, "PolicyArn")
	}
	return s.ID(name)
}

// ID returns the physical ID of a resource, by the properties that name it.
func (s *Stack) ID(name string) string {
	r := s.Template.Resources[name]
	if r.Type == "AWS::Logs::MetricFilter" {
		return s.Name + "-" + name
	}
	for _, property := range []string{"TableName", "FunctionName", "LogGroupName", "AlarmName", "RoleName", "ManagedPolicyName"} {
		if v, ok := r.Properties[property]; ok {
			if named := s.resolve(v); named != (none{}) {
				return text(named)
			}
		}
	}
	return strings.ToLower(s.Name + "-" + name)
}

func (s *Stack) attribute(name, attribute string) any {
	id := text(s.ref0(name))
	arn := func(service, region, account, resource string) string {
		return strings.Join([]string{"arn", Partition, service, region, account, resource}, ":")
	}
	switch kind := s.Template.Resources[name].Type; kind + "." + attribute {
	case "AWS::DynamoDB::Table.Arn":
		return arn("dynamodb", Region, Account, "table/"+id)
	case "AWS::DynamoDB::Table.StreamArn":
		return arn("dynamodb", Region, Account, "table/"+id+"/stream/2026-03-01T12:00:00.000")
	case "AWS::S3::Bucket.Arn":
		return arn("s3", "", "", id)
	case "AWS::SQS::Queue.Arn":
		return arn("sqs", Region, Account, id)
	case "AWS::SQS::Queue.QueueName":
		return id
	case "AWS::Logs::LogGroup.Arn":
		return arn("logs", Region, Account, "log-group:"+id+":*")
	case "AWS::IAM::Role.Arn":
		return arn("iam", "", Account, "role/"+id)
	case "AWS::IAM::ManagedPolicy.PolicyArn":
		return arn("iam", "", Account, "policy/"+id)
	case "AWS::Lambda::Function.Arn":
		return arn("lambda", Region, Account, "function:"+id)
	default:
		panic("Template error: " + name + " has no attribute " + attribute)
	}
}

// ref0 returns the ID of a resource that is there.
func (s *Stack) ref0(name string) any {
	if r := s.Template.Resources[name]; r.Type == "AWS::IAM::ManagedPolicy" {
		return s.ID(name)
	}
	return s.ref(name)
}

// IDs returns the logical IDs of the resources, sorted.
func (s *Stack) IDs() []string { return slices.Sorted(maps.Keys(s.Resources)) }
