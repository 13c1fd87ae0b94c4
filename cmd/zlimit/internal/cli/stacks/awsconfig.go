package stacks

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/stack"
)

// stackManager returns the manager of deployments, for the account and region of flags and environment. It makes no
// call of CloudFormation.
func stackManager(ctx context.Context, f *stackFlags) (*stack.Manager, error) {
	if u, err := url.Parse(f.endpoint); f.endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return nil, shell.Usagef("--endpoint %s: must be a URL such as http://127.0.0.1:4566", f.endpoint)
	}
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})} // what fails is an error of the command
	if f.region != "" {
		options = append(options, config.WithRegion(f.region))
	}
	if f.profile != "" {
		options = append(options, config.WithSharedConfigProfile(f.profile))
	}
	if f.endpoint != "" {
		options = append(options, config.WithBaseEndpoint(f.endpoint))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	case cfg.Region == "":
		return nil, errors.New("load AWS configuration: no region; give --region")
	}
	return stack.New(stack.ClientsOf(cfg)), nil
}
