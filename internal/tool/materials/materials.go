// Package materials lists the modules of programs, as CycloneDX has it.
package materials

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Component is a module within programs.
type Component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []Property `json:"properties,omitempty"`
}

// A Property is a name and a value.
type Property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// of returns a component. A version of Go begins with "go", in an address it does not.
func of(kind, path, version string) Component {
	return Component{Type: kind, Name: path, Version: version, PURL: "pkg:golang/" + path + "@" + strings.TrimPrefix(version, "go")}
}

// List lists the modules that the linker has noted in the files of programs, as a document about a module and its version, such as v0.10.0.
// Modules of the same repository have that version, too. The same programs give the same bytes.
func List(about, version string, files ...string) ([]byte, error) {
	modules := map[string]Component{}
	for _, path := range files {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("list the modules of %s: %w", path, err)
		}
		modules["std"] = of("library", "std", info.GoVersion)
		for _, m := range info.Deps {
			if m.Replace != nil && m.Replace.Version != "" {
				m = m.Replace
			}
			c := of("library", m.Path, m.Version)
			if m.Replace != nil { // by a directory of this repository
				c = of("library", m.Path, version)
			}
			if m.Sum != "" {
				c.Properties = []Property{{"go:sum", m.Sum}}
			}
			modules[c.PURL] = c
		}
	}
	all := slices.SortedFunc(maps.Values(modules), func(a, b Component) int { return cmp.Compare(a.PURL, b.PURL) })
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": all,
		"metadata": map[string]any{"component": of("application", about, version)},
	}, "", "  ")
	return append(text, '\n'), err
}
