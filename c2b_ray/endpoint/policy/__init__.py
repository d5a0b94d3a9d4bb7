"""What tenants may name, upload and reach: everything that a tenant sends is checked here before it is used.

names       resolves paths and model specs, or refuses them
configs     a submitted config → the config that runs; checks the files that it names
uploads     a stream → a file named by the hash of its content
weights     ONNX and safetensors, checked in a separate process
archives    images, and archives of them
copies      local copies of files on a store, and other temporary files
isolation   limits a job's process: network, memory, files, ports, environment
launch      the program that applies limits to itself and then becomes the job's process
"""
