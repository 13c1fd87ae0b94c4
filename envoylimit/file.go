package envoylimit

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// The form of a file of envoyproxy/ratelimit.
type (
	fileDomain struct {
		Domain      string           `yaml:"domain"`
		Descriptors []fileDescriptor `yaml:"descriptors"`
	}
	fileDescriptor struct {
		Key            string           `yaml:"key"`
		Value          string           `yaml:"value"`
		RateLimit      *fileLimit       `yaml:"rate_limit"`
		Descriptors    []fileDescriptor `yaml:"descriptors"`
		ShadowMode     bool             `yaml:"shadow_mode"`
		QuotaMode      bool             `yaml:"quota_mode"`
		DetailedMetric bool             `yaml:"detailed_metric"` // accepted: metrics have the path of keys
		ValueToMetric  bool             `yaml:"value_to_metric"` // likewise
		ShareThreshold bool             `yaml:"share_threshold"`
		Metadata       map[string]any   `yaml:"metadata"`
	}
	fileLimit struct {
		RequestsPerUnit yaml.Node `yaml:"requests_per_unit"` // decoding would cut fractions off, and make null 0
		Unit            string    `yaml:"unit"`
		Unlimited       bool      `yaml:"unlimited"`
		Name            string    `yaml:"name"`
		Replaces        []struct {
			Name string `yaml:"name"`
		} `yaml:"replaces"`
	}
)

// parse returns the content of a file, as [decode] reads it.
func (f File) parse() (*fileDomain, error) {
	var root fileDomain
	if err := decode(f.Text, &root); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	if root.Domain == "" {
		return nil, fmt.Errorf("%s: domain must not be empty", f.Name)
	}
	return &root, nil
}

// load adds descriptors of a file below a node.
func (n *node) load(f *File, at path, descriptors []fileDescriptor, w Windows) error {
	for i := range descriptors {
		d := &descriptors[i]
		if d.Key == "" {
			return fmt.Errorf("%s: %s: key of descriptor %d must not be empty", f.Name, at, i+1)
		}
		composite, to := d.Key, at.with(d.Key, d.Value)
		if d.Value != "" {
			composite += "_" + d.Value
		}
		if n.children[composite] != nil {
			return fmt.Errorf("%s: %s: key %q with value %q is given twice", f.Name, at, d.Key, d.Value)
		}
		wild := strings.Contains(composite, "*")
		if d.ShareThreshold && !wild {
			return fmt.Errorf("%s: %s: share_threshold needs a value with *", f.Name, to)
		}
		child := &node{varies: d.Value == "" || wild && !d.ShareThreshold}
		_, err := structpb.NewStruct(d.Metadata)
		if err == nil {
			child.limit, err = d.limit(to, w)
		} else {
			err = fmt.Errorf("metadata: %w", err)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", f.Name, to, err)
		}
		if err := child.load(f, to, d.Descriptors, w); err != nil {
			return err
		}
		if n.children == nil {
			n.children = map[string]*node{}
		}
		n.children[composite] = child
		if wild {
			pattern, err := patternOf(composite)
			if err != nil {
				return fmt.Errorf("%s: %s: value: %w", f.Name, to, err)
			}
			n.wildcards = append(n.wildcards, wildcard{pattern, child})
		}
	}
	return nil
}

// requests returns the number of requests per unit. Without one, a limit must be unlimited.
func (r *fileLimit) requests() (uint32, error) {
	given := &r.RequestsPerUnit
	for given.Kind == yaml.AliasNode {
		given = given.Alias
	}
	if given.IsZero() && r.Unlimited {
		return 0, nil
	}
	if given.IsZero() {
		return 0, errors.New("requests_per_unit must be given: 0 rejects everything")
	}
	var n uint32
	if given.ShortTag() != "!!int" || given.Decode(&n) != nil {
		return 0, fmt.Errorf("requests_per_unit must be a whole number from 0 to %d, got %q", uint32(math.MaxUint32), given.Value)
	}
	return n, nil
}

// limit returns the limit of a descriptor, nil for one that has none.
func (d *fileDescriptor) limit(at path, w Windows) (*limit, error) {
	if d.RateLimit == nil {
		return nil, nil
	}
	r := d.RateLimit
	perUnit, err := r.requests()
	if err != nil {
		return nil, err
	}
	l := &limit{
		path: at.String(), resource: at.resource(), name: r.Name, perUnit: perUnit,
		unlimited: r.Unlimited, shadow: d.ShadowMode, quota: d.QuotaMode, metadata: d.Metadata,
	}
	unit := pb.RateLimitResponse_RateLimit_Unit(pb.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(r.Unit)])
	switch known := unit != pb.RateLimitResponse_RateLimit_UNKNOWN; {
	case r.Unlimited && known:
		return nil, fmt.Errorf("unit must be left out of an unlimited rate_limit, got %q", r.Unit)
	case !r.Unlimited && !known:
		return nil, fmt.Errorf("unit must be second, minute, hour, day, week, month or year, got %q", r.Unit)
	}
	l.unit = unit
	for _, replaced := range r.Replaces {
		if replaced.Name == "" || replaced.Name == r.Name {
			return nil, fmt.Errorf("replaces must name other limits, got %q", replaced.Name)
		}
		l.replaces = append(l.replaces, replaced.Name)
	}
	if !l.unlimited && l.perUnit > 0 {
		l.stored = w.limit(l.unit, int64(l.perUnit))
		if l.shadow {
			l.stored = l.stored.Shadow()
		}
	}
	return l, nil
}
