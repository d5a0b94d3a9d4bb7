"""What strangers may name, upload and reach: everything that a tenant sends is checked here before it is used.

fields      what each field of each kind's config names; an unclassified field is refused
schemes     what a model spec may say, scheme by scheme and option by option
paths       where a name leads: below the tenant's own root, or nowhere
specs       a submitted config → the config that runs
contents    what the named files say in turn
at_start    the same once more, in the job's own process, before it reads anything
addresses   which URLs jobs and webhooks may call
uploads     a stream → a file at its content address
weights     ONNX and safetensors, looked at by a process of its own
pictures    images, by their headers
archives    zip and tar archives of images
isolation   the cell that a job's process runs in
"""
