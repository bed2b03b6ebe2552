package train_test

import (
	"context"

	"lockstep/pkg/train"
	"lockstep/pkg/verify"
)

func init() {
	train.VerifyRun = func(ctx context.Context, dir, data string) ([]train.Check, error) {
		checks, err := verify.Run(ctx, dir, verify.RunOptions{Data: data})
		all := make([]train.Check, len(checks))
		for i, c := range checks {
			all[i] = train.Check{Name: c.Name, Detail: c.Detail, OK: c.OK}
		}
		return all, err
	}
}
