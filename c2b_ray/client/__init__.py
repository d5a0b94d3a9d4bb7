"""A client of a shared audit endpoint: the verbs of the local commands, over HTTP. It knows no model and no Ray."""
