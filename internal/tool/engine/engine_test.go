package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// tarball packs files the way npm does.
func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	archive := tar.NewWriter(zipped)
	for name, body := range files {
		header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}
		check.Fatal(t, "WriteHeader()", archive.WriteHeader(header))
		if _, err := archive.Write([]byte(body)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	check.Fatal(t, "Close()", archive.Close())
	check.Fatal(t, "Close()", zipped.Close())
	return buf.Bytes()
}

func TestVerifyTellsTamperedTarballs(t *testing.T) {
	body := []byte("the package")
	sum := sha512.Sum512(body)
	integrity := "sha512-" + base64.StdEncoding.EncodeToString(sum[:])

	check.Error(t, "verify(the package)", verify(body, integrity))
	body[0] ^= 1
	if err := verify(body, integrity); err == nil {
		t.Error("verify(a changed package) = nil, want an error")
	}
}

func TestExtractWritesOneExecutable(t *testing.T) {
	packed := tarball(t, map[string]string{"package/package.json": "{}", "package/engine": "binary"})
	path := filepath.Join(t.TempDir(), "engine")
	check.Fatal(t, "extract()", extract(packed, "package/engine", path))
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "binary" {
		t.Errorf("extracted file = %q, %v, want %q", got, err, "binary")
	}
	info := check.Call(os.Stat(path)).Must(t, "os.Stat()")
	if info.Mode().Perm()&0o100 == 0 {
		t.Errorf("mode = %v, want an executable", info.Mode())
	}
}

func TestExtractNamesTheMissingFile(t *testing.T) {
	packed := tarball(t, map[string]string{"package/package.json": "{}"})
	err := extract(packed, "package/engine", filepath.Join(t.TempDir(), "engine"))
	if err == nil || !strings.Contains(err.Error(), "package/engine") {
		t.Errorf("extract = %v, want an error that names package/engine", err)
	}
}

func TestExtractRefusesCutTarballs(t *testing.T) {
	packed := tarball(t, map[string]string{"package/engine": strings.Repeat("binary", 1000)})
	if err := extract(packed[:len(packed)/2], "package/engine", filepath.Join(t.TempDir(), "engine")); err == nil {
		t.Error("extract(half a tarball) = nil, want an error")
	}
}

func TestInstallKeepsAnInstalledEngine(t *testing.T) {
	root := t.TempDir()
	path := Path(root)
	check.Fatal(t, "os.MkdirAll()", os.MkdirAll(filepath.Dir(path), 0o755))
	check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte("installed"), 0o755))
	t.Setenv("PATH", "") // npm would be missed, if it were called.
	got, err := Install(root)
	if err != nil || got != path {
		t.Errorf("Install() = %q, %v, want %q", got, err, path)
	}
}
