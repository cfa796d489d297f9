"""The sitecustomize.py of a reader who follows a page: reports have blank pictures, which take longer to draw than all
else. In the process of a test the fixture `pictures` leaves them blank."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class BlankPictures(MetaPathFinder):
    """Lets the module of pictures be imported as it is, and then takes the drawing out of it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "hgpo_gym.analysis.report.blocks":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_then_blank(module: ModuleType) -> None:
            execute(module)
            module.Picture.svg = ""

        spec.loader.exec_module = execute_then_blank  # type: ignore[method-assign]
        return spec


if blocks := sys.modules.get("hgpo_gym.analysis.report.blocks"):
    blocks.Picture.svg = ""
else:
    sys.meta_path.insert(0, BlankPictures())
