package quota

import (
	"strconv"
	"unicode/utf8"
)

// maxNameLen bounds the names of models and keys, in bytes.
const maxNameLen = 512

// Scope says whether a quota belongs to a model or to a key.
type Scope uint8

// The scopes.
const (
	ScopeModel Scope = iota
	ScopeKey
)

// String returns "model" or "key".
func (s Scope) String() string {
	if s == ScopeKey {
		return "key"
	}
	return "model"
}

// Request is one call to a model.
type Request struct {
	Model string `json:"model"` // required
	// Key is the caller on whose behalf the call is made, such as a tenant; its
	// windows span all models. Empty: only the model's limits count.
	Key    string `json:"key"`
	Input  int    `json:"input"`  // input tokens, known or estimated, 0 to MaxTokens
	Output int    `json:"output"` // output tokens, known or estimated, 0 to MaxTokens
}

// validateTokens checks the numbers; it is part of every call, so it is cheap.
func (r *Request) validateTokens() error {
	if uint(r.Input) <= MaxTokens && uint(r.Output) <= MaxTokens {
		return nil
	}
	return tokensError(r.Input, r.Output)
}

func tokensError(input, output int) error {
	field, v := "request.input", input
	if uint(input) <= MaxTokens {
		field, v = "request.output", output
	}
	return &ValidationError{Field: field, Value: strconv.Itoa(v), Rule: "must be 0 to " + strconv.Itoa(MaxTokens) + " tokens"}
}

// validateNames checks model and key. A name that has windows passed before, so
// decisions call it only for names they do not find.
func (r *Request) validateNames() error {
	if err := ValidateName("request.model", r.Model); err != nil {
		return err
	}
	if r.Key == "" {
		return nil
	}
	return ValidateName("request.key", r.Key)
}

func (r *Request) validate() error {
	if err := r.validateTokens(); err != nil {
		return err
	}
	return r.validateNames()
}

// ValidateName returns a *ValidationError with the given field unless name is 1
// to 512 bytes of UTF-8 without control characters.
func ValidateName(field, name string) error {
	rule := ""
	switch {
	case name == "":
		rule = "must not be empty"
	case len(name) > maxNameLen:
		return &ValidationError{Field: field, Value: name[:32] + "…", Rule: "must be at most 512 bytes"}
	case !utf8.ValidString(name):
		rule = "must be UTF-8"
	default:
		for _, c := range name {
			if c < ' ' || c >= 0x7f && c < 0xa0 {
				rule = "must not contain control characters"
			}
		}
	}
	if rule == "" {
		return nil
	}
	return &ValidationError{Field: field, Value: name, Rule: rule}
}
