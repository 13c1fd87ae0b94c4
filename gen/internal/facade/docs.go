package facade

import (
	"go/ast"
	"go/doc"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

// phrases are sentences of the core's docs about contexts, each with its counterpart for the
// facade.
var phrases = strings.NewReplacer(
	"the context's error if the context has ended", "[context.DeadlineExceeded] if the timeout has passed",
	"and not past the deadline of the context. Without either,", "and not past the timeout. Without either,",
	"If the context ends, the wait ends, and the tokens are returned in the background. If it ends during the write,",
	"If the timeout passes during the write,",
	"goes on for up to 5 seconds after the context ends", "takes up to 5 seconds, at any timeout",
)

// mention finds remaining words about contexts.
var mention = regexp.MustCompile(`(?i)\bcontexts?\b|\bctx\b`)

// link finds links to declarations of the core, with the words behind a link to an iterator.
var link = regexp.MustCompile(`\[(\*?)([A-Z]\w*)(?:\.([A-Z]\w*))?\]( yields)?`)

// docs returns the comments of declarations by the place of the name that is declared.
func docs(files []*ast.File) map[token.Pos]string {
	found := map[token.Pos]string{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				found[n.Name.Pos()] = n.Doc.Text()
				return false
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						found[spec.Name.Pos()] = n.Doc.Text() + spec.Doc.Text()
					}
				}
			case *ast.Field:
				for _, name := range n.Names {
					found[name.Pos()] = n.Doc.Text() + n.Comment.Text()
				}
			}
			return true
		})
	}
	return found
}

// doc returns the comment of a declaration as it reads in the facade. A paragraph is one line, links to shared types
// have the core's name, and nothing is about contexts.
func (a *analysis) doc(object types.Object, name string) string {
	text := phrases.Replace(unwrap(a.docs[object.Pos()]))
	if text == "" {
		a.fail(object, name, "has no doc comment")
	}
	if word := mention.FindString(strings.ReplaceAll(text, "[context.", "[")); word != "" {
		const where = "gen/internal/facade/docs.go"
		a.fail(object, name, "has a doc comment that is about the %s: say in %s how it reads without", word, where)
	}
	return link.ReplaceAllStringFunc(text, func(whole string) string {
		parts := link.FindStringSubmatch(whole)
		pointer, name, member, yields := parts[1], parts[2], parts[3], parts[4]
		declared := a.Types.Scope().Lookup(name)
		if declared == nil || a.funcs[name] {
			return whole
		}
		if t, ok := declared.(*types.TypeName); ok && a.types[t] != nil {
			if yields != "" {
				return "[" + name + "." + member + Iterator + "]" + yields
			}
			return whole
		}
		return "[" + pointer + a.Types.Name() + "." + strings.TrimSuffix(name+"."+member, ".") + "]" + yields
	})
}

// unwrap joins the lines of each paragraph and of each item of a list. What else is indented stays as it is.
func unwrap(text string) string {
	var lines []string
	before := "" // the kind of the line before: an item, prose, or neither
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		begins := ""
		switch {
		case strings.HasPrefix(line, item):
			begins = item
		case before == item && strings.HasPrefix(line, "    "):
			lines[len(lines)-1] += " " + strings.TrimSpace(line)
			continue
		case line != "" && !strings.ContainsRune(" \t#", rune(line[0])):
			begins = prose
		}
		if begins == prose && before == prose {
			lines[len(lines)-1] += " " + line
		} else {
			lines = append(lines, line)
		}
		before = begins
	}
	return strings.Join(lines, "\n")
}

const (
	prose = "prose"
	item  = "  - " // as gofmt writes it
)

// Iterator ends the names of methods that return an iterator, as in the standard library: strings.Split returns a slice,
// strings.SplitSeq an iterator.
const Iterator = "Seq"

// IteratorDoc returns the comment of a method that returns an iterator.
func IteratorDoc(m *Func) string { return m.Name + Iterator + strings.TrimPrefix(m.Doc, m.Name) }

// SliceDoc returns the comment of a method of t that returns the values of an iterator as a slice.
func SliceDoc(t *Type, m *Func) string {
	what := strings.TrimPrefix(new(doc.Package).Synopsis(m.Doc), m.Name+" yields ")
	return m.Name + " returns " + what + " It costs what a loop over [" + t.Name() + "." + m.Name + Iterator +
		"] costs; an error leaves nothing of the list."
}
