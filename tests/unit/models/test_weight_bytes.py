"""How many bytes a model's weights take, wherever its attributes hold them."""

from __future__ import annotations

import faiss
import numpy as np
import torch

from c2b_ray.models.weight_bytes import weight_bytes


class Holder:
    def __init__(self, *parts: object) -> None:
        self.parts, self.name, self.table = list(parts), "a model", {"x": 1}
        self.itself = self  # no endless walk


def test_parameters_and_buffers_count_once_however_often_they_are_held() -> None:
    layer = torch.nn.Linear(10, 20)  # 200 weights and 20 biases of 4 bytes
    norm = torch.nn.BatchNorm1d(5)  # 4 × 5 floats and a counter of 8 bytes
    half = torch.nn.Linear(10, 20, bias=False, dtype=torch.bfloat16)
    assert weight_bytes(Holder(layer, torch.nn.Sequential(layer, norm), half)) == 880 + 88 + 400


def test_arrays_and_indexes_count_and_services_do_not() -> None:
    index = faiss.IndexFlatIP(16)
    index.add(np.zeros((100, 16), np.float32))
    assert weight_bytes(Holder(Holder(np.zeros(50)), index)) == 400 + 6400
    assert weight_bytes(Holder("http://a.service", None)) == 0
