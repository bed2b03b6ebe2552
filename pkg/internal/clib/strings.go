package clib

import (
	"bytes"
	"unsafe"
)

// CString is s with the zero byte that C wants at its end.
func CString(s string) []byte {
	b := make([]byte, len(s)+1)
	copy(b, s)
	return b
}

// GoString is the text in buf up to its first zero byte.
func GoString(buf []byte) string {
	if i := bytes.IndexByte(buf, 0); i >= 0 {
		buf = buf[:i]
	}
	return string(buf)
}

// Text copies the C string at address p, which is memory of C; "" for 0.
func Text(p uintptr) string {
	if p == 0 {
		return ""
	}
	// The address comes from C, so the garbage collector has no business with it.
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	n := 0
	for *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}
