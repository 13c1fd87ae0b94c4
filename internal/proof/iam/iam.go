// Package iam evaluates policies by the rules of IAM, as far as the policies of package stack use them. An element
// that the package does not know is an error, never an answer.
package iam

import (
	"fmt"
	"slices"
	"strings"
)

// A Request is a call as IAM sees it.
type Request struct {
	Action   string
	Resource string
	// Context holds the values of condition keys, such as dynamodb:LeadingKeys and aws:PrincipalTag/team. A key without
	// values is there all the same.
	Context map[string][]string
}

// A Statement is one of a policy.
type Statement struct {
	Sid, Effect string
	Actions     []string
	Others      []string // actions that the statement is not about, in place of Actions
	Resources   []string
	Condition   map[string]map[string][]string // by operator and key
}

// Parse returns the statements of a policy document.
func Parse(document any) ([]Statement, error) {
	d, ok := document.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%v is no policy", document)
	}
	var statements []Statement
	for _, element := range d["Statement"].([]any) {
		raw := element.(map[string]any)
		s := Statement{Effect: raw["Effect"].(string), Actions: texts(raw["Action"]), Others: texts(raw["NotAction"]), Resources: texts(raw["Resource"])}
		s.Sid, _ = raw["Sid"].(string)
		for key := range raw {
			if !slices.Contains([]string{"Sid", "Effect", "Action", "NotAction", "Resource", "Condition"}, key) {
				return nil, fmt.Errorf("statement %s has %s", s.Sid, key)
			}
		}
		if condition, ok := raw["Condition"].(map[string]any); ok {
			s.Condition = map[string]map[string][]string{}
			for operator, keys := range condition {
				s.Condition[operator] = map[string][]string{}
				for key, values := range keys.(map[string]any) {
					s.Condition[operator][key] = texts(values)
				}
			}
		}
		statements = append(statements, s)
	}
	return statements, nil
}

func texts(v any) []string {
	switch v := v.(type) {
	case []any:
		var all []string
		for _, element := range v {
			all = append(all, texts(element)...)
		}
		return all
	case nil:
		return nil
	default:
		return []string{fmt.Sprint(v)}
	}
}

// Allows reports whether the statements allow a request: one does, and none denies it.
func Allows(statements []Statement, r Request) (bool, error) {
	allowed := false
	for _, s := range statements {
		applies, err := s.applies(r)
		switch {
		case err != nil:
			return false, err
		case applies && s.Effect == "Deny":
			return false, nil
		case applies && s.Effect == "Allow":
			allowed = true
		}
	}
	return allowed, nil
}

func (s *Statement) applies(r Request) (bool, error) {
	is := func(value string) func(string) bool { return func(pattern string) bool { return like(pattern, value) } }
	about := slices.ContainsFunc(s.Actions, is(r.Action))
	if s.Others != nil {
		about = !slices.ContainsFunc(s.Others, is(r.Action))
	}
	if !about || !slices.ContainsFunc(s.Resources, is(r.Resource)) {
		return false, nil
	}
	for operator, keys := range s.Condition {
		for key, patterns := range keys {
			if holds, err := test(operator, key, patterns, r); err != nil || !holds {
				return false, err
			}
		}
	}
	return true, nil
}

// test evaluates one condition. Patterns with a variable that the request has no value for match nothing.
func test(operator, key string, patterns []string, r Request) (bool, error) {
	values, present := r.Context[key]
	present = present && len(values) > 0
	set, plain, several := strings.Cut(operator, ":")
	if !several {
		set, plain = "", operator
	}
	if plain == "Null" {
		return slices.Contains(patterns, fmt.Sprint(!present)), nil
	}
	var match func(pattern, value string) bool
	switch plain {
	case "StringEquals", "Bool":
		match = func(pattern, value string) bool { return pattern == value }
	case "StringLike":
		match = like
	default:
		return false, fmt.Errorf("no operator %s", operator)
	}
	var known []string
	for _, p := range patterns {
		if substituted, ok := substitute(p, r.Context); ok {
			known = append(known, substituted)
		}
	}
	matches := func(value string) bool {
		return slices.ContainsFunc(known, func(p string) bool { return match(p, value) })
	}
	switch set {
	case "":
		return len(values) == 1 && matches(values[0]), nil
	case "ForAnyValue":
		return slices.ContainsFunc(values, matches), nil
	case "ForAllValues":
		return !slices.ContainsFunc(values, func(v string) bool { return !matches(v) }), nil
	default:
		return false, fmt.Errorf("no operator %s", operator)
	}
}

// substitute replaces the variables of a pattern; false when one has no value.
func substitute(pattern string, context map[string][]string) (string, bool) {
	for {
		before, after, found := strings.Cut(pattern, "${")
		if !found {
			return pattern, true
		}
		name, rest, _ := strings.Cut(after, "}")
		values := context[name]
		if len(values) != 1 {
			return "", false
		}
		pattern = before + values[0] + rest
	}
}

// like reports whether a value has the form of a pattern, in which * stands for any text and ? for any character.
func like(pattern, value string) bool {
	if pattern == "" {
		return value == ""
	}
	switch pattern[0] {
	case '*':
		for i := 0; i <= len(value); i++ {
			if like(pattern[1:], value[i:]) {
				return true
			}
		}
		return false
	case '?':
		return value != "" && like(pattern[1:], value[1:])
	default:
		return value != "" && value[0] == pattern[0] && like(pattern[1:], value[1:])
	}
}
