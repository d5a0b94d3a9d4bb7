"""Where a quick question finds its models: in apps that serve them, else here."""

from functools import partial

from c2b_ray.audits.kit.backend import HereBackend
from c2b_ray.audits.kit.loaders import InCallingProcess, load
from c2b_ray.audits.kit.served import RunningApps
from c2b_ray.config.placement import read_placement
from c2b_ray.models import catalog
from c2b_ray.serving.handles import ServedClassifier, ServedEncoder, ServedIndex


def test_what_is_served_is_asked_there_and_the_rest_loads_here():
    there = RunningApps({"classifiers": None, "encoder-0a1b2c3d": "world:clip", "language-model": "world:lm"})
    assert isinstance(there.classifier("world:resnet-control-0")(), ServedClassifier)
    served = there.encoder("world:clip")()
    assert isinstance(served, ServedEncoder)
    assert served.channel.app == "encoder-0a1b2c3d"
    here = there.encoder("open_clip:ViT-B-32/laion2b_s34b_b79k")  # another encoder than the one that is served
    assert isinstance(here, partial)
    assert here.func is load
    # the language model's app serves no encoder, whatever it is named after
    assert RunningApps({"language-model": "world:clip"}).encoder("world:clip").func is load


def test_an_index_is_served_where_its_app_runs():
    assert isinstance(RunningApps({"index": None}).index("somewhere")(), ServedIndex)
    assert RunningApps({}).index("somewhere").func is catalog.index
    assert RunningApps({}).classifier("world:x").func is load


def test_a_driver_loads_a_model_in_the_precision_of_its_stage():
    """Else the revision that a run was planned with were another than that of its answers."""
    stages = {"classify": {"precision": "bf16"}, "embed": {"precision": "fp16"}}
    for models in (InCallingProcess(placed := read_placement({"stages": stages})), HereBackend(placed)):
        exact = catalog.classifier("world:resnet-control-0").revision
        half = models.classifier("world:resnet-control-0")().revision
        assert half == catalog.classifier("world:resnet-control-0?precision=bf16").revision != exact
        encoder = models.encoder("world:clip")().revision
        assert encoder == catalog.encoder("world:clip?precision=fp16").revision


def test_a_model_is_described_once_for_a_run(monkeypatch):
    asked, real = [], catalog.describe
    monkeypatch.setattr(catalog, "describe", lambda role, spec: asked.append(spec) or real(role, spec))
    models = HereBackend()
    first = models.describe("classifier", "world:resnet-control-0")
    assert models.describe("classifier", "world:resnet-control-0") is first
    assert models.describe("encoder", "world:clip").dimension > 0
    assert asked == ["world:resnet-control-0", "world:clip"]
    assert HereBackend().describe("classifier", "world:resnet-control-0") == first
    assert len(asked) == 3  # another run: the files may have been replaced
