package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// pack downloads an npm package into dir and returns the bytes of its tarball.
func pack(dir, spec string) ([]byte, error) {
	cmd := exec.Command("npm", "pack", "--silent", spec)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, errors.New("npm is not installed; it is needed to download the DynamoDB engine")
		}
		return nil, fmt.Errorf("npm pack %s: %w\n%s", spec, err, out)
	}
	tarballs, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil {
		return nil, err
	}
	if len(tarballs) != 1 {
		return nil, fmt.Errorf("npm pack %s left %d tarballs, want one", spec, len(tarballs))
	}
	return os.ReadFile(tarballs[0])
}

// verify checks a tarball against the hash npm prints for it.
func verify(tarball []byte, integrity string) error {
	sum := sha512.Sum512(tarball)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return fmt.Errorf("integrity is %s, want %s", got, integrity)
	}
	return nil
}

// extract writes one regular file of a gzipped tarball to path, executable.
func extract(tarball []byte, entry, path string) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("no file %s in the tarball", entry)
		}
		if err != nil {
			return err
		}
		if header.Name == entry && header.Typeflag == tar.TypeReg {
			return write(path, archive)
		}
	}
}

// write copies r into a new executable file.
func write(path string, r io.Reader) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, r); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}
