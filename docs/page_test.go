package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A page is a Markdown file of the documentation.
type page struct {
	path   string // relative to the root of the module, with slashes
	lines  []string
	blocks []block
}

// A block is fenced code.
type block struct {
	page     string // the path of its page
	line     int    // of its first line of code, from 1
	language string
	text     string
	next     string // the language of the block that follows with nothing but empty lines between; "" for none
	result   string // the text of that block
}

// at says where a block is, as compilers do.
func (b block) at() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// root is the root of the module, as seen from this package.
const root = ".."

// readPages reads README.md and the pages of this directory.
func readPages(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := []page{readPage(t, "README.md")}
	for _, path := range paths {
		pages = append(pages, readPage(t, "docs/"+path))
	}
	return pages
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsePage(path, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const fence = "```"

// parsePage finds the blocks of a page. Fences start at the left margin; there is one kind.
func parsePage(path, text string) (page, error) {
	p := page{path: path, lines: strings.Split(text, "\n")}
	var open *block
	var code []string
	last := -1 // the line that ended the last block, while only empty ones followed
	for i, line := range p.lines {
		language, fenced := strings.CutPrefix(line, fence)
		switch {
		case fenced && open == nil:
			if language == "" || strings.ContainsAny(language, "` \t") {
				return page{}, fmt.Errorf("%s:%d: a block must name its language, and nothing else", path, i+1)
			}
			open, code = &block{page: path, line: i + 2, language: language}, nil
		case line == fence:
			open.text = strings.Join(code, "\n") + "\n"
			if last >= 0 {
				before := &p.blocks[len(p.blocks)-1]
				before.next, before.result = open.language, open.text
			}
			p.blocks = append(p.blocks, *open)
			open, last = nil, i
		case open != nil:
			code = append(code, line)
		case strings.Contains(line, fence), strings.HasPrefix(strings.TrimLeft(line, " "), "~~~"):
			return page{}, fmt.Errorf("%s:%d: a fence must start its line, and be of backquotes", path, i+1)
		case line != "":
			last = -1
		}
	}
	if open != nil {
		return page{}, fmt.Errorf("%s: the block does not end", open.at())
	}
	return p, nil
}
