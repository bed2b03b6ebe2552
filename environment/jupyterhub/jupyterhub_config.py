# JupyterHub for a class that trains with Lockstep, on one machine: each student is a Unix user
# of this machine and has an own notebook server. Copy this file to /etc/jupyterhub; README.md in
# this folder explains how to set up everything. "Decide" marks what a site must decide.
#
# It was written for JupyterHub 3.0 and Jupyter Notebook 6.4 of Debian 12.
import asyncio
import grp
import os
import pwd
import resource
import socket

from jupyterhub.spawner import LocalProcessSpawner, set_user_setuid

# Decide: what one student may use on this machine. Jobs in Slurm have limits of their own
# (class-limits). A worker of Lockstep needs some hundred MiB and about 20 threads.
MEMORY = 4 << 30  # bytes
THREADS = 1000  # of all processes of a student together
CPUS = 2  # with systemd only

# Decide: the Unix group of the students who may log in; None means every user of this machine.
GROUP = "class"

# Sweeps of all students share the cores of this machine: one that finds too few free cores waits,
# at most for this time, and then starts with a note that its times are disturbed. Decide: about the
# time that an exercise needs.
CORES_WAIT = "10m"
CORES = "/run/lockstep/cores"  # on a local disk

# The folder that each student gets a copy of at the first login, and the name of the copy in the
# student's home folder. When the folder has changed, a copy of it with its date is added.
EXAMPLES = "/usr/local/share/lockstep/notebooks"
COPY = "lockstep-examples"

STATE = "/var/lib/jupyterhub"  # of the hub: its database and secrets

# --- Addresses -------------------------------------------------------------------------------
# Everything listens on this machine only. Decide: for others, put a web server with HTTPS, such
# as nginx or Apache, in front of port 8000, or set ssl_cert, ssl_key and another bind_url.
c = get_config()  # noqa: F821
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:8081"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:8001"
c.Spawner.ip = "127.0.0.1"
# Decide: with a host name of its own for each student, a page that one student made cannot act
# in the name of another who opens it. This needs a wildcard in DNS and in the certificate.
# c.JupyterHub.subdomain_host = "https://hub.example.org"

if os.path.isdir("/usr/share/nodejs/configurable-http-proxy"):  # of Debian
    c.ConfigurableHTTPProxy.command = ["env", "NODE_PATH=/usr/share/nodejs", "configurable-http-proxy"]

os.makedirs(STATE, exist_ok=True)
os.chmod(STATE, 0o700)  # Debian's package creates it readable for all, and the database too
c.JupyterHub.db_url = "sqlite:///" + os.path.join(STATE, "jupyterhub.sqlite")
c.JupyterHub.cookie_secret_file = os.path.join(STATE, "cookie_secret")
c.ConfigurableHTTPProxy.pid_file = os.path.join(STATE, "proxy.pid")

# --- Who may log in --------------------------------------------------------------------------
# Decide: the passwords of this machine (PAM), or the site's authenticator, such as
# oauthenticator or ldapauthenticator; each name must be that of a Unix user.
c.JupyterHub.authenticator_class = "pam"
if GROUP:
    c.LocalAuthenticator.allowed_groups = {GROUP}
else:
    c.Authenticator.allow_all = True  # JupyterHub 5 allows nobody by default
c.JupyterHub.admin_access = False  # administrators do not open the notebooks of students
c.Authenticator.admin_users = set()  # Decide: who may stop servers of students


# --- The student's server --------------------------------------------------------------------
class LimitedSpawner(LocalProcessSpawner):
    """Starts a student's server with limits that its processes inherit and cannot raise."""

    def make_preexec_fn(self, name):
        become_user = set_user_setuid(name)

        def preexec():
            # Private data of each process, which are its heap and what it has mapped for
            # writing. RLIMIT_AS would also count the address space that Go reserves.
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_NPROC, (THREADS, THREADS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump contains secrets
            os.umask(0o077)  # what a student writes is private until the student shares it
            become_user()

        return preexec


def find_spawner():
    """Returns SystemdSpawner if this machine has it, because a cgroup limits all processes of a
    student together; else LimitedSpawner, whose memory limit is for each process."""
    if os.path.isdir("/run/systemd/system"):
        try:
            from systemdspawner import SystemdSpawner  # pip install jupyterhub-systemdspawner

            return SystemdSpawner
        except ImportError:
            pass
    return LimitedSpawner


c.JupyterHub.spawner_class = find_spawner()
c.SystemdSpawner.mem_limit = MEMORY
c.SystemdSpawner.cpu_limit = float(CPUS)
c.SystemdSpawner.isolate_tmp = True
c.SystemdSpawner.disable_user_sudo = True
c.SystemdSpawner.unit_extra_properties = {"TasksMax": str(THREADS), "MemorySwapMax": "0", "UMask": "0077", "LimitCORE": "0"}

c.Spawner.environment = {
    # Sweeps of a student find each other here. Students cannot enter each other's home folders; in
    # /tmp, any of them could take the name. Decide: if home folders are on a network file system
    # without locks, name a folder on a local disk that belongs to the student.
    "LOCKSTEP_LOCKS": lambda spawner: os.path.join(
        pwd.getpwnam(spawner.user.name).pw_dir, ".local/state/lockstep/locks-" + socket.gethostname()
    ),
    "LOCKSTEP_CORES": CORES,
    "LOCKSTEP_CORES_WAIT": CORES_WAIT,
}
# Jupyter Notebook 6 as in Debian. Decide: for JupyterLab, remove these two lines.
c.Spawner.environment["JUPYTERHUB_SINGLEUSER_APP"] = "notebook.notebookapp.NotebookApp"
c.Spawner.default_url = "/tree"
c.Spawner.cmd = ["jupyterhub-singleuser"]
c.Spawner.notebook_dir = "~"
c.Spawner.env_keep = ["PATH", "LANG", "LC_ALL", "TZ", "SLURM_CONF"]
c.Spawner.http_timeout = 120  # seconds until the server answers, on a machine that is busy
c.Spawner.start_timeout = 120


def make_cores_folder(user):
    """Makes the folder in which the student's sweeps claim cores. Only root can write the folder
    above it, so that no student can take the name of another, or fill it."""
    folder = os.path.join(CORES, str(user.pw_uid))
    for path in (os.path.dirname(CORES), CORES, folder):
        if not os.path.isdir(path):
            os.mkdir(path)
            os.chmod(path, 0o755)
    os.chown(folder, user.pw_uid, user.pw_gid)


# The student runs these commands, not root: a link in the home folder leads to nothing that the
# student could not write. The course's notebooks are copied without solutions: as a release, unless
# an administrator has put one in their place. The last step makes the complete copy visible. Each
# copy has the checksum of its files as they were in .lockstep-examples.
COPY_COMMANDS = """
umask 077
[ -d "$1" ] || exit 0
version=$(cd -- "$1" && find . -type f -exec sha256sum {} + | LC_ALL=C sort | sha256sum) || exit 1
copy=$2
if [ -e "$copy" ] || [ -L "$copy" ]; then
  for old in "$2" "$2"-*; do
    [ ! -f "$old/.lockstep-examples" ] || [ "$(head -c 100 -- "$old/.lockstep-examples")" != "$version" ] || exit 0
  done
  dated=$2-$(find "$1" -printf '%TY-%Tm-%Td\\n' | sort | tail -n 1)
  copy=$dated number=2
  while [ -e "$copy" ] || [ -L "$copy" ]; do
    copy=$dated-$number number=$((number + 1))
  done
fi
rm -rf -- "$copy.new" && cp -RL -- "$1" "$copy.new" || exit 1
if grep -q 'BEGIN SOLUTION' "$copy.new"/course/*.ipynb 2>/dev/null; then
  rm -rf -- "$copy.new/course"
  lockstep course release "$1/course" "$copy.new/course" >/dev/null || rm -rf -- "$copy.new/course"
fi
chmod -R u+rwX,go= -- "$copy.new" &&
  printf '%s\\n' "$version" >"$copy.new/.lockstep-examples" && mv -T -- "$copy.new" "$copy"
"""


async def prepare_server(spawner):
    """Prepares what the student's server needs. A failure is logged and the server starts anyway."""
    user = pwd.getpwnam(spawner.user.name)
    try:
        make_cores_folder(user)
    except OSError as err:
        spawner.log.warning("the sweeps of %s do not share the cores: %s", user.pw_name, err)
    await copy_examples(spawner, user)


async def copy_examples(spawner, user):
    """Copies EXAMPLES to the student's home folder if there is no copy, and with its date if it has
    changed since the last copy. An existing copy is never changed."""
    groups = [g.gr_gid for g in grp.getgrall() if user.pw_name in g.gr_mem]
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", COPY_COMMANDS, "sh", EXAMPLES, os.path.join(user.pw_dir, COPY),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        cwd="/", env={"PATH": "/usr/local/bin:/usr/bin:/bin"}, user=user.pw_uid, group=user.pw_gid, extra_groups=groups, start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout=60)
    except asyncio.TimeoutError:
        process.kill()
        spawner.log.warning("copying the examples for %s took more than 60 s and was stopped", user.pw_name)
        return
    if process.returncode != 0:
        spawner.log.warning("the examples for %s were not copied: %s", user.pw_name, output.decode(errors="replace"))


c.Spawner.pre_spawn_hook = prepare_server
