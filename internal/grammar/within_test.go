package grammar

import (
	"strings"
	"testing"
)

func TestCheckWithin(t *testing.T) {
	for _, c := range []struct{ wider, changed, want string }{
		{"a>b b>c", "a", ""},
		{"a>b b>c c>d", "a", "a within b within c within d"},
		{"a>b b>c c>d", "c", "a within b within c within d"},
		{"a>b b>c c>d d>e", "e", "b within c within d within e"},
		{"a>b b>c c>d", "e", ""}, // as it was before
		{"a>a", "a", "a within a"},
		{"a>b b>a x>y", "b", "a within b within a"},
		{"a>b b>a x>y", "x", ""},
		{"z>b b>a a>b", "z", "z within b within a within b"},
		{"a>b c>b d>b", "b", ""},
		{"", "a", ""},
	} {
		wider := map[string]string{}
		for _, pair := range strings.Fields(c.wider) {
			narrow, wide, _ := strings.Cut(pair, ">")
			wider[narrow] = wide
		}
		got := strings.Join(CheckWithin(wider, func(id string) bool { return id == c.changed }), " within ")
		if got != c.want {
			t.Errorf("CheckWithin(%s), %s changed: %q, want %q", c.wider, c.changed, got, c.want)
		}
	}
}
