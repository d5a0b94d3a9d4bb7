"""Addresses and a store's refusals in words. No server: that is tests/faults/test_s3.py's."""

import os
import pickle
import subprocess
import sys

import pytest
from pyarrow import fs

from c2b_ray import storage
from c2b_ray.config import read_audit
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage import s3

SECRET = "wJalrXUtnFEMI/K7MDENG"


@pytest.fixture(autouse=True)
def environment(no_aws, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://admin:hunter2@store.test:9000")
    return monkeypatch


def options(filesystem):
    return filesystem.__reduce__()[1][0]


def test_a_file_system_has_what_the_environment_says(environment):
    filesystem, path = storage.resolve("s3://photos/a b/%20/")
    assert path == "photos/a b/%20"
    assert {k: options(filesystem)[k] for k in ("access_key", "secret_key", "scheme", "region", "anonymous")} == {
        "access_key": "AKIAMINE", "secret_key": SECRET, "scheme": "http", "region": "us-east-1", "anonymous": False,
    }  # fmt: skip
    assert options(pickle.loads(pickle.dumps(filesystem))) == options(filesystem)
    assert storage.resolve("s3://photos")[0] is filesystem, "connections are kept"

    environment.setenv("AWS_ENDPOINT_URL_S3", "https://other.test/store")
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    environment.setenv("AWS_SESSION_TOKEN", "for a while")
    environment.setenv("C2B_S3_TIMEOUT", "9")
    changed = options(s3.file_system())
    assert (changed["endpoint_override"], changed["scheme"]) == ("other.test/store", "https")
    assert (changed["region"], changed["session_token"]) == ("eu-west-1", "for a while")
    assert (changed["connect_timeout"], changed["request_timeout"]) == (3, 3)
    environment.setenv("AWS_REGION", "eu-north-1")
    assert options(s3.file_system())["region"] == "eu-north-1"


def test_a_profile_of_the_shared_files_does_as_well(environment, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        environment.delenv(name)
    (tmp_path / "credentials").write_text("[audits]\naws_access_key_id = AKIAFILE\naws_secret_access_key = filed\n")
    (tmp_path / "config").write_text(
        "[profile audits]\nregion = ap-south-1\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = http://mine:80\n"
    )
    environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    environment.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    environment.setenv("AWS_PROFILE", "audits")
    found = options(s3.file_system())
    assert (found["access_key"], found["secret_key"]) == ("AKIAFILE", "filed")
    assert (found["region"], found["endpoint_override"]) == ("ap-south-1", "mine:80")
    environment.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match=r"AWS_PROFILE.*nobody"):
        s3.file_system()


def test_without_keys_it_is_anonymous(environment):
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    assert options(s3.file_system())["anonymous"] is True


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (f"s3://AKIAMINE:{SECRET}@photos/x", "with keys in it is refused"),
        ("s3://photos/x?endpoint_override=localhost:9000", "takes no options"),
        ("s3:///x", "names no bucket"),
        ("s3:/photos/x", "has lost a slash"),
        ("gopher://photos/x", "gopher://photos/x: .*expected a local path or s3://bucket/path"),
    ],
)
def test_another_address_is_refused(uri, words):
    with pytest.raises(SourceError, match=words) as raised:
        storage.resolve(uri)
    assert SECRET not in str(raised.value)


def test_an_audit_with_keys_in_it_is_refused_before_a_run_is_begun():
    asked = {"task": "Tell.", "classes": ["bus", "boat"], "classifier": f"table:s3://me:{SECRET}@photos/said.csv"}
    with pytest.raises(SourceError, match="with keys in it is refused") as raised:
        read_audit({**asked, "images": {"source": "labelled", "table": "table.csv"}})
    assert SECRET not in str(raised.value)


def test_an_endpoint_needs_its_scheme_and_a_timeout_is_a_number(environment):
    environment.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(ConfigError, match="scheme included"):
        s3.file_system()
    environment.setenv("C2B_S3_TIMEOUT", "soon")
    with pytest.raises(ConfigError, match="C2B_S3_TIMEOUT: 'soon'"):
        s3.timeout()


@pytest.mark.parametrize(
    ("said", "words", "whole_store"),
    [
        ("AWS Error NO_SUCH_BUCKET during X operation: no", "there is no bucket 'photos'", True),
        ("Bucket 'photos' not found. To create buckets, …", "there is no bucket 'photos'", True),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "forbids this", False),
        ("AWS Error INVALID_ACCESS_KEY_ID during X operation: no", "does not accept the credentials", True),
        ("AWS Error UNKNOWN (HTTP status 301) during X operation: no", "set AWS_REGION", True),
        ("AWS Error SLOW_DOWN during X operation: less", "overloaded", True),
        ("AWS Error NETWORK_CONNECTION during X operation: curlCode: 28, Timeout was reached", "gave no answer", True),
        ("AWS Error NETWORK_CONNECTION during X operation: curlCode: 7, Could not connect to server; D",
         "cannot be reached (Could not connect to server)", True),
        (f"AWS Error UNKNOWN (HTTP status 418) during X operation: {SECRET}", "refused a request", False),
    ],
)  # fmt: skip
def test_a_refusal_names_the_store_and_holds_no_secret(said, words, whole_store):
    error = OSError(f"When getting information for key 'x' in bucket 'photos': {said}")
    message = storage.refusal("s3://photos/x", error)
    assert message.startswith("s3://photos/x: ")
    assert words in message
    assert "'photos'" in message
    if "another region" not in message:
        assert "http://store.test:9000" in message
    assert SECRET not in message
    assert "hunter2" not in message
    assert storage.concerns_the_store(error) == whole_store


def test_what_a_disk_refuses_is_not_a_stores_refusal():
    assert storage.refusal("/data", OSError(28, "No space left on device")) is None
    assert not storage.concerns_the_store(FileNotFoundError(2, "gone"))


def test_another_process_reaches_the_same_stores(environment):
    pickled = pickle.dumps(storage.Stores())
    assert SECRET not in repr(storage.Stores())
    code = (
        "import os, pickle, sys\n"
        "pickle.load(sys.stdin.buffer)\n"
        "print(os.environ['AWS_SECRET_ACCESS_KEY'], os.environ['AWS_ENDPOINT_URL'], 'UNRELATED' in os.environ)"
    )
    environment.setenv("UNRELATED", "x")
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], input=pickled, env=path, capture_output=True, check=True)
    assert done.stdout.decode().split() == [SECRET, "http://admin:hunter2@store.test:9000", "False"]
    environment.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    pickle.loads(pickled)
    assert options(s3.file_system())["access_key"] == "AKIAOTHER", "this process changes its mind by itself alone"


def test_local_places_are_as_they_were(tmp_path):
    filesystem, path = storage.resolve(tmp_path / "x")
    assert isinstance(filesystem, fs.LocalFileSystem)
    assert path == str(tmp_path / "x")
    assert not storage.is_remote(tmp_path)
    assert storage.is_remote("s3://photos")
