// Command fetch installs the pinned DynamoDB engine into the module's cache directory.
//
// Usage, from the module's root:
//
//	go run ./internal/proof/enginetest/fetch
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/zlimit/zlimit-go/internal/tool/engine"
)

func main() {
	path, err := engine.Install(engine.Cache("."))
	if errors.Is(err, engine.ErrNone) {
		err = fmt.Errorf("%w: set ZLIMIT_ENGINE to the path of a dynoxide %s, or ZLIMIT_TEST_ENDPOINT to a DynamoDB endpoint", err, engine.Version)
	}
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout, path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}
