package declaration

import (
	"bytes"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Format returns a declaration as YAML that [Load] reads. Comments, docs and Go names of a document are not in it.
func Format(d *Declaration) ([]byte, error) {
	root := mapping()
	if d.Namespace != "" {
		add(root, "namespace", scalar(d.Namespace))
	}
	if d.System != nil {
		system := mapping()
		addLevel(system, d.System.Limits, d.System.OnUnavailable, "")
		if d.System.RetentionDays > 0 {
			add(system, "audit_retention_days", number(d.System.RetentionDays))
		}
		add(root, "system", system)
	}
	if len(d.Resources) > 0 {
		add(root, "resources", resourcesNode(d.Resources))
	}
	if len(d.Entities) > 0 {
		entities := mapping()
		for _, e := range d.Entities {
			entity := mapping()
			addLevel(entity, e.Limits, e.OnUnavailable, e.Cascade)
			if len(e.Resources) > 0 {
				add(entity, "resources", resourcesNode(e.Resources))
			}
			add(entities, e.ID, entity)
		}
		add(root, "entities", entities)
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return text.Bytes(), encoder.Close()
}

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func add(to *yaml.Node, key string, value *yaml.Node) {
	to.Content = append(to.Content, scalar(key), value)
}

// addLevel adds the content of a level: limits, and a failure policy.
func addLevel(to *yaml.Node, limits []*Limit, policy, cascade string) {
	if len(limits) > 0 {
		add(to, "limits", limitsNode(limits))
	}
	if policy != "" {
		add(to, "on_unavailable", scalar(policy))
	}
	if cascade != "" {
		add(to, "cascade", scalar(cascade))
	}
}

// scalar is a text, which the encoder quotes where it would be read as something else.
func scalar(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	return n
}

func number(n int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(n, 10)}
}

func resourcesNode(resources []*Resource) *yaml.Node {
	all := mapping()
	for _, r := range resources {
		resource := mapping()
		addLevel(resource, r.Limits, r.OnUnavailable, r.Cascade)
		if r.Within != nil {
			add(resource, "within", scalar(r.Within.Name))
		}
		add(all, r.Name, resource)
	}
	return all
}

func limitsNode(limits []*Limit) *yaml.Node {
	all := mapping()
	for _, l := range limits {
		add(all, l.Name, scalar(l.Rate()))
	}
	return all
}
