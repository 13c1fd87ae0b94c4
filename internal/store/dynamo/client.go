package dynamo

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	smithyendpoints "github.com/aws/smithy-go/endpoints"
	"github.com/aws/smithy-go/logging"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A ClientConfig says where a client finds DynamoDB.
type ClientConfig store.TableConfig

const (
	// localRegion is signed for where an endpoint is given and no region is known, since engines take any.
	localRegion = "us-east-1"

	dialTimeout  = 3 * time.Second
	replyTimeout = time.Minute      // of a request without a deadline of its own, such as in Setup
	idleTimeout  = 50 * time.Second // shorter than the minute after which load balancers drop idle connections
	idlePerHost  = 256
)

// NewClient returns a client tuned for many small calls. It keeps connections for many concurrent callers, and resolves the
// endpoint once. NewClient reads configuration files, and may
// ask a metadata service for the region, but makes no call to DynamoDB.
//
// An engine on a loopback endpoint takes any credentials; if none are configured, dummy ones are used.
func NewClient(ctx context.Context, c ClientConfig) (*dynamodb.Client, error) {
	cfg, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	return c.client(ctx, cfg)
}

// load returns the SDK's configuration, without the endpoint, which DynamoDB alone has.
func (c ClientConfig) load(ctx context.Context) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{config.WithLogger(sdkLogger{cmp.Or(c.Logger, slog.New(slog.DiscardHandler))})}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	if c.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.Profile))
	}
	local := isLoopback(c.Endpoint)
	if local { // no credentials to wait for
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load AWS configuration: %w", err)
	}
	if c.Endpoint != "" && cfg.Region == "" {
		cfg.Region = localRegion
	}
	if cfg.Region == "" {
		return aws.Config{}, fmt.Errorf("load AWS configuration: no region")
	}
	if local {
		if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
			cfg.Credentials = credentials.NewStaticCredentialsProvider("zlimit", "zlimit", "")
		}
	}
	return cfg, nil
}

// An sdkLogger reports the messages of the SDK, which would go to the standard error otherwise.
type sdkLogger struct{ *slog.Logger }

// Logf implements [logging.Logger].
func (l sdkLogger) Logf(class logging.Classification, format string, v ...any) {
	level := slog.LevelDebug
	if class == logging.Warn {
		level = slog.LevelWarn
	}
	l.Log(context.Background(), level, "zlimit: AWS SDK: "+fmt.Sprintf(format, v...))
}

// client returns the client of NewClient.
func (c ClientConfig) client(ctx context.Context, cfg aws.Config) (*dynamodb.Client, error) {
	if c.Endpoint != "" {
		cfg.BaseEndpoint = &c.Endpoint
	}
	endpoint, err := resolveEndpoint(ctx, cfg)
	if err != nil {
		return nil, err
	}
	httpClient := tunedHTTPClient(cfg.HTTPClient, c.Idle)
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		o.HTTPClient = httpClient
		o.EndpointResolverV2 = endpoint
		o.Retryer = newRetries().write // of calls that the caller makes with the client
	}), nil
}

// streams returns a client of DynamoDB Streams, whose endpoint is that of DynamoDB where one is configured. It shares
// the connections of the other client.
func (c ClientConfig) streams(cfg aws.Config, httpClient aws.HTTPClient) *dynamodbstreams.Client {
	return dynamodbstreams.NewFromConfig(cfg, func(o *dynamodbstreams.Options) {
		o.HTTPClient = httpClient
		if c.Endpoint != "" {
			o.BaseEndpoint = &c.Endpoint
		}
	})
}

func isLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := u.Hostname()
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// A fixedEndpoint answers every question for the endpoint alike. The SDK's own resolver evaluates its rules in each call.
type fixedEndpoint smithyendpoints.Endpoint

// ResolveEndpoint implements [dynamodb.EndpointResolverV2].
func (e *fixedEndpoint) ResolveEndpoint(context.Context, dynamodb.EndpointParameters) (smithyendpoints.Endpoint, error) {
	return smithyendpoints.Endpoint(*e), nil
}

// Constant marks the endpoint as one that depends on no call, for [wire.New].
func (*fixedEndpoint) Constant() {}

// resolveEndpoint asks the SDK's rules for the endpoint once.
func resolveEndpoint(ctx context.Context, cfg aws.Config) (*fixedEndpoint, error) {
	var options dynamodb.Options
	dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { options = *o })
	params := dynamodb.EndpointParameters{
		Region:       &cfg.Region,
		Endpoint:     options.BaseEndpoint,
		UseDualStack: aws.Bool(options.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
		UseFIPS:      aws.Bool(options.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
	}
	e, err := dynamodb.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("resolve DynamoDB endpoint: %w", err)
	}
	return (*fixedEndpoint)(&e), nil
}

// tunedHTTPClient returns a client with the settings of the SDK's, such as proxies and certificates, and connections
// for many callers. The context of a request bounds its time, as long as that has a deadline.
func tunedHTTPClient(configured aws.HTTPClient, idle time.Duration) *http.Client {
	sdk, ok := configured.(*awshttp.BuildableClient)
	if !ok {
		sdk = awshttp.NewBuildableClient()
	}
	transport := sdk.WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout }).GetTransport()
	transport.MaxIdleConns = 0 // bounded per host
	transport.MaxIdleConnsPerHost = idlePerHost
	transport.MaxConnsPerHost = 0
	transport.IdleConnTimeout = cmp.Or(idle, idleTimeout)
	transport.TLSHandshakeTimeout = dialTimeout
	transport.ResponseHeaderTimeout = 0
	transport.DisableCompression = true
	return &http.Client{
		Transport:     patient{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
