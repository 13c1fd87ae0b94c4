package wire

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// sign signs the request by the SDK's signer.
func (x *exchange) sign(ctx context.Context, p *Path, credentials *aws.Credentials, hash string, at time.Time) error {
	err := p.options.HTTPSignerV4.SignHTTP(ctx, *credentials, &x.request, hash, x.scope.service, x.scope.region, at)
	if err != nil {
		return fmt.Errorf("sign http: %w", err)
	}
	return nil
}
