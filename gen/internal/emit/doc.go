package emit

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// sentence returns a doc as a sentence: with a full stop.
func sentence(doc string) string {
	if strings.HasSuffix(doc, ".") || strings.HasSuffix(doc, "…") {
		return doc
	}
	return doc + "."
}

// lower returns a doc for use within a sentence: without its capital, unless the word is an initialism or a name.
func lower(doc string) string {
	first, size := utf8.DecodeRuneInString(doc)
	second, _ := utf8.DecodeRuneInString(doc[size:])
	if unicode.IsUpper(second) || unicode.IsDigit(second) {
		return doc
	}
	return string(unicode.ToLower(first)) + doc[size:]
}

func upper(doc string) string {
	if doc == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(doc)
	return string(unicode.ToUpper(first)) + doc[size:]
}

// argList returns a list of arguments for a doc comment; "" when there are none.
func argList(args []*schema.Arg) string {
	var b strings.Builder
	for _, a := range args {
		b.WriteString("\n  - " + schema.Unexported(a.Name) + ": " + a.Doc)
	}
	return b.String()
}

// comment returns text as a Go comment, wrapped. Lines that start with white space are kept as they are, except list
// items, whose further lines are indented.
func comment(text string, indent int) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		hang := ""
		switch {
		case strings.HasPrefix(line, "  - "):
			hang = "    "
		case line == "" || line[0] == '\t':
			out = append(out, strings.TrimRight("//"+line, " "))
			continue
		}
		for _, wrapped := range wrap(line, hang, lineWidth-len("// ")-indent) {
			out = append(out, "// "+wrapped)
		}
	}
	return strings.Join(out, "\n")
}

// wrap breaks a line between words. The lines after the first start with hang.
func wrap(line, hang string, width int) []string {
	var out []string
	rest := strings.TrimLeft(line, " ")
	current := line[:len(line)-len(rest)]
	blank := true // current has no word yet
	for word := range strings.FieldsSeq(rest) {
		if !blank && utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) > width {
			out = append(out, current)
			current, blank = hang, true
		}
		if !blank {
			current += " "
		}
		current += word
		blank = false
	}
	return append(out, current)
}
