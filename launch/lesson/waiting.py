"""How long the steps of runs wait for samples, as a picture: a bar for each run, of its waiting and of the rest of its step."""

from launch.report.export import colours, vega_lite

PARTS = {"waits for samples": colours.VERMILION, "computes and exchanges": colours.STAGES["train"]}
BAR_HEIGHT = 18


def picture(waits):
    """The Waiteds (launch/lesson/data.py) in their order, as SVG."""
    rows = [
        {"run": waited.name, "part": part, "ms": 1000 * seconds}
        for waited in waits
        for part, seconds in zip(PARTS, (waited.wait_seconds, waited.step_seconds - waited.wait_seconds), strict=True)
    ]
    labels = vega_lite.labels([waited.name for waited in waits])
    bars = vega_lite.stacked_bars(rows, vega_lite.quantity("ms", "step (ms)"), "run", "part", PARTS, **labels)
    return vega_lite.svg({"width": vega_lite.WIDTH, "height": BAR_HEIGHT * len(waits), **bars})
