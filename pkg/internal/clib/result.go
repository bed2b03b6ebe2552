package clib

import "fmt"

// ResultCode is the result code of a C function, which is 0 if the call succeeded.
type ResultCode interface {
	~int32
	error
	// Library names the library that returned the code.
	Library() LibraryName
}

// CallError reports a failed call of a C library. Each library's package declares a type
// Error, which is CallError for the library's result codes.
type CallError[R ResultCode] struct {
	Call    string // the C function, such as "cuMemAlloc"
	Detail  string // follows Call in the error, such as "of 4096 bytes"; may be empty
	Result  R
	Message string // the library's own explanation; may be empty
}

func (e *CallError[R]) Error() string {
	call, message := e.Call, ""
	if e.Detail != "" {
		call += " " + e.Detail
	}
	if e.Message != "" {
		message = fmt.Sprintf(" (%s: %s)", e.Result.Library(), e.Message)
	}
	return fmt.Sprintf("%s: %v%s", call, e.Result, message)
}

// Unwrap returns the code, so that errors.Is(err, cuda.ErrorOutOfMemory) works.
func (e *CallError[R]) Unwrap() error { return e.Result }

// CheckResult returns nil if result is 0, and a *CallError otherwise. It does not allocate memory if
// result is 0.
func CheckResult[R ResultCode](call string, result R) error {
	if result == 0 {
		return nil
	}
	return &CallError[R]{Call: call, Result: result}
}

// FormatCode formats a code as "NAME (number): advice"; advice may be empty.
func FormatCode(name string, code int32, advice string) string {
	if advice == "" {
		return fmt.Sprintf("%s (%d)", name, code)
	}
	return fmt.Sprintf("%s (%d): %s", name, code, advice)
}
