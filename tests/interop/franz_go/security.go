package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// secured is how the environment says to log in; no options without INTEROP_MECHANISM.
func secured() ([]kgo.Opt, error) {
	var options []kgo.Opt
	if path := os.Getenv("INTEROP_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
	}
	user, password := os.Getenv("INTEROP_USER"), os.Getenv("INTEROP_PASSWORD")
	switch os.Getenv("INTEROP_MECHANISM") {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return options, nil
}
