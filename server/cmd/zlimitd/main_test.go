package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml":        "ratelimit: {files: [limits.yaml]}",
		"open.yaml":        "ratelimit: {files: [open-limits.yaml]}",
		"bad.yaml":         "ratelimit: {fils: []}",
		"nowhere.yaml":     "store: foo:bar",
		"limits.yaml":      "domain: d\ndescriptors: [{key: all, value: x, rate_limit: {unit: day, requests_per_unit: 1}}]",
		"open-limits.yaml": "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatalf("os.WriteFile() = %v", err)
		}
	}
	for _, test := range []struct {
		args     []string
		code     int
		out, err string
	}{
		{[]string{"check", "good.yaml"}, 0, "ok\n", ""},
		{[]string{"check", "open.yaml"}, 3, `warning: domain "d": every limit hangs on a value of the request`, ""},
		{[]string{"check", "bad.yaml"}, 1, "", "field fils not found"},
		{[]string{"check", "nowhere.yaml"}, 1, "", `nowhere.yaml: store: must be memory:, sqlite:PATH or dynamodb:TABLE, got "foo:bar"`},
		{[]string{"check", "a", "b"}, 2, "", ""},
		{[]string{"-config", "bad.yaml"}, 1, "", "field fils not found"},
		{[]string{"-nothing"}, 2, "", "Usage:"},
		{[]string{"extra"}, 2, "", "Usage:"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Chdir(dir)
			var out, err bytes.Buffer
			code := run(t.Context(), test.args, func(string) string { return "" }, &out, &err)
			if code != test.code || !strings.Contains(out.String(), test.out) || !strings.Contains(err.String(), test.err) {
				t.Errorf("run = %d, %q, %q, want %d, %q, %q", code, out.String(), err.String(), test.code, test.out, test.err)
			}
		})
	}
}
