package content

import (
	"bytes"
	"slices"
)

// RefusalReason returns why a file that begins with head must not be read, or "" if
// it may be read. Pickles are refused, since reading one runs the program inside it.
func RefusalReason(head []byte) string {
	const pickle = "it is a pickle, and reading a pickle runs the code in it; export the values as CSV or JSON with the program that wrote it"
	switch {
	case len(head) >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return pickle // PROTO, the first opcode of protocols 2 to 5 (Python's pickletools)
	case isTextPickle(head):
		return pickle
	case detectCompression(head) != "": // head is decompressed already
		return "it is compressed twice; decompress it once to read its content"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		if bytes.Contains(head, []byte("data.pkl")) {
			return pickle // torch.save writes an archive with a pickle
		}
		return "it is a zip archive; unpack it to read its content"
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return "it is a tar archive; unpack it to read its content"
	}
	return ""
}

// isTextPickle reports whether head begins like a pickle of protocol 0, which is text: with a
// mark, a dict or list and a PUT instruction, or with GLOBAL, which loads a class.
func isTextPickle(head []byte) bool {
	starts := []string{"(dp0\n", "(lp0\n", "(dp1\n", "(lp1\n", "(i__main__\n", "ccopy_reg\n", "c__builtin__\n", "cnumpy", "ccollections\n", "cposix\n", "cos\n", "cbuiltins\n"}
	return slices.ContainsFunc(starts, func(start string) bool { return bytes.HasPrefix(head, []byte(start)) })
}
