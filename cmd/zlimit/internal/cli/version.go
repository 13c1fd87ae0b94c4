package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build, ok := debug.ReadBuildInfo(); ok {
		v.Version, v.Revision = versionOf(build)
	}
	return v
}

// versionOf returns the version and the revision of a build. A release does not record its own, so that its bytes are the same
// everywhere: it is known by its tag.
func versionOf(build *debug.BuildInfo) (version, revision string) {
	version = cmp.Or(build.Main.Version, "(devel)")
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "embed_function"):
			version = "v" + zlimit.Version
		}
	}
	return version, revision
}

// String returns the version as one line.
func (v version) String() string { return fmt.Sprintf("zlimit %s %s %s", v.Version, v.Go, v.Platform) }

func versionCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  shell.Takes(),
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			return sh.Print(v, func(p *show.Page) { p.Linef("%s", v) })
		},
	}
}
