package server

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestGateways checks which callers may charge which entities by gRPC.
func TestGateways(t *testing.T) {
	key := func(name string) string {
		sum := sha256.Sum256([]byte(name))
		return hex.EncodeToString(sum[:])
	}
	s := &Server{config: &Config{Namespace: zlimit.DefaultNamespace}}
	s.callers.Store(check.Call(auth.New([]auth.Caller{
		{Name: "gateway", KeySHA256: key("g"), Roles: []string{"acquire"}, Entities: []string{"a*"}},
		{Name: "viewer", KeySHA256: key("v"), Roles: []string{"read"}},
		{Name: "elsewhere", KeySHA256: key("e"), Roles: []string{"acquire"}, Namespaces: []string{"other"}},
	}, zlimit.DefaultNamespace, time.Now)).Must(t, "auth.New()"))
	for _, test := range []struct {
		key, name string
		want      codes.Code
	}{
		{"g", "gateway", codes.OK},
		{"v", "", codes.PermissionDenied},
		{"e", "", codes.PermissionDenied},
		{"x", "", codes.Unknown}, // which package envoylimit answers as UNAUTHENTICATED
		{"", "", codes.Unknown},
	} {
		ctx := t.Context()
		if test.key != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+test.key))
		}
		c, err := s.gateway(ctx)
		if status.Code(err) != test.want || c.Name != test.name {
			t.Errorf("the caller with key %q = %q, %v, want %q, %v", test.key, c.Name, err, test.name, test.want)
		}
		if err == nil && (!c.MayCharge("ann") || c.MayCharge("bob")) {
			t.Errorf("the caller with key %q may charge ann: %v, bob: %v", test.key, c.MayCharge("ann"), c.MayCharge("bob"))
		}
	}
}
