package models

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/model"
	"lockstep/pkg/train"
	"lockstep/pkg/weights"
)

func convertCommand() *cobra.Command {
	var f modelFlags
	var name, config, from, to string
	var averages bool
	c := &cobra.Command{
		Use:   "convert IN.safetensors OUT.safetensors --model NAME|--config CONFIG --to pytorch",
		Short: "Convert a network's weights between the names of Lockstep, PyTorch and Keras",
		Long: `Writes the weights of IN with other names, and in the matching layout, after
checking that every tensor of the network exists with its shape. The optimizer's
state and the parameters' averages of a checkpoint are not written; --averages
writes the averages (ema.decay) instead of the parameters.

  lockstep   layer.weight [out,in,kernel], as in checkpoints
  pytorch    the same; for resnet50 the names of torchvision
  keras      layer/kernel:0 [kernel,in,out], layer/gamma:0, layer/moving_mean:0

How to write IN in Python: safetensors.torch.save_file(model.state_dict(), "in.safetensors"), or
safetensors.numpy.save_file({v.path: v.numpy() for v in model.weights}, "in.safetensors").

The network is one of lockstep model --help, a spec, or the network of a training config, whose
settings --set then changes.

  lockstep model convert in.safetensors out.safetensors --model resnet50 --to lockstep
  lockstep model convert in.safetensors out.safetensors --config em-membrane --set model.base=16`,
		Args: cli.ExactArgs(2, "name the file to read and the file to write"),
		RunE: func(c *cobra.Command, args []string) error {
			net, err := f.loadNetworkOrConfig(c.Context(), name, config)
			if err != nil {
				return cli.AsUsageError(err)
			}
			if err := model.Naming(to).Validate(); err != nil {
				return cli.AsUsageError(fmt.Errorf("--to: %w", err))
			}
			if err := cli.CheckOutput(args[1], args[0], name, config); err != nil {
				return err
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
				return cli.AsUsageError(fmt.Errorf("--from: %w", err))
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
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d tensors of %s, with names converted from %s to %s\n", args[1], len(out), net.Name(), naming, to)
			return err
		},
	}
	f.addTo(c)
	c.Flags().StringVar(&name, "model", "", "the network: a name (lockstep model --help lists them) or a spec file")
	c.Flags().StringVar(&config, "config", "", "the training config of the network, instead of --model: a shipped config or a .yaml file")
	c.Flags().StringVar(&from, "from", "", "names in IN: lockstep, pytorch or keras (default: detected)")
	c.Flags().BoolVar(&averages, "averages", false, "write the averaged parameters of a checkpoint instead of the trained ones")
	c.Flags().StringVar(&to, "to", string(model.NamesLockstep), "names in OUT")
	return c
}

// loadNetworkOrConfig returns the network with the given name or spec file, or the network of a
// training config. Exactly one of name and config must be set.
func (f modelFlags) loadNetworkOrConfig(ctx context.Context, name, config string) (model.Network, error) {
	switch {
	case name == "" && config == "":
		return nil, errors.New("--model is missing: use the name of the network of the weights, its spec file, or --config with the training config")
	case name != "" && config != "":
		return nil, errors.New("--model and --config are both set: use one of them")
	case name != "":
		return f.loadNetwork(name)
	case f.image != "":
		return nil, errors.New("--image does not apply to --config, whose data have a size: leave it out")
	}
	c, err := train.Named(config, f.set...)
	if err != nil {
		return nil, err
	}
	return c.Network(ctx)
}
