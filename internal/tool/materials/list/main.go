// Command list prints the modules in files of programs, as CycloneDX has it:
//
//	go run ./internal/tool/materials/list MODULE VERSION FILE...
package main

import (
	"fmt"
	"os"

	"github.com/zlimit/zlimit-go/internal/tool/materials"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "list: usage: list MODULE VERSION FILE...")
		os.Exit(2)
	}
	text, err := materials.List(os.Args[1], os.Args[2], os.Args[3:]...)
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "list:", err)
		os.Exit(1)
	}
}
