"""A headless Chromium for tests of pages."""

import contextlib
import json
import re
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextlib.contextmanager
def browser(downloads=None, offline=True):
    """Start headless Chromium; skip the test if it is not installed.

    Args:
        downloads: folder of downloaded files.
        offline: whether pages are kept from every network, this machine's too.
    """
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and its driver: apt install chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability(
        "goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"}
    )
    if downloads is not None:
        options.add_experimental_option(
            "prefs", {"download.default_directory": str(downloads)}
        )
    service = webdriver.ChromeService(executable_path=driver)
    with webdriver.Chrome(options=options, service=service) as started:
        if offline:
            limits = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
            started.execute_cdp_cmd(
                "Network.emulateNetworkConditions", {"offline": True, **limits}
            )
        yield started


def photos_in(page: str) -> list[dict]:
    """Return what a page of attention holds of each photo."""
    pattern = r'<script type="application/json" class="photo">(.*?)</script>'
    return [json.loads(found) for found in re.findall(pattern, page, re.DOTALL)]


def shown_as(driver, width=1280, height=900, dark=False, motion=False, touch=False):
    """Set the size of the screen, what its user prefers, and whether it is touched."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1}
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", screen | {"mobile": width < 500}
    )
    features = [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
        {
            "name": "prefers-reduced-motion",
            "value": "no-preference" if motion else "reduce",
        },
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": touch})


def fits(driver):
    """Whether a page is no wider than the screen."""
    return driver.execute_script(
        "return document.documentElement.scrollWidth <= innerWidth"
    )


def low_controls(driver, selector):
    """Return the visible elements that are less than 44 pixels high."""
    elements = driver.find_elements("css selector", selector)
    return [
        element.get_attribute("outerHTML")
        for element in elements
        if element.is_displayed() and element.size["height"] < 44
    ]


def wait_for(condition, seconds=20):
    """Return the first true value of a function, or its last value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


def wait(driver, condition):
    """Wait until a function of the driver is true."""
    assert wait_for(lambda: condition(driver), 300)


def places_on(driver, name, *points):
    """Return points of an element, given as fractions, in pixels of the window."""
    left, top, width, height = driver.execute_script(
        "const element = document.getElementById(arguments[0]);"
        "element.scrollIntoView({block: 'center'});"
        "const r = element.getBoundingClientRect();"
        "return [r.left, r.top, r.width, r.height]",
        name,
    )
    return [(left + x * width, top + y * height) for x, y in points]


def upload(driver, name, path, content=None):
    """Give a file to an element of the page; write it first if given its content."""
    if content is not None:
        path.write_bytes(content)
    driver.find_element("id", name).send_keys(str(path))


def draw_by_mouse(driver, name, *points):
    """Draw a line through points of an element, given as fractions."""
    kinds = ["Pressed"] + ["Moved"] * (len(points) - 2) + ["Released"]
    for kind, (x, y) in zip(kinds, places_on(driver, name, *points), strict=True):
        event = {"type": f"mouse{kind}", "x": x, "y": y, "button": "left"}
        event |= {"buttons": int(kind != "Released"), "clickCount": 1}
        driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)


def draw_by_finger(driver, name, *points):
    """Move one finger over an element through points, given as fractions."""
    kinds = ["Start"] + ["Move"] * (len(points) - 1)
    for kind, (x, y) in zip(kinds, places_on(driver, name, *points), strict=True):
        event = {"type": f"touch{kind}", "touchPoints": [{"x": x, "y": y}]}
        driver.execute_cdp_cmd("Input.dispatchTouchEvent", event)
    end = {"type": "touchEnd", "touchPoints": []}
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", end)


def accessibility_faults(driver, is_frame=False):
    """Return a line for each rule of axe-core that a page or a frame violates.

    A frame needs no heading and no landmarks of its own.
    """
    folder = find_spec("axe_playwright_python")
    if folder is None:
        pytest.skip("needs axe-core: pip install axe-playwright-python")
    script = Path(folder.origin).with_name("axe.min.js").read_text("utf-8")
    driver.execute_script(script)
    driver.set_script_timeout(300)  # for the longest pages
    return driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "const rules = arguments[0]"
        " ? {region: {enabled: false}, 'page-has-heading-one': {enabled: false}} : {};"
        "axe.run(document, {resultTypes: ['violations'], rules}).then(result => done("
        "result.violations.map(one => `${one.id}: ` + one.nodes.slice(0, 3)"
        ".map(node => node.html.slice(0, 120)).join(' | '))))",
        is_frame,
    )
