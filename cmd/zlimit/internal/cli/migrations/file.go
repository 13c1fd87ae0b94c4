package migrations

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// checkFile returns an error where a store is a file that does not exist, which opening it would create.
func checkFile(dsn string) error {
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: the file does not exist", dsn)
		}
	}
	return nil
}
