package train

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/internal/strictyaml"
)

//go:embed configs/*.yaml
var shippedConfigs embed.FS

// Names returns the names of the configs that are built into Lockstep, sorted.
func Names() []string {
	var names []string
	for name := range shippedConfigPaths() {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// shippedConfigPaths maps the name of each shipped config to the path of its file in shippedConfigs.
func shippedConfigPaths() map[string]string {
	files, err := fs.Glob(shippedConfigs, "configs/*.yaml")
	if err != nil {
		return nil
	}
	in := map[string]string{}
	for _, f := range files {
		text, err := shippedConfigs.ReadFile(f)
		if err != nil {
			continue // cannot happen: the file is embedded
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil {
			continue // cannot happen: a test reads all shipped configs
		}
		members := configsByName(&doc)
		if members == nil {
			in[strings.TrimSuffix(path.Base(f), ".yaml")] = f
		}
		for name := range members {
			in[name] = f
		}
	}
	return in
}

// configsByName returns the configs of a file with several configs, by name. It returns nil if the
// file is a single config. In a file with several, all top-level keys are names, and none of them
// is a key of Config. Keys that begin with _ contain parts that configs merge.
func configsByName(doc *yaml.Node) map[string]*yaml.Node {
	if doc.Kind != yaml.DocumentNode || doc.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	known, _ := strictyaml.FieldTypes(reflect.TypeOf(Config{}))
	members := map[string]*yaml.Node{}
	top := doc.Content[0].Content
	for i := 0; i+1 < len(top); i += 2 {
		name, value := top[i].Value, top[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if _, ok := known[name]; ok || name == "<<" || value.Kind != yaml.MappingNode {
			return nil
		}
		if !strings.HasPrefix(name, "_") {
			members[name] = value
		}
	}
	if len(members) == 0 {
		return nil
	}
	return members
}

// Named returns the shipped config with the given name. The name may also be a path that ends in
// .yaml or .yml, for a file with one config, or FILE:NAME for a config in a file with several.
// Named applies the overrides, such as "batch=8" or "optimizer.learning_rate=0.01", and validates
// the config.
func Named(name string, overrides ...string) (Config, error) {
	c, err := loadConfig(name)
	if err != nil {
		return Config{}, err
	}
	return c.With(overrides...)
}

// loadConfig is like Named, but checks only the keys, not the values.
func loadConfig(name string) (Config, error) {
	file, member := name, ""
	if i := strings.LastIndex(name, ":"); i >= 0 && isYAML(name[:i]) {
		file, member = name[:i], name[i+1:]
	}
	var text []byte
	var err error
	if isYAML(file) {
		text, err = os.ReadFile(file)
	} else if in, ok := shippedConfigPaths()[name]; ok {
		member = name
		text, err = shippedConfigs.ReadFile(in)
	} else {
		return Config{}, fmt.Errorf("unknown config %q%s: use one of %s, or a .yaml file", name, nearest.Hint(name, Names()), strings.Join(Names(), ", "))
	}
	if err != nil {
		return Config{}, fmt.Errorf("read config %s: %w", name, err)
	}
	c, err := decodeConfig(name, member, text)
	if err != nil {
		return Config{}, err
	}
	if c.Model, err = c.Model.Resolve(filepath.Dir(file)); err != nil {
		return Config{}, fmt.Errorf("read config %s: %w", name, err)
	}
	return c, nil
}

func isYAML(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// Parse decodes a config from YAML, applies the overrides, and validates it. Missing keys have the
// values of DefaultConfig. file is the name of the config in error messages.
func Parse(file string, text []byte, overrides ...string) (Config, error) {
	return parseNamedConfig(file, "", text, overrides...)
}

// parseNamedConfig is like Parse, but decodes the config named member in a file with several. For a
// file with one config, member is ignored.
func parseNamedConfig(file, member string, text []byte, overrides ...string) (Config, error) {
	c, err := decodeConfig(file, member, text)
	if err != nil {
		return Config{}, err
	}
	return c.With(overrides...)
}

// decodeConfig decodes a config for parseNamedConfig. It checks the keys but not the values.
func decodeConfig(file, member string, text []byte) (Config, error) {
	bad := func(err error) (Config, error) { return Config{}, fmt.Errorf("parse config %s: %w", file, err) }
	c := DefaultConfig()
	var doc yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&doc); err != nil && !errors.Is(err, io.EOF) { // an empty file
		return bad(err)
	}
	var second yaml.Node
	if err := documents.Decode(&second); err == nil {
		return bad(fmt.Errorf("line %d: unexpected second document after ---: write each config to a separate file, or use the configs' names as top-level keys of one document and choose one by FILE:NAME", second.Line))
	} else if !errors.Is(err, io.EOF) {
		return bad(err)
	}
	node := &doc
	if members := configsByName(&doc); members != nil {
		var names []string
		for n := range members {
			names = append(names, n)
		}
		sort.Strings(names)
		value, ok := members[member]
		switch {
		case member == "":
			return bad(fmt.Errorf("the file has several configs: use one of %s:%s", file, strings.Join(names, ", "+file+":")))
		case !ok:
			return bad(fmt.Errorf("unknown config %q%s: use one of %s", member, nearest.Hint(member, names), strings.Join(names, ", ")))
		}
		// Check the complete file, because merged parts may be anywhere in it.
		if err := strictyaml.CheckCycles(&doc); err != nil {
			return bad(err)
		}
		node, c.Name = value, member
	}
	if err := strictyaml.Decode(node, &c); err != nil {
		return bad(err)
	}
	return c, nil
}
