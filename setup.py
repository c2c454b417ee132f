"""Only what pyproject.toml cannot say: csrc/build.py knows what is compiled, and how."""

import runpy
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

BUILD = runpy.run_path("csrc/build.py")


class BuildNative(build_ext):
    """The C module, which cffi adds, and the libraries of csrc/build.py beside it."""

    def build_extensions(self) -> None:
        """Compile and link what has changed."""
        super().build_extensions()
        for library in BUILD["LIBRARIES"]:
            self._build_library(library, Path(self.build_lib, "nnburst", library.path))

    def copy_extensions_to_source(self) -> None:
        """For `--inplace`, which setuptools builds elsewhere first."""
        super().copy_extensions_to_source()
        for library in BUILD["LIBRARIES"]:
            place = Path("src", "nnburst", library.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(Path(self.build_lib, "nnburst", library.path)), str(place))
            # Which interpreter a library in a checkout belongs to; an installed one lies in its environment.
            place.with_suffix(".python").write_text(f"{sys.executable}\n", encoding="utf-8")

    def _build_library(self, library, path: Path) -> None:  # noqa: ANN001 - of a module without a name
        path.parent.mkdir(parents=True, exist_ok=True)
        objects = self.compiler.compile(
            [f"csrc/{name}" for name in library.sources],
            # Files that libraries share are compiled for each, with its own macros.
            output_dir=str(Path(self.build_temp, path.stem)),
            include_dirs=["csrc", "src/nnburst/capi/include", str(BUILD["HEADERS"])],
            extra_postargs=[
                *BUILD["COMPILE"],
                *BUILD["extra"],
                *(f"-D{m}" for m in library.macros),
            ],
        )
        self.compiler.link_shared_object(
            objects,
            str(path),
            libraries=list(library.libraries),
            extra_postargs=[f"-Wl,-soname,{path.name}", *library.link, *BUILD["extra"]],
        )


setup(cffi_modules=["csrc/build.py:ffibuilder"], cmdclass={"build_ext": BuildNative})
