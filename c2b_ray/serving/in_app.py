"""A model in a Serve app: the base of all roles behind Serve."""

from __future__ import annotations

from typing import Any, ClassVar

from c2b_ray.serving.answers import owner
from c2b_ray.serving.channel import APPS, Channel


class InApp:
    """The model `spec` in a Serve app, called on behalf of `owner` (see `answers`).

    The app's description of the model is fetched once and travels with the pickle.
    """

    app: ClassVar[str]
    """A key of `APPS`."""
    multiplexed: ClassVar[bool] = False
    """Whether the app's replicas hold several models, and Serve routes calls to one that holds this model."""

    def __init__(self, spec: str, channel: Channel | None = None, *, chunk: int | None = None) -> None:
        """`chunk`: rows per request; None: the app's limit."""
        self.spec = spec
        self.channel = channel or Channel(APPS[self.app])
        self.chunk = chunk
        self.owner = owner()
        self._facts: dict[str, Any] = {}

    @property
    def revision(self) -> str:
        return str(self.fact("revision"))

    @property
    def calls_at_once(self) -> int:
        return self.channel.limits().requests

    def fact(self, name: str) -> Any:
        """Returns a field of the app's `describe`. Raises ServiceError if the app serves another model."""
        if not self._facts:
            arguments, model_id = ((), self.spec) if self.multiplexed else ((self.spec,), "")
            self._facts = dict(self.channel.call("describe", *arguments, model_id=model_id))
        return self._facts[name]

    def rows(self, count: int) -> int:
        """Returns the rows of one request, where `count` rows are sent in all."""
        return self.channel.rows(self.chunk, count)
