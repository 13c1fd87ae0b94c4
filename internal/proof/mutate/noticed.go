package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
)

// A witness is a test that noticed a mutant. The zero witness is none.
type witness struct {
	pkg  string // such as ./zlimit
	test string // with its subtests
}

func (w witness) String() string { return w.pkg + " " + w.test }

// readNoticed reads a file of lines, each with the name of a mutant, a package and a test, with tabs between them. A file
// that does not exist has none.
func readNoticed(file string) (map[string]witness, error) {
	known := map[string]witness{}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q must have a mutant, a package and a test", file, line)
		}
		known[fields[0]] = witness{fields[1], fields[2]}
	}
	return known, nil
}

// writeNoticed writes the witnesses of the mutants, in their order. Names that stand for no mutant any more are left out.
func writeNoticed(file string, mutants []mutant, known map[string]witness) error {
	var content bytes.Buffer
	for _, m := range mutants {
		if by, ok := known[m.name]; ok {
			fmt.Fprintf(&content, "%s\t%s\t%s\n", m.name, by.pkg, by.test)
		}
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, content.Bytes()) {
		return nil
	}
	return atomicfile.Write(file, content.Bytes())
}
