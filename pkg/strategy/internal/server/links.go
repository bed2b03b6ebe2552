package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"lockstep/pkg/collective"
	"lockstep/pkg/internal/device"
)

// Kinds of messages between workers and servers. A worker waits for the reply to its request
// before it sends another one to the same server.
const (
	messageCheckout = iota // to the coordinator: which version shall I read for step a?
	messageAdmit           // to the coordinator: which update uses my gradient of step a?
	messageFinish          // to the coordinator: I have no further steps in this epoch
	messagePush            // to a server: a gradient for update a with the learning rate b
	messagePull            // to a server: send the parameters of version a or newer
	messagePing            // to a server that would otherwise hear nothing from this worker
	messageAverage         // to a passive peer: average your parameters with mine
	messageEnd             // the worker's last request of an epoch
	messageReply
)

// serverMessage is a message between a worker and a server, or between an active and a passive peer.
// Messages with parameters or gradients have a payload.
type serverMessage struct {
	kind    int
	request int  // of a reply: the kind of the request
	ok      bool // of a reply: the request succeeded; otherwise the worker must ask again
	a, b    float64
	payload device.Buffer // empty if there is none
}

const messageHeaderLength = 6

func (m serverMessage) encode() []float64 {
	v := []float64{float64(m.kind), float64(m.request), 0, m.a, m.b, float64(m.payload.Len())}
	if m.ok {
		v[2] = 1
	}
	return v
}

// messageLinks exchanges messages of one rank with the servers and, if this rank has a server, with
// the other workers. A rank with a server has one receiving goroutine for each other rank, because
// workers send requests at any time.
type messageLinks struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	group     collective.Group
	servers   int
	part      func(server int) bucketPart                                                   // what is exchanged with a server
	handle    func(ctx context.Context, worker int, m serverMessage) (serverMessage, error) // answers a request to this rank's server
	receivers sync.WaitGroup
	peers     []remoteRank // by rank
}

// remoteRank is the other end of a link.
type remoteRank struct {
	sending          sync.Mutex // locked while a message is sent
	requests         chan serverMessage
	replies          chan serverMessage
	request, reply   device.Buffer // buffers for the payloads that arrive
	answer, outgoing device.Buffer // buffers for the payloads that are sent
}

// newMessageLinks returns the links of this rank. They exchange nothing until start is called.
func newMessageLinks(ctx context.Context, group collective.Group, servers int, part func(server int) bucketPart) *messageLinks {
	l := &messageLinks{group: group, servers: servers, part: part, peers: make([]remoteRank, group.Size())}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

func (l *messageLinks) outgoingBuffer(server int) device.Buffer {
	return l.allocateOnce(&l.peers[server].outgoing, server)
}

func (l *messageLinks) answerBuffer(worker int) device.Buffer {
	return l.allocateOnce(&l.peers[worker].answer, l.group.Rank())
}

// allocateOnce allocates *b on the first call, with the size of the given server's part.
func (l *messageLinks) allocateOnce(b *device.Buffer, server int) device.Buffer {
	if b.Len() == 0 {
		*b = l.part(server).newBuffer()
	}
	return *b
}

// fail records err, if it is the first error, and ends all waits.
func (l *messageLinks) fail(err error) { l.cancel(err) }

func (l *messageLinks) err() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// startReceiving starts the goroutines that receive messages, if this rank has a server. Each ends after the
// last message of its rank; see finishEpoch.
func (l *messageLinks) startReceiving() {
	if l.group.Rank() >= l.servers {
		return
	}
	for r := range l.peers {
		if r == l.group.Rank() {
			continue
		}
		p := &l.peers[r]
		p.requests, p.replies = make(chan serverMessage, 1), make(chan serverMessage, 1)
		l.receivers.Go(func() {
			defer close(p.requests)
			if err := l.receiveUntilLast(r); err != nil {
				l.fail(err)
			}
		})
		l.receivers.Go(func() {
			for m := range p.requests {
				if err := l.sendReply(r, m); err != nil {
					l.fail(err)
				}
			}
		})
	}
}

// receiveUntilLast receives messages from a rank. It returns when the rank has sent its last
// request and, if it has a server, the reply to this rank's last request.
func (l *messageLinks) receiveUntilLast(rank int) error {
	p := &l.peers[rank]
	asks, answers := true, rank < l.servers
	for asks || answers {
		m, err := l.receive(rank)
		if err != nil {
			return err
		}
		if m.kind == messageReply {
			answers = answers && m.request != messageEnd
			p.replies <- m
			continue
		}
		asks = m.kind != messageEnd
		p.requests <- m
	}
	return nil
}

func (l *messageLinks) receive(rank int) (serverMessage, error) {
	v := make([]float64, messageHeaderLength)
	if err := l.group.Recv(l.ctx, device.Buffer{F64: v}, rank); err != nil {
		return serverMessage{}, err
	}
	m := serverMessage{kind: int(v[0]), request: int(v[1]), ok: v[2] != 0, a: v[3], b: v[4]}
	if v[5] == 0 {
		return m, nil
	}
	if p := &l.peers[rank]; m.kind == messageReply {
		m.payload = l.allocateOnce(&p.reply, rank)
	} else {
		m.payload = l.allocateOnce(&p.request, l.group.Rank())
	}
	if m.payload.Len() != int(v[5]) {
		return m, fmt.Errorf("receive from rank %d: got %d values, want %d: the ranks use different networks", rank, int(v[5]), m.payload.Len())
	}
	return m, l.group.Recv(l.ctx, m.payload, rank)
}

func (l *messageLinks) send(rank int, m serverMessage) error {
	p := &l.peers[rank]
	p.sending.Lock()
	defer p.sending.Unlock()
	if err := l.group.Send(l.ctx, device.Buffer{F64: m.encode()}, rank); err != nil || m.payload.Len() == 0 {
		return err
	}
	return l.group.Send(l.ctx, m.payload, rank)
}

func (l *messageLinks) sendReply(rank int, m serverMessage) error {
	reply, err := l.computeReply(rank, m)
	if err != nil {
		return err
	}
	return l.send(rank, reply)
}

// computeReply returns the reply to the request m of a worker, which may be this rank's own worker.
func (l *messageLinks) computeReply(rank int, m serverMessage) (reply serverMessage, err error) {
	reply.ok = true
	if m.kind != messagePing && m.kind != messageEnd {
		reply, err = l.handle(l.ctx, rank, m)
	}
	reply.kind, reply.request = messageReply, m.kind
	return reply, err
}

// askUntilAccepted sends a request to each of the given servers, repeats it until it is accepted,
// and returns the replies by server. While it repeats requests, it sends a ping to all other
// servers, because they expect messages from each worker.
func (l *messageLinks) askUntilAccepted(servers []int, request func(server int) serverMessage) ([]serverMessage, error) {
	replies := make([]serverMessage, l.servers)
	pending := slices.Clone(servers)
	for asked := servers; len(pending) > 0; asked = l.allServers() {
		next := func(server int) serverMessage {
			if !slices.Contains(pending, server) {
				return serverMessage{kind: messagePing}
			}
			return request(server)
		}
		answered, err := l.askOnce(asked, next)
		if err != nil {
			l.fail(err)
		}
		if err := l.err(); err != nil {
			return nil, err
		}
		for i, s := range asked {
			if at := slices.Index(pending, s); at >= 0 && answered[i].ok {
				replies[s] = answered[i]
				pending = slices.Delete(pending, at, at+1)
			}
		}
	}
	return replies, nil
}

// askOnce sends one request to each of the given servers and returns the replies in the same order.
func (l *messageLinks) askOnce(servers []int, request func(server int) serverMessage) ([]serverMessage, error) {
	own := l.group.Rank()
	for _, s := range servers {
		if s == own {
			continue
		}
		if err := l.send(s, request(s)); err != nil {
			return nil, err
		}
	}
	replies := make([]serverMessage, len(servers))
	for i, s := range servers {
		var err error
		switch {
		case s == own:
			replies[i], err = l.computeReply(own, request(own))
		case own >= l.servers:
			replies[i], err = l.receive(s)
		default:
			select {
			case replies[i] = <-l.peers[s].replies:
			case <-l.ctx.Done():
				err = l.err()
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return replies, nil
}

func (l *messageLinks) allServers() []int {
	all := make([]int, l.servers)
	for i := range all {
		all[i] = i
	}
	return all
}

// finishEpoch ends the exchange of an epoch. It waits until all workers have done their steps,
// sends the last request to each server, and waits for the last requests of all workers.
func (l *messageLinks) finishEpoch() error {
	if _, err := l.askUntilAccepted([]int{0}, func(int) serverMessage { return serverMessage{kind: messageFinish} }); err != nil {
		return fmt.Errorf("wait for the last steps of the other workers: %w", err)
	}
	_, err := l.askUntilAccepted(l.allServers(), func(int) serverMessage { return serverMessage{kind: messageEnd} })
	l.receivers.Wait()
	if err == nil {
		err = l.err()
	}
	l.fail(context.Canceled)
	return err
}
