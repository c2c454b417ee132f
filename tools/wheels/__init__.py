"""Builds, seals and audits the wheels: `python -m tools.wheels`, which is `make wheels`.

target.py   machines and C libraries that there are wheels for
compile.py  one wheel, by zig as cross compiler
parts.py    what else is in a wheel than our own code, and under which licences
sbom.py     the list of parts (CycloneDX)
seal.py     the same bytes for the same content, with licences and list of parts inside
audit.py    what a finished wheel must hold to
trial.py    a wheel on every Python that is there, without a compiler
"""
