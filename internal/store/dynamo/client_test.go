package dynamo_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// isolate keeps the AWS configuration of the machine out of a test.
func isolate(t *testing.T) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // restores it at the end
			check.Fatal(t, "os.Unsetenv()", os.Unsetenv(name))
		}
	}
	dir := t.TempDir()
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestOpenOnLoopbackNeedsNoCredentials(t *testing.T) {
	isolate(t)
	engine := enginetest.Start(t)
	ignore := goleak.IgnoreCurrent()
	s, err := dynamo.Open(t.Context(), dynamo.ClientConfig{Endpoint: engine.Endpoint()}, engine.Table(t), storetest.Table, enginetest.CreateSuiteTable)
	check.Fatal(t, "dynamo.Open()", err)
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	if r, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: one, Item: storetest.Item("n", 1)}); err != nil || !r.Applied {
		t.Errorf("Write = %v, %v", r, err)
	}
	check.Error(t, "Close()", s.Close())
	goleak.VerifyNone(t, ignore) // Close leaves no connection behind
}

func TestNewClient(t *testing.T) {
	isolate(t)
	config := filepath.Join(t.TempDir(), "aws")
	if err := os.WriteFile(config, []byte("[profile east]\nregion = eu-north-1\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = secret\n"), 0o600); err != nil {
		t.Fatalf("os.WriteFile() = %v", err)
	}
	for _, test := range []struct {
		name             string
		config           dynamo.ClientConfig
		env              map[string]string
		region, endpoint string
		key              string // access key id; "" where there are no credentials
		err              string
	}{
		{"a region", dynamo.ClientConfig{Region: "eu-central-1"}, nil, "eu-central-1", "https://dynamodb.eu-central-1.amazonaws.com", "", ""},
		{"the region of the environment", dynamo.ClientConfig{}, map[string]string{"AWS_REGION": "us-west-2"}, "us-west-2", "https://dynamodb.us-west-2.amazonaws.com", "", ""},
		{"no region", dynamo.ClientConfig{}, nil, "", "", "", "no region"},
		{"a loopback endpoint", dynamo.ClientConfig{Endpoint: "http://127.0.0.1:8000"}, nil, "us-east-1", "http://127.0.0.1:8000", "zlimit", ""},
		{"localhost", dynamo.ClientConfig{Endpoint: "http://localhost:8000"}, nil, "us-east-1", "http://localhost:8000", "zlimit", ""},
		{"a loopback endpoint of the sixth version", dynamo.ClientConfig{Endpoint: "http://[::1]:8000"}, nil, "us-east-1", "http://[::1]:8000", "zlimit", ""},
		{
			"a loopback endpoint, and credentials",
			dynamo.ClientConfig{Endpoint: "http://127.0.0.1:8000"},
			map[string]string{"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": "secret"},
			"us-east-1", "http://127.0.0.1:8000", "AKIDENV", "",
		},
		{"another endpoint gets no dummy credentials", dynamo.ClientConfig{Endpoint: "http://dynamodb.example"}, nil, "us-east-1", "http://dynamodb.example", "", ""},
		{"a profile", dynamo.ClientConfig{Profile: "east"}, map[string]string{"AWS_CONFIG_FILE": config}, "eu-north-1", "https://dynamodb.eu-north-1.amazonaws.com", "AKIDPROFILE", ""},
		{"a profile that does not exist", dynamo.ClientConfig{Profile: "west"}, nil, "", "", "", "west"},
		{"two stacks", dynamo.ClientConfig{Region: "eu-central-1"}, map[string]string{"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "eu-central-1", "https://dynamodb.eu-central-1.api.aws", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			client, err := dynamo.NewClient(t.Context(), test.config)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("NewClient = %v, want an error about %q", err, test.err)
				}
				return
			}
			check.Fatal(t, "dynamo.NewClient()", err)
			o := client.Options()
			if o.Region != test.region {
				t.Errorf("region = %q, want %q", o.Region, test.region)
			}
			endpoint, err := o.EndpointResolverV2.ResolveEndpoint(t.Context(), dynamodb.EndpointParameters{})
			if err != nil || strings.TrimSuffix(endpoint.URI.String(), "/") != test.endpoint {
				t.Errorf("endpoint = %v, %v; want %s", endpoint.URI.String(), err, test.endpoint)
			}
			c, err := o.Credentials.Retrieve(context.Background())
			if (err != nil) != (test.key == "") || c.AccessKeyID != test.key {
				t.Errorf("access key = %q, %v; want %q", c.AccessKeyID, err, test.key)
			}
		})
	}
}

// TestNewClientSigns calls the endpoint that the client resolved once, with a signature for it.
func TestNewClientSigns(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	client := check.Call(dynamo.NewClient(t.Context(), dynamo.ClientConfig{Region: "eu-central-1"})).Must(t, "dynamo.NewClient()")
	var sent *http.Request
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r
		return (&script{replies: []reply{{status: 200, body: `{}`}}}).RoundTrip(r)
	})
	_, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("table"), Key: map[string]types.AttributeValue{}}, func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: transport}
	})
	if sent == nil {
		t.Fatalf("GetItem = %v, and nothing was sent", err)
	}
	if host := sent.URL.Host; host != "dynamodb.eu-central-1.amazonaws.com" || sent.URL.Scheme != "https" {
		t.Errorf("sent to %s", sent.URL)
	}
	if auth := sent.Header.Get("Authorization"); !strings.Contains(auth, "Credential=AKIDENV/") || !strings.Contains(auth, "/eu-central-1/dynamodb/aws4_request") {
		t.Errorf("Authorization = %q", auth)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
