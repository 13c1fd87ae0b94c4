package document_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/document"
)

// read reads a document with a name, a count and a time.
func read(r *document.Reader, text string) (name string, count int64, at time.Time) {
	top := r.Parse([]byte(text), "the document")
	if top == nil {
		return "", 0, time.Time{}
	}
	var values [3]func()
	for _, p := range r.Pairs(top, "the document") {
		switch p.Key {
		case "name":
			values[0] = func() { name = r.Text(p.Value, "name") }
		case "count":
			values[1] = func() { count = r.Count(p.Value, "count") }
		case "at":
			values[2] = func() { at = r.Time(p.Value, "at") }
		default:
			r.Errorf(p.Pos, "unknown %s", p.Key)
		}
	}
	for _, value := range values {
		if value != nil {
			value()
		}
	}
	return name, count, at
}

func TestValuesAreRead(t *testing.T) {
	r := document.NewPlain("x.yaml")
	name, count, at := read(r, "name: ö\ncount: 0x10\nat: 2026-02-20T14:32:01.5+02:00\n")
	want := time.Date(2026, 2, 20, 12, 32, 1, 5e8, time.UTC)
	if name != "ö" || count != 16 || !at.Equal(want) || at.Location() != time.UTC || r.Err() != nil {
		t.Errorf("read = %q, %d, %v, %v, want ö, 16, %v", name, count, at, r.Err(), want)
	}
}

// TestEverythingWrongIsReported: with line and column, in the order of the document.
func TestEverythingWrongIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		plain bool
		text  string
		want  []string
	}{
		"several at once":   {false, "count: -1\nat: noon\nsize: 1\nname: [a]\n", []string{"x.yaml:1:8: count -1 must", "x.yaml:2:5: at must be a timestamp", "x.yaml:3:1: unknown size", "x.yaml:4:7: name is not a text"}},
		"a float":           {false, "count: 1.5\n", []string{"x.yaml:1:8: count must be a whole number"}},
		"a long word":       {false, "count: " + strings.Repeat("ö", 60) + "\n", []string{`not "` + strings.Repeat("ö", 20) + `…"`}},
		"too many bits":     {false, "count: 9223372036854775808\n", []string{`x.yaml:1:8: count "9223372036854775808" is out of range`}},
		"no time":           {false, "at: ~\n", []string{"x.yaml:1:5: at must be a timestamp"}},
		"a key twice":       {false, "name: a\nname: b\n", []string{"x.yaml:2:1: the document has name twice; the first is in line 1"}},
		"not UTF-8":         {false, "name: a\nname: ö\xff\n", []string{"x.yaml:2:8: byte 0xff is not UTF-8"}},
		"a control letter":  {false, "name: a\x00\n", []string{"x.yaml:1:8: control character 0x0"}},
		"a syntax error":    {false, "name: {a\ncount: 1\n", []string{"did not find expected"}},
		"nothing":           {false, "# nothing\n", []string{"x.yaml:1:1: the document is empty"}},
		"a second document": {false, "name: a\n---\nname: b\n", []string{"x.yaml:2:1: there is a second document"}},
		"aliases":           {true, "a: &a [x]\nb: *a\nc: {d: *a}\n", []string{"x.yaml:2:4: *a is an alias", "x.yaml:3:8: *a is an alias"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := document.New("x.yaml")
			if c.plain {
				r = document.NewPlain("x.yaml")
			}
			read(r, c.text)
			got := "nothing"
			if err := r.Err(); err != nil {
				got = err.Error()
			}
			lines := strings.Split(got, "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("reported\n%s\nwant %d errors", got, len(c.want))
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("error %d is %q, want %q in it", i, lines[i], want)
				}
			}
		})
	}
}

func TestAnOptionalDocumentMayBeEmpty(t *testing.T) {
	for _, text := range []string{"", "# nothing\n"} {
		r := document.New("x.yaml")
		if top := r.ParseOptional([]byte(text)); top != nil || r.Err() != nil {
			t.Errorf("ParseOptional(%q) = %v, %v, want nothing", text, top, r.Err())
		}
	}
	r := document.New("x.yaml")
	if top := r.ParseOptional([]byte("~\n")); top == nil || !document.IsNull(top) || r.Err() != nil {
		t.Errorf("ParseOptional(~) = %v, %v, want null", top, r.Err())
	}
}
