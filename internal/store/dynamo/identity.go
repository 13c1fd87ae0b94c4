package dynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// Identity returns the ARN of the principal that a store made by [Open] calls AWS as. It makes one GetCallerIdentity
// call of STS, which takes no permission. It is "" for a store made by [New], which does not know the client's
// credentials, and on a loopback endpoint.
func (s *Store) Identity(ctx context.Context) (string, error) {
	if err := s.begin(ctx, "GetCallerIdentity"); err != nil || s.identity == nil {
		return "", err
	}
	return s.identity(ctx)
}

// callerIdentity returns a function that asks STS with the credentials of a configuration. It is asked once, so its
// connection is not kept.
func callerIdentity(cfg aws.Config) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		httpClient := tunedHTTPClient(cfg.HTTPClient, 0)
		defer httpClient.CloseIdleConnections()
		client := sts.NewFromConfig(cfg, func(o *sts.Options) { o.HTTPClient = httpClient })
		out, err := client.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		if err != nil {
			return "", fmt.Errorf("ask for the caller's identity: %w", err)
		}
		return value(out.Arn), nil
	}
}
