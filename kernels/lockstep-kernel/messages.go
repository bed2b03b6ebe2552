//go:build notebook

package main

import (
	"log"

	interp "github.com/cosmos72/gomacro/fast"
)

// answerUnsupportedMessage answers a message of a type that gophernotes does not support.
// It replaces the statement in gophernotes that only logs such a message.
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

// replyToInspect answers with the declaration and doc comment of the name at the cursor.
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

// replyToComplete answers with the possible completions at the cursor. It replaces
// handleCompleteRequest of gophernotes.
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

// callOrZero returns the result of f, or the zero value if f panics. The interpreter may
// panic on code that is only being inspected, and this must not end the kernel.
func callOrZero[T any](f func() T) (v T) {
	defer func() { _ = recover() }()
	return f()
}
