package blocking

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports looks for what only the generator, the command, the aggregator and the tests may use among what the SDK and
// its facade compile.
func TestImports(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "..", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(output))
	if len(deps) < 100 {
		t.Fatalf("go list gives %d packages, want all dependencies", len(deps))
	}
	for _, dep := range deps {
		for _, banned := range []string{
			"github.com/dave/jennifer", "github.com/spf13", "github.com/aws/aws-lambda-go", "golang.org/x/tools", "go.yaml.in/yaml",
			"github.com/google/go-cmp", "go.uber.org/goleak", "pgregory.net/rapid",
			"github.com/zlimit/zlimit-go/gen", "github.com/zlimit/zlimit-go/cmd", "github.com/zlimit/zlimit-go/internal/proof/enginetest",
		} {
			if dep == banned || strings.HasPrefix(dep, banned+"/") {
				t.Errorf("the SDK compiles %s", dep)
			}
		}
	}
}
