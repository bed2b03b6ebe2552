//go:build notebook

package main

import (
	"fmt"
	"log"
	"runtime"
	"time"

	interp "github.com/cosmos72/gomacro/fast"

	"lockstep/pkg/notebook"
)

// implementationVersion is the version in kernel_info_reply.
func implementationVersion() string { return notebook.Version() }

// banner returns the line that a console shows at its start.
func banner() string {
	return fmt.Sprintf("Lockstep %s (build %s), %s in gophernotes %s", notebook.Version(), notebook.BuildID(), runtime.Version(), Version)
}

const (
	// maxQueued is how many requests may wait for the running cell. Others wait in the sockets and are not
	// aborted.
	maxQueued = 4096
	// queueQuiet is how long no request may have arrived before the kernel answers a failed one.
	queueQuiet = 20 * time.Millisecond
)

// A requestQueue counts the requests of the shell channel.
type requestQueue struct {
	waiting    func() int // returns the number of requests that have been received and not been taken
	taken      int        // number of requests that have been taken from the queue
	abortUntil int        // number of the last request to abort
}

// abort marks the waiting requests after a cell has failed. "Run all" sends its requests one by one, and an
// error in the first cell may precede the last request, so abort waits until no more arrive. It does not
// mark requests after the reply to the failed one.
func (q *requestQueue) abort() {
	for n := -1; n < q.waiting(); {
		n = q.waiting()
		time.Sleep(queueQuiet)
	}
	q.abortUntil = q.taken + q.waiting()
}

// execute answers an execute_request in place of gophernotes' handleExecuteRequest.
func (k *kernelState) execute(kernel *Kernel, receipt msgReceipt) error {
	if k.queue.taken <= k.queue.abortUntil {
		return receipt.Reply("execute_reply", MIMEMap{"status": "aborted"})
	}
	return kernel.handleExecuteRequest(receipt)
}

// stopsOnError reports whether a cell's error aborts the waiting requests.
func stopsOnError(receipt msgReceipt) bool {
	content, _ := receipt.Msg.Content.(map[string]interface{})
	silent, _ := content["silent"].(bool)
	stop, given := content["stop_on_error"].(bool)
	return !silent && (stop || !given)
}

// answerUnsupportedMessage answers a message of a type that gophernotes does not support and only logs.
func answerUnsupportedMessage(receipt msgReceipt) {
	content, _ := receipt.Msg.Content.(map[string]interface{})
	var err error
	switch receipt.Msg.Header.MsgType {
	case "inspect_request":
		err = replyToInspect(receipt, content)
	case "interrupt_request":
		globalKernel.session.Interrupt()
		err = receipt.Reply("interrupt_reply", MIMEMap{"status": "ok"})
	case "comm_info_request":
		err = receipt.Reply("comm_info_reply", MIMEMap{"status": "ok", "comms": MIMEMap{}})
	case "history_request":
		err = receipt.Reply("history_reply", MIMEMap{"status": "ok", "history": []interface{}{}})
	}
	// Other messages (such as comm_open) are for kernels with widgets and need no answer.
	if err != nil {
		log.Printf("reply to %s: %v", receipt.Msg.Header.MsgType, err)
	}
}

// replyToInspect describes the name at the cursor.
func replyToInspect(receipt msgReceipt, content MIMEMap) error {
	code, _ := content["code"].(string)
	pos, _ := content["cursor_pos"].(float64)
	detail, _ := content["detail_level"].(float64)
	text := callOrZero(func() string { return globalKernel.inspector.Inspect(code, int(pos), int(detail)) })
	data := MIMEMap{}
	if text != "" {
		data["text/plain"] = text
	}
	return receipt.Reply("inspect_reply", MIMEMap{
		"status": "ok", "found": text != "", "data": data, "metadata": MIMEMap{},
	})
}

// replyToComplete replaces gophernotes' handleCompleteRequest.
func replyToComplete(_ *interp.Interp, receipt msgReceipt) error {
	content, _ := receipt.Msg.Content.(map[string]interface{})
	code, _ := content["code"].(string)
	pos, _ := content["cursor_pos"].(float64)
	type completion struct {
		matches    []string
		start, end int
	}
	c := callOrZero(func() (c completion) {
		c.matches, c.start, c.end = globalKernel.inspector.Complete(code, int(pos))
		return c
	})
	if c.matches == nil {
		c = completion{[]string{}, int(pos), int(pos)}
	}
	return receipt.Reply("complete_reply", MIMEMap{
		"status": "ok", "matches": c.matches, "cursor_start": c.start, "cursor_end": c.end, "metadata": MIMEMap{},
	})
}

// callOrZero returns f's result, or the zero value if f panics, as the interpreter may on code that is only
// inspected.
func callOrZero[T any](f func() T) (v T) {
	defer func() { _ = recover() }()
	return f()
}
