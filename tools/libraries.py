"""The C libraries of a wheel: built where a compiler and the headers are, else left out.

A build hook of hatchling. A wheel with libraries is for the platform of the machine; one without is
for any, and `rdmawire verbs` then says what to install. An editable installation builds them when
they are first needed.
"""

import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOME = "rdmawire/verbs_service/lib"
"""Folder of the libraries in the wheel."""


class Libraries(BuildHookInterface[Any]):
    """Adds the libraries to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build them, and set the wheel's tag."""
        if version == "editable":
            return
        script = _module(Path(self.root, "csrc", "build.py"))
        self._folder = Path(mkdtemp(prefix="rdmawire-libraries-"))
        libraries = [one for name in script.LIBRARIES for one in self._built(script, name)]
        if not libraries:
            return
        for library in libraries:
            _strip(library)
            build_data["force_include"][str(library)] = f"{HOME}/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def _built(self, script: Any, name: str) -> list[Path]:
        """The path of a library; none if it cannot be built, which is a warning."""
        try:
            libraries: list[Path] = script.build(self._folder, libraries=[name])
        except script.BuildError as error:
            self.app.display_warning(f"without {script.soname(name)}: {error}")
            return []
        return libraries

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was built: the wheel has it."""
        if version != "editable":
            shutil.rmtree(self._folder)


def platform_tag() -> str:
    """The tag of this machine, such as ``linux_x86_64``."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _strip(library: Path) -> None:
    """Remove debug information, which is ten times as large as the code."""
    strip = shutil.which("strip")
    if strip is not None:
        subprocess.run([strip, "--strip-unneeded", str(library)], check=True)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_rdmawire_csrc_build", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
