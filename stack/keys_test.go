package stack_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// A keyForm is the form of the keys of a record, as spec/schema.yaml has it.
type keyForm struct {
	record, pk string
	pattern    *regexp.Regexp // of both keys, with a line feed between them
}

// keyForms returns the forms of the keys of all records, those of the registry first: its namespace has a name too.
var keyForms = sync.OnceValue(func() []keyForm {
	text, err := os.ReadFile("../spec/schema.yaml")
	if err != nil {
		panic(err)
	}
	var file struct {
		Records map[string]struct{ PK, SK string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		panic(err)
	}
	var forms []keyForm
	for _, name := range slices.Sorted(maps.Keys(file.Records)) {
		r := file.Records[name]
		pattern := strings.ReplaceAll(regexp.QuoteMeta(r.PK+"\n"+r.SK), `\{ns\}`, "[^#/]+")
		pattern = regexp.MustCompile(`\\\{[a-z_]+\\\}`).ReplaceAllString(pattern, "[^#]+")
		forms = append(forms, keyForm{name, r.PK, regexp.MustCompile("^" + pattern + "$")})
	}
	slices.SortFunc(forms, func(a, b keyForm) int { return strings.Compare(a.pk, b.pk) }) // _ is below {
	return forms
})

// recordOf returns the name of the record that has a key.
func recordOf(pk, sk string) (string, bool) {
	for _, f := range keyForms() {
		if f.pattern.MatchString(pk + "\n" + sk) {
			return f.record, true
		}
	}
	return "", false
}

// partition returns the form of the partition key of a record.
func partition(record string) string {
	for _, f := range keyForms() {
		if f.record == record {
			return f.pk
		}
	}
	panic(fmt.Sprintf("spec/schema.yaml has no record %s", record))
}

// literal returns the beginning of a form of a partition key that has no names but a namespace. A policy allows all keys that begin so.
func literal(form string) string {
	if ns := "{ns}"; strings.HasPrefix(form, ns) {
		before, _, _ := strings.Cut(form[len(ns):], "{")
		return ns + before
	}
	return form
}

// partitionKey returns a partition key of a form in a namespace, in which names have the given text.
func partitionKey(form, ns, name string) string {
	key := strings.ReplaceAll(form, "{ns}", ns)
	return regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(key, name)
}
