"""Which paths a node lacks, told by that node itself; asking the nodes is for tests with several."""

from c2b_ray.engine.cluster import absent, not_shared


def test_a_node_says_which_paths_it_lacks(tmp_path):
    (tmp_path / "there").mkdir()
    assert absent([str(tmp_path / "there"), str(tmp_path / "gone"), str(tmp_path)]) == [str(tmp_path / "gone")]


def test_the_error_names_directory_and_node_and_says_what_to_do():
    told = not_shared("/runs/one", "10.0.0.7")
    assert "/runs/one" in told
    assert "10.0.0.7" in told
    assert "s3://" in told
