package shell

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

// NoteManaged notes which of the levels that a command has changed a file of limits manages: the next apply undoes the change. It costs a read.
// Who may not read that gets no note.
func (sh *Shell) NoteManaged(ctx context.Context, l *zlimit.RateLimiter, levels ...zlimit.Level) {
	set, err := l.Managed.Set(ctx)
	if err != nil {
		return
	}
	var names []string
	for _, at := range levels {
		if _, managed := slices.BinarySearchFunc(set.Levels, at, zlimit.Level.Compare); managed {
			names = append(names, at.String())
		}
	}
	if len(names) > 0 {
		sh.Note("note: " + cmp.Or(set.Manager, "a file of limits") + " manages " + strings.Join(names, "; ") +
			": its next apply undoes this change, unless the file says the same")
	}
}
