"""A real PostgreSQL on this machine (Debian's `postgresql`), whose data are deleted afterwards.

PostgreSQL refuses to run as root; where the tests run as root, it runs as the user `postgres`. Tests can kill it and
start it again. This module knows SQL, and nothing of c2b-ray.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"
PATIENCE_S = 60


def missing() -> str | None:
    """Returns the reason why PostgreSQL cannot run here; None where it can."""
    if _program("initdb") is None or _program("pg_ctl") is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if os.geteuid() == 0 and (shutil.which("setpriv") is None or _user() is None):
        return "PostgreSQL does not run as root, and there is no user `postgres`, or no setpriv, to run it as"
    return None


class Postgres:
    """A server without a password, at 127.0.0.1 unless `host` names another address of this machine."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self._folder = folder
        self._host = host
        self.port = _free_port()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@{self._host}:{self.port}/{database}"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses={self._host} -c unix_socket_directories='' -c fsync=off"
        options += " -c max_connections=200 -c shared_buffers=32MB"
        self._control("start", "-o", options, "-l", str(self._folder / "log"))

    def kill(self) -> None:
        """Kills the server's processes at work; committed data stay."""
        self._control("stop", "-m", "immediate")

    def stop(self) -> None:
        self._control("stop", "-m", "fast")

    def new_database(self, template: str = "template1") -> str:
        """Creates a database and returns its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def sql(self, statement: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def _control(self, verb: str, *options: str) -> None:
        _run("pg_ctl", verb, "-w", "-t", str(PATIENCE_S), "-D", str(self._folder / "data"), *options)


@contextmanager
def running(host: str = "127.0.0.1") -> Iterator[Postgres]:
    """Yields a server and deletes its data afterwards. With a `host`, all 256 addresses of its network may
    connect."""
    folder = Path(tempfile.mkdtemp(prefix="c2b-postgres-"))
    try:
        folder.chmod(0o711)
        data = folder / "data"
        data.mkdir(mode=0o700)
        (folder / "log").touch()
        if (user := _user()) is not None and os.geteuid() == 0:
            for path in (folder, data, folder / "log"):
                os.chown(path, user.pw_uid, user.pw_gid)
        _run("initdb", "-D", str(data), "-U", USER, "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C")
        with open(data / "pg_hba.conf", "a") as access:
            access.write(f"host all all {host}/24 trust\n")
        server = Postgres(folder, host)
        server.start()
        try:
            yield server
        finally:
            if (data / "postmaster.pid").exists():
                server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(program: str, *arguments: str) -> None:
    path = _program(program)
    assert path is not None
    command = [path, *arguments]
    if os.geteuid() == 0:
        user = _user()
        assert user is not None
        command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *command]
    # No pipe, since the server would inherit it and keep it open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", check=False)
        output.seek(0)
        assert done.returncode == 0, f"{program} {arguments}: {output.read().decode()}"


def _program(name: str) -> str | None:
    """Returns a program on the PATH, or the newest version in Debian's folder."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    return shutil.which(name) or (str(installed[-1]) if installed else None)


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
