package llm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// A place is a parsed place of an answer, see [Format].
type place struct {
	path     string // without brackets, as the scanner has it
	elements string // the path of the array whose elements are added up; "" for none
	where    []condition
	each     bool // every element counts one
	beside   bool // what is counted is not in the provider's other counts
}

// A condition is on a member of an element.
type condition struct {
	path, value string
	not         bool
}

// parsePlace parses a place of a count.
func parsePlace(text string) (p place, err error) {
	text, p.beside = strings.CutPrefix(text, "+")
	before, rest, brackets := strings.Cut(text, "[")
	if !brackets {
		p.path = text
		return p, checkNames(text)
	}
	inside, after, closed := strings.Cut(rest, "]")
	p.elements, p.path = before, before
	if member, ok := strings.CutPrefix(after, "."); ok {
		p.path += "." + member
	} else if p.each = true; after != "" {
		closed = false
	}
	if !closed || strings.ContainsAny(after, "[]") {
		return p, fmt.Errorf("must have brackets once, behind a name")
	}
	for condition := range strings.SplitSeq(inside, "&") {
		if condition == "" && inside == "" {
			break
		}
		c, err := parseCondition(before, condition)
		if err != nil {
			return p, err
		}
		p.where = append(p.where, c)
	}
	return p, checkNames(p.path)
}

func parseCondition(above, text string) (c condition, err error) {
	member, value, ok := strings.Cut(text, "=")
	if !ok {
		return c, fmt.Errorf("must have conditions such as type=text")
	}
	member, c.not = strings.CutSuffix(member, "!")
	c.path, c.value = above+"."+member, value
	return c, checkNames(c.path)
}

func checkNames(path string) error {
	for name := range strings.SplitSeq(path, ".") {
		if name == "" {
			return fmt.Errorf("must have names between its dots")
		}
	}
	return nil
}

// A role is a use of a scalar of an answer besides its count.
type role uint32

const (
	roleModel role = 1 << iota
	roleService
	roleSpeed
	roleRegion
	roleFinish
	roleDelay
	roleID
	roleStage
	roleFailure
	roleFailureValue // one of the values of the spot is a failure
	rolePicture      // the data of a picture, or where it is
	roleSound        // the data of sound
	roleMedium       // the data of a picture or of sound
	roleMediumKind   // the type of a medium
	roleMediumRate   // the samples of a second
	roleEvent        // the type of an event, which says what its text is
	rolePartModel    // the model of an element that is added up
)

// A spot is a path of an answer, with all uses of the scalars there.
type spot struct {
	roles    role
	text     *text // nil for what is no text
	failures []string
	counts   []Count // of the scalar itself
	terms    []int   // of the format, whose number the scalar is
	tests    []int   // of the format, whose member the scalar is
}

// A text is one of the forms in which an answer has the same text.
type text struct {
	group, form int
	whole       bool // an event may have all of it so far
}

// alone is the text that an answer has in one form.
var alone = text{group: -1}

// A term adds up a count over the elements of an array.
type term struct {
	count  Count
	beside bool
	each   bool
	alone  bool // it has no elements
	tests  []int
}

// A test says whether a member of an element has a value.
type test struct {
	value string
	not   bool
}

// An array is one whose elements are added up.
type array struct{ terms, tests []int }

// A format is a Format that can be looked up.
type format struct {
	Format
	spots  map[string]*spot
	below  []wild
	terms  []term
	tests  []test
	arrays map[string]*array
	groups int    // of texts that come in several forms
	forms  int    // of any group, at most
	whole  []bool // by group, whether events may have the whole text so far

	uses atomic.Pointer[map[string]use] // of paths that answers had; a map is not changed
}

// A use is what a scalar at a path is for.
type use struct {
	at       *spot
	interest interest
}

// usesMost bounds the paths that a format remembers. Answers have some twenty, and those that a model has made up may come beside them.
const usesMost = 128

// array returns the array at a path, or at the path that it has in the answer of a server behind a gateway; nil if its elements are not added
// up.
func (c *format) array(path []byte) *array {
	if a := c.arrays[string(path)]; a != nil {
		return a
	}
	if inner := wrapped(path); inner != nil {
		return c.arrays[string(inner)]
	}
	return nil
}

// remember remembers the use of a path beside the known ones. Where others remember one at the same time, one of them is lost.
func (c *format) remember(known *map[string]use, path []byte, u use) {
	next := map[string]use{}
	if known != nil {
		if len(*known) >= usesMost {
			return
		}
		next = maps.Clone(*known)
	}
	next[string(path)] = u
	c.uses.CompareAndSwap(known, &next)
}

// A wild is a place of text that stands for everything below it.
type wild struct {
	above string // with a dot at the end
	spot  spot
}

func (c *format) spot(path string) *spot {
	s := c.spots[path]
	if s == nil {
		s = &spot{}
		c.spots[path] = s
	}
	return s
}

func (c *format) mark(r role, paths ...string) {
	for _, path := range paths {
		c.spot(path).roles |= r
	}
}

// compile returns the format for look-ups. Places that validate refuses are left out.
func (f *Format) compile() *format {
	c := &format{Format: *f, spots: map[string]*spot{}, arrays: map[string]*array{}}
	for place, count := range f.Usage {
		c.add(place, count)
	}
	for _, place := range f.Text {
		c.addText(place)
	}
	c.mark(roleModel, f.Model...)
	c.mark(roleService, f.Service...)
	c.mark(roleSpeed, f.Speed...)
	c.mark(roleRegion, f.Region...)
	c.mark(roleFinish, f.Finish...)
	c.mark(rolePicture, f.pictures...)
	c.mark(roleSound, f.sounds...)
	for _, place := range f.media {
		c.mark(roleMedium, place)
		above := place[:strings.LastIndexByte(place, '.')+1]
		c.mark(roleMediumKind, above+"mimeType", above+"mime_type")
		c.mark(roleMediumRate, above+"sample_rate", above+"rate")
	}
	if f.soundEvents {
		c.mark(roleEvent, "type")
	}
	c.mark(roleDelay, "error.details.retryDelay") // of Google, also behind the calls of others
	c.mark(roleID, f.id...)
	c.mark(roleStage, f.stage...)
	for _, place := range append(append([]string{}, f.Failure...), failures...) {
		path, value, valued := strings.Cut(place, "=")
		switch s := c.spot(path); {
		case s.text != nil: // of this API, it is the answer
		case valued:
			s.roles |= roleFailureValue
			s.failures = append(s.failures, value)
		default:
			s.roles |= roleFailure
		}
	}
	return c
}

// add adds the place of a count.
func (c *format) add(name string, count Count) {
	p, err := parsePlace(name)
	if err != nil {
		return
	}
	if p.elements == "" && !p.beside {
		s := c.spot(p.path)
		s.counts = append(s.counts, count)
		return
	}
	t, a := term{count: count, beside: p.beside, each: p.each, alone: p.elements == ""}, &array{}
	if p.elements != "" {
		if a = c.arrays[p.elements]; a == nil {
			a = &array{}
			c.arrays[p.elements] = a
		}
	}
	for _, w := range p.where {
		s := c.spot(w.path)
		at := len(c.tests)
		for _, other := range s.tests {
			if c.tests[other].value == w.value && c.tests[other].not == w.not {
				at = other
			}
		}
		if at == len(c.tests) {
			c.tests = append(c.tests, test{w.value, w.not})
			s.tests, a.tests = append(s.tests, at), append(a.tests, at)
		}
		t.tests = append(t.tests, at)
	}
	c.terms = append(c.terms, t)
	a.terms = append(a.terms, len(c.terms)-1)
	if !p.each || len(p.where) == 0 { // elements that are scalars count, too
		s := c.spot(p.path)
		s.terms = append(s.terms, len(c.terms)-1)
	}
	if p.elements != "" {
		c.mark(rolePartModel, p.elements+".model")
	}
}

// addText adds a place of text, or several that are forms of the same text.
func (c *format) addText(places string) {
	forms := strings.Split(places, "|")
	group, whole := -1, isWhole(places) || slices.Contains(c.again, places)
	if len(forms) > 1 || whole {
		group = c.groups
		c.groups++
		c.forms = max(c.forms, len(forms))
		c.whole = append(c.whole, whole)
	}
	for i, place := range forms {
		t := &alone
		if group >= 0 {
			t = &text{group, i, whole}
		}
		if above, ok := strings.CutSuffix(place, "*"); ok {
			c.below = append(c.below, wild{above, spot{text: t}})
		} else {
			c.spot(place).text = t
		}
	}
}

func set(names ...string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, name := range names {
		s[name] = true
	}
	return s
}
