"""Programs that call MPI under the interposer, and the profiles that they leave."""

import fcntl
import functools
import hashlib
import subprocess
from pathlib import Path
from typing import NamedTuple

from launch.trace import build, profile
from tests.support.running import BIN, ROOT, completed, environ

TIME_LIMIT_SECONDS = 60


class Traced(NamedTuple):
    """How a traced program ended: its exit status, what it printed, and the folder with what the interposer wrote."""

    status: int
    printed: str
    folder: object

    def files(self, kind="mpi_profile", suffix=""):
        """Returns {rank: file} of one kind. Fails where something was left half written, or more than one run wrote here."""
        assert not list(self.folder.glob("*.part"))
        paths = {}
        for path in self.folder.glob(f"{kind}.*{suffix}"):
            rank = path.name.removesuffix(suffix).rpartition(".")[2]
            if rank.isdigit():
                assert paths.setdefault(int(rank), path) == path
        return dict(sorted(paths.items()))

    def profiles(self):
        """Returns {rank: Profile}."""
        return {rank: profile.read(path) for rank, path in self.files().items()}

    def only(self):
        """The Profile of a program that ran alone."""
        profiles = self.profiles()
        assert list(profiles) == [0], (profiles, self.printed)
        return profiles[0]


@functools.cache
def library():
    """The interposer of this checkout, built where its sources have changed: the environment's stays as it is."""
    sources = (Path(build.__file__), *sorted(build.SOURCES.iterdir()))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = ROOT / ".pytest_cache"
    folder.mkdir(exist_ok=True)
    path = folder / f"{digest[:16]}-{build.NAME}"
    # Another process of the tests may be building it.
    with (folder / f"{build.NAME}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return path if path.exists() else build.build(path)


def compiled(folder, source, *flags):
    """A C program compiled with the environment's mpicc."""
    path = folder / "program"
    (folder / "program.c").write_text(source)
    subprocess.run([BIN / "mpicc", "-Wall", "-Werror", folder / "program.c", "-o", path, *flags], check=True)
    return path


def variables(folder, **more):
    """The environment of a traced program, for which a profile of every rank goes to the folder."""
    return environ() | profile.variables(library(), folder) | {name: str(value) for name, value in more.items()}


def run(folder, *command, ranks=None, **more):
    """Runs a program under the interposer, alone or with a number of ranks."""
    launcher = [] if ranks is None else [BIN / "mpiexec", "-n", ranks]
    folder.mkdir(exist_ok=True)
    profiles = folder / "profiles"
    done = completed(*launcher, *command, variables=variables(profiles, **more), seconds=TIME_LIMIT_SECONDS)
    return Traced(done.returncode, done.stdout + done.stderr, profiles)


def run_python(folder, text, **more):
    """Runs a text of Python under the interposer."""
    return run(folder, BIN / "python", "-c", text, **more)
