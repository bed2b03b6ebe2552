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
var shipped embed.FS

// Names returns the names of the shipped configs, sorted.
func Names() []string {
	var names []string
	for name := range catalogue() {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// catalogue returns the file of each shipped config, by the config's name.
func catalogue() map[string]string {
	files, err := fs.Glob(shipped, "configs/*.yaml")
	if err != nil {
		return nil
	}
	in := map[string]string{}
	for _, f := range files {
		text, err := shipped.ReadFile(f)
		if err != nil {
			continue // cannot happen: the file is embedded
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil {
			continue // a test reads them all
		}
		members := several(&doc)
		if members == nil {
			in[strings.TrimSuffix(path.Base(f), ".yaml")] = f
		}
		for name := range members {
			in[name] = f
		}
	}
	return in
}

// several returns the configs in a file with several configs, by name. The top-level keys
// of such a file are the names; none of them is a key of Config. Keys that begin with _ are
// not configs, but parts that others merge. The result is nil if the file has one config.
func several(doc *yaml.Node) map[string]*yaml.Node {
	if doc.Kind != yaml.DocumentNode || doc.Content[0].Kind != yaml.MappingNode {
		return nil
	}
	known, _ := strictyaml.Fields(reflect.TypeOf(Config{}))
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

// Named returns the shipped config with the given name, or the config in a YAML file if the
// name ends in .yaml or .yml (FILE:NAME for a file with several configs). overrides change
// it, such as "batch=8" or "optimizer.learning_rate=0.01".
func Named(name string, overrides ...string) (Config, error) {
	c, err := load(name)
	if err != nil {
		return Config{}, err
	}
	return c.With(overrides...)
}

// load returns the config with the given name, as Named does. It checks the keys but not
// the values.
func load(name string) (Config, error) {
	file, member := name, ""
	if i := strings.LastIndex(name, ":"); i >= 0 && isYAML(name[:i]) {
		file, member = name[:i], name[i+1:]
	}
	var text []byte
	var err error
	if isYAML(file) {
		text, err = os.ReadFile(file)
	} else if in, ok := catalogue()[name]; ok {
		member = name
		text, err = shipped.ReadFile(in)
	} else {
		return Config{}, fmt.Errorf("unknown config %q%s: use one of %s, or a .yaml file", name, nearest.Hint(name, Names()), strings.Join(Names(), ", "))
	}
	if err != nil {
		return Config{}, fmt.Errorf("read config %s: %w", name, err)
	}
	c, err := decode(name, member, text)
	if err != nil {
		return Config{}, err
	}
	if c.Model, err = c.Model.Resolve(filepath.Dir(file)); err != nil {
		return Config{}, fmt.Errorf("read config %s: %w", name, err)
	}
	return c, nil
}

// isYAML reports whether name is the name of a YAML file.
func isYAML(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// Parse decodes a config from YAML, with the values of DefaultConfig for missing keys, and
// applies the overrides. file is the name in error messages.
func Parse(file string, text []byte, overrides ...string) (Config, error) {
	return parseMember(file, "", text, overrides...)
}

// parseMember parses the config named member of a file with several configs.
func parseMember(file, member string, text []byte, overrides ...string) (Config, error) {
	c, err := decode(file, member, text)
	if err != nil {
		return Config{}, err
	}
	return c.With(overrides...)
}

// decode decodes the config named member from a file with several configs. For a file with
// one config, member is ignored.
func decode(file, member string, text []byte) (Config, error) {
	bad := func(err error) (Config, error) { return Config{}, fmt.Errorf("parse config %s: %w", file, err) }
	c := DefaultConfig()
	var doc yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&doc); err != nil && !errors.Is(err, io.EOF) { // an empty file
		return bad(err)
	}
	var second yaml.Node
	if err := documents.Decode(&second); err == nil {
		return bad(fmt.Errorf("line %d: a second document begins behind ---, which would be overlooked: write each config to a file of its own, or all as keys with names, one of which FILE:NAME chooses", second.Line))
	} else if !errors.Is(err, io.EOF) {
		return bad(err)
	}
	node := &doc
	if members := several(&doc); members != nil {
		var names []string
		for n := range members {
			names = append(names, n)
		}
		sort.Strings(names)
		value, ok := members[member]
		switch {
		case member == "":
			return bad(fmt.Errorf("it holds several configs: name one of them: %s:%s", file, strings.Join(names, ", :")))
		case !ok:
			return bad(fmt.Errorf("it has no config %q%s: use one of %s", member, nearest.Hint(member, names), strings.Join(names, ", ")))
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
