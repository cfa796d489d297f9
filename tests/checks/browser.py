"""Opens HTML pages in headless Chromium, and says what is wrong with them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Playwright

HEIGHT = 1120
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

OVERFLOWING = """() => {
    const width = document.documentElement.clientWidth;
    const scrolls = element =>
        element && (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
    const found = [...document.querySelectorAll("body *")]
        .filter(element => element.getBoundingClientRect().right > width + 1 && !scrolls(element.parentElement))
        .map(element => `${element.tagName.toLowerCase()}: ${element.textContent.trim().slice(0, 60)}`);
    const whole = document.documentElement.scrollWidth;
    return whole > width ? [...found, `the page is ${whole} px wide`] : found;
}"""


@dataclass(frozen=True)
class Finding:
    """The faults of a page at one width: elements that overflow, requests that leave it, errors in the console."""

    overflowing: list[str]
    requests: list[str]
    complaints: list[str]


def open_browser(playwright: Playwright) -> Browser:
    """Chromium on PATH, or playwright's. Raises playwright's Error where there is neither."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])


def look(browser: Browser, page_path: Path, width: int, screenshot: Path | None = None) -> Finding:
    """Open a page `width` pixels wide, with everything unfolded, and note what is wrong with it."""
    requests: list[str] = []
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": HEIGHT}, device_scale_factor=1)
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    address = page_path.resolve().as_uri()
    page.goto(address)
    if screenshot is not None:
        page.screenshot(path=screenshot)
        pixels = Image.open(screenshot).convert("RGB")
        pixels.quantize(256, Image.Quantize.MAXCOVERAGE).save(screenshot, optimize=True)  # small enough for git
    page.evaluate("() => document.querySelectorAll('details').forEach(element => element.open = true)")
    overflowing = page.evaluate(OVERFLOWING)
    page.close()
    return Finding(overflowing, [url for url in requests if url != address and not url.startswith("data:")], complaints)
