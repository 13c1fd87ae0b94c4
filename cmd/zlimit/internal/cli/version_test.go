package cli

import (
	"runtime/debug"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestVersionOf distinguishes a release, an installed module and a build of the source.
func TestVersionOf(t *testing.T) {
	for _, test := range []struct {
		name, main        string
		settings          []debug.BuildSetting
		version, revision string
	}{
		{"a release", "(devel)", []debug.BuildSetting{{Key: "-tags", Value: "embed_function"}}, "v" + zlimit.Version, ""},
		{"installed by go install", "v0.9.1", nil, "v0.9.1", ""},
		{"built from the source", "(devel)", []debug.BuildSetting{{Key: "-tags", Value: "lambda.norpc"}, {Key: "vcs.revision", Value: "4e45546"}}, "(devel)", "4e45546"},
		{"in a test", "", nil, "(devel)", ""},
	} {
		if version, revision := versionOf(&debug.BuildInfo{Main: debug.Module{Version: test.main}, Settings: test.settings}); version != test.version || revision != test.revision {
			t.Errorf("versionOf(%s) = %q, %q, want %q, %q", test.name, version, revision, test.version, test.revision)
		}
	}
}
