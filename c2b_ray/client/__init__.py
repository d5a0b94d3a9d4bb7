"""A client of a shared audit endpoint: the verbs of the local commands, over HTTP. It knows no model and no Ray."""

from c2b_ray.client.endpoint import Endpoint, Event
from c2b_ray.client.http import EndpointError
from c2b_ray.client.webhooks import SignatureError, verify_webhook

__all__ = ["Endpoint", "EndpointError", "Event", "SignatureError", "verify_webhook"]
