"""A real Chromium without a window, for the tests of the page; and why there is none, where there is none."""

import shutil
from contextlib import contextmanager

PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "chromedriver": ("chromedriver", "chromium.chromedriver")}
SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1",
)  # fmt: skip


def programs():
    """Returns {program: its path, or None}."""
    return {name: next(filter(None, map(shutil.which, names)), None) for name, names in PROGRAMS.items()}


def why_not():
    """Why no browser can be started here; None where one can."""
    missing = [name for name, path in programs().items() if path is None]
    return f"there is no {' and no '.join(missing)} (Debian: chromium, chromium-driver)" if missing else None


@contextmanager
def started(profile):
    """A browser that keeps all network requests and console messages; `profile` is an empty folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = programs()["chromium"]
    for switch in (*SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs()["chromedriver"]))
    try:
        yield driver
    finally:
        driver.quit()


def show(driver, page, size=(1280, 900), dark=False):
    """Shows a file; the requests and messages that are kept are those from here on."""
    # The window of a desktop cannot be as narrow as a phone; the size that the page reads can be.
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
    # What another page asked for is no concern of this one.
    driver.get("about:blank")
    for log in ("performance", "browser"):
        driver.get_log(log)
    driver.get(page.as_uri())
