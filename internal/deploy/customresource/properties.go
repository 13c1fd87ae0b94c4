package customresource

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/zlimit"
)

// properties are the checked properties of a resource.
type properties struct {
	namespace string
	levels    []zlimit.Stored
	create    bool // the namespace, if there is none
	take      bool // the levels of another manager
}

// known are the properties that a resource may have. The first two are CloudFormation's.
var known = []string{"ServiceToken", "ServiceTimeout", "Limits", "CreateNamespace", "OnDelete", "TakeOver"}

// read checks the properties of a resource, and returns all that is wrong.
func read(resource string, given map[string]any) (*properties, error) {
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			wrong = append(wrong, fmt.Errorf("property %s: there is no such property", name))
		}
	}
	p := &properties{}
	var err error
	for name, to := range map[string]*bool{"CreateNamespace": &p.create, "TakeOver": &p.take} {
		if *to, err = isTrue(name, given[name]); err != nil {
			wrong = append(wrong, err)
		}
	}
	if _, err := onDelete(given); err != nil {
		wrong = append(wrong, err)
	}
	d, err := declared(resource, given["Limits"])
	if err != nil {
		wrong = append(wrong, err)
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	p.namespace, p.levels = cmp.Or(d.Namespace, zlimit.DefaultNamespace), provision.Declared(d)
	return p, nil
}

// declared reads the property Limits: a file of limits as a text, or as a mapping. CloudFormation has made all numbers
// and truth values of the mapping texts.
func declared(resource string, limits any) (*declaration.Declaration, error) {
	switch limits := limits.(type) {
	case nil:
		return nil, errors.New("property Limits is missing")
	case string:
		return declaration.Load(resource+".Limits", []byte(limits))
	case map[string]any:
		text, err := yaml.Marshal(plain(limits))
		if err != nil {
			return nil, fmt.Errorf("property Limits: %w", err)
		}
		d, err := declaration.Load(resource+".Limits", text)
		if wrong, ok := errors.AsType[document.Errors](err); ok {
			all := make([]error, len(wrong)) // their line numbers are of a text that no one has
			for i, e := range wrong {
				all[i] = errors.New("property Limits: " + e.Text)
			}
			err = errors.Join(all...)
		}
		return d, err
	default:
		return nil, errors.New("property Limits must be a mapping, or a text in YAML")
	}
}

// plain returns a value as a node whose scalars are written as they are, so that a text with a number is a number again.
func plain(v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, plain(v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, element := range v {
			n.Content = append(n.Content, plain(element))
		}
		return n
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v)}
	}
}

// isTrue reads a property that is true or false.
func isTrue(name string, v any) (bool, error) {
	switch fmt.Sprint(v) {
	case "true":
		return true, nil
	case "false", "<nil>":
		return false, nil
	default:
		return false, fmt.Errorf("property %s is %q, and must be true or false", name, fmt.Sprint(v))
	}
}

// onDelete reads the property OnDelete: whether a deletion of the resource removes its limits.
func onDelete(given map[string]any) (remove bool, err error) {
	switch v := given["OnDelete"]; v {
	case "remove":
		return true, nil
	case "keep", nil:
		return false, nil
	default:
		return false, fmt.Errorf("property OnDelete is %q, and must be keep or remove", fmt.Sprint(v))
	}
}
