package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/envoylimit"
	"github.com/zlimit/zlimit-go/server/internal/auth"
)

// gateway returns who calls by gRPC, and an error for a caller that may not acquire.
func (s *Server) gateway(ctx context.Context) (envoylimit.Caller, error) {
	p, err := recognize(ctx, s.callers.Load())
	if err != nil {
		return envoylimit.Caller{}, err
	}
	if _, ok := p.Namespace(s.config.Namespace); !ok || !p.May(auth.Acquire) {
		return envoylimit.Caller{}, status.Errorf(codes.PermissionDenied, "the caller needs the role acquire in namespace %q", s.config.Namespace)
	}
	return envoylimit.Caller{Name: p.Name, MayCharge: p.MayEntity}, nil
}

// recognize returns who calls: by a key in the metadata authorization, else by a certificate.
func recognize(ctx context.Context, callers *auth.Callers) (*auth.Principal, error) {
	if fields := metadata.ValueFromIncomingContext(ctx, "authorization"); len(fields) > 0 {
		return callers.ByAuthorization(fields)
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return callers.ByTLS(&info.State)
		}
	}
	return callers.ByTLS(nil)
}
