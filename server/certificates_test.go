package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
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
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An issuer signs certificates of tests.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	a := &issuer{certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatalf("ecdsa.GenerateKey() = %v", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, a.certificate, a.certificate, &a.key.PublicKey, a.key)
	check.Fatal(t, "x509.CreateCertificate()", err)
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatalf("x509.ParseCertificate() = %v", err)
	}
	return a
}

func (a *issuer) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw}))
}

// sign returns a certificate and its key for names, which are URIs if they have a scheme.
func (a *issuer) sign(t *testing.T, names ...string) (certificate, key string) {
	t.Helper()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if uri, err := url.Parse(name); err == nil && uri.Scheme != "" {
			leaf.URIs = append(leaf.URIs, uri)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	secret := check.Call(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Must(t, "ecdsa.GenerateKey()")
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.certificate, &secret.PublicKey, a.key)
	check.Fatal(t, "x509.CreateCertificate()", err)
	private := check.Call(x509.MarshalPKCS8PrivateKey(secret)).Must(t, "x509.MarshalPKCS8PrivateKey()")
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// TestCallersByCertificate asks both ports with certificates and with keys. A certificate of another authority and one of no caller are
// refused. Without callers, everyone with a certificate of the authority may call.
func TestCallersByCertificate(t *testing.T) {
	ours, others := newIssuer(t), newIssuer(t)
	certificate, key := ours.sign(t, "localhost")
	sum := sha256.Sum256([]byte("s3cret"))
	files := map[string]string{"a.limits.yaml": limits, "tls.crt": certificate, "tls.key": key, "clients.crt": ours.pem(), "key": strings.Repeat("k", 32)}
	serve := func(callers string) *Server {
		files["zlimitd.yaml"] = config + "tls: {certificate: tls.crt, key: tls.key, client_ca: clients.crt}\nsigning_keys: [{id: k1, file: key}]\n" + callers
		s, _ := start(t, filepath.Join(directory(t, files), "zlimitd.yaml"))
		check.Fatal(t, "Limits.Set()", s.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 1000)}}))
		return s
	}
	closed, open := serve(`callers:
- {name: gateway, certificate: "spiffe://example.org/gateway", roles: [acquire]}
- {name: reader, key_sha256: `+hex.EncodeToString(sum[:])+`, roles: [read]}
`), serve("")
	roots := x509.NewCertPool()
	roots.AddCert(ours.certificate)
	for _, test := range []struct {
		name     string
		server   *Server
		issuer   *issuer
		identity string
		key      string
		http     int // the status of an acquire; 0 for no connection
		grpc     codes.Code
	}{
		{"the gateway", closed, ours, "spiffe://example.org/gateway", "", 200, codes.OK},
		{"another workload", closed, ours, "spiffe://example.org/other", "", 401, codes.Unauthenticated},
		{"the name of the gateway by another authority", closed, others, "spiffe://example.org/gateway", "", 0, codes.Unavailable},
		{"no certificate", closed, nil, "", "", 401, codes.Unauthenticated},
		{"a reader", closed, nil, "", "s3cret", 403, codes.PermissionDenied},
		{"a key beside the certificate", closed, ours, "spiffe://example.org/gateway", "s3cret", 403, codes.PermissionDenied},
		{"a wrong key beside the certificate", closed, ours, "spiffe://example.org/gateway", "wr0ng", 401, codes.Unauthenticated},
		{"any certificate without callers", open, ours, "spiffe://example.org/other", "", 200, codes.OK},
		{"another authority without callers", open, others, "spiffe://example.org/gateway", "", 0, codes.Unavailable},
		{"no certificate without callers", open, nil, "", "", 0, codes.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &tls.Config{RootCAs: roots, ServerName: "localhost"}
			if test.issuer != nil {
				pair := check.Call(tls.X509KeyPair(pairOf(test.issuer.sign(t, test.identity)))).Must(t, "tls.X509KeyPair()")
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // also for another authority
			}
			transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
			defer transport.CloseIdleConnections()
			_, err := (&client.Client{URL: "https://" + test.server.HTTPAddr(), Key: test.key, HTTP: &http.Client{Transport: transport}}).Acquire(
				t.Context(), client.AcquireRequest{Entity: "alice", Resource: "gpt-4", Consume: map[string]int64{"tpm": 1}})
			got := 200
			var problem *client.Problem
			if errors.As(err, &problem) {
				got = problem.Status
			} else if err != nil {
				got = 0
			}
			if got != test.http {
				t.Errorf("HTTP = %d %v, want %d", got, err, test.http)
			}
			options := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(c))}
			if test.key != "" {
				options = append(options, grpc.WithPerRPCCredentials(bearer(test.key)))
			}
			conn := check.Call(grpc.NewClient(test.server.GRPCAddr(), options...)).Must(t, "grpc.NewClient()")
			defer conn.Close()
			_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("ann"))
			if status.Code(err) != test.grpc {
				t.Errorf("gRPC = %v, want %v", err, test.grpc)
			}
			if test.key != "" && err != nil && strings.Contains(err.Error(), test.key) {
				t.Errorf("the error shows the key: %v", err)
			}
			if test.grpc != codes.Unavailable { // health is open to everyone who connects
				if _, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil {
					t.Errorf("health = %v", err)
				}
			}
		})
	}
}

func pairOf(certificate, key string) (a, b []byte) { return []byte(certificate), []byte(key) }

// bearer is a key as the credentials of calls.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }
