package grammar

import "strings"

// The modes of limits that refuse nothing.
const (
	Soft   = "soft"   // it is in debt where its requests go beyond it
	Shadow = "shadow" // it counts the requests that it would refuse
)

// cutMode splits the text after the name of a limit into the part before its mode, and the mode.
func cutMode(text string) (rest, mode string) {
	text = strings.TrimSpace(text)
	for _, mode := range []string{Soft, Shadow} {
		if rest, ok := strings.CutSuffix(text, " "+mode); ok {
			return strings.TrimSpace(rest), mode
		}
	}
	return text, ""
}

// mode returns the mode in the form that cutMode reads.
func (l *LimitOf[M]) mode() string {
	if l.Mode == "" {
		return ""
	}
	return " " + string(l.Mode)
}
