"""What docstrings say, in pieces."""

import inspect

from griffe import Docstring, DocstringSectionKind


def parameter_meanings(documented: object) -> dict[str, str]:
    """What the docstring of a class or function says about each parameter."""
    sections = Docstring(inspect.getdoc(documented) or "").parse("google", warn_missing_types=False)
    return {
        parameter.name: " ".join(parameter.description.split())
        for section in sections
        if section.kind is DocstringSectionKind.parameters
        for parameter in section.value
    }


def first_paragraph(documented: object) -> str:
    """What the docstring says first."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())
