"""The command that installs a missing extra: from the package's checkout or archive, else from the index."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from urllib.request import url2pathname


@contextmanager
def requires_extra(extra: str, part: str) -> Iterator[None]:
    """Name `part`, the missing package and the command that installs the extra, if an import in the block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        message = f"{part} needs the package {package}: {install_command(extra)}"
        raise ModuleNotFoundError(message, name=error.name) from error


def install_command(extra: str) -> str:
    """Return the `pip install` command that adds an extra to the installed hgpo_gym."""
    try:
        origin = metadata.distribution("hgpo_gym").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        # Not installed, but imported from the folder of a checkout.
        return f"pip install '.[{extra}]'"
    if origin is None:
        return f"pip install 'hgpo_gym[{extra}]'"
    # PEP 610: a folder has `dir_info`, a repository `vcs_info`, a file neither.
    source = json.loads(origin)
    editable = "--editable " if source.get("dir_info", {}).get("editable") else ""
    vcs = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
    requirement = shlex.quote(f"hgpo_gym[{extra}] @ {vcs}{source['url']}")
    if "dir_info" in source:
        requirement = shlex.quote(f"{url2pathname(source['url'].removeprefix('file://'))}[{extra}]")
    return f"pip install {editable}{requirement}"
