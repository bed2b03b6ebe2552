package rendezvous

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Over a connection go lines of JSON. Both sides prove that they know the
// token without sending it, by an HMAC-SHA-256 (RFC 2104) over both sides'
// fresh random numbers and all that the worker claims:
//
//	rank 0 → greeting{Lockstep, Nonce}
//	worker → hello{Nonce, claim, Proof}   Proof = HMAC(token, "worker", nonces, claim)
//	rank 0 → reply{Proof | Error}         Proof = HMAC(token, "rank 0", nonces, claim)
//
// When all are there, for shared memory
//
//	rank 0 → order{Memory | Error}        map this
//	worker → report{Error}                it is mapped
//	rank 0 → order{Error}                 all have mapped it: go
//
// and for a ring
//
//	rank 0 → order{Network | Error}       open a door for the rank before you
//	worker → report{Address | Error}      it is open here
//	rank 0 → order{Next | Error}          the rank after you has its door there
//	worker → report{Error}                both neighbours are connected
//	rank 0 → order{Error}                 everyone's are: go
//
// Between neighbours go greeting, hello and reply as above, with claim.Ring.
const protocol = 2

// handshakeTime bounds a stranger's silence.
const handshakeTime = 10 * time.Second

// maxMessage bounds what a stranger can make us read.
const maxMessage = 16 << 10

type greeting struct {
	Lockstep int    `json:"lockstep"`
	Nonce    string `json:"nonce"`
}

// claim is what a worker says about itself.
type claim struct {
	Rank    int    `json:"rank"`
	World   int    `json:"world"`
	BuildID string `json:"build_id"`
	Machine string `json:"machine"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	// Collective is what was asked for, empty for the choice of rank 0.
	Collective string `json:"collective,omitempty"`
	// Ring says that this is for the rank after it and not for rank 0, so that
	// a proof for one is none for the other.
	Ring bool `json:"ring,omitempty"`
}

type hello struct {
	Nonce string          `json:"nonce"`
	Claim json.RawMessage `json:"claim"`
	Proof string          `json:"proof"`
}

type reply struct {
	Proof string `json:"proof,omitempty"`
	Error string `json:"error,omitempty"`
}

type order struct {
	Memory     string `json:"memory,omitempty"`
	Network    string `json:"network,omitempty"`
	ChunkBytes int    `json:"chunk_bytes,omitempty"`
	Next       string `json:"next,omitempty"`
	Error      string `json:"error,omitempty"`
}

type report struct {
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"`
}

// wire is a connection that speaks lines of JSON.
type wire struct {
	net.Conn
	lines *bufio.Reader
}

func newWire(c net.Conn) *wire { return &wire{c, bufio.NewReaderSize(c, maxMessage)} }

func (w *wire) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// errForeign is the verdict on a peer that does not speak this protocol.
var errForeign = errors.New("what answers is not a lockstep worker")

func (w *wire) receive(v any) error {
	line, err := w.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return errForeign
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if json.Unmarshal(line, v) != nil {
		return errForeign
	}
	return nil
}

// closeOnEnd closes the connection when ctx ends, so that no read outlives it.
func (w *wire) closeOnEnd(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = w.Close() })
}

func proof(token, side, first, second string, claim []byte) string {
	m := hmac.New(sha256.New, []byte(token))
	// The nonces are hexadecimal and the side is ours, so the parts cannot run
	// into each other.
	_, _ = io.WriteString(m, strings.Join([]string{"lockstep", side, first, second, ""}, "|"))
	_, _ = m.Write(claim)
	return hex.EncodeToString(m.Sum(nil))
}

func proven(token, side, first, second string, claim []byte, got string) bool {
	return hmac.Equal([]byte(got), []byte(proof(token, side, first, second, claim)))
}

func nonce() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}

const (
	workerSide = "worker"
	masterSide = "rank 0"
)

// introduce is a worker's side of the proof.
func introduce(w *wire, token string, c claim) error {
	var g greeting
	if err := w.receive(&g); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	if g.Lockstep != protocol || g.Nonce == "" {
		return errForeign
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	mine := nonce()
	if err := w.send(hello{mine, text, proof(token, workerSide, g.Nonce, mine, text)}); err != nil {
		return fmt.Errorf("send proof: %w", err)
	}
	var r reply
	switch err := w.receive(&r); {
	case err != nil:
		return fmt.Errorf("read reply: %w", err)
	case r.Error != "":
		return &refusal{r.Error}
	case !proven(token, masterSide, mine, g.Nonce, text, r.Proof):
		return &refusal{"rank 0 does not know this run's " + tokenVariable + "; another run listens there"}
	}
	return nil
}

// refusal is a verdict that trying again does not change.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// examine is rank 0's side: it returns what a worker that knows the token
// claims, with the answer that proves rank 0's knowledge, still to be sent.
func examine(w *wire, token string) (claim, reply, error) {
	var c claim
	mine := nonce()
	if err := w.send(greeting{protocol, mine}); err != nil {
		return c, reply{}, fmt.Errorf("send greeting: %w", err)
	}
	var h hello
	if err := w.receive(&h); err != nil {
		return c, reply{}, fmt.Errorf("read proof: %w", err)
	}
	if !proven(token, workerSide, mine, h.Nonce, h.Claim, h.Proof) {
		const verdict = "the worker's " + tokenVariable + " is not this run's"
		_ = w.send(reply{Error: verdict}) // it may be gone already
		return c, reply{}, &refusal{verdict}
	}
	if err := json.Unmarshal(h.Claim, &c); err != nil {
		return c, reply{}, errForeign
	}
	return c, reply{Proof: proof(token, masterSide, h.Nonce, mine, h.Claim)}, nil
}
