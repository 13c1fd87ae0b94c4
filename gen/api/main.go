// Command api writes docs/api.txt, which lists what the packages for users export, a symbol to a line. A review of a
// change sees it there.
package main

import (
	"flag"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/gen/internal/source"
)

func main() {
	log.SetFlags(0)
	root := flag.String("root", ".", "the directory of the module")
	flag.Parse()
	text, err := listing(*root)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*root, "docs", "api.txt"), []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

// listing returns what the packages of a module export that other modules can import, in alphabetical order.
func listing(root string) (string, error) {
	command := exec.Command("go", "list", "-f", "{{if .GoFiles}}{{.Name}} {{.Module.Path}} {{.ImportPath}}{{end}}", "./...")
	command.Dir, command.Stderr = root, os.Stderr
	output, err := command.Output()
	if err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) == 0 { // nothing but tests
			continue
		}
		path := strings.TrimPrefix(fields[2], fields[1]+"/")
		if fields[0] == "main" || strings.HasPrefix(path, "examples/") || slices.Contains(strings.Split(path, "/"), "internal") {
			continue
		}
		p, err := source.Load(filepath.Join(root, filepath.FromSlash(path)))
		if err != nil {
			return "", err
		}
		for _, symbol := range exported(p.Types) {
			lines = append(lines, "pkg "+path+", "+symbol+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}
