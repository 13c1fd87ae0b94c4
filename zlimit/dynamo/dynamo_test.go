package dynamo_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// TestWithoutImport opens a table as a program that does not import the package does. It does not run in parallel with
// tests that open tables.
func TestWithoutImport(t *testing.T) {
	linked := store.OpenTable
	store.OpenTable = nil
	defer func() { store.OpenTable = linked }()
	for name, open := range map[string]func() error{
		"Open":      func() error { _, err := zlimit.Open(t.Context(), "dynamodb:limits"); return err },
		"OpenStore": func() error { _, err := zlimit.OpenStore(t.Context(), "dynamodb:limits"); return err },
	} {
		err := open()
		if !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), `add import _ "github.com/zlimit/zlimit-go/zlimit/dynamo"`) {
			t.Errorf("%s() without the import = %v, want a ValidationError that names the import", name, err)
		}
	}
}

// TestNewWithoutClient passes no client, which New of package zlimit reports.
func TestNewWithoutClient(t *testing.T) {
	if _, err := zlimit.New(context.Background(), dynamo.New(nil, "limits")); !errors.As(err, new(*zlimit.ValidationError)) {
		t.Errorf("zlimit.New(ctx, dynamo.New(nil, …)) = %v, want a ValidationError", err)
	}
}
