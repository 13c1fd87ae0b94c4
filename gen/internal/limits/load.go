package limits

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

// loader turns nodes into a declaration.
type loader struct{ *document.Reader }

// Load reads a declaration. file is its name for messages. The error, if any, is a [document.Errors].
func Load(file string, text []byte) (*Declaration, error) {
	l := loader{document.New(file)}
	d := &Declaration{}
	if root := l.Parse(text, "the declaration"); root != nil {
		l.Object(root, document.At(root), "the declaration", document.Keys{
			"resources": func(n *yaml.Node) {
				for _, p := range l.Pairs(n, "resources") {
					d.Resources = append(d.Resources, l.resource(p))
				}
				if n = document.Follow(n); n.Kind == yaml.MappingNode && len(n.Content) == 0 {
					l.Errorf(document.At(n), "resources is empty")
				}
			},
		}, "resources")
		l.checkNames(d)
	}
	return d, l.Err()
}

func (l *loader) resource(p document.Pair) *Resource {
	what := "resource " + p.Key
	r := &Resource{Pos: p.Pos, Name: p.Key, Go: Exported(p.Key)}
	l.resourceName(p.Pos, p.Key)
	l.Object(p.Value, p.Pos, what, document.Keys{
		"doc": func(n *yaml.Node) { r.Doc = l.Doc(n, what) },
		"go":  func(n *yaml.Node) { r.Go = l.goName(n, what) },
		"limits": func(n *yaml.Node) {
			pairs := l.Pairs(n, what+": limits")
			for _, p := range pairs {
				r.Limits = append(r.Limits, l.limit(what, p))
			}
			switch n = document.Follow(n); {
			case len(pairs) > maxLimits:
				l.Errorf(document.At(n), "%s has %d limits, want at most %d", what, len(pairs), maxLimits)
			case n.Kind == yaml.MappingNode && len(n.Content) == 0:
				l.Errorf(document.At(n), "%s: limits is empty", what)
			}
		},
	}, "limits")
	return r
}

func (l *loader) limit(owner string, p document.Pair) *Limit {
	what := owner + ": limit " + p.Key
	limit := &Limit{Pos: p.Pos, Name: p.Key, Go: Exported(p.Key), Unit: "tokens"}
	l.limitName(p.Pos, what, p.Key)
	var burst int64
	l.Object(p.Value, p.Pos, what, document.Keys{
		"doc":   func(n *yaml.Node) { limit.Doc = l.Doc(n, what) },
		"go":    func(n *yaml.Node) { limit.Go = l.goName(n, what) },
		"rate":  func(n *yaml.Node) { l.rate(n, what, limit) },
		"burst": func(n *yaml.Node) { burst = l.tokens(n, what+": burst", l.Text(n, what+": burst")) },
		"unit":  func(n *yaml.Node) { limit.Unit = l.unit(n, what) },
	}, "rate")
	if limit.Capacity = limit.Refill; burst > 0 {
		limit.Capacity = burst
	}
	return limit
}

// goName returns a name of the user's own in Go.
func (l *loader) goName(n *yaml.Node, what string) string {
	name := l.Text(n, what+": go")
	if document.Follow(n).Kind == yaml.ScalarNode && !goName.MatchString(name) {
		l.Errorf(document.At(document.Follow(n)), "%s: go %q is not an exported name of letters and digits", what, name)
	}
	return name
}

var unitForm = regexp.MustCompile(`^\pL[\pL\pN -]*$`)

func (l *loader) unit(n *yaml.Node, what string) string {
	unit := l.Text(n, what+": unit")
	if document.Follow(n).Kind == yaml.ScalarNode && !unitForm.MatchString(unit) {
		l.Errorf(document.At(document.Follow(n)), "%s: unit %q is not made of words", what, unit)
	}
	return unit
}

// rate reads what flows into a limit, such as 500/min.
func (l *loader) rate(n *yaml.Node, what string, limit *Limit) {
	text := l.Text(n, what+": rate")
	n = document.Follow(n)
	if n.Kind != yaml.ScalarNode {
		return
	}
	tokens, period, ok := strings.Cut(text, "/")
	if !ok {
		l.Errorf(document.At(n), "%s: rate %q must be TOKENS/PERIOD, such as 500/min", what, text)
		return
	}
	limit.Refill = l.tokens(n, what+": rate", strings.TrimSpace(tokens))
	period = strings.TrimSpace(period)
	if limit.Period, ok = periods[period]; !ok {
		var err error
		if limit.Period, err = time.ParseDuration(period); err != nil || limit.Period < time.Second || limit.Period%time.Second != 0 {
			l.Errorf(document.At(n), "%s: period %q must be s, min, h, d or a duration of whole seconds such as 90s", what, period)
		}
	}
}

// periods are the names of periods, those that the command knows.
var periods = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
}

var tokensForm = regexp.MustCompile(`^\d+(_\d+)*$`)

// maxTokens is the largest number of tokens that package zlimit allows.
const maxTokens = math.MaxInt64 / 1000

// tokens returns a positive number, whose digits may be in groups: 10_000.
func (l *loader) tokens(n *yaml.Node, what, text string) int64 {
	n = document.Follow(n)
	if n.Kind != yaml.ScalarNode {
		return 0
	}
	tokens, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if err != nil || !tokensForm.MatchString(text) || tokens < 1 || tokens > maxTokens {
		l.Errorf(document.At(n), "%s: %q must be a whole number from 1 to %d", what, text, int64(maxTokens))
	}
	return tokens
}
