package grammar

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// MaxName is the greatest length of the name of an entity or of a resource, in bytes.
const MaxName = 256

// nameBytes are the bytes of names besides letters and digits.
const nameBytes = "_.-:@/+|=~%"

// inName has the bytes that names hold.
var inName = func() (in [256]bool) {
	for _, b := range []byte(nameBytes) {
		in[b] = true
	}
	for b := range in {
		in[b] = in[b] || isLetter(byte(b)) || isDigit(byte(b))
	}
	return in
}()

func isLetter(b byte) bool { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// InName reports whether the name of an entity or of a resource may hold a byte. "#" separates the parts of keys of the
// table, and is not allowed.
func InName(b byte) bool { return inName[b] }

// CheckName returns the rule that the name of an entity or of a resource breaks, "" for none.
func CheckName(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > MaxName:
		return fmt.Sprintf("must have at most %d characters", MaxName)
	}
	for i := range len(name) {
		if !InName(name[i]) {
			return "must hold only ASCII letters, digits and " + nameBytes
		}
	}
	return ""
}

// ShellWord returns the name of an entity or of a resource as one word of a command line: a name may hold "|", and begin with "~".
func ShellWord(name string) string {
	if strings.HasPrefix(name, "~") || strings.Contains(name, "|") {
		return "'" + name + "'"
	}
	return name
}

const (
	maxLimitName   = 64
	limitNameBytes = "_.-"
)

// CheckLimitName returns the rule that the name of a limit breaks, "" for none.
func CheckLimitName(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > maxLimitName:
		return fmt.Sprintf("must have at most %d characters", maxLimitName)
	}
	for i := range len(name) {
		b := name[i]
		if !isLetter(b) && (i == 0 || !isDigit(b) && strings.IndexByte(limitNameBytes, b) < 0) {
			return "must start with a letter and hold only ASCII letters, digits and " + limitNameBytes
		}
	}
	return ""
}

// digest stands in a name before the hash of a text that is too long. No encoded byte looks like it.
const digest = "%~"

const upperHex = "0123456789ABCDEF"

// EncodeName returns the name that stands for any text. Bytes that names do not hold, "%", and the first byte of a
// reserved name become "%" and two digits in capitals. A name that gets too long ends in a hash of the text.
func EncodeName(text string, reserved func(string) bool) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if c != '%' && InName(c) && (i > 0 || !reserved(text)) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	name := b.String()
	if len(name) <= MaxName {
		return name
	}
	sum := sha256.Sum256([]byte(text))
	end := MaxName - len(digest) - 2*len(sum)
	for i := end - 2; i < end; i++ { // no byte is cut in the middle
		if name[i] == '%' {
			end = i
		}
	}
	return name[:end] + digest + hex.EncodeToString(sum[:])
}

// DecodeName returns the text that a name stands for. It returns false for a name that EncodeName does not return, and
// for a name with a hash at its end.
func DecodeName(name string, reserved func(string) bool) (text string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' {
			if i+2 >= len(name) {
				return "", false
			}
			high, low := strings.IndexByte(upperHex, name[i+1]), strings.IndexByte(upperHex, name[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			c = byte(high<<4 | low)
			i += 2
		}
		b.WriteByte(c)
	}
	text = b.String()
	return text, EncodeName(text, reserved) == name
}
