// Package pages reads the pages of the documentation, for the tests that run their blocks.
package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Page is a Markdown file of the documentation.
type Page struct {
	Path   string // relative to the root of the module, with slashes
	Lines  []string
	Blocks []Block
}

// A Block is fenced code.
type Block struct {
	Page     string // the path of its page
	Line     int    // of its first line of code, from 1
	Language string
	Text     string
	Next     string // the language of the block that follows with nothing but empty lines between; "" for none
	Result   string // the text of that block
}

// At says where a block is, as compilers do.
func (b Block) At() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// ReadAll reads README.md and the pages of the directories docs and docs/design, below the root of the module.
func ReadAll(root string) ([]Page, error) {
	all := []Page{{Path: "README.md"}}
	for _, dir := range []string{"docs", "docs/design"} {
		paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.md"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			all = append(all, Page{Path: dir + "/" + filepath.Base(path)})
		}
	}
	var err error
	for i := range all {
		if all[i], err = Read(root, all[i].Path); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Read reads one page, whose path is relative to the root of the module.
func Read(root, path string) (Page, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		return Page{}, err
	}
	return Parse(path, string(text))
}

const fence = "```"

// Parse finds the blocks of a page. Fences start at the left margin; there is one kind.
func Parse(path, text string) (Page, error) {
	p := Page{Path: path, Lines: strings.Split(text, "\n")}
	var open *Block
	var code []string
	last := -1 // the line that ended the last block, while only empty ones followed
	for i, line := range p.Lines {
		language, fenced := strings.CutPrefix(line, fence)
		switch {
		case fenced && open == nil:
			if language == "" || strings.ContainsAny(language, "` \t") {
				return Page{}, fmt.Errorf("%s:%d: a block must name its language, and nothing else", path, i+1)
			}
			open, code = &Block{Page: path, Line: i + 2, Language: language}, nil
		case line == fence:
			open.Text = strings.Join(code, "\n") + "\n"
			if last >= 0 {
				before := &p.Blocks[len(p.Blocks)-1]
				before.Next, before.Result = open.Language, open.Text
			}
			p.Blocks = append(p.Blocks, *open)
			open, last = nil, i
		case open != nil:
			code = append(code, line)
		case strings.Contains(line, fence), strings.HasPrefix(strings.TrimLeft(line, " "), "~~~"):
			return Page{}, fmt.Errorf("%s:%d: a fence must start its line, and be of backquotes", path, i+1)
		case line != "":
			last = -1
		}
	}
	if open != nil {
		return Page{}, fmt.Errorf("%s: the block does not end", open.At())
	}
	return p, nil
}
