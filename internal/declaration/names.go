package declaration

import (
	"regexp"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// maxLimits and maxNamespace are what package zlimit allows.
const (
	maxLimits    = 16
	maxNamespace = 64 // bytes
)

// Names that mean something else in a table; a test holds them and package zlimit together.
var (
	indexKey          = regexp.MustCompile(`^(GSI[1-4]PK|(GSI[1-4]|LSI[1-5])SK)$`)
	reservedNames     = []string{"PK", "SK", "ttl"}
	reservedResources = append(reservedNames, "_default_")
	reservedLimits    = append(reservedNames, "entity_id", "resource", "rollup_carried", "rollup_closed", "total_events", "wcu",
		"window", "window_start")
)

func (l *loader) resourceName(pos document.Pos, name string) {
	switch rule := grammar.CheckName(name); {
	case rule != "":
		l.Errorf(pos, "resource %q %s", name, rule)
	case slices.Contains(reservedResources, name) || indexKey.MatchString(name):
		l.Errorf(pos, "resource %q is reserved", name)
	}
}

func (l *loader) entityID(pos document.Pos, id string) {
	if rule := grammar.CheckName(id); rule != "" {
		l.Errorf(pos, "entity %q %s", id, rule)
	}
}

func (l *loader) limitName(pos document.Pos, what, name string) {
	switch rule := grammar.CheckLimitName(name); {
	case rule != "":
		l.Errorf(pos, "%s %s", what, rule)
	case slices.Contains(reservedLimits, name) || indexKey.MatchString(name):
		l.Errorf(pos, "%s is reserved", what)
	}
}

// initialisms are words that Go writes in capitals.
var initialisms = []string{
	"ai", "api", "cpu", "db", "dns", "gb", "gpt", "gpu", "html", "http", "https", "id", "io", "ip", "json", "kb", "llm", "mb",
	"qps", "rpc", "rpd", "rph", "rpm", "rps", "sms", "smtp", "sql", "ssh", "tb", "tcp", "tls", "tpd", "tph", "tpm", "tps", "tts",
	"ttl", "udp", "ui", "uri", "url", "uuid", "vm",
}

// Words of letters with digits behind them, and those that start with a digit.
var word = regexp.MustCompile(`[A-Za-z]+[0-9]*|[0-9]+[A-Za-z]*[0-9]*`)

// Exported returns the Go form of a name, exported: gpt-4o-mini is GPT4oMini, input_tpm is InputTPM.
func Exported(name string) string {
	var b strings.Builder
	for _, w := range word.FindAllString(name, -1) {
		letters := strings.TrimRight(w, "0123456789")
		digits := w[len(letters):]
		singular := strings.TrimSuffix(letters, "s")
		switch {
		case slices.Contains(initialisms, letters):
			b.WriteString(strings.ToUpper(letters) + digits)
		case slices.Contains(initialisms, singular):
			b.WriteString(strings.ToUpper(singular) + "s" + digits)
		default:
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		}
	}
	return b.String()
}

// goName is the pattern of a Go name chosen by the user.
var goName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// goNames are a set of Go names that must differ.
type goNames struct {
	*loader
	taken map[string]string // by what
}

// add takes a name; false when it is taken by something else, which is reported.
func (ns *goNames) add(pos document.Pos, name, what string) bool {
	if other, ok := ns.taken[name]; ok {
		ns.Errorf(pos, "%s: Go name %s is taken by %s; go: says another one", what, name, other)
		return false
	}
	ns.taken[name] = what
	return true
}

// ResourceConst returns the name of the constant that holds the name of the resource.
func (r *Resource) ResourceConst() string { return "Resource" + r.Go }

// LimitConst returns the name of the constant that holds the name of the limit.
func (l *Limit) LimitConst() string { return "Limit" + l.Go }

// checkNames reports names that lead to reserved Go names.
func (l *loader) checkNames(d *Declaration) {
	pkg := &goNames{l, map[string]string{"Declared": "the function that returns the declaration"}}
	first := map[string]*Limit{}
	for _, r := range d.Resources {
		what := "resource " + r.Name
		if r.Go == Exported(r.Name) && !goName.MatchString(r.Go) {
			l.Errorf(r.Pos, "%s has no name in Go that starts with a letter; go: says one", what)
			continue
		}
		if pkg.add(r.Pos, r.Go, what) {
			pkg.add(r.Pos, r.ResourceConst(), what)
		}
		fields := &goNames{l, map[string]string{"Resource": "a method", "AppendAmounts": "a method"}}
		for _, limit := range r.Limits {
			what := what + ": limit " + limit.Name
			if !fields.add(limit.Pos, limit.Go, what) {
				continue
			}
			other := first[limit.Name]
			switch {
			case other == nil:
				first[limit.Name] = limit
				pkg.add(limit.Pos, limit.LimitConst(), what)
			case other.Go != limit.Go:
				l.Errorf(limit.Pos, "%s has Go name %s, and %s in line %d", what, limit.Go, other.Go, other.Pos.Line)
			}
		}
	}
}
