package limits

import "testing"

// TestStoreNamed compares what names of stores mean, and keeps that where a name is written.
func TestStoreNamed(t *testing.T) {
	const arn = "dynamodb:arn:aws:dynamodb:eu-central-1:123456789012:table/limits"
	for _, c := range []struct {
		a, b   string
		region string // of the environment of a
		same   bool
	}{
		{"dynamodb:limits", "dynamodb:limits?timeout=10s&idle=20s", "", true},
		{"dynamodb:limits", "dynamodb:limits?region=eu-west-1", "", true},
		{"dynamodb:limits", "dynamodb:limits?region=eu-west-1", "eu-west-1", true},
		{"dynamodb:limits", "dynamodb:limits?region=eu-west-1", "eu-central-1", false},
		{"dynamodb:limits?region=eu-west-1", "dynamodb:limits?region=eu-west-1", "eu-central-1", true},
		{"dynamodb:limits?region=eu-west-1", "dynamodb:limits?region=eu-central-1", "", false},
		{"dynamodb:limits", "dynamodb:limits2", "", false},
		{arn, "dynamodb:limits?region=eu-central-1", "", true},
		{arn, "dynamodb:limits?region=eu-west-1", "", false},
		{arn, "dynamodb:arn:aws:dynamodb:eu-central-1:210987654321:table/limits", "", false},
		{"dynamodb:limits?profile=a", "dynamodb:limits", "", true},
		{"dynamodb:limits?profile=a", "dynamodb:limits?profile=b", "", false},
		{"dynamodb:limits?endpoint=http://localhost:8000", "dynamodb:limits?endpoint=http://localhost:8000/", "", true},
		{"dynamodb:limits?endpoint=http://localhost:8000", "dynamodb:limits", "", false},
		{"dynamodb:limits", "sqlite:limits", "", false},
		{"sqlite:/nowhere/a/limits", "sqlite:/nowhere/a/../a/limits", "", true},
		{"sqlite:/nowhere/a/limits", "sqlite:limits", "", true}, // of the folder of the file
		{"sqlite:/nowhere/a/limits", "sqlite:/nowhere/b/limits", "", false},
	} {
		a := storeNamed(c.a, func(name string) string { return map[string]string{"AWS_REGION": c.region}[name] })
		nothing := func(string) string { return "" }
		for _, b := range []string{c.b, storeNamed(c.b, nothing).String()} {
			if c.b == "sqlite:limits" {
				b = c.b
			}
			if got := a.is(storeNamed(b, nothing), "/nowhere/a"); got != c.same {
				t.Errorf("%s in region %q is %s: %t, want %t", c.a, c.region, b, got, c.same)
			}
		}
	}
}
