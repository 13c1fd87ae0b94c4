package quota

import (
	"errors"
	"strconv"
)

// ErrClosed is returned by a Reservation that was settled or cancelled before.
var ErrClosed = errors.New("quota: reservation is already settled or cancelled")

// ErrNoSQLite is returned if a SQLite file is opened and the program
// does not link the engine.
var ErrNoSQLite = errors.New(`quota: SQLite is not linked in: import _ "github.com/zlimit/zlimit-go/quota/quotasqlite"`)

// ExceededError says which limit refused a request. It is shared between
// callers and must not be changed. It carries no retry time; ask
// [Limiter.TimeUntil] for that.
type ExceededError struct {
	Scope Scope  `json:"scope"` // whose limit
	Name  string `json:"name"`  // the model or the key
	Limit Limit  `json:"limit"`
	Max   int64  `json:"max"` // the limit's value; zero for LimitProvider
	// Impossible is true where the request alone is larger than the limit, so
	// that it will be refused however long the caller waits.
	Impossible bool `json:"impossible"`
}

// Error names the model or key, the limit and its value.
func (e *ExceededError) Error() string {
	s := "quota: " + e.Scope.String() + " " + strconv.Quote(e.Name)
	switch {
	case e.Limit == LimitProvider:
		return s + " has not enough left according to the provider"
	case e.Impossible:
		return s + ": the request is larger than " + e.Limit.String() + " " + strconv.FormatInt(e.Max, 10) + " and can never pass"
	}
	return s + " is at its limit: " + e.Limit.String() + " " + strconv.FormatInt(e.Max, 10)
}

// UnknownModelError refuses a request for a model that has no quota, where
// [Config.Strict] says so. Nothing is recorded.
type UnknownModelError struct {
	Model string `json:"model"`
}

// Error names the model, and what to do.
func (e *UnknownModelError) Error() string {
	return "quota: model " + strconv.Quote(e.Model) + " has no quota: set one, or a default quota, or let unknown models pass with StrictNever"
}

// ValidationError reports a bad argument or configuration value. It is returned
// before anything is read, written or recorded.
type ValidationError struct {
	Field string `json:"field"` // such as "request.input"
	Value string `json:"value"` // as given
	Rule  string `json:"rule"`  // the rule that it breaks
}

// Error names the field, the value and the rule.
func (e *ValidationError) Error() string {
	return "quota: " + e.Field + " " + strconv.Quote(e.Value) + " " + e.Rule
}
