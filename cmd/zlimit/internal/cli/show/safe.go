package show

import (
	"strconv"
	"strings"
	"unicode"
)

// Text of other authors, such as names and metadata, may hold commands of a terminal or a spreadsheet. It is shown with
// those characters escaped.

// Printable returns text with what does not print as escapes of Go, such as \x1b. Newlines are escaped, too.
func Printable(text string) string {
	if !strings.ContainsFunc(text, isHidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isHidden(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isHidden reports a character that does not print: a control, a mark of text direction, or an invalid byte.
func isHidden(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// Inert returns the text of a cell of CSV that no spreadsheet takes for a formula. An apostrophe comes before text that
// begins like a formula and is no number.
func Inert(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return "'" + cell
}
