//go:build tools || generate

// Package tools is where the repository's build tools are found and where
// `go generate ./...` starts. It is never compiled.
//
//   - The generator is ./gen. It is part of this module, so its two libraries,
//     jennifer and yaml, are pinned in go.mod; no package of the SDK imports them.
//   - golangci-lint is pinned in tools/go.mod, a module of its own, so that its
//     dependencies are not those of the SDK's users. `make lint` builds it into
//     .cache/bin.
//   - The DynamoDB engine of the tests is pinned, version and hash, in
//     internal/proof/enginetest/release. `make engine` installs it into .cache/engine.
package tools

//go:generate go run ./gen
