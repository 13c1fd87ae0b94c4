package docs

import (
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/pages"
)

// TestErrors writes blocks that are wrong: each is an error that says where.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
	}{
		{"a block without a language", "```\ncode\n```\n", "docs/p.md:1: a block must name its language"},
		{"a block with words after the language", "```go skip\n```\n", "docs/p.md:1: a block must name its language"},
		{"a block that does not end", "text\n```go\nx()\n", "docs/p.md:3: the block does not end"},
		{"an indented fence", "- item\n  ```go\n", "docs/p.md:2: a fence must start its line"},
		{"a fence of tildes", "~~~go\n~~~\n", "docs/p.md:1: a fence must start its line"},
		{"an ellipsis", "```go\nx := 1\n…\n```\n", "docs/p.md:3: illegal character"},
		{"half a function", "```go\nfunc f() {\n```\n", "docs/p.md:2: expected"},
		{"half a statement", "```go\nif true {\n```\n", "docs/p.md:3"},
		{"no statement", "```go\n// nothing\n```\n", "docs/p.md:2: the block is empty"},
		{"spaces in place of tabs", "```go\nif true {\n  x()\n}\n```\n", "docs/p.md:2: the block is not formatted"},
		{"a program of another package", "```go\npackage x\n\nfunc main() {}\n```\n", "docs/p.md:2: a program must be of package main"},
		{"a program without main", "```go\npackage main\n\nfunc f() {}\n```\n", "docs/p.md:2: a program must be of package main"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := pages.Parse("docs/p.md", test.text)
			if err == nil {
				_, err = newProgram(p.Blocks[0])
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want one with %q", err, test.want)
			}
		})
	}
}
