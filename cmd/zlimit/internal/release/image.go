package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/tool/materials"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An image of zlimitd is an OCI layout, made without a daemon and without a base image: the program, the certificates of authorities, /tmp, and
// a list of the modules in the program. The same source, Go and certificates give the same bytes. The layout is a handful of files of JSON. Any
// tool pushes it, such as "skopeo copy oci:dist/image docker://registry/zlimitd".
type image struct {
	out          string   // the directory of the layout, which must not exist
	certificates string   // the file of the certificates of authorities
	platforms    []string // such as linux/arm64
	build        func(ctx context.Context, path, system, architecture string) error
}

// server is the path of the module of zlimitd.
const server = module + "/server"

// buildServer builds zlimitd for a platform.
func buildServer(ctx context.Context, path, system, architecture string) error {
	root, err := goTool(ctx, nil, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}
	return build(ctx, path, system, architecture, server+"/cmd/zlimitd", "-C", filepath.Join(strings.TrimSpace(root), "server"))
}

// Types of media, as the specification of OCI names them.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// A descriptor names a file of a layout by its hash.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// index returns an index of images.
func index(of ...descriptor) map[string]any {
	return map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": of}
}

// write builds the program for each platform, and writes the layout of their images.
func (i *image) write(ctx context.Context) error {
	authorities, err := os.ReadFile(i.certificates)
	if err != nil {
		return err
	}
	if _, err := os.Stat(i.out); err == nil {
		return fmt.Errorf("%s: %w", i.out, os.ErrExist)
	}
	l := &layout{dir: i.out}
	var images []descriptor
	for _, name := range i.platforms {
		system, architecture, ok := strings.Cut(name, "/")
		if !ok || system != "linux" || architecture == "" {
			return fmt.Errorf("-platforms: must be of the form linux/arm64, got %q", name)
		}
		p := platform{architecture, system}
		binary, modules, err := i.program(ctx, p)
		if err != nil {
			return err
		}
		images = append(images, l.image(p, []file{
			{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities}, {"usr/share/sbom/zlimitd.cdx.json", 0o644, modules}, {"zlimitd", 0o755, binary},
		}))
	}
	all := l.json(mediaIndex, index(images...))
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": zlimit.Version}
	l.file("index.json", marshal(index(all)))
	l.file("oci-layout", marshal(map[string]string{"imageLayoutVersion": "1.0.0"}))
	return l.err
}

// program returns the program for a platform, and the list of its modules.
func (i *image) program(ctx context.Context, p platform) (binary, modules []byte, err error) {
	dir, err := os.MkdirTemp("", "zlimit-image-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of this run alone
	path := filepath.Join(dir, "zlimitd")
	if err := i.build(ctx, path, p.OS, p.Architecture); err != nil {
		return nil, nil, err
	}
	if modules, err = materials.List(server+"/cmd/zlimitd", "v"+zlimit.Version, path); err != nil {
		return nil, nil, err
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
func (l *layout) image(p platform, files []file) descriptor {
	content := archive(files)
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // which is a level
	_, _ = z.Write(content)                                    // into memory
	_ = z.Close()
	layer := l.blob(mediaLayer, packed.Bytes())
	config := l.json(mediaConfig, map[string]any{
		"created": time.Unix(0, 0).UTC(), "architecture": p.Architecture, "os": p.OS,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(content)}},
		"config": map[string]any{
			"User": "65532:65532", "Entrypoint": []string{"/zlimitd"}, "Env": []string{"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
			"ExposedPorts": map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
			"Labels": map[string]string{
				"org.opencontainers.image.title": "zlimitd", "org.opencontainers.image.version": zlimit.Version, "org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	d := l.json(mediaManifest, map[string]any{"schemaVersion": 2, "mediaType": mediaManifest, "config": config, "layers": []descriptor{layer}})
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

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// marshal returns a value of texts and numbers as JSON.
func marshal(value any) []byte {
	content, _ := json.Marshal(value)
	return content
}

func (l *layout) json(mediaType string, value any) descriptor {
	return l.blob(mediaType, marshal(value))
}

// blob writes a blob, and returns its descriptor.
func (l *layout) blob(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: int64(len(content))}
	l.file(filepath.Join("blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:")), content)
	return d
}

func (l *layout) file(name string, content []byte) {
	path := filepath.Join(l.dir, name)
	if l.err == nil {
		l.err = os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // for everybody
	}
	if l.err == nil {
		l.err = os.WriteFile(path, content, 0o644) //nolint:gosec // for everybody
	}
}
