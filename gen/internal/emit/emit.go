// Package emit writes the outputs of a schema. They are the Go files of package layout, the key builders and the table
// definition of package zlimit, and a reference page. It also writes the output of package zlimit itself, which is the
// facade without contexts. It is a pure function of schema and package. Each file of this package writes one output.
package emit

import (
	"fmt"
	"strings"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// Files returns the outputs of a schema by their path in the module, which is separated by slashes.
func Files(s *schema.Schema) (map[string][]byte, error) {
	files := map[string][]byte{"docs/schema.md": reference(s)}
	for _, output := range []struct {
		pkg, name string
		emit      func(*file, *schema.Schema)
	}{
		{layoutPkg, "keys_gen.go", keys},
		{layoutPkg, "items_gen.go", items},
		{layoutPkg, "internal_items_gen.go", internalItems},
		{layoutPkg, "table_items_gen.go", tableItems},
		{layoutPkg, "families_gen.go", families},
		{layoutPkg, "attributes_gen.go", attributes},
		{layoutPkg, "exprs_gen.go", exprs},
		{layoutPkg, "calls_gen.go", callers},
		{layoutPkg, "table_gen.go", table},
		{layoutPkg, "records_gen_test.go", tests},
		{sdkPkg, "keys_gen.go", builders},
		{sdkPkg, "table_gen.go", definition},
		{sdkPkg + "/dynamo", "table_gen.go", request},
	} {
		f := newFile(output.pkg, schemaFile)
		output.emit(f, s)
		path := strings.TrimPrefix(output.pkg, module+"/") + "/" + output.name
		text, err := f.render()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files[path] = text
	}
	return files, nil
}
