"""A job's process gets what its libraries need, and no secret whatever its name."""

from c2b_ray.endpoint.work.process import environment_of_job

RUNNERS = {
    "PATH": "/bin",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "0",
    "C2B_DATABASE_URL": "postgresql://user:secret@host/db",
    "C2B_ENDPOINT_SECRET": "s",
    "PGPASSWORD": "p",
    "AWS_SECRET_ACCESS_KEY": "a",
    "AWS_ENDPOINT_URL": "http://store",
    "HF_TOKEN": "hf_x",
    "C2B_HTTP_KEY": "k",
    "RAY_ADDRESS": "ray://elsewhere",
    "RAY_AUTH_TOKEN": "t",
    "SOME_NEW_SECRET": "n",
}


def test_only_what_is_listed_passes():
    assert set(environment_of_job(RUNNERS, "/srv/storage")) == {"PATH", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES"}


def test_the_store_brings_its_own_credentials_alone():
    passed = environment_of_job(RUNNERS, "s3://bucket/runs")
    assert passed["AWS_SECRET_ACCESS_KEY"] == "a"
    assert not {"C2B_DATABASE_URL", "PGPASSWORD", "HF_TOKEN", "C2B_HTTP_KEY"} & set(passed)


def test_an_operator_names_the_keys_of_listed_services():
    assert environment_of_job(RUNNERS, "/srv", keys=["C2B_HTTP_KEY", "NOT_SET"])["C2B_HTTP_KEY"] == "k"


def test_on_a_shared_cluster_a_job_uses_declared_apps_and_starts_none():
    passed = environment_of_job({**RUNNERS, "C2B_SERVE_APPS": "own"}, "/srv", cluster="ray://head:10001")
    assert (passed["RAY_ADDRESS"], passed["C2B_SERVE_APPS"]) == ("ray://head:10001", "declared")
    assert passed["RAY_AUTH_TOKEN"] == "t"
