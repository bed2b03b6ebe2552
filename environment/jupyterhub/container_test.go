package jupyterhub_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestContainerfile checks the Containerfile without a container engine: its image has a fixed
// tag, its sources are in the archive of a release, Debian has its packages, and it creates the
// files that the config of the hub uses.
func TestContainerfile(t *testing.T) {
	root := filepath.Join("..", "..")
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := read("environment/jupyterhub/Containerfile")
	var packages, targets []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		switch f[0] {
		case "FROM":
			// Debian's podman and buildah know no registry for a name without one.
			image, ok := strings.CutPrefix(f[1], "docker.io/library/")
			if !ok {
				t.Errorf("%s: want the registry docker.io/library/", f[1])
			}
			_, tag, _ := strings.Cut(image, ":")
			if tag == "" || tag == "latest" {
				t.Errorf("%s: want a fixed tag", f[1])
			}
		case "COPY":
			sources := f[1 : len(f)-1]
			targets = append(targets, f[len(f)-1])
			for _, source := range sources {
				switch source {
				case "bin": // environment/release builds it
					continue
				case "install":
					source = "environment/archive/install"
				}
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("%q: %v", line, err)
				}
			}
		case "RUN":
			_, list, ok := strings.Cut(line, "apt-get install --yes --no-install-recommends")
			if strings.Contains(line, "apt-get install") != ok {
				t.Errorf("%q: want apt-get install --yes --no-install-recommends", line)
			}
			list, rest, _ := strings.Cut(list, "&&")
			packages = append(packages, strings.Fields(list)...)
			if ok && !strings.Contains(rest, "rm -rf /var/lib/apt/lists/*") {
				t.Errorf("%q: want that the lists of packages are removed", line)
			}
		case "ENV":
			if !strings.Contains(line, ":/usr/sbin:") { // of useradd, which README.md runs in the container
				t.Errorf("%q: want a PATH with /usr/sbin", line)
			}
		case "WORKDIR", "CMD":
		default:
			t.Errorf("%q: unknown instruction", line)
		}
	}
	config := read("environment/jupyterhub/jupyterhub_config.py")
	examples := regexp.MustCompile(`(?m)^EXAMPLES = "(.*)"`).FindStringSubmatch(config)
	if !slices.Contains(targets, "/etc/jupyterhub/jupyterhub_config.py") {
		t.Errorf("got the targets %q, want the config", targets)
	}
	if install := read("environment/archive/install"); examples == nil || examples[1] != "/usr/local/share/lockstep/notebooks" || !strings.Contains(text, "/install --sys") || !strings.Contains(install, "NOTEBOOKS=$PREFIX/share/lockstep/notebooks\n") {
		t.Errorf("install --sys does not create the folder of examples %q", examples)
	}
	group := regexp.MustCompile(`(?m)^GROUP = "(.*)"`).FindStringSubmatch(config)
	if group == nil || !strings.Contains(text, "groupadd "+group[1]+"\n") {
		t.Errorf("the Containerfile does not create the group %q", group)
	}
	if len(packages) == 0 {
		t.Error("found no packages")
	}
	t.Run("packages", func(t *testing.T) {
		release, err := os.ReadFile("/etc/os-release")
		if err != nil || !bytes.Contains(release, []byte("VERSION_CODENAME=bookworm")) {
			t.Skip("Debian 12 alone knows its packages")
		}
		out, err := exec.CommandContext(t.Context(), "apt-cache", append([]string{"policy"}, packages...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(out, []byte("\n  Candidate: 2")) { // of ca-certificates, whose version is a date
			t.Skip("apt has no lists of packages on this machine: run apt-get update")
		}
		for _, name := range packages {
			_, policy, known := strings.Cut("\n"+string(out), "\n"+name+":\n")
			if policy, _, _ = strings.Cut(policy, "Version table"); !known || strings.Contains(policy, "Candidate: (none)") {
				t.Errorf("Debian has no package %s", name)
			}
		}
	})
}
