package strategy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/engine"
	"lockstep/pkg/internal/nearest"
)

// Config is a strategy with its options. In YAML and in run.json it is the strategy's name,
// or the name with options:
//
//	strategy: ddp
//	strategy: {name: local_sgd, steps: 4}
//
// For an option that is zero, the default is used. It is an error to set an option that the
// strategy does not have.
type Config struct {
	Name string `yaml:"name" json:"name"` // one of Names; empty: NameDDP
}

// option is an option of a Config that only some strategies have.
type option struct {
	name  string // in YAML
	set   bool
	value any // value that is in effect
}

// options returns all options of c.
func (c Config) options() []option {
	return []option{}
}

// findKind returns the strategy that c names.
func (c Config) findKind() (Kind, error) {
	name := cmp.Or(c.Name, NameDDP)
	all := Kinds()
	i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, fmt.Errorf("unknown strategy %q%s: use one of %s", name, nearest.Hint(name, Names()), strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Validate returns an error for an unknown strategy or an invalid option, with valid values.
func (c Config) Validate() error {
	k, err := c.findKind()
	if err != nil {
		return err
	}
	for _, o := range c.options() {
		if o.set && !slices.Contains(k.Options, o.name) {
			return fmt.Errorf("strategy.%s does not apply to strategy %s: leave it out (%s)", o.name, k.Name, k.listOptions())
		}
	}
	if k.check != nil {
		return k.check(c)
	}
	return nil
}

// listOptions returns the names of the strategy's options, for error messages.
func (k Kind) listOptions() string {
	if len(k.Options) == 0 {
		return "this strategy has no options"
	}
	return "this strategy has " + strings.Join(k.Options, ", ")
}

// CheckEngine returns an error if the strategy cannot train on the engine that o describes.
func (c Config) CheckEngine(o engine.Options) error {
	if _, gpu := o.CUDA(); gpu && !c.isDefault() {
		return fmt.Errorf("strategy %s on device %s: it has not been run on a GPU yet: use device cpu or reference, or strategy %s without options", c, o.Device, NameDDP)
	}
	return nil
}

// CheckWorkers returns an error if the strategy cannot be used with the given number of
// workers.
func (c Config) CheckWorkers(workers int) error {
	k, err := c.findKind()
	if err != nil || k.checkWorkers == nil {
		return err
	}
	return k.checkWorkers(c, workers)
}

// isDefault reports whether c is NameDDP without options.
func (c Config) isDefault() bool {
	return cmp.Or(c.Name, NameDDP) == NameDDP && !slices.ContainsFunc(c.options(), func(o option) bool { return o.set })
}

// IsZero reports whether c is NameDDP without options, which run.json omits.
func (c Config) IsZero() bool { return c.isDefault() }

// String returns the name, with the options that are set, such as "local_sgd steps=4".
func (c Config) String() string {
	text := cmp.Or(c.Name, NameDDP)
	for _, o := range c.options() {
		if o.set {
			text += fmt.Sprintf(" %s=%v", o.name, o.value)
		}
	}
	return text
}

// Settings returns the name and the value of each of the strategy's options, including
// defaults, by its key in configs: "strategy", "strategy.steps" and so on. The values have
// the types that json.Unmarshal produces.
func (c Config) Settings() map[string]any {
	settings := map[string]any{"strategy": cmp.Or(c.Name, NameDDP)}
	for name, v := range c.values() {
		settings["strategy."+name] = v
	}
	return settings
}

// values returns the values of the strategy's options, including defaults, by name.
func (c Config) values() map[string]any {
	values := map[string]any{}
	k, err := c.findKind()
	for _, o := range c.options() {
		if err != nil && o.set || slices.Contains(k.Options, o.name) {
			values[o.name] = o.value
		}
	}
	return values
}

// MarshalJSON encodes c as its name, if it is NameDDP without options or a strategy that has
// no options, else as an object with the values of all options, including defaults.
func (c Config) MarshalJSON() ([]byte, error) {
	values := c.values()
	if c.isDefault() || len(values) == 0 {
		return json.Marshal(cmp.Or(c.Name, NameDDP))
	}
	values["name"] = cmp.Or(c.Name, NameDDP)
	return json.Marshal(values)
}

// UnmarshalJSON decodes a name, or an object with a name and options.
func (c *Config) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(strings.TrimSpace(string(text)), `"`) {
		*c = Config{}
		return json.Unmarshal(text, &c.Name)
	}
	type plain Config
	return json.Unmarshal(text, (*plain)(c))
}

// ScalarKey returns the key of the value that stands for a complete Config in YAML.
func (Config) ScalarKey() string { return "name" }

// UnmarshalYAML decodes a name, or the name and options that the document contains. A name
// resets the options, because they belong to the previous strategy.
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*c = Config{Name: n.Value}
		return nil
	}
	type plain Config
	var named struct {
		Name string `yaml:"name"`
	}
	if err := n.Decode(&named); err != nil {
		return err
	}
	if named.Name != "" {
		*c = Config{}
	}
	return n.Decode((*plain)(c))
}
