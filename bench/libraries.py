"""Our own code beside what a library or a database has: sealed Parquet files, and writes that share a commit.

    python bench/libraries.py seal
    PYTHONPATH=tests/support python bench/libraries.py commits [--threads 50] [--jobs 20] [--rounds 3]

`seal`: every one-bit flip of a small table, read with Parquet's own page checksums and with the seal; then the bytes
and CPU-seconds of reading one column of ten, with the seal and with a hash of the whole file as a manifest could hold.
`commits`: submissions of one tenant from threads that wait for each other, with `locks.commit_together` and with a
transaction each, in SQLite and in PostgreSQL with and without its own group commit (`commit_delay`).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.storage import sealed

SEED = 100_000


def table(rows: int, columns: int) -> pa.Table:
    random = np.random.default_rng(SEED)
    return pa.table({f"column_{number}": random.normal(size=rows) for number in range(columns)})


def flips() -> None:
    small = pa.table({"key": ["a", "b", "c"], "value": [1.0, 2.0, 3.0], "right": [True, False, None]})
    plain = io.BytesIO()
    pq.write_table(small, plain, write_page_checksum=True)

    def by_pages(data: bytes) -> pa.Table:
        return pq.read_table(pa.BufferReader(data), page_checksum_verification=True)

    def by_seal(data: bytes) -> pa.Table:
        return sealed.read(pa.BufferReader(data))

    print("| how it is read | one-bit flips | refused | read as before | read as other values |\n|---|---|---|---|---|")
    for name, data, read in (
        ("page checksums", plain.getvalue(), by_pages),
        ("seal", bytes(sealed.encoded(small)), by_seal),
    ):
        refused = same = 0
        for bit in range(8 * len(data)):
            broken = bytearray(data)
            broken[bit // 8] ^= 1 << bit % 8
            try:
                same += read(bytes(broken)).equals(small)
            except (OSError, pa.ArrowException, ValueError, MemoryError):
                refused += 1
        print(f"| {name} | {8 * len(data)} | {refused} | {same} | {8 * len(data) - refused - same} |")


class Counted(io.RawIOBase):
    """A file that counts the bytes that were read of it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.count = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.count += len(data)
        return data


def column() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        data = table(1_000_000, 10)
        _, writing = cpu(lambda: path.write_bytes(sealed.encoded(data)))
        _, plain = cpu(lambda: pq.write_table(data, Path(folder) / "plain.parquet"))
        print(f"\nwriting {path.stat().st_size / 1e6:.0f} MB: sealed {writing:.2f}, plain {plain:.2f} CPU-s")
        for name, read in (("seal", read_sealed), ("hash of the file", read_hashed)):
            file = Counted(path)
            _, seconds = cpu(lambda read=read, file=file: read(file))  # type: ignore[misc]
            print(f"one column of ten, {name}: {file.count / 1e6:.1f} MB read, {seconds:.3f} CPU-s")


def read_sealed(file: Counted) -> pa.Table:
    return sealed.read(pa.PythonFile(file, "r"), ["column_3"])


def read_hashed(file: Counted) -> pa.Table:
    whole = file.read()
    hashlib.sha256(whole).hexdigest()
    return pq.read_table(pa.BufferReader(whole), columns=["column_3"])


def cpu(call: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    return call(), time.process_time() - begun


def commits(threads: int, jobs_each: int, rounds: int) -> None:
    from ledgers import new_template, sqlite_url
    from postgres import running

    from c2b_ray.endpoint.ledger import jobs
    from c2b_ray.endpoint.ledger.database import Database

    print(
        "| database | commits | submissions/s, median (all rounds) | CPU-ms of this process each |\n|---|---|---|---|"
    )
    shared = jobs.MOST_TOGETHER

    def both(name: str, url: Callable[[], str]) -> None:
        taken: dict[str, list[tuple[float, float]]] = {"shared": [], "one each": []}
        for _ in range(rounds):
            for how, most in (("shared", shared), ("one each", 1)):
                jobs.MOST_TOGETHER = most
                db = Database(url(), connections=threads)
                taken[how].append(submissions(db, threads, jobs_each))
                db.close()
        for how, rows in taken.items():
            rates, each = zip(*rows, strict=True)
            every = ", ".join(f"{rate:.0f}" for rate in rates)
            print(f"| {name} | {how} | {np.median(rates):.0f} ({every}) | {np.median(each):.1f} |", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        template = new_template(Path(folder))
        copies = iter(range(100))

        def fresh() -> str:
            place = Path(folder) / str(next(copies))
            place.mkdir()
            return sqlite_url(template, place)

        both("SQLite", fresh)
    with running() as server:  # which the tests run without fsync
        server.stop()
        for delay in (0, 1000):
            options = f"-p {server.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=on"
            options += f" -c max_connections=200 -c commit_delay={delay} -c commit_siblings=1"
            server._control("start", "-o", options, "-l", str(server._folder / "log"))
            both(f"PostgreSQL, commit_delay {delay} µs", lambda: server.url(server.new_database()))
            server.stop()


def submissions(db: Any, threads: int, jobs_each: int) -> tuple[float, float]:
    """Submissions a second of one tenant, and CPU-milliseconds of this process for each."""
    from ledgers import at_once, member, submit

    from c2b_ray.endpoint.ledger import migrations

    migrations.prepare(db)
    who = member(db)
    submit(db, who)

    def work(number: int) -> None:
        for _ in range(jobs_each):
            submit(db, who)

    begun, used = time.monotonic(), time.process_time()
    at_once(threads, work)
    count = threads * jobs_each
    return count / (time.monotonic() - begun), 1000 * (time.process_time() - used) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["seal", "commits"])
    parser.add_argument("--threads", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=20, help="submissions of each thread")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.what == "seal":
        flips()
        column()
    else:
        commits(chosen.threads, chosen.jobs, chosen.rounds)


if __name__ == "__main__":
    main()
