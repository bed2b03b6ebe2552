package site

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"lockstep/environment/sites"
	"lockstep/pkg/internal/nearest"
	"lockstep/pkg/internal/strictyaml"
)

// Unknown is the value of a key in a profile that nobody has looked up yet.
const Unknown = "ask-your-site"

// Values of Profile.Account, in addition to Unknown.
const (
	AccountRequired = "required"
	AccountOptional = "optional"
)

// StartPlain is the value of Profile.Start for a site whose job scripts start the program itself,
// as one process.
const StartPlain = "plain"

// Profile describes a site. Each field has the key of its tag in the profile's file;
// environment/sites/README.md explains the keys. In general, an empty text or 0 leaves the choice
// to Slurm or means that nothing is checked.
type Profile struct {
	Name        string `yaml:"-"` // of the shipped profile, or the path of the file
	Description string `yaml:"description"`
	Source      string `yaml:"source"`

	Partitions  List   `yaml:"partitions"` // the first is the default
	Constraint  string `yaml:"constraint"`
	Account     string `yaml:"account"` // AccountRequired or AccountOptional
	Reservation string `yaml:"reservation"`

	WorkersPerNode Count       `yaml:"workers_per_node"` // at most; used by Place
	TasksPerNode   Count       `yaml:"tasks_per_node"`   // exactly; 0 if the site does not fix it
	GPUsPerNode    Count       `yaml:"gpus_per_node"`
	GPUFlag        string      `yaml:"gpu_flag"` // ends in N, the number of GPUs per node
	CoresPerNode   Count       `yaml:"cores_per_node"`
	CPUsPerTask    Count       `yaml:"cpus_per_task"`
	DivideCores    bool        `yaml:"divide_cores"` // the tasks of a node share all its cores
	CPUsByGPUs     []CPUsRange `yaml:"cpus_by_gpus"` // CPUs that a job may have on a node, by its GPUs
	ListGPUs       bool        `yaml:"list_gpus"`    // export CUDA_VISIBLE_DEVICES if a job has whole nodes

	PurgeModules     bool     `yaml:"purge_modules"`
	Modules          List     `yaml:"modules"`
	Image            string   `yaml:"image"` // of a container
	Exports          []string `yaml:"exports"`
	Start            string   `yaml:"start"` // command in front of the program, or StartPlain
	PlainOneTask     bool     `yaml:"plain_one_task"`
	Time             bool     `yaml:"time"` // measure the command with time
	MPICommand       string   `yaml:"mpi_command"`
	Output           string   `yaml:"output"`
	Error            string   `yaml:"error"` // empty: the same file as Output
	NetworkInterface string   `yaml:"network_interface"`
	Scratch          string   `yaml:"scratch"`
}

// CPUsRange is the number of CPUs that a job may have on a node with a given number of GPUs.
type CPUsRange struct {
	GPUs int `yaml:"gpus"`
	Min  int `yaml:"min"`
	Max  int `yaml:"max"`
}

// Count is a number that may be unknown.
type Count int

const unknownCount Count = -1

// UnmarshalYAML decodes a whole number of at least 0, or Unknown.
func (c *Count) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Value == Unknown {
		*c = unknownCount
		return nil
	}
	var v uint16
	if err := n.Decode(&v); err != nil {
		return err
	}
	*c = Count(v)
	return nil
}

func (c Count) valueOrZero() int { return max(0, int(c)) }

// List is a list of texts. As a whole it may also be Unknown.
type List []string

// UnmarshalYAML decodes a list, or Unknown in its place.
func (l *List) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Value == Unknown {
		*l = List{Unknown}
		return nil
	}
	return n.Decode((*[]string)(l))
}

// Names returns the names of the shipped profiles, sorted.
func Names() []string {
	files, _ := fs.Glob(sites.Files, "*.yaml") // the pattern is valid
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f, ".yaml")
	}
	slices.Sort(names)
	return names
}

// Load returns the shipped profile with the given name. A name that ends in .yaml or .yml is the
// path of a file. An error in a file contains its path, the line and the key.
func Load(name string) (*Profile, error) {
	text, err := Text(name)
	if err != nil {
		return nil, err
	}
	return Parse(name, text)
}

// Text returns the content of a profile. name is as for Load.
func Text(name string) ([]byte, error) {
	if ext := filepath.Ext(name); ext == ".yaml" || ext == ".yml" {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read site profile: %w", err)
		}
		return text, nil
	}
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("unknown site %q%s: use one of %s, or the path of your own profile, a .yaml file", name, suggestName(name), strings.Join(Names(), ", "))
	}
	return sites.Files.ReadFile(name + ".yaml")
}

// suggestName returns " (did you mean x?)" if a shipped profile has a similar name, or a name that
// contains this one, as "jsc". Otherwise it returns "".
func suggestName(name string) string {
	if name != "" {
		for _, n := range Names() {
			if strings.Contains(n, strings.ToLower(name)) {
				return fmt.Sprintf(" (did you mean %s?)", n)
			}
		}
	}
	return nearest.Hint(name, Names())
}

// Parse decodes and validates a profile. name is the file's path or the profile's name.
func Parse(name string, text []byte) (*Profile, error) {
	invalid := func(err error) (*Profile, error) { return nil, fmt.Errorf("site profile %s: %w", name, err) }
	var doc, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	if err := documents.Decode(&doc); errors.Is(err, io.EOF) {
		return invalid(errors.New("the file is empty: begin with a copy of a shipped profile"))
	} else if err != nil {
		return invalid(err)
	}
	if err := documents.Decode(&second); err == nil {
		return invalid(fmt.Errorf("line %d: unexpected second document after ---: write each profile to a separate file", second.Line))
	} else if !errors.Is(err, io.EOF) {
		return invalid(err)
	}
	p := &Profile{Name: name}
	if err := strictyaml.Decode(&doc, p); err != nil {
		return invalid(err)
	}
	if key, err := p.findInvalidKey(); err != nil {
		return invalid(fmt.Errorf("line %d: %s: %w", findKeyLine(&doc, key), key, err))
	}
	return p, nil
}

// findKeyLine returns the line of a top-level key in doc, or the first line.
func findKeyLine(doc *yaml.Node, key string) int {
	top := doc.Content[0].Content
	for i := 0; i+1 < len(top); i += 2 {
		if top[i].Value == key {
			return top[i].Line
		}
	}
	return 1
}
