"""Which index for so many vectors: the arithmetic is in the comments."""

import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.models.index.plan import IndexWishes, memory, plan

GIB = 2**30


def test_what_a_query_can_read_whole_is_flat() -> None:
    found = plan(131_072, 512)  # × 4 × 512 bytes = 256 MiB
    assert (found.kind, found.shards, found.memory) == ("flat", 1, 256 * 2**20)
    assert plan(131_073, 512).kind == "hnsw"


def test_a_graph_as_long_as_it_fits_and_can_be_built() -> None:
    found = plan(1_000_000, 512)  # × (512 of code + 2 × 32 links of 4 bytes + 16) = 784 MB
    assert (found.kind, found.shards, found.memory) == ("hnsw", 1, 784_000_000)
    assert plan(1_000_001, 512).kind == "ivfpq"
    assert plan(1_000_000, 512, IndexWishes(memory=700_000_000)).kind == "ivfpq"


def test_ten_million_in_four_gib() -> None:
    found = plan(10_000_000, 512)
    # 4 √10⁷ = 12,649 → 8,192 lists, one in 64 looked into; 512 / 4 = 128 bytes a code and 8 of id;
    # a centroid has 4 × 512 bytes and 8 × 32 of links; a shard holds 2³⁰ / 136 = 7.9 million.
    assert (found.kind, found.lists, found.probes, found.code_bytes) == ("ivfpq", 8192, 128, 128)
    assert found.memory == 10_000_000 * 136 + 8192 * 2304
    assert found.shards == 2


def test_less_memory_makes_shorter_codes_until_none_fits() -> None:
    assert plan(10_000_000, 512, IndexWishes(memory=GIB)).code_bytes == 64
    assert plan(10_000_000, 512, IndexWishes(memory=500_000_000)).code_bytes == 32
    with pytest.raises(ConfigError, match=r"^memory: 10000000 vectors of 512 dimensions as ivfpq take 400 MiB, .* 48"):
        plan(10_000_000, 512, IndexWishes(memory=50_000_000))


def test_codes_divide_the_dimension() -> None:
    assert plan(10_000, 6, IndexWishes("ivfpq")).code_bytes == 1
    assert plan(10_000, 513, IndexWishes("ivfpq")).code_bytes == 57  # the largest divisor of 513 up to 128


def test_wishes_are_kept_or_refused() -> None:
    assert plan(10, 8, IndexWishes("hnsw")).kind == "hnsw"
    assert plan(1_000_000, 512, IndexWishes("flat", shards=3)).shards == 3
    assert plan(2, 8, IndexWishes(shards=3)).shards == 2
    with pytest.raises(
        ConfigError, match=r"^memory: .* as flat take 19\.1 GiB, the budget is 4\.0 GiB; .*another kind"
    ):
        plan(10_000_000, 512, IndexWishes("flat"))
    with pytest.raises(ConfigError, match=r"^kind: ivfpq is trained on 1000 vectors or more, here are 999"):
        plan(999, 8, IndexWishes("ivfpq"))
    with pytest.raises(ConfigError, match=r"^kind: 'hsnw' is no kind of index; did you mean 'hnsw'"):
        IndexWishes("hsnw")
    with pytest.raises(ConfigError, match=r"^shards: 0"):
        IndexWishes(shards=0)


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 * GIB), ("500 MB", 500_000_000), ("1.5gib", 3 * 2**29), ("1024", 1024)]
)
def test_amounts_of_memory(text: str, size: int) -> None:
    assert memory(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4 apples", "-1GiB", "0", "4GiBs"])
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(ConfigError, match="no amount of memory"):
        memory(text)
