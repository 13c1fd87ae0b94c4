package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// In TestSetupAtOnce, several stores set up one new file at the same time. Each looks at the file while another one makes it
// its own.
func TestSetupAtOnce(t *testing.T) {
	dir := t.TempDir()
	for round := range 150 {
		path := filepath.Join(dir, fmt.Sprint(round))
		var group errgroup.Group
		for range 4 {
			s := open(t)(sqlite.Open(path, storetest.Table))
			group.Go(func() error { return s.Setup(t.Context()) })
		}
		if err := group.Wait(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
