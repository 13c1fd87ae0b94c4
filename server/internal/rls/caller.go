package rls

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/server/internal/auth"
)

// callerKey is the key of a caller in a context.
type callerKey struct{}

// Recognize returns an interceptor that recognizes callers: by a key in the metadata authorization, else by a certificate. Services
// whose names are open take anybody.
func Recognize(callers func() *auth.Callers, open ...string) grpc.UnaryServerInterceptor {
	services := map[string]bool{}
	for _, method := range open {
		services[method] = true
	}
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if services[info.FullMethod] {
			return handle(ctx, request)
		}
		p, err := recognize(ctx, callers())
		if err != nil {
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
		return handle(context.WithValue(ctx, callerKey{}, p), request)
	}
}

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

// caller returns who calls, and an error for a caller that may not acquire.
func (s *Service) caller(ctx context.Context) (*auth.Principal, error) {
	p, _ := ctx.Value(callerKey{}).(*auth.Principal)
	if p == nil {
		return nil, status.Error(codes.Unauthenticated, auth.ErrNoKey.Error())
	}
	if _, ok := p.Namespace(s.options.Namespace); !ok || !p.May(auth.Acquire) {
		return nil, status.Errorf(codes.PermissionDenied, "the caller needs the role acquire in namespace %q", s.options.Namespace)
	}
	return p, nil
}
