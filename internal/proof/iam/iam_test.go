package iam_test

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/iam"
)

func TestAllows(t *testing.T) {
	const keys, tag = "dynamodb:LeadingKeys", "aws:PrincipalTag/team"
	own := iam.Statement{
		Effect: "Allow", Actions: []string{"dynamodb:GetItem"}, Resources: []string{"table/*"},
		Condition: map[string]map[string][]string{"ForAllValues:StringLike": {keys: {"${" + tag + "}/*"}}},
	}
	present := own
	present.Condition = map[string]map[string][]string{"ForAllValues:StringLike": own.Condition["ForAllValues:StringLike"], "Null": {keys: {"false"}}}
	deny := iam.Statement{
		Effect: "Deny", Actions: []string{"dynamodb:*"}, Resources: []string{"*"},
		Condition: map[string]map[string][]string{"ForAnyValue:StringLike": {keys: {"_/*"}}},
	}
	denyOthers := deny
	denyOthers.Actions, denyOthers.Others = nil, []string{"dynamodb:GetItem"}
	for name, test := range map[string]struct {
		statements []iam.Statement
		action     string
		leading    []string
		tag        []string
		want       bool
	}{
		"a key of one's own":              {[]iam.Statement{own}, "GetItem", []string{"a/1"}, []string{"a"}, true},
		"keys of one's own":               {[]iam.Statement{own}, "GetItem", []string{"a/1", "a/2"}, []string{"a"}, true},
		"one key of another":              {[]iam.Statement{own}, "GetItem", []string{"a/1", "b/2"}, []string{"a"}, false},
		"another action":                  {[]iam.Statement{own}, "PutItem", []string{"a/1"}, []string{"a"}, false},
		"no tag":                          {[]iam.Statement{own}, "GetItem", []string{"a/1"}, nil, false},
		"no keys at all":                  {[]iam.Statement{own}, "GetItem", nil, []string{"a"}, true},
		"no keys, where there must be":    {[]iam.Statement{present}, "GetItem", nil, []string{"a"}, false},
		"keys, where there must be":       {[]iam.Statement{present}, "GetItem", []string{"a/1"}, []string{"a"}, true},
		"a denial counts more":            {[]iam.Statement{own, deny}, "GetItem", []string{"_/1"}, []string{"_"}, false},
		"a denial of other actions":       {[]iam.Statement{own, denyOthers}, "GetItem", []string{"_/1"}, []string{"_"}, true},
		"a denial of all others":          {[]iam.Statement{{Effect: "Allow", Actions: []string{"*"}, Resources: []string{"*"}}, denyOthers}, "Query", []string{"_/1"}, []string{"_"}, false},
		"a denial that is not about it":   {[]iam.Statement{deny, own}, "GetItem", []string{"a/1"}, []string{"a"}, true},
		"nothing is allowed by no policy": {nil, "GetItem", []string{"a/1"}, []string{"a"}, false},
		"a denial of one of several keys": {[]iam.Statement{own, deny}, "GetItem", []string{"a/1", "_/1"}, []string{"a"}, false},
	} {
		context := map[string][]string{}
		if test.leading != nil {
			context[keys] = test.leading
		}
		if test.tag != nil {
			context[tag] = test.tag
		}
		got, err := iam.Allows(test.statements, iam.Request{Action: "dynamodb:" + test.action, Resource: "table/limits", Context: context})
		if err != nil || got != test.want {
			t.Errorf("%s: Allows() = %t, %v, want %t", name, got, err, test.want)
		}
	}
	odd := iam.Statement{Effect: "Allow", Actions: []string{"*"}, Resources: []string{"*"}, Condition: map[string]map[string][]string{"NumericEquals": {"n": {"1"}}}}
	if _, err := iam.Allows([]iam.Statement{odd}, iam.Request{Action: "a", Resource: "r"}); err == nil {
		t.Error("Allows() of an unknown operator = nil, want an error")
	}
}
