package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/model"
	"lockstep/pkg/weights"
)

func convertCommand() *cobra.Command {
	var f modelFlags
	var name, from, to string
	var averages bool
	c := &cobra.Command{
		Use:   "convert IN.safetensors OUT.safetensors --model NAME --to pytorch",
		Short: "Rename a network's weights: a checkpoint, PyTorch's or Keras' names",
		Long: `Writes the weights of IN under other names, and in the layout that goes with
them, after checking that every tensor of the network is there with its shape.
What else a checkpoint holds, an optimiser's slots and the parameters' averages,
is left out; --averages writes the averages (ema.decay) in the parameters' place.

  lockstep   layer.weight [out,in,kernel], as in checkpoints
  pytorch    the same; of resnet50 the names of torchvision
  keras      layer/kernel:0 [kernel,in,out], layer/gamma:0, layer/moving_mean:0

IN from Python: safetensors.torch.save_file(model.state_dict(), "in.safetensors"), or
safetensors.numpy.save_file({v.path: v.numpy() for v in model.weights}, "in.safetensors").

  lockstep model convert in.safetensors out.safetensors --model resnet50 --to lockstep`,
		Args: exactArgs(2, "name the file to read and the file to write"),
		RunE: func(c *cobra.Command, args []string) error {
			if name == "" {
				return usage(errors.New("--model is missing: name the network that the weights are of, or a spec"))
			}
			net, err := f.network(name)
			if err != nil {
				return usage(err)
			}
			if err := model.Naming(to).Validate(); err != nil {
				return usage(fmt.Errorf("--to: %w", err))
			}
			in, err := weights.ReadContext(c.Context(), args[0])
			if err != nil {
				return err
			}
			if averages {
				if in, err = model.Averages(in); err != nil {
					return fmt.Errorf("%s: %w", args[0], err)
				}
			}
			naming := model.Naming(from)
			if from == "" {
				naming = model.NamingOf(in)
			}
			if err := naming.Validate(); err != nil {
				return usage(fmt.Errorf("--from: %w", err))
			}
			out, err := model.Rename(net, in, naming, model.Naming(to))
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			metadata := map[string]string{"format": "pt", "model": net.Name()}
			if model.Naming(to) == model.NamesKeras {
				metadata["format"] = "keras"
			}
			if err := weights.Write(args[1], out, metadata); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d tensors of %s, from the names of %s to those of %s\n", args[1], len(out), net.Name(), naming, to)
			return err
		},
	}
	f.add(c)
	c.Flags().StringVar(&name, "model", "", "the network: a name (lockstep model --help lists them) or a spec's file")
	c.Flags().StringVar(&from, "from", "", "names in IN: lockstep, pytorch or keras (default: seen from the file)")
	c.Flags().BoolVar(&averages, "averages", false, "the averaged parameters of a checkpoint in place of the trained ones")
	c.Flags().StringVar(&to, "to", string(model.NamesLockstep), "names in OUT")
	return c
}
