// Package kernelspec installs the kernel into Jupyter: it creates the kernelspec "Go
// (Lockstep)" with the kernel and the lockstep command inside.
//
// A kernelspec is a folder in Jupyter's data folders, with a file kernel.json that contains the command that
// starts the kernel. Both binaries are copied into it, so that notebooks keep working if the folder of the
// build changes. kernel.json sets LOCKSTEP_BIN to the copied command, so that a notebook's workers run the
// same build as its kernel.
//
//	dir, err := kernelspec.Install(kernelspec.Options{Prefix: "/opt/venv"})
package kernelspec

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"lockstep/pkg/notebook"
)

const (
	// Name is the kernelspec's name, for "jupyter nbconvert" and in a notebook's metadata.
	Name = "lockstep"

	// DisplayName is the name in Jupyter's menu.
	DisplayName = "Go (Lockstep)"

	// CommandVariable is the environment variable with the path of the kernel's lockstep command.
	CommandVariable = "LOCKSTEP_BIN"

	kernelFile  = "lockstep-kernel"
	commandFile = "lockstep"
)

// logos contains the kernel's icons, which Jupyter finds by their names. logo-svg.svg is written by
// hand; kernels/README.md says how the PNG files are made from it.
//
//go:embed logo/*
var logos embed.FS

// Options contains the destination of a kernelspec and the paths of its binaries. At most one of User,
// Prefix and Sys may be set; the zero value installs for this user.
type Options struct {
	User   bool   // for this user: $JUPYTER_DATA_DIR, $XDG_DATA_HOME/jupyter or ~/.local/share/jupyter
	Prefix string // for an environment: share/jupyter in this folder
	Sys    bool   // for all users of the machine: /usr/local/share/jupyter

	Kernel  string // the kernel binary; "" means lockstep-kernel in the folder of Command
	Command string // the lockstep binary; "" means the running program
}

// Validate returns an error if more than one destination is set.
func (o Options) Validate() error {
	n := 0
	for _, set := range []bool{o.User, o.Prefix != "", o.Sys} {
		if set {
			n++
		}
	}
	if n > 1 {
		return errors.New("install kernel: --user, --prefix and --sys cannot be combined: choose one of them")
	}
	return nil
}

type kernelJSON struct {
	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	Name          string            `json:"name"`
	InterruptMode string            `json:"interrupt_mode"`
	Env           map[string]string `json:"env"`
}

// Install writes the kernelspec and returns its folder. It replaces an earlier one file by file, each
// atomically, so that a running kernel continues. The error for a missing binary says how to create it.
func Install(o Options) (dir string, err error) {
	if dir, err = Dir(o); err != nil {
		return "", err
	}
	kernel, command, err := o.findBinaries()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("install kernel: %w", err)
	}
	installedKernel, installedCommand := filepath.Join(dir, kernelFile), filepath.Join(dir, commandFile)
	for _, c := range [][2]string{{kernel, installedKernel}, {command, installedCommand}} {
		if err := copyProgram(c[0], c[1]); err != nil {
			return "", fmt.Errorf("install kernel: %w", err)
		}
	}
	if err := installLogos(dir); err != nil {
		return "", fmt.Errorf("install kernel: %w", err)
	}
	doc, err := json.MarshalIndent(kernelJSON{
		Argv:          []string{installedKernel, "{connection_file}"},
		DisplayName:   DisplayName,
		Language:      "go",
		Name:          Name,
		InterruptMode: "signal",
		Env:           map[string]string{CommandVariable: installedCommand},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("install kernel: write kernel.json: %w", err)
	}
	// Write this file last, because Jupyter finds the kernel by it.
	if err := renameio.WriteFile(filepath.Join(dir, "kernel.json"), append(doc, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("install kernel: %w", err)
	}
	return dir, nil
}

func installLogos(dir string) error {
	files, err := logos.ReadDir("logo")
	for _, f := range files {
		data, readErr := logos.ReadFile(path.Join("logo", f.Name()))
		err = errors.Join(err, readErr, renameio.WriteFile(filepath.Join(dir, f.Name()), data, 0o644))
	}
	return err
}

// Dir returns the absolute path of the folder that Install writes.
func Dir(o Options) (string, error) {
	if err := o.Validate(); err != nil {
		return "", err
	}
	data, err := jupyterDataDir(o)
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(data, "kernels", Name))
	if err != nil {
		return "", fmt.Errorf("install kernel: %w", err)
	}
	return dir, nil
}

// jupyterDataDir returns Jupyter's data folder for the options, by the rules of jupyter_core.
func jupyterDataDir(o Options) (string, error) {
	switch {
	case o.Prefix != "":
		return filepath.Join(o.Prefix, "share", "jupyter"), nil
	case o.Sys:
		return "/usr/local/share/jupyter", nil
	}
	if dir := os.Getenv("JUPYTER_DATA_DIR"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "jupyter"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("install kernel: find home folder (use --prefix): %w", err)
	}
	return filepath.Join(home, ".local", "share", "jupyter"), nil
}

const buildAdvice = "in the project's folder run \"go run ./kernels/build\", then \"kernels/.build/bin/lockstep kernel install\""

// findBinaries returns the kernel and the command. It returns an error unless both belong to the same build.
func (o Options) findBinaries() (kernel, command string, err error) {
	kernel, command = o.Kernel, o.Command
	if command == "" {
		if command, err = os.Executable(); err != nil {
			return "", "", fmt.Errorf("install kernel: find this program: %w", err)
		}
		if command, err = filepath.EvalSymlinks(command); err != nil {
			return "", "", fmt.Errorf("install kernel: find this program: %w", err)
		}
	}
	kernel = cmp.Or(kernel, filepath.Join(filepath.Dir(command), kernelFile))
	for _, program := range []string{kernel, command} {
		info, err := os.Stat(program)
		if err != nil {
			return "", "", fmt.Errorf("install kernel: %w; %s", err, buildAdvice)
		}
		if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return "", "", fmt.Errorf("install kernel: %s is not a program; %s", program, buildAdvice)
		}
	}
	if o.Command != "" {
		return kernel, command, nil // the build id of another program than the running one is unknown
	}
	id, err := readKernelID(kernel)
	if err != nil {
		return "", "", err
	}
	if ours := notebook.BuildID(); id != ours {
		return "", "", fmt.Errorf("install kernel: %s has build id %s but this command has build id %s, so its workers would be rejected; %s",
			kernel, id, ours, buildAdvice)
	}
	return kernel, command, nil
}

// readKernelID asks a kernel binary for its build id.
func readKernelID(kernel string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, kernel, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("install kernel: get version of %s: %w; %s", kernel, err, buildAdvice)
	}
	id, ok := strings.CutPrefix(strings.TrimSpace(string(out)), kernelFile+" ")
	if !ok {
		return "", fmt.Errorf("install kernel: %s --version printed %q, want %q and a build id; %s", kernel, out, kernelFile, buildAdvice)
	}
	return id, nil
}

// copyProgram copies a program atomically: whoever opens dst reads the old file or the complete new one.
func copyProgram(src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close() // only read from
	out, err := renameio.NewPendingFile(dst, renameio.WithStaticPermissions(0o755))
	if err != nil {
		return err
	}
	defer func() {
		if cleanErr := out.Cleanup(); err == nil {
			err = cleanErr
		}
	}()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", src, err)
	}
	return out.CloseAtomicallyReplace()
}
