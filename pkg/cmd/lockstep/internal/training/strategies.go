package training

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/strategy"
)

func strategiesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "strategies",
		Short: "Explain the strategies by which workers train together",
		Long: `Lists the strategies that a config can choose, with what each guarantees and how many
bytes it sends, and explains them.

  lockstep train --set strategy=zero1
  lockstep train --set 'strategy={name: local_sgd, steps: 4}'
  lockstep launch --workers 1,2 --strategies ddp,zero1,local_sgd:steps=4`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := fmt.Fprint(c.OutOrStdout(), strategy.Explain())
				return err
			}
			var rows []map[string]any
			for _, k := range strategy.Kinds() {
				rows = append(rows, map[string]any{
					"name": k.Name, "about": k.About, "guarantee": k.Guarantee, "bytes_per_step": k.Bytes, "options": append([]string{}, k.Options...), "exact": k.Exact,
				})
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}
