package quota

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// FileError says where a state file cannot be understood.
type FileError struct {
	Path string
	Line int // 1 for the first line; 0 where it is not known
	Err  error
}

// Error names the file, the line and the reason.
func (e *FileError) Error() string {
	path := e.Path
	if path == "" {
		path = "state"
	}
	if e.Line == 0 {
		return fmt.Sprintf("quota: %s: %v", path, e.Err)
	}
	return fmt.Sprintf("quota: %s: line %d: %v", path, e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

func lineError(n *yaml.Node, format string, args ...any) error {
	return &FileError{Line: n.Line, Err: fmt.Errorf(format, args...)}
}

// parseState reads the layout of a state file and nothing but it: an unknown
// field, a field given twice or a value out of range is a *FileError with its
// line, so that nothing is dropped when the file is written again.
func parseState(data []byte) (State, error) {
	if err := checkText(data); err != nil {
		return State{}, err
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return State{}, syntaxError(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return State{}, &FileError{Line: doc.Line, Err: errors.New("the file must hold one document")}
	}
	var st State
	if doc.Kind == 0 || isNull(doc.Content[0]) { // An empty file is an empty state.
		return st, nil
	}
	err := eachField(doc.Content[0], "state file", func(name string, v *yaml.Node) (err error) {
		switch name {
		case "quotas":
			st.Quotas, err = parseNames(v, ScopeModel, parseQuota)
		case "state":
			st.State, err = parseNames(v, ScopeModel, parseUsage)
		case "key_quotas":
			st.KeyQuotas, err = parseNames(v, ScopeKey, parseQuota)
		case "key_state":
			st.KeyState, err = parseNames(v, ScopeKey, parseUsage)
		default:
			err = errUnknownField
		}
		return err
	})
	return st, err
}

// syntaxError gives an error of the YAML package its line. The package counts
// from one where its scanner fails and from zero where its parser does, and
// leaves out a line of zero.
func syntaxError(err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if after, ok := strings.CutPrefix(msg, "line "); ok {
		digits, rest, _ := strings.Cut(after, ": ")
		if n, err := strconv.Atoi(digits); err == nil {
			line, msg = n, rest
		}
	}
	for _, parser := range []string{"did not find expected", "found undefined tag", "found duplicate", "found incompatible"} {
		if strings.HasPrefix(msg, parser) {
			line++
		}
	}
	return &FileError{Line: max(line, 1), Err: errors.New(msg)}
}

// checkText refuses bytes that are not UTF-8 text, at their line.
func checkText(data []byte) error {
	line := 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == '\n':
			line++
		case r == utf8.RuneError && size <= 1:
			return &FileError{Line: line, Err: fmt.Errorf("byte %#x is not UTF-8", data[i])}
		case r < ' ' && r != '\t' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85:
			return &FileError{Line: line, Err: fmt.Errorf("control character %#x", r)}
		}
		i += size
	}
	return nil
}

var errUnknownField = errors.New("unknown field")

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// eachField calls fn with the fields of a mapping. Null is an empty mapping.
func eachField(n *yaml.Node, what string, fn func(name string, v *yaml.Node) error) error {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return lineError(n, "%s must be a mapping", what)
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			return lineError(k, "%s: a field name must be a scalar", what)
		}
		if seen[k.Value] {
			return lineError(k, "%s: %q is given twice", what, k.Value)
		}
		seen[k.Value] = true
		if v.Kind == yaml.AliasNode {
			return lineError(v, "%s: %q is an alias, which state files do not use", what, k.Value)
		}
		err := fn(k.Value, v)
		if errors.Is(err, errUnknownField) {
			return lineError(k, "%s: unknown field %q", what, k.Value)
		}
		if err != nil {
			return atLine(k, err)
		}
	}
	return nil
}

// atLine gives an error the line of n unless it has one.
func atLine(n *yaml.Node, err error) error {
	var at *FileError
	if errors.As(err, &at) {
		return err
	}
	return &FileError{Line: n.Line, Err: err}
}

func parseNames[T any](n *yaml.Node, sc Scope, parse func(name string, n *yaml.Node) (T, error)) (map[string]T, error) {
	out := map[string]T{}
	err := eachField(n, sc.String()+"s", func(name string, v *yaml.Node) error {
		if err := ValidateName(sc.String(), name); err != nil {
			return err
		}
		t, err := parse(name, v)
		out[name] = t
		return err
	})
	return out, err
}

func parseQuota(name string, n *yaml.Node) (ModelQuota, error) {
	var q ModelQuota
	err := eachField(n, "quota of "+strconv.Quote(name), func(field string, v *yaml.Node) error {
		switch field {
		case "max_rpm":
			return parseInt(v, field, &q.MaxRPM)
		case "max_tpm":
			return parseInt(v, field, &q.MaxTPM)
		case "max_rpd":
			return parseInt(v, field, &q.MaxRPD)
		case "max_input_tpm":
			return parseInt(v, field, &q.MaxInputTPM)
		case "max_output_tpm":
			return parseInt(v, field, &q.MaxOutputTPM)
		case "max_tpd":
			return parseInt(v, field, &q.MaxTPD)
		}
		return errUnknownField
	})
	return q, err
}

func parseUsage(name string, n *yaml.Node) (UsageStats, error) {
	var u UsageStats
	err := eachField(n, "usage of "+strconv.Quote(name), func(field string, v *yaml.Node) error {
		switch field {
		case "requests":
			return eachItem(v, field, func(item *yaml.Node) error {
				t, err := parseTime(item, field)
				u.Requests = append(u.Requests, t)
				return err
			})
		case "tokens":
			return eachItem(v, field, func(item *yaml.Node) error {
				e, err := parseTokens(item)
				u.Tokens = append(u.Tokens, e)
				return err
			})
		case "day_start":
			// Written for a day that has not begun, the zero time has no meaning.
			t, err := parseAnyTime(v, field)
			u.DayStart = t
			return err
		case "day_count":
			return parseInt(v, field, &u.DayCount)
		case "day_tokens":
			return parseInt(v, field, &u.DayTokens)
		}
		return errUnknownField
	})
	if err == nil {
		err = u.validateDay(name)
	}
	return u, err
}

func eachItem(n *yaml.Node, what string, fn func(*yaml.Node) error) error {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return lineError(n, "%s must be a list", what)
	}
	for _, item := range n.Content {
		if item.Kind == yaml.AliasNode {
			return lineError(item, "%s: aliases are not used in state files", what)
		}
		if err := fn(item); err != nil {
			return atLine(item, err)
		}
	}
	return nil
}

func parseTokens(n *yaml.Node) (TokenEntry, error) {
	var e TokenEntry
	err := eachField(n, "tokens", func(field string, v *yaml.Node) (err error) {
		switch field {
		case "time":
			e.Time, err = parseTime(v, field)
			return err
		case "count":
			return parseInt(v, field, &e.Count)
		case "output":
			return parseInt(v, field, &e.Output)
		}
		return errUnknownField
	})
	if err == nil {
		err = e.validate("tokens")
	}
	return e, err
}

// parseInt reads a whole number of zero or more.
func parseInt(n *yaml.Node, field string, to *int64) error {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" {
		return lineError(n, "%s must be a whole number, not %q", field, clip(n.Value))
	}
	if err := n.Decode(to); err != nil {
		return lineError(n, "%s %q is out of range", field, clip(n.Value))
	}
	if *to < 0 {
		return lineError(n, "%s %d must not be negative", field, *to)
	}
	return nil
}

func parseTime(n *yaml.Node, field string) (time.Time, error) {
	t, err := parseAnyTime(n, field)
	if err == nil {
		err = validateTime(field, t)
	}
	return t, err
}

func parseAnyTime(n *yaml.Node, field string) (time.Time, error) {
	var t time.Time
	if n.Kind != yaml.ScalarNode || n.Decode(&t) != nil || isNull(n) {
		return time.Time{}, lineError(n, "%s must be a timestamp, not %q", field, clip(n.Value))
	}
	return t.UTC(), nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
