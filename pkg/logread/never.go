package logread

import "bytes"

// refusal returns the reason why a file with this beginning must not be read, or
// "". Reading a pickle runs the program inside it.
func refusal(head []byte) string {
	const pickle = "it is a pickle, and reading one would run what stands in it; write the values as CSV or JSON with the program that made it"
	switch {
	case len(head) >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return pickle // PROTO, the first opcode of protocols 2 to 5 (Python's pickletools)
	case textPickle(head):
		return pickle
	case compression(head) != "": // head is decompressed already
		return "it is compressed twice; unpack it once to read what is in it"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		if bytes.Contains(head, []byte("data.pkl")) {
			return pickle // torch.save writes an archive with a pickle
		}
		return "it is a zip archive; unpack it to read what is in it"
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return "it is a tar archive; unpack it to read what is in it"
	}
	return ""
}

// textPickle recognizes protocol 0, which is text: a mark, a dict or list, and
// a memo (PUT), or a class to load (GLOBAL).
func textPickle(head []byte) bool {
	for _, start := range []string{"(dp0\n", "(lp0\n", "(dp1\n", "(lp1\n", "(i__main__\n", "ccopy_reg\n", "c__builtin__\n", "cnumpy", "ccollections\n", "cposix\n", "cos\n", "cbuiltins\n"} {
		if bytes.HasPrefix(head, []byte(start)) {
			return true
		}
	}
	return false
}
