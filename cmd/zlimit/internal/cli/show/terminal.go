package show

import (
	"os"
	"strings"
)

// Control sequences of terminals.
const (
	HideCursor = "\x1b[?25l"
	ShowCursor = "\x1b[?25h"
	ClearLine  = "\x1b[K"
	Bold       = "1"
	Faint      = "2"
	Red        = "31"
	Green      = "32"
	Yellow     = "33"
)

// Bar returns a bar of which a part from 0 to 1 is full.
func Bar(part float64, width int, full, empty string) string {
	n := min(width, max(0, int(part*float64(width)+0.5)))
	return strings.Repeat(full, n) + strings.Repeat(empty, width-n)
}

// Spark returns a column for each value, as high as its part of the highest one, the last ones of a width.
func Spark(values []float64, width int) string {
	values = values[max(len(values)-width, 0):]
	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	var line strings.Builder
	for _, v := range values {
		n := 0
		if highest > 0 {
			n = min(len(levels)-1, max(0, int(v/highest*float64(len(levels)))))
		}
		line.WriteRune(levels[n])
	}
	return line.String()
}

// Fold splits a text into lines of a width, between words where it can.
func Fold(text string, width int) (lines []string) {
	width = max(width, 1)
	line := []rune{}
	for word := range strings.FieldsSeq(text) {
		runes := []rune(word)
		if len(line) > 0 && len(line)+1+len(runes) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		line = append(line, runes...)
		for len(line) > width {
			lines, line = append(lines, string(line[:width])), line[width:]
		}
	}
	if len(line) > 0 {
		lines = append(lines, string(line))
	}
	return lines
}

// IsTerminal reports whether a reader or a writer is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
