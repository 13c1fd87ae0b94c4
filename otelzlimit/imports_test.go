package otelzlimit

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports holds the package to the API of OpenTelemetry. The SDK and an exporter are for its tests alone, so that they are in no module
// graph of a program that imports the package.
func TestImports(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(output))
	if len(deps) < 50 {
		t.Fatalf("go list gives %d packages, want all dependencies", len(deps))
	}
	for _, path := range deps {
		for _, other := range []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/prometheus"} {
			if strings.HasPrefix(path, other) {
				t.Errorf("the package imports %s", path)
			}
		}
	}
}
