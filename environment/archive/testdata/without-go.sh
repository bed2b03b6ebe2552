# Installs Lockstep from an unpacked archive and uses it, where there is neither
# Go nor a checkout nor a network: archive_linux_test.go runs this as root of
# namespaces of its own.
#
#   without-go.sh ARCHIVE NOTEBOOK PYTHON FOLDER...
set -euo pipefail
ARCHIVE=$1 NOTEBOOK=$2 PYTHON=$3
shift 3
ip link set lo up # Jupyter talks to its kernel over the loopback interface
for folder in "$@"; do # of Go, its caches and the checkout
  [ ! -d "$folder" ] || mount -t tmpfs none "$folder"
done
hash -r
if command -v go || ls "$@" | grep -v : | grep .; then
  echo "Go or the checkout can still be seen"
  exit 1
fi
if ip -brief address | grep -v ^lo; then
  echo "there is a network"
  exit 1
fi

cd "$ARCHIVE"
./install --user
export PATH="$HOME/.local/bin:$PATH"
[ "$(command -v lockstep)" = "$HOME/.local/bin/lockstep" ]

echo "== installed again, over a notebook that was edited"
echo mine >>"$HOME/.local/share/lockstep/notebooks/README.md"
./install --user
./install --user # keeps nothing: nothing was edited
[ "$(ls -d "$HOME"/.local/share/lockstep/*)" = "$(ls -d "$HOME"/.local/share/lockstep/{notebooks,notebooks-before-*})" ]
tail -n 1 "$HOME"/.local/share/lockstep/notebooks-before-*/README.md | grep -x mine
if grep -x mine "$HOME/.local/share/lockstep/notebooks/README.md"; then exit 1; fi

echo "== a shell"
mkdir "$HOME/work"
cd "$HOME/work"
lockstep launch --config unet2d-cells --workers 1,2 --seeds 1 --epochs 2
lockstep scaling logs/unet2d-cells
lockstep scaling published/unet2d-v100.csv --format csv | grep -c 'PyTorch native'
lockstep scaling recorded/unet2d-cells --format csv | grep -c ddp
lockstep plot logs/unet2d-cells --out figures
ls figures/*.png

echo "== Jupyter"
"$PYTHON" -m jupyter kernelspec list | grep "lockstep .*$HOME/.local/share/jupyter/kernels/lockstep"
cp "$NOTEBOOK" first.ipynb
"$PYTHON" -m jupyter nbconvert --to notebook --execute --inplace first.ipynb
cp "$HOME/.local/share/lockstep/notebooks/published-results.ipynb" .
"$PYTHON" -m jupyter nbconvert --to notebook --execute --inplace published-results.ipynb

echo "== installed over a running kernel"
"$PYTHON" - "$ARCHIVE/install" <<'END'
import subprocess, sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="lockstep")
try:
    def run(code):
        lines = []
        reply = client.execute_interactive(code, timeout=120, output_hook=lambda m: lines.append(m["content"].get("text", "")))
        assert reply["content"]["status"] == "ok", reply
        return "".join(lines)

    run('import ("fmt"; "lockstep/pkg/launch"; "lockstep/pkg/notebook"); x := 41')
    subprocess.run([sys.argv[1]], check=True)
    assert run("fmt.Println(x + 1)") == "42\n"
    run('job := launch.Local(notebook.Context(), launch.Sweep{Config: "unet2d-cells", Study: "again", Workers: []int{1}, Epochs: 1})\njob.Watch(notebook.Context())')
    print("a running kernel continues")
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
END
