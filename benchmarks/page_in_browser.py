"""Opens HTML pages in headless Chromium as wide as a desk's and as a phone's screen, and takes pictures of them.

    python -m benchmarks.page_in_browser runs/tabular/report.html runs/group.html --out docs/images

Says what overflows the page, what it asks of a network, and what the browser complains of; exits with 1 if there is
anything. Needs playwright, and Chromium: its own (`playwright install chromium`) or one on PATH.
"""

import argparse
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.checks.browser import Finding, look, open_browser

WIDTHS = {"desktop": 1280, "phone": 390}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="a folder for the pictures")
    arguments = parser.parse_args()
    wrong = False
    with sync_playwright() as playwright:
        browser = open_browser(playwright)
        for path in arguments.pages:
            for name, width in WIDTHS.items():
                target = arguments.out and arguments.out / f"{path.stem}_{name}.png"
                finding = look(browser, path, width, target)
                print(f"{path} at {width} px: {finding}")
                wrong |= finding != Finding([], [], [])
        browser.close()
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()
