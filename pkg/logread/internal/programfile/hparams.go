package programfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/logread/internal/record"
	"lockstep/pkg/logread/internal/scan"
	"lockstep/pkg/runs"
)

// hparamsKind is the format of YAML configurations such as Lightning's hparams.yaml. Only scalars of the
// first two levels are read, and YAML tags of Python objects, which Lightning also writes, are ignored.
const hparamsKind = "configuration"

const maxYAMLBytes = 4 << 20

// isHparams reports whether path has the extension .yaml or .yml and the first line, apart from
// empty lines and comments, is "key: value". The extension is required because many texts have such
// lines.
func isHparams(path string, head []byte) bool {
	switch filepath.Ext(record.UncompressedName(path)) {
	case ".yaml", ".yml":
	default:
		return false
	}
	for line := range bytes.Lines(head) {
		line = bytes.TrimRight(line, "\r\n ")
		if len(line) == 0 || line[0] == '#' || string(line) == "---" {
			continue
		}
		key, _, ok := bytes.Cut(line, []byte(":"))
		return ok && scan.IsName(key)
	}
	return false
}

func readHparams(_ context.Context, in *record.Input) ([]*record.Part, error) {
	text, err := in.ReadDocument(maxYAMLBytes)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := decodeYAML(text, &node); err != nil {
		in.AddProblem(0, "%v", err)
		return nil, nil
	}
	p := &record.Part{Role: record.Config, Run: runs.Run{Info: runs.Info{Config: map[string]any{}}}}
	used := map[int]bool{}
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		addYAMLValues(node.Content[0], "", p.Run.Info.Config, used)
	}
	for range bytes.Lines(text) {
		if in.Report.Lines++; used[int(in.Report.Lines)] {
			in.Report.LinesUsed++
		} else {
			in.Report.AddIgnored(int(in.Report.Lines), "comments, lists and what else is no setting with a value")
		}
	}
	in.Report.Records = int64(len(p.Run.Info.Config))
	return []*record.Part{p}, nil
}

// decodeYAML parses a YAML document. If the YAML library panics, decodeYAML returns an error.
func decodeYAML(text []byte, node *yaml.Node) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode YAML: the library panicked: %v", p)
		}
	}()
	err = yaml.NewDecoder(bytes.NewReader(text)).Decode(node)
	if errors.Is(err, io.EOF) {
		return errors.New("the configuration is empty")
	}
	return err
}

// unwrapWandbValue returns the value of a setting in W&B's config.yaml, which has the form
// {desc: null, value: 0.1}, or any other node unchanged.
func unwrapWandbValue(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	value := n
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "value":
			value = n.Content[i+1]
		case "desc":
		default:
			return n
		}
	}
	return value
}

// addYAMLValues adds the scalars of a mapping to values, and their line numbers to used. The keys
// of a nested mapping are prefixed with its name and a slash. A list of devices, as Lightning's
// trainer takes it, becomes a text such as "0,1,".
func addYAMLValues(n *yaml.Node, prefix string, values map[string]any, used map[int]bool) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content) && len(values) < record.MaxRunSettings; i += 2 {
		key, v := n.Content[i], n.Content[i+1]
		if prefix == "" {
			v = unwrapWandbValue(v)
		}
		switch {
		case key.Value == "_wandb": // about the logger itself
		case key.Kind != yaml.ScalarNode || len(key.Value) > 100:
		case v.Kind == yaml.MappingNode && prefix == "":
			addYAMLValues(v, key.Value+"/", values, used)
		case v.Kind == yaml.SequenceNode && (key.Value == "devices" || key.Value == "gpus") && len(v.Content) <= record.MaxRunSettings:
			var numbers []string // of the devices of each node
			for _, item := range v.Content {
				numbers = append(numbers, item.Value)
				used[item.Line] = true
			}
			values[prefix+key.Value] = strings.Join(numbers, ",") + ","
		case v.Kind == yaml.ScalarNode && len(v.Value) <= 1000:
			if f, err := strconv.ParseFloat(strings.ReplaceAll(v.Value, "_", ""), 64); err == nil && v.Style == 0 {
				values[prefix+key.Value], used[v.Line] = f, true
			} else if v.Tag != "!!null" {
				values[prefix+key.Value], used[v.Line] = v.Value, true
			}
		}
	}
}
