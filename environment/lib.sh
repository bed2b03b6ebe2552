# shellcheck shell=bash
# Set-up that demo and test share. Sourced; the caller has set
# "set -euo pipefail" and ROOT, the folder of the checkout.
#
# Exit codes: 0 done, 1 failed, 2 wrong arguments, 3 something is missing that
# needs root to install (the command is printed).

GO_NEEDED=1.26
# shellcheck disable=SC2034 # for the caller
EXIT_USAGE=2
EXIT_MISSING=3
CACHE=$ROOT/environment/.cache

OS=$(uname -s) # Linux, Darwin (macOS), …

# Messages of apt and Go are read below, and numbers need a point. macOS has no C.UTF-8.
case $OS in
  Darwin) export LC_ALL=en_US.UTF-8 ;;
  *) export LC_ALL=C.UTF-8 ;;
esac

say() { printf '%s\n' "$*"; }
die() { # exit code, message...
  local code=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$code"
}

# now prints microseconds; seconds_since START prints seconds with one decimal. The bash
# of macOS, 3.2, has no EPOCHREALTIME: there the time is in whole seconds.
now() {
  if [ -n "${EPOCHREALTIME:-}" ]; then
    printf '%s' "${EPOCHREALTIME/./}"
  else
    printf '%s000000' "$(date +%s)"
  fi
}
seconds_since() {
  local tenths=$((($(now) - $1 + 50000) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# phase NAME COMMAND... runs a command between a headline and its seconds.
phase() {
  local name=$1 begin
  shift
  begin=$(now)
  say "== $name"
  "$@"
  say "== $name: $(seconds_since "$begin") s"
  say
}

# processors prints the number of processors that this process may use.
processors() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }

# version_at_least HAVE WANT compares "1.26.3" with "1.26".
version_at_least() {
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# use_go puts a Go that is new enough first in PATH, or says where to get one.
use_go() {
  if [ -z "${HOME:-}" ]; then # cron and some CI runners set none, and Go needs it
    HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
    export HOME
  fi
  local candidate version found=""
  for candidate in "$(command -v go || true)" /usr/local/go/bin/go /opt/homebrew/bin/go "$HOME/go/bin/go" "$HOME/sdk/go/bin/go" /usr/lib/go-*/bin/go; do
    [ -x "$candidate" ] || continue
    # Asked inside the module, an older go fetches the one that go.mod names
    # where that is allowed, so what counts is what it becomes.
    version=$(cd "$ROOT" && "$candidate" env GOVERSION 2>/dev/null) || version=""
    version=${version#go}
    version=${version%%[!0-9.]*}
    if [ -z "$version" ] || ! version_at_least "$version" "$GO_NEEDED"; then
      found="$found $candidate"
      continue
    fi
    GO=$candidate
    PATH=$(dirname "$GO"):$PATH
    export PATH
    # Version stamps need git and a checkout that belongs to this user; builds
    # are known by the hash of their sources instead (kernels/build). It builds
    # the kernel with -trimpath: with it everywhere, all builds and tests share
    # one cache.
    local flags
    flags=$("$GO" env GOFLAGS)
    case " $flags " in *" -buildvcs="*) ;; *) flags="$flags -buildvcs=false" ;; esac
    case " $flags " in *" -trimpath "*) ;; *) flags="$flags -trimpath" ;; esac
    export GOFLAGS="$flags"
    say "Go $version ($GO)"
    return
  done
  {
    say "Go $GO_NEEDED or newer is needed${found:+; too old or not able to fetch a newer one:$found}."
    if [ "$OS" = Darwin ]; then
      say "Install it with Homebrew:"
      say "    brew install go"
      say "or with the package for macOS from https://go.dev/dl/,"
    else
      say "Get it from https://go.dev/dl/ and unpack it, for example:"
      say "    tar -C /usr/local -xzf go$GO_NEEDED.<n>.linux-$(dpkg --print-architecture 2>/dev/null || uname -m).tar.gz"
      say "    export PATH=/usr/local/go/bin:\$PATH"
    fi
    say "then run this again."
  } >&2
  exit "$EXIT_MISSING"
}

# find_python sets PYTHON to an interpreter that has Jupyter's parts: Debian's,
# whatever python a version manager puts first in PATH, else that of PATH, else the
# one that runs the command jupyter (Homebrew and pipx put that into a folder of its own).
find_python() {
  local candidate script
  PYTHON=""
  script=$(command -v jupyter || true)
  [ -z "$script" ] || script=$(sed -n '1s/^#! *\([^ ]*\).*/\1/p' "$script")
  for candidate in /usr/bin/python3 "$(command -v python3 || true)" "$script"; do
    [ -x "$candidate" ] || continue
    # Without Apple's developer tools, this file of macOS only opens a window that offers them.
    if [ "$OS" = Darwin ] && [ "$candidate" = /usr/bin/python3 ] && ! xcode-select -p >/dev/null 2>&1; then
      continue
    fi
    if "$candidate" -c 'import jupyter_client, nbconvert, nbclient, notebook' >/dev/null 2>&1; then
      PYTHON=$candidate
      return
    fi
  done
  return 1
}

# install_missing WHAT... installs by apt what this machine lacks of: jupyter,
# gcc, g++, network (the command ip), chromium, pillow, mpi, slurm, certificates. Without root, and on macOS, it
# prints the list and stops.
install_missing() {
  if [ "$OS" = Darwin ]; then
    check_macos "$@"
    return
  fi
  local want packages=()
  for want in "$@"; do
    case $want in
      jupyter) find_python || packages+=(python3 jupyter-notebook jupyter-nbconvert jupyter-client) ;;
      gcc) { command -v "${CC:-gcc}" >/dev/null && [ -e /usr/include/stdlib.h ]; } || packages+=(gcc libc6-dev) ;;
      g++) # runs the GPU kernels' own source without a GPU
        command -v g++ >/dev/null || packages+=(g++)
        ;;
      network) # only root can make the network namespaces that it is for
        [ "$(id -u)" -ne 0 ] || command -v ip >/dev/null || packages+=(iproute2)
        ;;
      chromium) # prints reports as PDF; the name is Debian's, others count too
        command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null || packages+=(chromium fonts-liberation)
        ;;
      pillow) # reduces the figures of committed notebooks
        /usr/bin/python3 -c 'import PIL' >/dev/null 2>&1 || packages+=(python3-pil)
        ;;
      mpi) # starts the ranks of tests over MPI; they name the implementation, as both may be installed
        command -v mpirun.openmpi >/dev/null || packages+=(openmpi-bin)
        command -v mpirun.mpich >/dev/null || packages+=(mpich)
        ;;
      slurm) # starts environment/cluster
        { command -v sbatch && PATH=$PATH:/usr/sbin command -v slurmctld && PATH=$PATH:/usr/sbin command -v munged; } >/dev/null ||
          packages+=(slurm-wlm munge)
        ;;
      certificates) # Go reads them when it downloads modules
        [ -e "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" ] || packages+=(ca-certificates)
        ;;
      *) die 1 "install_missing: unknown part $want" ;;
    esac
  done
  if [ ${#packages[@]} -gt 0 ]; then
    apt_install "${packages[@]}"
  else
    say "nothing to install"
  fi
  find_python || die 1 "Jupyter was installed, but no python3 can import jupyter_client, nbconvert and notebook"
  if [ "$PYTHON" = /usr/bin/python3 ]; then
    # The tools that belong to this interpreter come before those of a version
    # manager, but after the Go that was chosen.
    PATH=$(dirname "$GO"):/usr/bin:$PATH
    export PATH
  fi
  say "Jupyter by $PYTHON"
}

# check_macos WHAT... is install_missing on macOS: it installs nothing, and names what to
# install by Homebrew or pip. Certificates are in the keychain, which Go reads; ip and the
# network tests are Linux's alone.
check_macos() {
  local want missing=""
  for want in "$@"; do
    case $want in
      jupyter)
        find_python || missing="$missing
    brew install jupyterlab
  or, without Homebrew:
    python3 -m venv ~/jupyter && ~/jupyter/bin/pip install notebook
    export PATH=~/jupyter/bin:\$PATH"
        ;;
      gcc) # clang, which also is g++
        xcode-select -p >/dev/null 2>&1 || missing="$missing
    xcode-select --install"
        ;;
      chromium)
        [ -d "/Applications/Google Chrome.app" ] || command -v chromium >/dev/null || missing="$missing
    brew install --cask google-chrome"
        ;;
    esac
  done
  if [ -n "$missing" ]; then
    printf '%s\n' "${0##*/}: something is missing; install it with$missing" "then run this again." >&2
    exit "$EXIT_MISSING"
  fi
  say "nothing to install"
  say "Jupyter by $PYTHON"
}

apt_install() {
  local command="apt-get install --yes --no-install-recommends $*"
  if ! command -v apt-get >/dev/null; then
    printf '%s\n' "${0##*/}: these Debian packages are missing and there is no apt-get here; install what corresponds to them:" "    $*" >&2
    exit "$EXIT_MISSING"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    printf '%s\n' "${0##*/}: these packages are missing, and only root can install them:" \
      "    sudo apt-get update" "    sudo $command" "then run this again." >&2
    exit "$EXIT_MISSING"
  fi
  mkdir -p "$CACHE"
  local log=$CACHE/apt.log
  say "installing by apt: $*"
  export DEBIAN_FRONTEND=noninteractive
  : >"$log"
  apt_run update || die 1 "apt-get update failed; the whole log is $log"
  # shellcheck disable=SC2086 # the command is a list of words
  apt_run ${command#apt-get } || die 1 "$command failed; the whole log is $log"
}

# apt_run ARGS... keeps apt's output in a log and shows how far it is.
apt_run() {
  local status=0
  apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -q "$@" </dev/null 2>&1 | tee -a "$log" | apt_progress || status=$?
  return "$status"
}

apt_progress() {
  local line count=0 total="?"
  while IFS= read -r line; do
    case $line in
      *" newly installed"*) total=${line%% newly installed*} && total=${total##* } ;;
      "Need to get "*) line=${line#Need to get } && say "  downloading ${line%% of archives*}" ;;
      "Setting up "*)
        count=$((count + 1))
        if [ $((count % 20)) -eq 0 ] || [ "$count" = "$total" ]; then say "  $count of $total packages installed"; fi
        ;;
      [EW]": "*) say "  $line" ;;
    esac
  done
}

# fetch_nvrtc puts NVIDIA's run-time compiler into the cache folder: the tests
# compile the GPU kernels with it, which needs no GPU, no driver and no root. It
# comes from the non-free section of the Debian that this machine's apt knows. With
# it come the driver's libraries, whose functions are compared with those that we
# call; they answer that there is no device.
# Where that cannot be had, those tests are skipped by name.
fetch_nvrtc() {
  local folder=$CACHE/nvrtc driver=$CACHE/driver repository work options keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  if [ -e "$folder/lib/libnvrtc.so.11.2" ] && [ -e "$driver/lib/libcuda.so.1" ]; then
    say "nothing to fetch"
    return
  fi
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    say "no apt here: the tests that compile GPU kernels will be skipped"
    return
  fi
  # shellcheck disable=SC2016 # apt fills these in
  repository=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == "Debian" && $2 == "main" && $4 !~ /-/ { print $3, $4; exit }') || repository=""
  if [ -z "$repository" ]; then
    say "apt knows no Debian here: the tests that compile GPU kernels will be skipped"
    return
  fi
  mkdir -p "$CACHE"
  work=$(mktemp -d "$CACHE/nvrtc.XXXXXX")
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/unpacked"
  [ -e "$keyring" ] || keyring=""
  echo "deb ${keyring:+[signed-by=$keyring] }$repository non-free" >"$work/sources.list"
  options=(-q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work" -o Debug::NoLocking=1 -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o APT::Sandbox::User=)
  if (
    cd "$work"
    apt-get "${options[@]}" update && apt-get "${options[@]}" download libnvrtc11.2 libnvrtc-builtins11.8 libcuda1 libnvidia-ml1 libnvtoolsext1 &&
      for package in *.deb; do dpkg-deb --extract "$package" unpacked; done
  ) </dev/null >"$CACHE/nvrtc.log" 2>&1; then
    mkdir -p "$folder" "$driver"
    rm -rf "${folder:?}/lib" "${driver:?}/lib"
    # Debian's folder is named after the machine, x86_64-linux-gnu.
    mv "$work"/unpacked/usr/lib/*-linux-gnu/nvidia/current "$driver/lib"
    mv "$work"/unpacked/usr/lib/*-linux-gnu/libnvToolsExt.so.1* "$driver/lib"
    mv "$work"/unpacked/usr/lib/*-linux-gnu "$folder/lib"
    say "fetched into $folder/lib and $driver/lib"
  else
    say "could not be fetched (the log is $CACHE/nvrtc.log): the tests that compile GPU kernels will be skipped"
  fi
  rm -rf "$work"
}

# install_emulator installs qemu, which runs the tests of the NEON assembly on a processor
# other than arm64, and the C library for arm64 that some of them load. If they cannot be
# installed, the tests are skipped by name.
install_emulator() {
  if [[ $(uname -m) = @(aarch64|arm64) ]] ||
    { command -v qemu-aarch64-static qemu-aarch64 >/dev/null && [ -e /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 ]; }; then
    say "nothing to install"
  elif [ "$(id -u)" -ne 0 ] || ! (apt_install qemu-user-static libc6-arm64-cross); then
    say "no qemu-user-static or libc6-arm64-cross here: the tests of the NEON assembly will be skipped"
  fi
}

# install_extras installs what only some tests need: JupyterHub, jupyter-server and Slurm's accounting. If it
# cannot be installed, these tests are skipped by name. The daemons of the packages are neither
# started nor enabled: the tests start their own, and JupyterHub's would be open to the network.
install_extras() {
  local packages=() units=() unit policy=/usr/sbin/policy-rc.d
  if ! { command -v jupyterhub && command -v configurable-http-proxy; } >/dev/null; then
    packages+=(jupyterhub node-configurable-http-proxy)
    units+=(jupyterhub)
  fi
  /usr/bin/python3 -c 'import jupyter_server' 2>/dev/null || packages+=(jupyter-server)
  if ! (PATH=$PATH:/usr/sbin && command -v slurmdbd && command -v mariadbd) >/dev/null; then
    packages+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server)
    units+=(slurmdbd mariadb)
  fi
  if [ ${#packages[@]} -eq 0 ]; then
    say "nothing to install"
    return
  elif [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    say "only root can install ${packages[*]}: the tests that need them will be skipped"
    return
  fi
  [ -e "$policy" ] && policy="" || (umask 022 && printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy")
  (apt_install "${packages[@]}") || say "${packages[*]} could not be installed: the tests that need them will be skipped"
  [ -z "$policy" ] || rm -f "$policy"
  for unit in "${units[@]}"; do
    ! command -v systemctl >/dev/null || systemctl disable "$unit" >/dev/null 2>&1 || true # may not be installed
  done
}

# install_browser_driver installs into the cache folder what the tests in a browser need, in the
# versions that environment/browser/package-lock.json names: playwright-core, which drives
# Chromium, and the page of environment/browser/lab, built from the packages of JupyterLab (350 MB,
# removed after the build). If that is not possible, the tests are skipped by name.
install_browser_driver() {
  local folder=$CACHE/browser source=$ROOT/environment/browser
  if diff -qr --exclude=driver.cjs "$source" "$folder/source" >/dev/null 2>&1; then
    say "nothing to install"
    return
  fi
  if ! { command -v node && command -v npm; } >/dev/null && { [ "$(id -u)" -ne 0 ] || ! (apt_install nodejs npm); }; then
    say "no node and npm here: the tests in the browser will be skipped"
    return
  fi
  rm -rf "$folder/lab" "$folder/source"
  mkdir -p "$folder"
  cp "$source"/package*.json "$folder"
  if (
    cd "$folder"
    timeout 300 npm ci --include=dev --ignore-scripts --no-audit --no-fund &&
      NODE_PATH=$folder/node_modules node "$source/lab/build.cjs" "$folder/lab" &&
      npm prune --omit=dev --ignore-scripts --no-audit --no-fund
  ) </dev/null >"$folder/npm.log" 2>&1; then
    cp -r "$source" "$folder/source"
    say "installed in $folder"
  else
    say "npm could not install the packages or build the page (the log is $folder/npm.log): the tests in the browser will be skipped"
  fi
}

# install_onnx installs what runs and checks exported networks: python3-onnx, and into the cache folder
# onnxruntime-web, in the version that environment/onnxruntime/package-lock.json names. If that is not
# possible, the tests are skipped by name.
install_onnx() {
  local folder=$CACHE/onnxruntime source=$ROOT/environment/onnxruntime
  if ! /usr/bin/python3 -c 'import onnx' 2>/dev/null && { [ "$(id -u)" -ne 0 ] || ! (apt_install python3-onnx); }; then
    say "no python3-onnx here: the check of ONNX files will be skipped"
  fi
  if cmp -s "$source/package-lock.json" "$folder/node_modules/installed.json"; then
    say "onnxruntime-web is installed"
    return
  fi
  mkdir -p "$folder"
  cp "$source"/package*.json "$folder"
  if (cd "$folder" && timeout 300 npm ci --ignore-scripts --no-audit --no-fund) </dev/null >"$folder/npm.log" 2>&1; then
    cp "$source/package-lock.json" "$folder/node_modules/installed.json"
    say "installed in $folder"
  else
    say "npm could not install onnxruntime-web (the log is $folder/npm.log): the test that runs ONNX files will be skipped"
  fi
}

# build_kernel makes lockstep and lockstep-kernel; it does nothing when they
# are up to date.
build_kernel() {
  (cd "$ROOT" && "$GO" run ./kernels/build) || die 1 "the kernel could not be built"
  LOCKSTEP=$ROOT/kernels/.build/bin/lockstep
  [ -x "$LOCKSTEP" ] || die 1 "kernels/build left no $LOCKSTEP"
}
