package shell

import (
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Features names what zae-limiter limits by, and zlimit does not.
func Features(features []zlimit.UnsupportedFeature) string {
	names := make([]string, len(features))
	for i, f := range features {
		names[i] = f.Name + " (" + f.Attribute + ")"
	}
	return strings.Join(names, ", ")
}

// NoteUnsupported writes a line to stderr for each bucket whose limits zlimit cannot determine.
func (sh *Shell) NoteUnsupported(buckets []zlimit.Bucket) {
	for i := range buckets {
		if b := &buckets[i]; len(b.Unsupported) > 0 {
			sh.Note("left out: " + b.Entity + "/" + b.Resource + ": " + Features(b.Unsupported))
		}
	}
}
