package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/tool/materials"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestRelease makes a release twice, from two paths of the source: the bytes are the same. The program has the function inside.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it links programs")
	}
	if os.Getenv("ZLIMIT_RELEASE") == "" {
		t.Skip("compiles everything for another platform, twice: the nightly run sets ZLIMIT_RELEASE=1")
	}
	root := check.Call(filepath.Abs("../../../..")).Must(t, "filepath.Abs()")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	check.Fatal(t, "os.Symlink()", os.Symlink(root, elsewhere))
	var hashes [2]string
	var program string
	for i, source := range []string{root, elsewhere} {
		t.Chdir(source)
		t.Setenv("PWD", source) // the go command takes paths from it
		r := release{out: filepath.Join(t.TempDir(), "dist"), tag: "v" + zlimit.Version, platforms: []string{"linux/arm64"}, progress: io.Discard}
		check.Fatal(t, "make()", r.make(t.Context()))
		sums := check.Call(os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))).Must(t, "os.ReadFile()")
		hashes[i] = string(sums)
		program = filepath.Join(r.out, strings.Fields(hashes[i])[1])
	}
	if hashes[0] != hashes[1] {
		t.Errorf("two releases of one source are\n%s%s", hashes[0], hashes[1])
	}

	bill, err := os.ReadFile(filepath.Join(filepath.Dir(program), "zlimit-"+zlimit.Version+".cdx.json"))
	var listed struct{ Components []materials.Component }
	if err == nil {
		err = json.Unmarshal(bill, &listed)
	}
	if err != nil || !slices.ContainsFunc(listed.Components, func(c materials.Component) bool {
		return c.Name == "github.com/spf13/cobra" && c.Version != "" && c.Properties != nil
	}) {
		t.Errorf("the bill of materials is %s, %v", bill, err)
	}

	work := t.TempDir()
	if _, err := function(t.Context(), work); err != nil {
		t.Fatalf("function() = %v", err)
	}
	inside := check.Call(os.ReadFile(filepath.Join(work, "function.zip"))).Must(t, "os.ReadFile()")
	if code, err := stack.Unpack(inside); err != nil || code.Architecture != "arm64" {
		t.Errorf("the function is %+v, %v, want one for arm64", code, err)
	}
	// By this the program knows its version.
	info, err := buildinfo.ReadFile(program)
	if err != nil || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-tags", Value: "embed_function"}) {
		t.Errorf("the program was built as %v, %v", info, err)
	}
	content := check.Call(os.ReadFile(program)).Must(t, "os.ReadFile()")
	if !bytes.Contains(content, inside) { // the linker leaves out what no code uses
		t.Errorf("%s has %d bytes, and not the %d of the function", program, len(content), len(inside))
	}
}

// TestSign signs with the cosign on the PATH, and says if there is none.
func TestSign(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	var said strings.Builder
	r, path := release{progress: &said}, filepath.Join(dir, "SHA256SUMS")
	if err := r.sign(t.Context(), path); err != nil || said.String() != "not signed: cosign is not installed\n" {
		t.Errorf("without cosign: %v, %q", err, said.String())
	}
	for script, want := range map[string]string{"echo \"$@\" >\"$4\"": "", "echo no identity; exit 1": "no identity"} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, "cosign"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		err := r.sign(t.Context(), path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with cosign: %v, want %q", err, want)
		}
	}
	if signed, err := os.ReadFile(path + ".sigstore.json"); err != nil || !strings.Contains(string(signed), "sign-blob --yes --bundle") {
		t.Errorf("cosign was called with %q, %v", signed, err)
	}
}

// TestReleaseRefuses checks that what a release cannot be is refused before it builds.
func TestReleaseRefuses(t *testing.T) {
	for want, r := range map[string]release{
		"-tag v0.0.1: this is version " + zlimit.Version: {tag: "v0.0.1", platforms: []string{"linux/arm64"}},
		`-platforms: "linux" is not of the form`:         {platforms: []string{"linux/arm64", "linux"}},
	} {
		r.out, r.progress = filepath.Join(t.TempDir(), "dist"), io.Discard
		if err := r.make(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("make() = %v, want %q in it", err, want)
		}
		if _, err := os.Stat(r.out); err == nil {
			t.Errorf("a release that is refused has made %s", r.out)
		}
	}
}
