package zlimit

import (
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// Name returns the name of an entity or of a resource that stands for a text. Any text has one, such as a path, an
// e-mail address or a model of another provider. Two texts never have the same name.
//
// A text that is a valid name without "%" is its own name. Otherwise each byte that names cannot contain, and each "%",
// becomes "%" and two hexadecimal digits, as in URLs. So does the first byte of a reserved name. If the result is
// longer than 256 bytes, it is cut and ends in the SHA-256 hash of the text. [OriginalName] returns a text that was not
// cut. The name of "" is "", which every call rejects: an unknown caller must not share the limits of others.
func Name(text string) string { return grammar.EncodeName(text, reservedName) }

// OriginalName returns the text from which [Name] made a name. It returns false if the text was cut, and for a name
// that Name does not return.
func OriginalName(name string) (text string, ok bool) {
	if name == "" {
		return "", false
	}
	return grammar.DecodeName(name, reservedName)
}

// reservedName reports whether a name means something else where resources stand.
func reservedName(name string) bool {
	return name == DefaultResource || layout.EntityConfigRegistryReserves(name)
}
