//go:build notebook

package main

import (
	"log"
	"strings"

	interp "github.com/cosmos72/gomacro/fast"
)

// handleOther answers the messages that gophernotes does not know. It stands in
// place of the log line there.
func handleOther(kernel *Kernel, receipt msgReceipt) {
	content, _ := receipt.Msg.Content.(map[string]interface{})
	var err error
	switch receipt.Msg.Header.MsgType {
	case "inspect_request":
		err = replyInspect(kernel, receipt, content)
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

// replyInspect answers with the type of what stands under the cursor.
func replyInspect(kernel *Kernel, receipt msgReceipt, content MIMEMap) error {
	code, _ := content["code"].(string)
	pos, _ := content["cursor_pos"].(float64)
	text := describe(kernel.ir, code, int(pos))
	data := MIMEMap{}
	if text != "" {
		data["text/plain"] = text
	}
	return receipt.Reply("inspect_reply", MIMEMap{
		"status": "ok", "found": text != "", "data": data, "metadata": MIMEMap{},
	})
}

// describe returns the word at a position of the code, counted in characters,
// and its type; "" if it has none.
func describe(ir *interp.Interp, code string, pos int) (text string) {
	defer func() {
		// The interpreter reports what it cannot compile by a panic.
		if recover() != nil {
			text = ""
		}
	}()
	word := wordAt([]rune(code), pos)
	if word == "" {
		return ""
	}
	e := ir.Compile(word)
	if e == nil || e.Type == nil {
		return ""
	}
	return word + " " + e.Type.String()
}

// wordAt returns the identifier at pos, with what qualifies it.
func wordAt(code []rune, pos int) string {
	pos = max(0, min(pos, len(code)))
	letter := func(c rune) bool {
		return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	from, to := pos, pos
	for from > 0 && (letter(code[from-1]) || code[from-1] == '.') {
		from--
	}
	for to < len(code) && letter(code[to]) {
		to++
	}
	return strings.Trim(string(code[from:to]), ".")
}
