"""A model in a Serve app: the base of all roles behind Serve."""

from __future__ import annotations

from typing import Any, ClassVar

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ServiceError
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

    def __init__(
        self,
        spec: str,
        channel: Channel | None = None,
        *,
        chunk: int | None = None,
        computing: Computing = UNSAID,
    ) -> None:
        """`chunk`: rows per request; None: the app's limit. `computing`: how the app has to compute; what it leaves
        open is the app's choice."""
        self.spec, self.computing = spec, computing
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
        """Returns a field of the app's `describe`. Raises ServiceError if the app serves another model, or has it
        compute in another way."""
        if not self._facts:
            arguments, model_id = ((), self.spec) if self.multiplexed else ((self.spec,), "")
            facts = dict(self.channel.call("describe", *arguments, model_id=model_id))
            self._check_computing(facts.get("computing", UNSAID))
            self._facts = facts
        return self._facts[name]

    def _check_computing(self, there: Computing) -> None:
        if (name := self.computing.contradicts(there)) is not None:
            wanted, found = getattr(self.computing, name), getattr(there, name)
            said = "does not say" if found is None else f"says {found}"
            raise ServiceError(
                f"the placement says {name}: {wanted}, and the app {self.channel.app!r} {said}: set {name} in the "
                "app's `args` and deploy it again, or leave it out of the placement",
                app=self.channel.app,
            )

    def rows(self, count: int) -> int:
        """Returns the rows of one request, where `count` rows are sent in all."""
        return self.channel.rows(self.chunk, count)
