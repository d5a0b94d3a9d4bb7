"""The server of `c2b endpoint`: how it treats connections."""

import socket
import sys

from c2b_ray.cli.endpoint import _server
from c2b_ray.config.endpoint import read_endpoint


def test_connections_outlive_the_patience_of_proxies(tmp_path):
    """nginx keeps an idle connection for 60 or 75 s at most, load balancers of clouds for 60, Go's clients for 90."""
    assert _server(read_endpoint({"folder": str(tmp_path)})).config.timeout_keep_alive >= 75


def test_a_port_that_is_taken_is_said_before_a_ledger_is_made_or_a_key_is_shown(c2b, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        status, shown, said = c2b("endpoint", "--folder", str(tmp_path / "site"), "--listen", address)
    assert status == 2
    assert shown == ""
    assert f"cannot listen at {address}: Address already in use; stop what listens there, or choose" in said
    assert not (tmp_path / "site").exists()


def test_a_system_that_cannot_isolate_jobs_is_refused_before_anything_is_made(c2b, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    status, shown, said = c2b("endpoint", "--folder", str(tmp_path / "site"))
    assert (status, shown) == (2, "")
    assert "what only Linux has, and this is darwin; run it on Linux" in said
    assert not (tmp_path / "site").exists()
