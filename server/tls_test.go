package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/server/internal/auth"
)

// An authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         string
}

// certify returns a certificate and its key in PEM: of the authority, or of itself without one.
func (a *authority) certify(t *testing.T, of *x509.Certificate) (certificate, key string, signer *ecdsa.PrivateKey) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of.SerialNumber, of.NotBefore, of.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := of, signer
	if a != nil {
		parent, by = a.certificate, a.key
	}
	data, err := x509.CreateCertificate(rand.Reader, of, parent, &signer.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	return block("CERTIFICATE", data), block("EC PRIVATE KEY", secret), signer
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	of := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	text, _, key := (*authority)(nil).certify(t, of)
	block, _ := pem.Decode([]byte(text))
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key, text}
}

// client returns a certificate of a caller with a URI.
func (a *authority) client(t *testing.T, uri string) tls.Certificate {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, _ := a.certify(t, &x509.Certificate{URIs: []*url.URL{u}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// TestTLS knows callers by certificates and by keys, and takes no one else.
func TestTLS(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	certificate, key, _ := ours.certify(t, &x509.Certificate{DNSNames: []string{"zlimitd"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	secret, hash := auth.NewKey()
	files := map[string]string{"tls.crt": certificate, "tls.key": key, "ca.crt": ours.pem, "a.limits.yaml": limits}
	dir := directory(t, files)
	tlsFields := "tls: {certificate: " + filepath.Join(dir, "tls.crt") + ", key: " + filepath.Join(dir, "tls.key") + ", client_ca: " + filepath.Join(dir, "ca.crt") + "}\n"
	open := config + tlsFields
	closed := open + "callers:\n- {name: gateway, certificate: 'spiffe://test/gateway', roles: [acquire]}\n- {name: key, key_sha256: " + hash + ", roles: [acquire]}\n"
	gateway, stranger, forged := ours.client(t, "spiffe://test/gateway"), ours.client(t, "spiffe://test/other"), others.client(t, "spiffe://test/gateway")
	for _, test := range []struct {
		name, config string
		certificate  *tls.Certificate
		key          string
		want         codes.Code
	}{
		{"a caller's certificate", closed, &gateway, "", codes.OK},
		{"another certificate of the authority", closed, &stranger, "", codes.Unauthenticated},
		{"a certificate of another authority", closed, &forged, "", codes.Unavailable},
		{"a key without a certificate", closed, nil, secret, codes.OK},
		{"a wrong key beside a certificate", closed, &gateway, "wrong", codes.Unauthenticated},
		{"neither", closed, nil, "", codes.Unauthenticated},
		{"any certificate without callers", open, &stranger, "", codes.OK},
		{"no certificate without callers", open, nil, "", codes.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			files["zlimitd.yaml"] = test.config
			s, _ := start(t, filepath.Join(directory(t, files), "zlimitd.yaml"))
			roots := x509.NewCertPool()
			roots.AddCert(ours.certificate)
			secure := &tls.Config{RootCAs: roots, ServerName: "zlimitd"}
			if test.certificate != nil {
				secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return test.certificate, nil }
			}
			conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(secure)))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx := t.Context()
			if test.key != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+test.key)
			}
			_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request("ann"))
			if status.Code(err) != test.want {
				t.Errorf("ShouldRateLimit = %v, want %v", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows the key: %v", err)
			}
			if test.want != codes.Unavailable { // health is open to everyone who connects
				if _, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil {
					t.Errorf("health = %v", err)
				}
			}
		})
	}
}
