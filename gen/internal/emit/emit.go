// Package emit writes the outputs of a schema, which are Go files of package zlimit and a reference page, and those of
// package zlimit itself, which are its facade without contexts. It is a pure function of them. Each file of this package
// writes one output.
package emit

import (
	"fmt"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// Files returns the outputs of a schema by their path in the module, which is separated by slashes.
func Files(s *schema.Schema) (map[string][]byte, error) {
	files := map[string][]byte{"docs/schema.md": reference(s)}
	for _, output := range []struct {
		path string
		emit func(*file, *schema.Schema)
	}{
		{"zlimit/keys_gen.go", keys},
		{"zlimit/items_gen.go", items},
		{"zlimit/exprs_gen.go", exprs},
		{"zlimit/table_gen.go", table},
		{"zlimit/records_gen_test.go", tests},
	} {
		f := newFile("zlimit", schemaFile)
		output.emit(f, s)
		text, err := f.render()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", output.path, err)
		}
		files[output.path] = text
	}
	return files, nil
}
