// The command image writes an image of zlimitd as an OCI layout, without a daemon and without a base image: the program, the
// certificates of authorities, /tmp, and a list of the modules in the program. The same source, Go and certificates give the same bytes.
// The layout is a handful of files of JSON. Any tool pushes it, such as
// "skopeo copy oci:dist/image docker://registry/zlimitd".
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/zlimit/zlimit-go/zlimit"
)

const program = "github.com/zlimit/zlimit-go/server/cmd/zlimitd"

func main() {
	out := flag.String("out", "dist/image", "the directory of the layout, which must not exist")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms, with commas between")
	certificates := flag.String("certificates", "/etc/ssl/certs/ca-certificates.crt", "the file of the certificates of authorities")
	flag.Parse()
	builder := builder{flags: []string{"-trimpath", "-ldflags=-s -w"}, env: []string{"CGO_ENABLED=0", "GOFLAGS="}}
	if err := builder.write(context.Background(), *out, *certificates, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// A builder builds the program with flags and environment variables of go.
type builder struct{ flags, env []string }

var versioned = specs.Versioned{SchemaVersion: 2}

// write builds the program for each platform, and writes the layout of their images.
func (b *builder) write(ctx context.Context, out, certificates string, platforms []string) error {
	authorities, err := os.ReadFile(certificates)
	if err != nil {
		return err
	}
	if _, err := os.Stat(out); err == nil {
		return fmt.Errorf("%s: %w", out, os.ErrExist)
	}
	l := &layout{dir: out}
	all := oci.Index{Versioned: versioned, MediaType: oci.MediaTypeImageIndex}
	for _, name := range platforms {
		system, architecture, ok := strings.Cut(name, "/")
		if !ok || system != "linux" || architecture == "" {
			return fmt.Errorf("platforms: must be of the form linux/arm64, got %q", name)
		}
		p := oci.Platform{OS: system, Architecture: architecture}
		binary, modules, err := b.build(ctx, p)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, l.image(p, []file{
			{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities}, {"usr/share/sbom/zlimitd.cdx.json", 0o644, modules}, {"zlimitd", 0o755, binary},
		}))
	}
	images := l.json(oci.MediaTypeImageIndex, all)
	images.Annotations = map[string]string{oci.AnnotationRefName: zlimit.Version}
	l.file(oci.ImageIndexFile, marshal(oci.Index{Versioned: versioned, MediaType: oci.MediaTypeImageIndex, Manifests: []oci.Descriptor{images}}))
	l.file(oci.ImageLayoutFile, marshal(oci.ImageLayout{Version: oci.ImageLayoutVersion}))
	return l.err
}

// build returns the program for a platform, and the list of its modules.
func (b *builder) build(ctx context.Context, p oci.Platform) (binary, modules []byte, err error) {
	dir, err := os.MkdirTemp("", "zlimit-image-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of this run alone
	path := filepath.Join(dir, "zlimitd")
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-o", path}, b.flags, []string{program})...)
	cmd.Env = slices.Concat(os.Environ(), b.env, []string{"GOOS=" + p.OS, "GOARCH=" + p.Architecture})
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("go build: %w\n%s", err, output)
	}
	list := exec.CommandContext(ctx, "go", "run", "github.com/zlimit/zlimit-go/internal/tool/materials/list", program, "v"+zlimit.Version, path)
	list.Stderr = os.Stderr
	if modules, err = list.Output(); err != nil {
		return nil, nil, fmt.Errorf("list the modules: %w", err)
	}
	binary, err = os.ReadFile(path)
	return binary, modules, err
}

// A file of an image.
type file struct {
	name    string
	mode    int64
	content []byte
}

// A layout is the directory of an image. It keeps the first error of its files, and writes nothing after it.
type layout struct {
	dir string
	err error
}

// image writes an image of files, and returns the descriptor of its manifest.
func (l *layout) image(p oci.Platform, files []file) oci.Descriptor {
	content := archive(files)
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // which is a level
	_, _ = z.Write(content)                                    // into memory
	_ = z.Close()
	layer := l.blob(oci.MediaTypeImageLayerGzip, packed.Bytes())
	created := time.Unix(0, 0).UTC()
	config := l.json(oci.MediaTypeImageConfig, oci.Image{Platform: p, Created: &created, RootFS: oci.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(content)}}, Config: oci.ImageConfig{
		User: "65532:65532", Entrypoint: []string{"/zlimitd"}, Env: []string{"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
		Labels:       map[string]string{oci.AnnotationTitle: "zlimitd", oci.AnnotationVersion: zlimit.Version, oci.AnnotationLicenses: "Apache-2.0"},
	}})
	d := l.json(oci.MediaTypeImageManifest, oci.Manifest{Versioned: versioned, MediaType: oci.MediaTypeImageManifest, Config: config, Layers: []oci.Descriptor{layer}})
	d.Platform = &p
	return d
}

// archive returns files as a tar archive, with the directories above them and a /tmp for everyone.
func archive(files []file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b) // into memory
	made := map[string]bool{}
	directory := func(name string, mode int64) {
		made[name] = true
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: time.Unix(0, 0)})
	}
	directory("tmp", 0o1777)
	for _, f := range files {
		for i, c := range f.name {
			if c == '/' && !made[f.name[:i]] {
				directory(f.name[:i], 0o755)
			}
		}
		_ = w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0)})
		_, _ = w.Write(f.content)
	}
	_ = w.Close()
	return b.Bytes()
}

// marshal returns a value of image-spec, which is of texts and numbers.
func marshal(value any) []byte {
	content, _ := json.Marshal(value)
	return content
}

func (l *layout) json(mediaType string, value any) oci.Descriptor {
	return l.blob(mediaType, marshal(value))
}

// blob writes a blob, and returns its descriptor.
func (l *layout) blob(mediaType string, content []byte) oci.Descriptor {
	d := oci.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	l.file(filepath.Join(oci.ImageBlobsDir, "sha256", d.Digest.Encoded()), content)
	return d
}

func (l *layout) file(name string, content []byte) {
	path := filepath.Join(l.dir, name)
	if l.err == nil {
		l.err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if l.err == nil {
		l.err = os.WriteFile(path, content, 0o644)
	}
}
