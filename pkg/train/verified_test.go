package train

import "context"

// Check is a check of verify.Run.
type Check struct {
	Name, Detail string
	OK           bool
}

func (c Check) String() string { return c.Name + ": " + c.Detail }

// VerifyRun is verify.Run. Package verify imports this one, so that only the tests of
// package train_test can set it.
var VerifyRun func(ctx context.Context, dir, data string) ([]Check, error)
