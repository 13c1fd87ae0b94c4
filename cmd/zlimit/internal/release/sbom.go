package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A component is a module within the programs of a release, as CycloneDX has it.
type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// billOfMaterials lists the modules of programs, as noted in them by the linker, as a document of CycloneDX.
func billOfMaterials(programs []string) ([]byte, error) {
	modules := map[string]component{}
	goVersion := ""
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("list the modules of %s: %w", path, err)
		}
		goVersion = info.GoVersion
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
			if m.Sum != "" {
				c.Properties = []property{{"go:sum", m.Sum}}
			}
			modules[c.PURL] = c
		}
	}
	all := []component{{Type: "library", Name: "std", Version: goVersion, PURL: "pkg:golang/std@" + goVersion}}
	for _, c := range modules {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b component) int { return cmp.Compare(a.PURL, b.PURL) })
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata": map[string]any{"component": component{
			Type: "application", Name: module, Version: "v" + zlimit.Version, PURL: "pkg:golang/" + module + "@v" + zlimit.Version,
		}},
		"components": all,
	}, "", "  ")
	return append(text, '\n'), err
}
