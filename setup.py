"""Only what pyproject.toml cannot say: the C module is built by csrc/build.py."""

from setuptools import setup

setup(cffi_modules=["csrc/build.py:ffibuilder"])
