//go:build embed_function

package stack

import _ "embed"

// embedded is the zip of the function, which command cmd/zlimit/internal/release builds. It is no file of the tree: that command puts it in
// place by an overlay.
//
//go:embed function.zip
var embedded []byte
