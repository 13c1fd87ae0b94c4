package hcltest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/stack"
)

// TestFormat formats the module, which is as `terraform fmt` would leave it.
func TestFormat(t *testing.T) {
	text := stack.Terraform()
	if diff := cmp.Diff(string(hclwrite.Format([]byte(text))), text); diff != "" {
		t.Errorf("the module (-formatted +written):\n%s", diff)
	}
}

// body parses the module, and returns what it has.
func body(t *testing.T) *hclsyntax.Body {
	t.Helper()
	file, diags := hclsyntax.ParseConfig([]byte(stack.Terraform()), "main.tf", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return file.Body.(*hclsyntax.Body)
}

// find returns the block of a type with labels.
func find(t *testing.T, b *hclsyntax.Body, kind string, labels ...string) *hclsyntax.Body {
	t.Helper()
	var found []*hclsyntax.Body
	for _, block := range b.Blocks {
		if block.Type == kind && slices.Equal(block.Labels, labels) {
			found = append(found, block.Body)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks %s %q, want one", len(found), kind, labels)
	}
	return found[0]
}

// value evaluates an attribute of a block, in a module that is given the name limits and the parameter LogDays. A file has its
// path as its content.
func value(t *testing.T, b *hclsyntax.Body, name string) cty.Value {
	t.Helper()
	attribute := b.Attributes[name]
	if attribute == nil {
		t.Fatalf("no attribute %s", name)
	}
	v, diags := attribute.Expr.Value(&hcl.EvalContext{
		Variables: map[string]cty.Value{
			"path": cty.ObjectVal(map[string]cty.Value{"module": cty.StringVal("modules/zlimit")}),
			"var": cty.ObjectVal(map[string]cty.Value{
				"name": cty.StringVal("limits"), "parameters": cty.MapVal(map[string]cty.Value{"LogDays": cty.StringVal("30")}),
			}),
		},
		Functions: map[string]function.Function{"file": function.New(&function.Spec{
			Params: []function.Parameter{{Name: "path", Type: cty.String}}, Type: function.StaticReturnType(cty.String),
			Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return args[0], nil },
		})},
	})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return v
}

// TestResource evaluates the resource. It has one stack of the template beside the module, with the name and the
// parameters of the module. It is protected from `terraform destroy`.
func TestResource(t *testing.T) {
	all := body(t)
	got := map[string]int{}
	for _, block := range all.Blocks {
		got[strings.Join(append([]string{block.Type}, block.Labels...), " ")]++
	}
	want := map[string]int{"variable name": 1, "variable parameters": 1, "locals": 1, "resource aws_cloudformation_stack zlimit": 1, "output outputs": 1}
	compare.Equal(t, "blocks", want, got)
	resource := find(t, all, "resource", "aws_cloudformation_stack", "zlimit")
	attributes := []string{"capabilities", "name", "parameters", "template_body"}
	compare.Equal(t, "attributes of the resource", attributes, slices.Sorted(maps.Keys(resource.Attributes)))
	for name, want := range map[string]cty.Value{
		"name":          cty.StringVal("limits"),
		"template_body": cty.StringVal("modules/zlimit/zlimit.yaml"),
		"parameters":    cty.MapVal(map[string]cty.Value{"LogDays": cty.StringVal("30")}),
		"capabilities":  cty.TupleVal([]cty.Value{cty.StringVal("CAPABILITY_NAMED_IAM")}),
	} {
		if got := value(t, resource, name); !got.RawEquals(want) {
			t.Errorf("%s = %#v, want %#v", name, got, want)
		}
	}
	if got := value(t, find(t, resource, "lifecycle"), "prevent_destroy"); !got.RawEquals(cty.True) {
		t.Errorf("prevent_destroy = %#v", got)
	}
	output := find(t, all, "output", "outputs").Attributes["value"].Expr
	if traversal, diags := hcl.AbsTraversalForExpr(output); diags.HasErrors() || traversal.RootName() != "aws_cloudformation_stack" || len(traversal) != 3 {
		t.Errorf("the output is %v, %v", traversal, diags)
	}
}

// TestParameters compares the parameters that the module takes with those of the template. Others are refused.
func TestParameters(t *testing.T) {
	all := body(t)
	template, err := cfn.Parse(stack.Template)
	check.Fatal(t, "cfn.Parse()", err)
	var known []string
	for _, v := range value(t, find(t, all, "locals"), "known").AsValueSlice() {
		known = append(known, v.AsString())
	}
	slices.Sort(known)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(template.Parameters)), known); diff != "" || len(known) == 0 {
		t.Errorf("parameters (-template +module):\n%s", diff)
	}
	parameters := find(t, all, "variable", "parameters")
	var used []string
	for _, traversal := range find(t, parameters, "validation").Attributes["condition"].Expr.Variables() {
		used = append(used, traversal.RootName())
	}
	if slices.Sort(used); !slices.Equal(used, []string{"local", "var"}) {
		t.Errorf("the condition on parameters uses %q, want local and var", used)
	}
	if got := value(t, parameters, "default"); got.LengthInt() != 0 {
		t.Errorf("the default of parameters is %#v", got)
	}
	if find(t, all, "variable", "name").Attributes["default"] != nil {
		t.Error("a stack must be given its name, and name has a default")
	}
}
