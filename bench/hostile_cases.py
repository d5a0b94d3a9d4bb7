"""The requests of `hostile_requests`, by kind of attack. Each has a reason for which it must be refused.

This module knows what attackers send, and not how the endpoint defends itself.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hostile_site import CONFIG, LISTED, Site
from onnx import TensorProto, helper
from PIL import Image
from safetensors.numpy import save


@dataclass(frozen=True)
class Attack:
    """One request. `key`: the name of the key that it carries, or None. `json`: a body that is sent as JSON."""

    kind: str
    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    key: str | None = "a"


def submitted(kind: str, config: dict[str, Any], job: str = "c2b") -> Attack:
    return Attack(kind, "POST", "/v1/audits", json={"kind": job, "config": config})


def honest(site: Site) -> Iterator[Attack]:
    """Returns the same requests as an honest tenant sends them: were they refused too, refusals would prove nothing."""
    yield submitted("honest", {**CONFIG, "classifier": f"{LISTED}classify", "language_model": f"openai:{LISTED}#m"})
    yield Attack("honest", "POST", "/v1/webhooks", json={"url": "https://hooks.example.org/c2b/x"})
    table = {"source": "labelled", "table": "data/t.csv"}
    own = site.attacker
    for fields in (
        {"images": table, "attributes": None}, {"label_map": "data/t.csv"}, {"classifier": "onnx:data/t.csv"},
        {"classifier": {"a": "timm:resnet18?weights=data/t.csv"}}, {"images": {"source": "retrieve",
        "index": "data/t.csv"}},
        {"classifier": f"timm:resnet18?weights=upload:{own['upload']}"}, {"task": "ein Kätzchen 🐈\nzweite Zeile"},
    ):  # fmt: skip
        yield submitted("honest", {**CONFIG, **fields})
    failures = {"labels": ["bus"], "classifier": "world:clip", "images": {"labelled": {"table": "data/t.csv"}}}
    yield submitted("honest", {**failures, "hierarchy": "data/t.csv"}, "failures")
    captions = {"captions": {"file": "data/t.csv"}, "classifier": "world:clip"}
    yield submitted("honest", {**captions, "images": {"generate": {"model": "world:renderer"}}}, "dataset")
    yield submitted("honest", {"run": f"run:{own['formulas']}", "sentence": "a bus"}, "question")
    yield upload("honest", graph(), "onnx")
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    yield upload("honest", buffer.getvalue(), "image", **{"X-Upload-Name": "a%20bus.png"})
    yield upload("honest", zipped(("bus/a.png", buffer.getvalue())), "images")
    for path in ("", "/tables", "/tables/predictions", "/exports/csv"):
        yield Attack("honest", "GET", f"/v1/audits/{own['formulas']}{path}")
    yield Attack("honest", "GET", f"/v1/audits?limit=1&cursor={own['cursor']}")
    yield Attack("honest", "GET", f"/v1/uploads/{own['upload']}")
    yield Attack(
        "honest", "POST", "/v1/audits", json={"kind": "c2b", "config": CONFIG}, headers={"Idempotency-Key": "k"}
    )


def server_side_requests(site: Site) -> Iterator[Attack]:
    """Returns requests that name URLs of this machine, its network and a cloud's metadata, and odd forms of the listed
    host."""
    port = site.trap.rpartition(":")[2]
    hosts = [
        "127.0.0.1", "localhost", "0.0.0.0", "0", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1",
        "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "127.0.0.1.",
        "①②⑦.0.0.1",
        "127。0。0。1", "localtest.me", "models.example.org@127.0.0.1", "models.example.org:x@127.0.0.1", "[::1%25lo]",
        "models.example.org.127.0.0.1.nip.io", "127.0.0.1#.models.example.org", "127.0.0.1?.models.example.org",
        "127.0.0.1\\.models.example.org", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]", "LOCALHOST",
    ]  # fmt: skip
    plain = [f"{scheme}://{host}:{port}/" for host in hosts for scheme in ("http", "https")]
    metadata = [
        "http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/", "http://[fd00:ec2::254]/",
        "http://2852039166/",
        "http://metadata.google.internal/computeMetadata/v1/", "http://100.100.100.200/", "http://168.63.129.16/",
        "http://10.0.0.1/", "http://192.168.1.1/", "https://kubernetes.default.svc/",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "file:///etc/passwd", "ftp://127.0.0.1/", "dict://127.0.0.1:11211/", "https://models.example.org/v2/",
        f"{LISTED}../admin", f"{LISTED}%2e%2e/admin", "http://models.example.org/v1/",
        "https://models.example.org:444/v1/",
        "https://evilmodels.example.org/v1/", "https://models.example.org.evil/v1/", f"{LISTED}?token=abcdefgh12345678",
        "//models.example.org/v1/", "https:///v1/", "https://models.example.org\r\nX-Injected: 1/v1/",
        "HTTPS://models.example.org/v1/",
    ]  # fmt: skip
    for url in [*plain, *metadata]:
        yield submitted("server-side request", {**CONFIG, "classifier": url})
        yield Attack("server-side request", "POST", "/v1/webhooks", json={"url": url})
    for url in [*plain[::4], *metadata]:
        yield submitted("server-side request", {**CONFIG, "language_model": f"openai:{url}#m"})


def ways_out(site: Site) -> list[str]:
    deep = "../" * 12
    outside = str(site.root("b") / "data" / "secret.csv")
    return [
        "/etc/passwd", outside, f"{deep}etc/passwd", f"data/{deep}etc/passwd", "data/../../b/data/secret.csv",
        "data/out/secret.csv",
        "data/passwd", "file:///etc/passwd", "file://localhost/etc/passwd", "~/.ssh/id_rsa", "~root/.bashrc",
        "$HOME/.aws/credentials",
        "${HOME}/x", "data/%2e%2e/x", "data/..%2f..%2fetc/passwd", "data\\..\\..\\x", "C:\\Windows\\win.ini",
        "\\\\host\\share\\x",
        "data/./t.csv", "data//t.csv", "/proc/self/environ", "/dev/zero", "runs", "uploads",
        f"../{site.victim['tenant']}/data/secret.csv",
        f"upload:{site.victim['upload']}", f"upload:../{site.victim['upload']}", f"run:{site.victim['ended']}",
        "run:../../b",
        "s3://other/x", "s3://shared/private/x", "s3://shared/public/../private/x", "s3://key:secret@shared/public/x",
        "http://169.254.169.254/t.csv", "https://example.org/t.csv", "gs://bucket/x", "data/t.csv\n/etc/passwd",
        "data/t.csv\u2028",
    ]  # fmt: skip


def traversals(site: Site) -> Iterator[Attack]:
    """Returns paths out of the tenant's folder, in every field and option for paths and in the endpoint's URLs."""
    retrieved = {"source": "retrieve", "index": ""}
    failures = {"labels": ["bus"], "classifier": "world:clip", "images": {"labelled": {"table": "data/t.csv"}}}
    for path in ways_out(site):
        yield submitted("traversal", {**CONFIG, "images": {"source": "labelled", "table": path}, "attributes": None})
        yield submitted("traversal", {**CONFIG, "label_map": path})
        yield submitted("traversal", {**CONFIG, "classifier": f"onnx:{path}"})
        yield submitted("traversal", {**CONFIG, "classifier": {"a": f"timm:resnet18?weights={path}"}})
        yield submitted("traversal", {**CONFIG, "classifier": f"open_clip:timm/x?labels={path}"})
        yield submitted("traversal", {**CONFIG, "images": {**retrieved, "index": path}})
        yield submitted("traversal", {**failures, "hierarchy": path}, "failures")
        captions = {"captions": {"file": path}, "classifier": "world:clip"}
        yield submitted("traversal", {**captions, "images": {"generate": {"model": "world:renderer"}}}, "dataset")
        yield submitted("traversal", {"run": path, "sentence": "a bus"}, "question")
    job = site.attacker["formulas"]
    for name in (
        "..%2f..%2f..%2fmanifest.json",
        "%2e%2e%2f",
        "....//manifest",
        "/etc/passwd",
        "predictions%00",
        "a" * 3000,
    ):
        for route in ("tables", "images", "exports"):
            yield Attack("traversal", "GET", f"/v1/audits/{job}/{route}/{name}")
    for name in ("..%2f..%2f", "%00", "job_%2e%2e", "%252e%252e%252f"):
        yield Attack("traversal", "GET", f"/v1/audits/{name}")
        yield Attack("traversal", "GET", f"/v1/uploads/{name}")


def upload(kind: str, content: bytes, sent_as: str, **headers: str) -> Attack:
    return Attack(kind, "POST", "/v1/uploads", headers={"X-Upload-Kind": sent_as, **headers}, content=content)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("a pickle ran",))


def zipped(*entries: tuple[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return buffer.getvalue()


def pickles() -> Iterator[Attack]:
    """Returns uploads that run code when a program unpickles them, under names and kinds of all sorts."""
    files = [pickle.dumps(_Evil(), protocol) for protocol in range(6)]
    files += [
        zipped(("archive/data.pkl", files[2])),
        b"GGUF\3\0\0\0",
        b"\x89HDF\r\n\x1a\n" + bytes(64),
        b"#!/bin/sh\nid\n",
    ]
    files += [b"\x93NUMPY\1\0", b"\x7fELF\2\1\1" + bytes(64), b"\0\0\0\0TFL3" + bytes(64), gzip.compress(files[2]), b""]
    files += [struct.pack("<Q", 2) + b"{}" + files[4], b"<script>alert(1)</script>"]
    for content in files:
        for kind in ("onnx", "safetensors", "image", "table"):
            yield upload("pickle", content, kind, **{"X-Upload-Name": "model.onnx"})
    yield upload("pickle", save({"w": np.ones(3, np.float32)}), "onnx")
    yield upload("pickle", files[4], "pickle")


def graph(**changes: Any) -> bytes:
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    if "location" in changes:
        weight.ClearField("float_data")
        weight.data_location = TensorProto.EXTERNAL
        entry = weight.external_data.add()
        entry.key, entry.value = "location", changes["location"]
    domain = changes.get("domain", "")
    nodes = [helper.make_node("Flatten", ["image"], ["logits"], domain=domain)] * changes.get("nodes", 1)
    made = helper.make_graph(nodes, "g", [image], [logits], [weight])
    opsets = [helper.make_opsetid("", changes.get("opset", 20)), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return bytes(helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString())


def png(width: int, height: int) -> bytes:
    """Returns a PNG whose header claims this size and which holds one pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(4))) + chunk(b"IEND", b"")


def links() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("a.png")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    return buffer.getvalue()


def bombs() -> Iterator[Attack]:
    """Returns uploads that are small to send and large to read, and models that name files or code."""
    for location in ("../../../../etc/passwd", "/etc/passwd", "weights.bin"):
        yield upload("bomb", graph(location=location), "onnx")
    yield from (upload("bomb", graph(domain=domain), "onnx") for domain in ("evil", "com.microsoft"))
    yield upload("bomb", graph(opset=9999), "onnx")
    yield upload("bomb", b"\x08\x0a\x3a" + b"\x80\x80\x40" + b"\x0a\x00" * 2**19, "onnx")  # half a million empty nodes
    for header in (b'{"w":' * 50_000, b'{"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}'):
        yield upload("bomb", struct.pack("<Q", len(header)) + header + bytes(4), "safetensors")
    yield from (upload("bomb", struct.pack("<Q", n) + b"{}", "safetensors") for n in (2**63, 2**40, 1))
    yield from (upload("bomb", png(*size), "image") for size in ((60_000, 60_000), (2**31 - 1, 2**31 - 1), (0, 0)))
    zeros = bytes(50 * 2**20)
    yield upload("bomb", zipped(("a.png", zeros)), "images")
    yield upload("bomb", zipped(*((f"{n}.png", b"") for n in range(200))), "images")
    yield upload("bomb", zipped(("../../escaped.png", png(1, 1))), "images")
    yield upload("bomb", zipped(("/tmp/escaped.png", png(1, 1))), "images")
    yield upload("bomb", links(), "images")
    yield upload("bomb", gzip.compress(zeros), "images")
    yield upload("bomb", bytes(2 * 2**20), "safetensors")
    yield upload("bomb", b"x", "safetensors", **{"X-Upload-SHA256": "0" * 64})
    typed = {"Content-Type": "application/json"}
    for content in (
        b"[" * 100_000, b'{"a":' * 30_000, b'{"kind": "c2b", "kind": "c2b", "config": {}}', b"\xff\xfe", b"{",
        b"null", b"1e999",
        b'{"kind":"c2b","config":{"seed":' + b"9" * 5000 + b"}}", b'{"kind":"c2b","config":{"seed":NaN}}',
        b" " * 300_000,
    ):  # fmt: skip
        yield Attack("bomb", "POST", "/v1/audits", headers=typed, content=content)
    packed = {**typed, "Content-Encoding": "gzip"}
    body = json.dumps({"kind": "c2b", "config": CONFIG}).encode()
    yield Attack("bomb", "POST", "/v1/audits", headers=packed, content=gzip.compress(body + zeros))
    for fields in ({"classes": ["x" * 100_000]}, {"images_per_caption": 10**30}, {"attributes": {"a": ["b"] * 30_000}}):
        yield submitted("bomb", {**CONFIG, **fields})
    for query in ("limit=1000000000", "limit=-1", "limit=x", "cursor=" + "A" * 5000, "cursor=%00", "state=evil"):
        yield Attack("bomb", "GET", f"/v1/audits?{query}")
