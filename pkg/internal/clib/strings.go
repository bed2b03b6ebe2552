package clib

import (
	"bytes"
	"unsafe"
)

// CString returns s as a C string, with a zero byte at its end.
func CString(s string) []byte {
	b := make([]byte, len(s)+1)
	copy(b, s)
	return b
}

// GoString returns the text in buf up to its first zero byte.
func GoString(buf []byte) string {
	if i := bytes.IndexByte(buf, 0); i >= 0 {
		buf = buf[:i]
	}
	return string(buf)
}

// ReadCString returns a copy of the C string at address p in C memory, or "" if p is 0.
func ReadCString(p uintptr) string {
	if p == 0 {
		return ""
	}
	// The address is in C memory, so the garbage collector does not manage it.
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	n := 0
	for *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}
