package envoylimit

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// decode reads the only document of a text. Keys that the form does not have, and a second document, are an error with their line. The error is
// [io.EOF] for a text without a document.
func decode(text []byte, to any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(to); err != nil {
		return err
	}
	var second yaml.Node
	switch err := d.Decode(&second); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("line %d: there is a second document: it belongs in a file of its own", second.Line)
}
