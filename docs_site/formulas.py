"""Formulas in LaTeX become MathML, which browsers draw without a script."""

import html
import re

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def draw_formulas(page: str) -> str:
    """The HTML of a page with its formulas, as pymdownx.arithmatex leaves them, in MathML.

    Raises:
        ValueError: a formula with a command that is not understood.
    """
    page = INLINE.sub(lambda match: _mathml(match[1], "inline"), page)
    return BLOCK.sub(lambda match: f'<div class="formula">{_mathml(match[1], "block")}</div>', page)


def _mathml(escaped: str, display: str) -> str:
    latex = html.unescape(escaped).strip()
    drawn = convert(latex, display=display)
    if unknown := re.findall(r"\\[A-Za-z]+", drawn):
        raise ValueError(
            f"The formula {latex!r} has {unknown[0]}, which latex2mathml does not know: write it otherwise."
        )
    return drawn
