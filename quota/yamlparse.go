package quota

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

// FileError says where a state file cannot be understood.
type FileError struct {
	Path   string
	Line   int // 1 for the first line
	Column int // 1 for the first character
	Err    error
}

// Error names the file, the place and the reason.
func (e *FileError) Error() string {
	path := e.Path
	if path == "" {
		path = "state"
	}
	return fmt.Sprintf("quota: %s: line %d, column %d: %v", path, e.Line, e.Column, e.Err)
}

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

// parseState reads the layout of a state file strictly. An unknown field, a
// field given twice or a value out of range is a *FileError with its place.
// Nothing is therefore dropped when the file is written again.
func parseState(data []byte) (State, error) {
	p := stateParser{document.NewPlain("")}
	st := p.state(p.ParseOptional(data))
	if wrong, ok := errors.AsType[document.Errors](p.Err()); ok {
		first := wrong[0]
		return State{}, &FileError{Line: first.Pos.Line, Column: first.Pos.Column, Err: first.Err}
	}
	return st, nil
}

// A stateParser reads the parts of a state file. Null is an empty part.
type stateParser struct{ *document.Reader }

func (p stateParser) state(n *yaml.Node) (st State) {
	if n == nil {
		return State{}
	}
	p.object(n, "the state file", document.Keys{
		"quotas":     func(n *yaml.Node) { st.Quotas = parseNames(p, n, ScopeModel, p.quota) },
		"state":      func(n *yaml.Node) { st.State = parseNames(p, n, ScopeModel, p.usage) },
		"key_quotas": func(n *yaml.Node) { st.KeyQuotas = parseNames(p, n, ScopeKey, p.quota) },
		"key_state":  func(n *yaml.Node) { st.KeyState = parseNames(p, n, ScopeKey, p.usage) },
	})
	return st
}

func (p stateParser) object(n *yaml.Node, what string, read document.Keys) {
	if !document.IsNull(n) {
		p.Object(n, document.At(n), what, read)
	}
}

// check reports the mistake in a value of the right form.
func (p stateParser) check(pos document.Pos, err error) {
	if err != nil {
		p.Fail(pos, err)
	}
}

func parseNames[T any](p stateParser, n *yaml.Node, sc Scope, parse func(name string, pair document.Pair) T) map[string]T {
	out := map[string]T{}
	if document.IsNull(n) {
		return out
	}
	for _, pair := range p.Pairs(n, "the "+sc.String()+"s") {
		p.check(pair.Pos, ValidateName(sc.String(), pair.Key))
		out[pair.Key] = parse(pair.Key, pair)
	}
	return out
}

func (p stateParser) quota(name string, pair document.Pair) (q ModelQuota) {
	count := func(to *int64, field string) func(*yaml.Node) {
		return func(n *yaml.Node) { *to = p.Count(n, field) }
	}
	p.object(pair.Value, "the quota of "+strconv.Quote(name), document.Keys{
		"max_rpm":        count(&q.MaxRPM, "max_rpm"),
		"max_tpm":        count(&q.MaxTPM, "max_tpm"),
		"max_rpd":        count(&q.MaxRPD, "max_rpd"),
		"max_input_tpm":  count(&q.MaxInputTPM, "max_input_tpm"),
		"max_output_tpm": count(&q.MaxOutputTPM, "max_output_tpm"),
		"max_tpd":        count(&q.MaxTPD, "max_tpd"),
	})
	return q
}

func (p stateParser) usage(name string, pair document.Pair) (u UsageStats) {
	failed := p.Failed()
	p.object(pair.Value, "the usage of "+strconv.Quote(name), document.Keys{
		"requests": func(n *yaml.Node) {
			for _, item := range p.list(n, "requests") {
				u.Requests = append(u.Requests, p.time(item, "requests"))
			}
		},
		"tokens": func(n *yaml.Node) {
			for _, item := range p.list(n, "tokens") {
				u.Tokens = append(u.Tokens, p.tokens(item))
			}
		},
		// Written for a day that has not begun, the zero time has no meaning.
		"day_start":  func(n *yaml.Node) { u.DayStart = p.Time(n, "day_start") },
		"day_count":  func(n *yaml.Node) { u.DayCount = p.Count(n, "day_count") },
		"day_tokens": func(n *yaml.Node) { u.DayTokens = p.Count(n, "day_tokens") },
	})
	if p.Failed() == failed {
		p.check(pair.Pos, u.validateDay(name))
	}
	return u
}

func (p stateParser) list(n *yaml.Node, what string) []*yaml.Node {
	if document.IsNull(n) {
		return nil
	}
	return p.List(n, what)
}

func (p stateParser) time(n *yaml.Node, what string) time.Time {
	failed := p.Failed()
	t := p.Time(n, what)
	if p.Failed() == failed {
		p.check(document.At(n), validateTime(what, t))
	}
	return t
}

func (p stateParser) tokens(n *yaml.Node) (e TokenEntry) {
	failed := p.Failed()
	p.object(n, "an entry of tokens", document.Keys{
		"time":   func(n *yaml.Node) { e.Time = p.time(n, "time") },
		"count":  func(n *yaml.Node) { e.Count = p.Count(n, "count") },
		"output": func(n *yaml.Node) { e.Output = p.Count(n, "output") },
	})
	if p.Failed() == failed {
		p.check(document.At(n), e.validate("tokens"))
	}
	return e
}
