package zlimit

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A Consumption says how many tokens are taken of which limits. It is [Amounts], or a type that zlimitgen writes from
// an application's declaration of its limits. With such a type, a misspelt limit does not compile.
//
// A Consumption with a method Resource() string is only for that resource. The request may leave its Resource empty. A
// request or a lease of another resource rejects such a Consumption with a [*ValidationError].
type Consumption interface {
	// AppendAmounts appends the amount of each limit to a slice and returns it. A limit appended twice is a
	// [*ValidationError] of the call that takes the consumption. It must not keep the slice, and should not allocate.
	AppendAmounts(to []Amount) []Amount
}

// An Amount is a number of tokens of one limit.
type Amount struct {
	Limit  string `json:"limit"`
	Tokens int64  `json:"tokens"`
}

// Amounts are numbers of tokens by the name of their limit.
type Amounts map[string]int64

// AppendAmounts implements [Consumption], in the order of the names.
func (a Amounts) AppendAmounts(to []Amount) []Amount {
	first := len(to)
	for name, tokens := range a {
		to = append(to, Amount{name, tokens})
	}
	slices.SortFunc(to[first:], func(a, b Amount) int { return strings.Compare(a.Limit, b.Limit) })
	return to
}

// checkNil returns an error for a consumption that is a nil pointer, whose methods may panic.
func checkNil(field string, c Consumption) error {
	if _, ok := c.(Amounts); ok {
		return nil
	}
	if v := reflect.ValueOf(c); v.Kind() != reflect.Pointer || !v.IsNil() {
		return nil
	}
	return &ValidationError{Field: field, Value: fmt.Sprintf("(%T)(nil)", c), Reason: "must not be a nil pointer"}
}

// resourceOf returns the resource that a consumption is one of, "" for one of any.
func resourceOf(c Consumption) string {
	switch typed := c.(type) {
	case Amounts: // as most are
		return ""
	case interface{ Resource() string }:
		return typed.Resource()
	default:
		return ""
	}
}

// checkResource returns an error for a consumption of another resource.
func checkResource(c Consumption, resource string) error {
	if of := resourceOf(c); of != "" && of != resource {
		return &ValidationError{Field: "resource", Value: resource, Reason: fmt.Sprintf("the consumption is one of %q", of)}
	}
	return nil
}

// amountLists are lists to hand to consumptions. They are pooled, since an argument of an interface's method escapes.
var amountLists = sync.Pool{New: func() any { return new([maxLimits]Amount) }}

// amountsOf appends the amounts of a consumption to a list, in millitokens. It checks everything that needs no limits:
// that each is named once, with at least that many tokens. A nil interface takes nothing.
func amountsOf(to []bucket.Amount, field string, c Consumption, least int64) ([]bucket.Amount, error) {
	if c == nil {
		return to, nil
	}
	if err := checkNil(field, c); err != nil {
		return nil, err
	}
	if m, ok := c.(Amounts); ok { // as most are, whose list does not escape
		var list [maxLimits / 2]Amount
		return checkedAmounts(to, field, m.AppendAmounts(list[:0]), least)
	}
	list := amountLists.Get().(*[maxLimits]Amount)
	defer amountLists.Put(list)
	return checkedAmounts(to, field, c.AppendAmounts(list[:0]), least)
}

// checkedAmounts is [amountsOf] for the amounts that a consumption has.
func checkedAmounts(to []bucket.Amount, field string, amounts []Amount, least int64) ([]bucket.Amount, error) {
	if len(amounts) > maxLimits {
		reason := fmt.Sprintf("must name at most %d limits", maxLimits)
		return nil, &ValidationError{Field: field, Value: strconv.Itoa(len(amounts)), Reason: reason}
	}
	for i, a := range amounts {
		if a.Tokens < least || a.Tokens > maxTokens {
			return nil, validateTokens(field+"["+a.Limit+"]", a.Limit, a.Tokens, least)
		}
		for _, other := range amounts[:i] {
			if other.Limit == a.Limit {
				return nil, &ValidationError{Field: field, Value: a.Limit, Reason: "is given twice"}
			}
		}
		to = append(to, bucket.Amount{Limit: a.Limit, Tokens: a.Tokens * millis})
	}
	return to, nil
}
