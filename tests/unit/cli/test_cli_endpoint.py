"""The server of `c2b endpoint`: how it treats connections."""

from c2b_ray.cli.endpoint import _server
from c2b_ray.config.endpoint import read_endpoint


def test_connections_outlive_the_patience_of_proxies(tmp_path):
    """nginx keeps an idle connection for 60 or 75 s at most, load balancers of clouds for 60, Go's clients for 90."""
    assert _server(read_endpoint({"folder": str(tmp_path)})).config.timeout_keep_alive >= 75
