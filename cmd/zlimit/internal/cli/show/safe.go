package show

import (
	"strconv"
	"strings"
	"unicode"
)

// Text that others have written, such as names and metadata, may hold what a terminal or a spreadsheet obeys. It is shown as what it is.

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

// isHidden reports whether a character does not print: controls, marks that change the direction of text, and bytes that are none.
func isHidden(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// Inert returns the text of a cell of CSV that no spreadsheet takes for a formula: one that begins like a formula, and is no number,
// gets an apostrophe before it.
func Inert(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return "'" + cell
}
