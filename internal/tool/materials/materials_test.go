package materials_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/tool/materials"
)

// TestList lists the modules of a generator: Go itself, and the module that writes Go.
func TestList(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/zlimit/zlimit-go/gen").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	text := check.Call(materials.List("example.com/program", "v1.2.3", program)).Must(t, "List()")
	again := check.Call(materials.List("example.com/program", "v1.2.3", program)).Must(t, "List()")
	if !bytes.Equal(text, again) {
		t.Error("two lists of one program differ")
	}
	var got struct {
		Metadata   struct{ Component materials.Component }
		Components []materials.Component
	}
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal(text, &got))
	about := materials.Component{Type: "application", Name: "example.com/program", Version: "v1.2.3", PURL: "pkg:golang/example.com/program@v1.2.3"}
	compare.Equal(t, "the program", about, got.Metadata.Component)
	found := map[string]materials.Component{}
	for _, c := range got.Components {
		found[c.Name] = c
	}
	version, _, _ := strings.Cut(runtime.Version(), " ")
	if c := found["std"]; c.Version != version || c.PURL != "pkg:golang/std@"+strings.TrimPrefix(version, "go") {
		t.Errorf("std is %+v, want version %s", c, version)
	}
	if c := found["github.com/dave/jennifer"]; c.Version == "" || !strings.HasSuffix(c.PURL, "@"+c.Version) || len(c.Properties) != 1 {
		t.Errorf("jennifer is %+v, want a version with a hash", c)
	}
}
