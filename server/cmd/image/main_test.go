package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/opencontainers/go-digest"
	oci "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
)

// read reads a blob of a layout, and checks its digest and size.
func read(t *testing.T, dir string, d oci.Descriptor, into any) []byte {
	t.Helper()
	content := check.Call(os.ReadFile(filepath.Join(dir, "blobs", "sha256", d.Digest.Encoded()))).Must(t, "os.ReadFile()")
	if got := digest.FromBytes(content); got != d.Digest || int64(len(content)) != d.Size {
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
	b := builder{} // with the flags of the test, whose packages are compiled already
	platforms := soak.Pick([]string{runtime.GOARCH}, []string{"amd64", "arm64"})
	check.Fatal(t, "write()", b.write(t.Context(), out, certificates, strings.Split("linux/"+strings.Join(platforms, ",linux/"), ",")))
	if err := b.write(t.Context(), out, certificates, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("write over an image = %v", err)
	}
	top := check.Call(os.ReadFile(filepath.Join(out, "index.json"))).Must(t, "os.ReadFile()")
	var names, images oci.Index
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
func checkImage(t *testing.T, out string, image oci.Descriptor, architecture string) {
	t.Helper()
	var m oci.Manifest
	read(t, out, image, &m)
	var c oci.Image
	read(t, out, m.Config, &c)
	z := check.Call(gzip.NewReader(bytes.NewReader(read(t, out, m.Layers[0], nil)))).Must(t, "gzip.NewReader()")
	content := check.Call(io.ReadAll(z)).Must(t, "io.ReadAll()")
	if c.RootFS.DiffIDs[0] != digest.FromBytes(content) || c.Config.User != "65532:65532" || c.Architecture != architecture || image.Platform.Architecture != architecture {
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

// start starts the program, asks for its health, and ends it.
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
	conn := check.Call(grpc.NewClient(ports[0], grpc.WithTransportCredentials(insecure.NewCredentials()))).Must(t, "grpc.NewClient()")
	got, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil || got.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health = %v, %v", got, err)
	}
	_ = conn.Close()
	check.Fatal(t, "Process.Signal()", cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v:\n%s", err, log.Bytes())
	}
}
