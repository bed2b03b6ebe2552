package rendezvous

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"
)

// tlsVariable is the environment variable that makes the ranks encrypt their connections.
const tlsVariable = "LOCKSTEP_TLS"

func readTLS(getenv func(string) string) (bool, error) {
	v := strings.TrimSpace(getenv(tlsVariable))
	if v == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("invalid %s %q: use 1 to encrypt the connections between the workers, or 0", tlsVariable, v)
	}
	return on, nil
}

// newCertificate returns a self-signed certificate, which the other end need not know. The proof of
// the secret covers the keys of the connection (see proofKey), so that a program in the middle
// cannot pass the proof on.
func newCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create TLS certificate: %w", err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create TLS certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func tlsMismatchError(workerTLS bool) error {
	return &refusalError{fmt.Sprintf("the worker has %s %t, rank 0 has %t: set the same value on all workers", tlsVariable, workerTLS, !workerTLS)}
}

// startTLS continues the connection with TLS 1.3, as the client if certificate is nil. The
// connection's deadline limits the handshake.
func (w *jsonConn) startTLS(certificate *tls.Certificate) error {
	var c *tls.Conn
	if certificate != nil {
		c = tls.Server(w.Conn, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificate}, SessionTicketsDisabled: true})
	} else {
		// The proof of the secret authenticates the server, not its certificate.
		c = tls.Client(w.Conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
	}
	if err := c.Handshake(); err != nil {
		var plain tls.RecordHeaderError
		if certificate != nil && errors.As(err, &plain) && plain.RecordHeader[0] == '{' {
			return tlsMismatchError(false) // the client has sent a hello
		}
		return fmt.Errorf("TLS: %w", err)
	}
	state := c.ConnectionState()
	// RFC 9266 binds a proof to a connection in the same way.
	binding, err := state.ExportKeyingMaterial("EXPORTER-lockstep-proof", nil, 32)
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	w.secure, w.binding = c, hex.EncodeToString(binding)
	w.lines.Reset(c)
	return nil
}

// dataConn returns the connection for data: the encrypted one, if there is one.
func (w *jsonConn) dataConn() net.Conn {
	if w.secure != nil {
		return encryptedConn{w.secure}
	}
	return w.Conn
}

// encryptedConn is a TLS connection that is closed without an alert: the transports send a
// last frame of their own, and the other end may be gone.
type encryptedConn struct{ *tls.Conn }

func (c encryptedConn) Close() error { return c.NetConn().Close() }

// proofKey returns the key for the proofs on this connection. It consists of the token and, with
// TLS, of a value that only the two ends of this connection know.
func (w *jsonConn) proofKey(token string) string {
	if w.secure == nil {
		return token
	}
	return token + "|" + w.binding
}
