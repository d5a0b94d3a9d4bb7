"""The file of a shared endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from c2b_ray.config.endpoint import DATABASE_VARIABLE, EndpointConfig, Quotas, read_endpoint
from c2b_ray.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATABASE_VARIABLE, raising=False)


def test_without_a_file_everything_is_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = EndpointConfig()
    assert config.database_url == f"sqlite:///{tmp_path}/c2b-endpoint/ledger.db"
    assert config.storage_root == f"{tmp_path}/c2b-endpoint/storage"
    assert (config.url, config.host, config.port) == ("http://127.0.0.1:8420", "127.0.0.1", 8420)
    assert read_endpoint(None).database_url == config.database_url


def test_paths_are_relative_to_the_file_and_a_database_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "endpoint.yaml"
    path.write_text(yaml.safe_dump({"folder": "here", "storage": "s3://bucket/c2b", "quotas": {"concurrent_jobs": 3}}))
    config = read_endpoint(path)
    assert config.database_url == f"sqlite:///{tmp_path}/here/ledger.db"
    assert config.storage_root == "s3://bucket/c2b"
    assert config.quotas == Quotas(concurrent_jobs=3)
    monkeypatch.setenv(DATABASE_VARIABLE, "postgresql://c2b@db/ledger")
    assert read_endpoint(path).database_url == "postgresql://c2b@db/ledger"
    path.write_text(yaml.safe_dump({"database": "sqlite:///other.db"}))
    assert read_endpoint(path).database_url == f"sqlite:///{tmp_path}/other.db"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"databse": "x"}, "databse"),
        ({"database": "mysql://x"}, "database"),
        ({"listen": "8420"}, "listen"),
        ({"listen": "0.0.0.0:99999"}, "listen"),
        ({"public_url": "c2b.example.org"}, "public_url"),
        ({"quotas": {"burst": 0}}, "quotas.burst"),
        ({"quotas": {"model_seconds_per_day": {"*": -1}}}, "quotas.model_seconds_per_day"),
        ({"runners": {"slots": True}}, "runners.slots"),
        ({"runners": {"lease_seconds": 0}}, "runners.lease_seconds"),
    ],
)
def test_a_wrong_field_is_named(data: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        read_endpoint(data)
    assert wrong.value.field == field
