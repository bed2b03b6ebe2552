//go:build notebook

package main

import (
	"log"

	interp "github.com/cosmos72/gomacro/fast"
)

// handleOther answers the messages that gophernotes does not know. It stands in
// place of the log line there.
func handleOther(receipt msgReceipt) {
	content, _ := receipt.Msg.Content.(map[string]interface{})
	var err error
	switch receipt.Msg.Header.MsgType {
	case "inspect_request":
		err = replyInspect(receipt, content)
	case "interrupt_request":
		lockstep.session.Interrupt()
		err = receipt.Reply("interrupt_reply", MIMEMap{"status": "ok"})
	case "comm_info_request":
		err = receipt.Reply("comm_info_reply", MIMEMap{"status": "ok", "comms": MIMEMap{}})
	case "history_request":
		err = receipt.Reply("history_reply", MIMEMap{"status": "ok", "history": []interface{}{}})
	}
	// Anything else (comm_open and the like) is for kernels with widgets.
	if err != nil {
		log.Printf("reply to %s: %v", receipt.Msg.Header.MsgType, err)
	}
}

// replyInspect answers with the declaration and doc comment of what stands
// under the cursor.
func replyInspect(receipt msgReceipt, content MIMEMap) error {
	code, _ := content["code"].(string)
	pos, _ := content["cursor_pos"].(float64)
	detail, _ := content["detail_level"].(float64)
	text := guarded(func() string { return lockstep.inspector.Inspect(code, int(pos), int(detail)) })
	data := MIMEMap{}
	if text != "" {
		data["text/plain"] = text
	}
	return receipt.Reply("inspect_reply", MIMEMap{
		"status": "ok", "found": text != "", "data": data, "metadata": MIMEMap{},
	})
}

// replyComplete answers with the names that may stand at the cursor. It stands
// in place of handleCompleteRequest in gophernotes.
func replyComplete(_ *interp.Interp, receipt msgReceipt) error {
	content, _ := receipt.Msg.Content.(map[string]interface{})
	code, _ := content["code"].(string)
	pos, _ := content["cursor_pos"].(float64)
	type completion struct {
		matches    []string
		start, end int
	}
	c := guarded(func() (c completion) {
		c.matches, c.start, c.end = lockstep.inspector.Complete(code, int(pos))
		return c
	})
	if c.matches == nil {
		c = completion{[]string{}, int(pos), int(pos)}
	}
	return receipt.Reply("complete_reply", MIMEMap{
		"status": "ok", "matches": c.matches, "cursor_start": c.start, "cursor_end": c.end, "metadata": MIMEMap{},
	})
}

// guarded calls f, and returns nothing if it panics: a question about code that
// the interpreter stumbles over must not end the kernel.
func guarded[T any](f func() T) (v T) {
	defer func() { _ = recover() }()
	return f()
}
