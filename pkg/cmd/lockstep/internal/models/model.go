package models

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/plan"
	"lockstep/pkg/model"
	"lockstep/pkg/nn"
)

type modelFlags struct {
	set   []string
	image string
}

func (f *modelFlags) addTo(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.set, "set", nil, "key=value to change in the network's config; repeatable (--set classes=1000 --set base=16)")
	c.Flags().StringVar(&f.image, "image", "", "shape of one image or volume, such as 3x64x64, instead of the published one")
}

func modelCommand() *cobra.Command {
	var f modelFlags
	var batch int
	var spec string
	c := &cobra.Command{
		Use:   "model NAME|FILE.yaml",
		Short: "Print a network layer by layer: shapes, parameters, FLOPs, memory",
		Long: `Prints a network layer by layer, and the memory that a step needs. FILE.yaml is the
spec of a custom network.

  lockstep model resnet50v2 --set classes=1000 --image 3x224x224
  lockstep model unet3d-sc21 --set base=8 --spec small.yaml

Networks:
` + describeNetworks(),
		Args: cli.ExactArgs(1, "name a network, for example unet2d-study"),
		RunE: func(c *cobra.Command, args []string) error {
			net, err := f.loadNetwork(args[0])
			if err != nil {
				return cli.AsUsageError(err)
			}
			if batch < 1 {
				return cli.AsUsageError(fmt.Errorf("invalid --batch %d: use at least 1", batch))
			}
			s, err := model.Summarize(net, batch)
			if err != nil {
				return err
			}
			needs, err := describeMemory(net, batch)
			if err != nil {
				return err
			}
			if spec != "" {
				if err := writeNetworkSpec(net, spec); err != nil {
					return err
				}
			}
			_, err = io.WriteString(c.OutOrStdout(), s.String()+needs)
			return err
		},
		ValidArgs: model.Names(),
	}
	f.addTo(c)
	c.Flags().IntVar(&batch, "batch", 1, "samples per step, for the shapes, FLOPs and memory")
	c.Flags().StringVar(&spec, "spec", "", "write the network as a spec, a YAML file that you can edit and train (model: {kind: spec, file: FILE})")
	c.AddCommand(convertCommand(), exportCommand())
	return c
}

func describeNetworks() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, name := range model.Names() {
		fmt.Fprintf(w, "  %s\t%s\n", name, model.Describe(name))
	}
	_ = w.Flush() // writes to a strings.Builder never fail
	return b.String()
}

// loadNetwork returns the network with the given name or spec file, changed by the flags.
func (f modelFlags) loadNetwork(name string) (model.Network, error) {
	var cfg model.Config
	var image, target []int
	var err error
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		if cfg, err = (model.Config{Kind: model.KindSpec, File: name}).Resolve(""); err == nil {
			image, target = cfg.Spec.Image, cfg.Spec.Target
		}
	} else {
		cfg, image, target, err = model.NamedConfig(name)
	}
	if err != nil {
		return nil, err
	}
	for _, s := range f.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--set %q: use key=value, for example classes=1000", s)
		}
		if err := yaml.Unmarshal([]byte(key+": "+value), &cfg); err != nil {
			return nil, fmt.Errorf("--set %q: %w", s, err)
		}
	}
	if f.image != "" {
		size, err := parseShape(f.image)
		if err != nil {
			return nil, err
		}
		if len(target) == len(image) && len(size) == len(image) { // a map of the image's size
			target = append([]int{target[0]}, size[1:]...)
		}
		image = size
	}
	return cfg.Network(image, target)
}

// parseShape parses 3x64x64, or 3×64×64 as printed by the summary.
func parseShape(text string) ([]int, error) {
	var shape []int
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "×", "x"), "x") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--image %q: use positive integers for channels and sides, such as 3x64x64", text)
		}
		shape = append(shape, n)
	}
	return shape, nil
}

// describeMemory describes the memory of a training step, according to the engine's memory plan.
func describeMemory(net model.Network, batch int) (string, error) {
	memory := func(mode nn.Mode) (plan.MemoryUse, error) {
		g, err := net.Graph(batch, mode)
		if err != nil {
			return plan.MemoryUse{}, err
		}
		p, err := plan.Lower(g, plan.Options{Fuse: true})
		if err != nil {
			return plan.MemoryUse{}, err
		}
		return p.Memory(), nil
	}
	eval, err := memory(nn.Eval)
	if err != nil {
		return "", err
	}
	train, err := memory(nn.Train)
	if err != nil {
		// A batch norm over a single value per channel can be evaluated, but not trained.
		return fmt.Sprintf("planned memory at batch %d in fp32: evaluation %s of activations; training: %v\n", batch, english.FormatBytes(int64(eval.Activations)), err), nil
	}
	return fmt.Sprintf("planned memory at batch %d in fp32: training %s of activations, evaluation %s; parameters %s, gradients as much, Adam's slots twice as much\n",
		batch, english.FormatBytes(int64(train.Activations)), english.FormatBytes(int64(eval.Activations)), english.FormatBytes(int64(train.Parameters))), nil
}

func writeNetworkSpec(net model.Network, path string) error {
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		return cli.AsUsageError(fmt.Errorf("--spec %s: use a file name that ends in .yaml", path))
	}
	s, err := model.SpecOf(net)
	if err != nil {
		return err
	}
	return s.Write(path)
}
