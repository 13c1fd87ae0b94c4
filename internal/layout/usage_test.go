package layout

import "testing"

func TestHasUsage(t *testing.T) {
	for limit, want := range map[string]bool{"rpm": true, "wcu": false, "window": false, "ttl": false, "seq": true} {
		if got := HasUsage(limit); got != want {
			t.Errorf("HasUsage(%q) = %t, want %t", limit, got, want)
		}
	}
}
