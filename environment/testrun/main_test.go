package main

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain demands that who reads a program's output ends with it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
