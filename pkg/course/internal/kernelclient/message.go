package kernelclient

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zeromq/zmq4"
)

// A session signs messages and checks their signatures.
type session struct{ id, key string }

const delimiter = "<IDS|MSG>" // the frame between the routing identities and the signature of a message

// A message is a decoded message from the kernel.
type message struct {
	kind    string
	parent  string // ID of the request that it belongs to
	content json.RawMessage
}

func (s session) sendMessage(socket zmq4.Socket, id, kind string, content any) error {
	header := map[string]string{"msg_id": id, "session": s.id, "username": "", "date": time.Now().UTC().Format(time.RFC3339), "msg_type": kind, "version": "5.3"}
	frames := [][]byte{[]byte(delimiter), nil}
	for _, part := range []any{header, struct{}{}, struct{}{}, content} {
		b, err := json.Marshal(part)
		if err != nil {
			return err
		}
		frames = append(frames, b)
	}
	frames[1] = s.sign(frames[2:])
	return socket.SendMulti(zmq4.NewMsgFrom(frames...))
}

// sign returns the signature of frames: the header, the parent's header, the metadata and the content.
func (s session) sign(frames [][]byte) []byte {
	mac := hmac.New(sha256.New, []byte(s.key))
	for _, f := range frames {
		mac.Write(f)
	}
	return hex.AppendEncode(nil, mac.Sum(nil))
}

// parseMessage decodes the frames of a message. ok is false if they are damaged or not signed with the session's key.
func (s session) parseMessage(frames [][]byte) (m message, ok bool) {
	i := slices.IndexFunc(frames, func(f []byte) bool { return string(f) == delimiter })
	if i < 0 || len(frames) < i+6 || !hmac.Equal(s.sign(frames[i+2:i+6]), frames[i+1]) {
		return m, false
	}
	var head, parent struct {
		ID   string `json:"msg_id"`
		Kind string `json:"msg_type"`
	}
	if json.Unmarshal(frames[i+2], &head) != nil || json.Unmarshal(frames[i+3], &parent) != nil {
		return m, false
	}
	return message{head.Kind, parent.ID, frames[i+5]}, true
}

// A Result contains the outputs of a cell.
type Result struct {
	Outputs []json.RawMessage // in the form of nbformat 4: stream, display_data, execute_result and error
	Count   int               // the number of the cell, as in In [3]
	Value   string            // the text of the cell's value; "" if it has none
	Err     *CellError        // nil if the cell did not fail
}

// A CellError is the error that ended a cell.
type CellError struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

func (e *CellError) Error() string { return e.Value }

type cellOutput struct {
	Type     string          `json:"output_type"`
	Stream   string          `json:"name,omitempty"`
	Text     string          `json:"text,omitempty"`
	Count    *int            `json:"execution_count,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	*CellError
	displayID string
}

// outputCollector collects the outputs of a cell as a notebook front-end does.
type outputCollector struct {
	list         []cellOutput
	res          Result
	clearPending bool // the next output replaces all earlier ones
	size         int  // bytes of all messages
}

// maxOutputBytes limits the outputs of a cell, so that printing in an endless loop does not fill the memory.
const maxOutputBytes = 16 << 20

func (o *outputCollector) addMessage(m message) error {
	if o.size += len(m.content); o.size > maxOutputBytes {
		return fmt.Errorf("the outputs of the cell exceed %d MiB", maxOutputBytes>>20)
	}
	var c struct {
		cellOutput
		Wait      bool `json:"wait"`
		Transient struct {
			DisplayID string `json:"display_id"`
		} `json:"transient"`
	}
	if json.Unmarshal(m.content, &c) != nil {
		return errors.New("the kernel sent a damaged message")
	}
	c.Type, c.displayID = m.kind, c.Transient.DisplayID
	switch m.kind {
	case "execute_input":
		if c.Count != nil {
			o.res.Count = *c.Count
		}
	case "clear_output":
		if o.clearPending = c.Wait; !c.Wait {
			o.list = nil
		}
	case "update_display_data": // outputs of earlier cells have been returned already
		for i := range o.list {
			if o.list[i].displayID == c.displayID && c.displayID != "" {
				o.list[i].Data, o.list[i].Metadata = c.Data, c.Metadata
			}
		}
	case "stream", "display_data", "execute_result", "error":
		if o.clearPending {
			o.list, o.clearPending = nil, false
		}
		last := len(o.list) - 1
		if m.kind == "stream" && last >= 0 && o.list[last].Type == "stream" && o.list[last].Stream == c.Stream {
			o.list[last].Text += c.Text
		} else {
			o.list = append(o.list, c.cellOutput)
		}
	}
	return nil
}

func (o *outputCollector) result() Result {
	res := o.res
	for _, out := range o.list {
		var data struct {
			Text string `json:"text/plain"`
		}
		if out.Type == "execute_result" && json.Unmarshal(out.Data, &data) == nil {
			res.Value = data.Text
		}
		if out.Type == "error" {
			res.Err = out.CellError
		}
		if b, err := json.Marshal(out); err == nil { // all its parts were decoded from JSON
			res.Outputs = append(res.Outputs, b)
		}
	}
	return res
}
