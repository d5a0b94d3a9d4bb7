"""What tenants may name, upload and reach: everything that a tenant sends is checked here before it is used.

fields      what each field of each kind's config names; an unclassified field is refused
schemes     what a model spec may contain, scheme by scheme and option by option
paths       resolves a name to a path below the tenant's root, or refuses it
specs       a submitted config → the config that runs
contents    checks the names inside the files that a config names
moved       paths of configs and runs, after the storage was moved
at_start    repeats these checks in the job's process, before it reads anything
addresses   which URLs jobs and webhooks may call
uploads     a stream → a file named by the hash of its content
weights     ONNX and safetensors, checked in a separate process
pictures    images, checked by their headers
archives    zip and tar archives of images
isolation   limits a job's process: network, memory, file size, environment
landlock    limits the files and ports that a job's process may access
launch      the program that applies these limits to itself and then becomes the job's process
"""
