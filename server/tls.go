package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// config returns the TLS config of the ports, nil for none. Clients with a key need no certificate. The files are read again at each
// reload.
func (t *TLS) config(keys bool) (*tls.Config, error) {
	if t.Certificate == "" {
		return nil, nil
	}
	certificate, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if t.ClientCA != "" {
		text, err := os.ReadFile(t.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if keys {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls: client_ca %s must have a certificate in PEM", t.ClientCA)
		}
	}
	return c, nil
}
