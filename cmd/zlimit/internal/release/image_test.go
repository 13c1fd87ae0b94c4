package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
)

// read reads a blob of a layout, and checks its digest and size.
func read(t *testing.T, dir string, d descriptor, into any) []byte {
	t.Helper()
	content := check.Call(os.ReadFile(filepath.Join(dir, "blobs", strings.ReplaceAll(d.Digest, ":", "/")))).Must(t, "os.ReadFile()")
	if got := digest(content); got != d.Digest || int64(len(content)) != d.Size {
		t.Errorf("blob %s has %d bytes with the digest %s", d.Digest, len(content), got)
	}
	if into != nil {
		check.Fatal(t, "json.Unmarshal()", json.Unmarshal(content, into))
	}
	return content
}

// TestArchive lists directories before what is in them.
func TestArchive(t *testing.T) {
	content := archive([]file{{"a/b/c", 0o644, []byte("x")}, {"a/d", 0o755, nil}})
	var names []string
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check.Fatal(t, "Next()", err)
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "tmp/ a/ a/b/ a/b/c a/d" {
		t.Errorf("archive = %s", got)
	}
}

// TestImage builds an image, unpacks it, and starts the program in it, which answers its health checks and drains. The long form builds it
// for both platforms. A program for another processor is started where qemu is installed.
func TestImage(t *testing.T) {
	if os.Getenv("ZLIMIT_EXHAUSTIVE") == "" {
		t.Skip("builds a release: ZLIMIT_EXHAUSTIVE=1 runs it")
	}
	work := t.TempDir()
	certificates, out := filepath.Join(work, "ca.crt"), filepath.Join(work, "image")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(certificates, []byte("authorities"), 0o600))
	platforms := soak.Pick([]string{runtime.GOARCH}, []string{"amd64", "arm64"})
	i := image{out: out, certificates: certificates, build: buildServer, platforms: strings.Split("linux/"+strings.Join(platforms, ",linux/"), ",")}
	check.Fatal(t, "write()", i.write(t.Context()))
	if err := i.write(t.Context()); !errors.Is(err, os.ErrExist) {
		t.Errorf("write over an image = %v", err)
	}
	top := check.Call(os.ReadFile(filepath.Join(out, "index.json"))).Must(t, "os.ReadFile()")
	var names, images struct{ Manifests []descriptor }
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal(top, &names))
	read(t, out, names.Manifests[0], &images)
	if len(images.Manifests) != len(platforms) {
		t.Fatalf("there are %d images, want %s", len(images.Manifests), platforms)
	}
	for i, architecture := range platforms {
		t.Run(architecture, func(t *testing.T) { checkImage(t, out, images.Manifests[i], architecture) })
	}
}

// checkImage unpacks an image, and starts the program in it.
func checkImage(t *testing.T, out string, image descriptor, architecture string) {
	t.Helper()
	var m struct {
		Config descriptor
		Layers []descriptor
	}
	read(t, out, image, &m)
	var c struct {
		Architecture string
		RootFS       struct {
			DiffIDs []string `json:"diff_ids"`
		}
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	read(t, out, m.Config, &c)
	z := check.Call(gzip.NewReader(bytes.NewReader(read(t, out, m.Layers[0], nil)))).Must(t, "gzip.NewReader()")
	content := check.Call(io.ReadAll(z)).Must(t, "io.ReadAll()")
	if c.RootFS.DiffIDs[0] != digest(content) || c.Config.User != "65532:65532" || c.Architecture != architecture || image.Platform.Architecture != architecture {
		t.Errorf("config = %+v", c)
	}
	root := t.TempDir()
	unpack(t, content, root)
	var modules struct {
		Components []struct{ Name, Version string }
	}
	text, err := os.ReadFile(filepath.Join(root, "usr/share/sbom/zlimitd.cdx.json"))
	if err == nil {
		err = json.Unmarshal(text, &modules)
	}
	if err != nil || len(modules.Components) < 20 {
		t.Errorf("%d modules are listed, %v", len(modules.Components), err)
	}
	program := filepath.Join(root, c.Config.Entrypoint[0])
	headers := check.Call(elf.Open(program)).Must(t, "elf.Open()")
	machine := headers.Machine
	_ = headers.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[architecture]; machine != want {
		t.Errorf("the program is for %v, want %v", machine, want)
	}
	if architecture == runtime.GOARCH {
		start(t, program)
		return
	}
	emulator, err := exec.LookPath(map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}[architecture])
	if err != nil {
		t.Skip("the program of this processor is not started:", err)
	}
	start(t, emulator, program)
}

func unpack(t *testing.T, content []byte, root string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		check.Fatal(t, "Next()", err)
		path := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, os.FileMode(h.Mode))
			}
		}
		check.Fatal(t, "the entry "+h.Name, err)
	}
}

// start starts the program, asks whether it is ready, and ends it.
func start(t *testing.T, command ...string) {
	t.Helper()
	var ports [2]string
	for i := range ports {
		l := check.Call(net.Listen("tcp", "127.0.0.1:0")).Must(t, "net.Listen()")
		ports[i] = l.Addr().String()
		_ = l.Close()
	}
	settings := filepath.Join(t.TempDir(), "zlimitd.yaml")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(settings, []byte("drain: {delay: 1ms}\n"), 0o600))
	var log bytes.Buffer
	cmd := exec.Command(command[0], append(command[1:], "-config", settings)...)
	cmd.Env, cmd.Stderr = []string{"ZLIMITD_GRPC=" + ports[0], "ZLIMITD_HTTP=" + ports[1]}, &log
	check.Fatal(t, "Start()", cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	ready := false
	for range 200 {
		if answer, err := http.Get("http://" + ports[1] + "/readyz"); err == nil {
			ready = answer.StatusCode == http.StatusOK
			_ = answer.Body.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !ready {
		t.Fatalf("the program is not ready:\n%s", log.Bytes())
	}
	conn := check.Call(net.Dial("tcp", ports[0])).Must(t, "net.Dial() of the port of gRPC")
	_ = conn.Close()
	check.Fatal(t, "Process.Signal()", cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v:\n%s", err, log.Bytes())
	}
}
