package rendezvous

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// protocolVersion is the version of the protocol between the ranks of a rendezvous. Messages are
// lines of JSON. Worker and rank 0 prove that they know the token without sending it, by an
// HMAC-SHA-256 (RFC 2104) over the worker's claim and a new random number (nonce) from each
// of them:
//
//	rank 0 → greeting{Lockstep, Nonce}
//	worker → hello{Nonce, claim, Proof}   Proof = HMAC(token, "worker", nonces, claim)
//	rank 0 → reply{Proof | Error}         Proof = HMAC(token, "rank 0", nonces, claim)
//
// With TLS (greeting.TLS), the connection is encrypted after the greeting. The keys of the
// proofs then contain a value that only the two ends of the connection share.
//
// Once all ranks have joined, for shared memory:
//
//	rank 0 → command{Memory | Error}       map the file at this path
//	worker → report{Error}                 the file is mapped
//	rank 0 → command{Error}                all ranks have mapped it: start
//
// For a ring:
//
//	rank 0 → command{Network | Error}      listen for the other ranks
//	worker → report{Address | Error}       listening on this address
//	rank 0 → command{Addresses | Error}    connect to the other ranks at these addresses;
//	                                       several commands if there are many
//	worker → report{Error}                 connected to all other ranks
//	rank 0 → command{Error}                all ranks are connected: start
//
// Each rank connects to the next rank, and twice to each higher rank; claim.Link is the purpose
// of the connection. Both ranks exchange greeting, hello and reply as above.
const protocolVersion = 3

const handshakeTimeout = 10 * time.Second

// maxMessageBytes limits the size of a message in bytes, because programs that do not know the
// token can send messages too.
const maxMessageBytes = 16 << 10

// serverGreeting is the first message on a connection, sent by the side that listens.
type serverGreeting struct {
	Lockstep int    `json:"lockstep"`
	Nonce    string `json:"nonce"`
	TLS      bool   `json:"tls,omitempty"` // all that follows is encrypted
}

// workerClaim is a worker's description of itself. The proof in the worker's hello covers it.
type workerClaim struct {
	Rank    int    `json:"rank"`
	World   int    `json:"world"`
	BuildID string `json:"build_id"`
	Machine string `json:"machine"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	// Replicas is the number of ranks in the worker's process, see JoinReplicas. 0 means 1.
	Replicas int `json:"replicas,omitempty"`
	// Collective is the requested transport; empty if rank 0 chooses it.
	TLS        bool   `json:"tls,omitempty"` // the worker encrypts its connections
	Collective string `json:"collective,omitempty"`
	// Algorithm is the requested algorithm of all-reduce. Empty means the default of the transport.
	Algorithm string `json:"algorithm,omitempty"`
	// Link is the purpose of a connection between two ranks of a ring. It is empty in a claim that
	// is sent to rank 0 to join the run. So the proof for one connection cannot be replayed for
	// another.
	Link string `json:"link,omitempty"`
}

// The purposes of connections between the ranks of a ring.
const (
	linkRing      = "ring"      // to the next rank, for the operations of the ring
	linkMessages  = "messages"  // to a higher rank, for Send and Recv
	linkScheduled = "scheduled" // to a higher rank, for the other algorithms
)

// workerHello is a worker's answer to a greeting.
type workerHello struct {
	Nonce string          `json:"nonce"`
	Claim json.RawMessage `json:"claim"`
	Proof string          `json:"proof"`
	// TLS is true if the worker encrypts its connections but rank 0's greeting did not ask for
	// it. The worker then sends only this message, with all other fields empty, so that rank 0
	// can report the difference.
	TLS bool `json:"tls,omitempty"`
}

type handshakeReply struct {
	Proof string `json:"proof,omitempty"`
	Error string `json:"error,omitempty"`
}

// serverCommand tells a rank what to do next, or contains the error that ends the rendezvous.
// Rank 0 sends it.
type serverCommand struct {
	Memory     string `json:"memory,omitempty"`
	Network    string `json:"network,omitempty"`
	ChunkBytes int    `json:"chunk_bytes,omitempty"`
	// RanksPerNode is rank 0's, because nodes may have different numbers of ranks.
	RanksPerNode int      `json:"ranks_per_node,omitempty"`
	Addresses    []string `json:"addresses,omitempty"` // of ranks, continuing those of the previous command
	Error        string   `json:"error,omitempty"`
}

type workerReport struct {
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

type jsonConn struct {
	net.Conn
	lines *bufio.Reader

	certificate *tls.Certificate // on the side that listens, if it uses TLS
	secure      *tls.Conn        // once encrypted; nil otherwise
	binding     string           // see encrypt
}

func newJSONConn(c net.Conn) *jsonConn {
	return &jsonConn{Conn: c, lines: bufio.NewReaderSize(c, maxMessageBytes)}
}

func (w *jsonConn) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.dataConn().Write(append(text, '\n'))
	return err
}

var errForeignProtocol = errors.New("the program at the other end is not a lockstep worker")

func (w *jsonConn) receive(v any) error {
	line, err := w.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return errForeignProtocol
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if json.Unmarshal(line, v) != nil {
		return errForeignProtocol
	}
	return nil
}

// closeWhenDone closes the connection, which ends a blocked read, when ctx ends. stop is as
// in context.AfterFunc.
func (w *jsonConn) closeWhenDone(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = w.Close() })
}

// computeProof returns a proof that a worker or rank 0 knows the token, in hexadecimal. side is
// workerSide or serverSide.
func computeProof(token, side, verifierNonce, ownNonce string, claim []byte) string {
	m := hmac.New(sha256.New, []byte(token))
	// Nonces are hexadecimal and side is a constant, so the separator occurs in no part.
	_, _ = io.WriteString(m, strings.Join([]string{"lockstep", side, verifierNonce, ownNonce, ""}, "|"))
	_, _ = m.Write(claim)
	return hex.EncodeToString(m.Sum(nil))
}

// proofMatches reports whether got proves that the process at the other end, whose nonce is
// theirNonce, knows the token.
func proofMatches(token, side, ownNonce, theirNonce string, claim []byte, got string) bool {
	return hmac.Equal([]byte(got), []byte(computeProof(token, side, ownNonce, theirNonce, claim)))
}

func newNonce() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}

const (
	workerSide = "worker"
	serverSide = "rank 0"
)

// clientHandshake proves to the process at the other end of w that this worker knows the token. It
// returns an error unless that process proves the same.
func clientHandshake(w *jsonConn, token string, c workerClaim) error {
	var g serverGreeting
	if err := w.receive(&g); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	if g.Lockstep != protocolVersion || g.Nonce == "" {
		return errForeignProtocol
	}
	if g.TLS != c.TLS {
		_ = w.send(workerHello{TLS: c.TLS}) // tells the other end why this worker does not join
		return &refusalError{fmt.Sprintf("it has %s %t, this worker %t: set the same value on all workers", tlsVariable, g.TLS, c.TLS)}
	}
	if c.TLS {
		if err := w.startTLS(nil); err != nil {
			return err
		}
		token = w.proofKey(token)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	mine := newNonce()
	if err := w.send(workerHello{Nonce: mine, Claim: text, Proof: computeProof(token, workerSide, g.Nonce, mine, text)}); err != nil {
		return fmt.Errorf("send proof: %w", err)
	}
	var r handshakeReply
	switch err := w.receive(&r); {
	case err != nil:
		return fmt.Errorf("read reply: %w", err)
	case r.Error != "":
		return &refusalError{r.Error}
	case !proofMatches(token, serverSide, mine, g.Nonce, text, r.Proof):
		return &refusalError{"rank 0 does not know this run's " + tokenVariable + "; perhaps another run listens on this address"}
	}
	return nil
}

// refusalError reports that a worker was refused for a reason that will not change. It is useless
// to connect again.
type refusalError struct{ reason string }

func (r *refusalError) Error() string { return r.reason }

// serverHandshake authenticates a worker that has connected to this rank. It returns the worker's
// claim, and a reply that proves that this rank knows the token too. The caller checks the claim
// and then sends the reply.
func serverHandshake(w *jsonConn, token string) (workerClaim, handshakeReply, error) {
	var c workerClaim
	mine := newNonce()
	if err := w.send(serverGreeting{protocolVersion, mine, w.certificate != nil}); err != nil {
		return c, handshakeReply{}, fmt.Errorf("send greeting: %w", err)
	}
	if w.certificate != nil {
		if err := w.startTLS(w.certificate); err != nil {
			return c, handshakeReply{}, err
		}
		token = w.proofKey(token)
	}
	var h workerHello
	if err := w.receive(&h); err != nil {
		return c, handshakeReply{}, fmt.Errorf("read proof: %w", err)
	}
	if h.TLS {
		return c, handshakeReply{}, tlsMismatchError(true)
	}
	if !proofMatches(token, workerSide, mine, h.Nonce, h.Claim, h.Proof) {
		const reason = "the worker's " + tokenVariable + " differs from this run's"
		_ = w.send(handshakeReply{Error: reason}) // the worker may be gone
		return c, handshakeReply{}, &refusalError{reason}
	}
	if err := json.Unmarshal(h.Claim, &c); err != nil {
		return c, handshakeReply{}, errForeignProtocol
	}
	return c, handshakeReply{Proof: computeProof(token, serverSide, h.Nonce, mine, h.Claim)}, nil
}
