"""Parts that audits and commands share: where models run, progress events, the manifest, the identity of images."""
