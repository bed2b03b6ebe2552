package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"lockstep/pkg/internal/safeopen"
	"lockstep/pkg/internal/wholefile"
)

// Save adds the rules in r to the file [FileName] in the folder dir, which must exist, and returns
// its path. It keeps other content of the file and does not add rules that the file already has. If
// there is nothing to add, Save does not write the file. Save does not check the rules.
func Save(dir string, r FileContent) (path string, err error) {
	path = filepath.Join(dir, FileName)
	text, err := safeopen.ReadFile(dir, path, MaxBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return path, fmt.Errorf("save rules: %w", err)
	}
	changed, err := addRules(text, []ruleList{{"lines", r.Lines}, {"columns", r.Columns}, {"as", r.As}})
	if err != nil {
		return path, fmt.Errorf("save rules in %s: %w", path, err)
	}
	if bytes.Equal(changed, text) {
		return path, nil
	}
	if err := wholefile.WriteBytes(path, changed, 0o644); err != nil {
		return path, fmt.Errorf("save rules: %w", err)
	}
	return path, nil
}

type ruleList struct {
	key   string
	items []string
}

// addRules adds the rules in lists to text, the content of a rules file, and returns the new
// content. It keeps comments and other keys, and does not add rules that text already has.
func addRules(text []byte, lists []ruleList) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if doc.Kind == 0 { // an empty file, or one with only comments
		doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}, HeadComment: string(bytes.TrimSpace(text))}
		if doc.HeadComment == "" {
			doc.HeadComment = "# How lockstep reads the logs in this folder; see lockstep read --help."
		}
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: expected keys such as lines, columns and as", top.Line)
	}
	added := false
	for _, l := range lists {
		n, err := addRuleList(top, l)
		if err != nil {
			return nil, err
		}
		added = added || n > 0
	}
	if !added {
		return text, nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(&doc), e.Close())
	return b.Bytes(), err
}

// addRuleList adds to the mapping top the items of l that it does not have yet. It returns how many
// it added.
func addRuleList(top *yaml.Node, l ruleList) (added int, err error) {
	var list *yaml.Node
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value == l.key {
			list = top.Content[i+1]
		}
	}
	for _, item := range l.items {
		if list != nil && slices.ContainsFunc(list.Content, func(n *yaml.Node) bool { return n.Value == item }) {
			continue
		}
		switch {
		case list == nil:
			list = &yaml.Node{Kind: yaml.SequenceNode}
			top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: l.key}, list)
		case list.Kind == yaml.ScalarNode && list.Tag == "!!null": // a key without a value
			*list = yaml.Node{Kind: yaml.SequenceNode, HeadComment: list.HeadComment, LineComment: list.LineComment, FootComment: list.FootComment}
		case list.Kind != yaml.SequenceNode:
			return 0, fmt.Errorf("line %d: expected a list as the value of %s", list.Line, l.key)
		}
		list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: item, Style: yaml.SingleQuotedStyle})
		added++
	}
	return added, nil
}
