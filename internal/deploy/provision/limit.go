package provision

import (
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// LimitOf returns the limit that a text says, with the types of the SDK.
func LimitOf(l grammar.Limit) zlimit.Limit {
	return zlimit.Limit(grammar.WithMode[zlimit.LimitMode](l))
}

// textOf is the reverse of LimitOf.
func textOf(l zlimit.Limit) grammar.Limit {
	return grammar.WithMode[string](grammar.LimitOf[zlimit.LimitMode](l))
}
